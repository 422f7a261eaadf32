"""The pure core: values in, values out; no file, process, clock, network or GPU."""
