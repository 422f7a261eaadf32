"""The order of a run, without anything that touches the machine."""
