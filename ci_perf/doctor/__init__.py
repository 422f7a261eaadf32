"""What a machine lacks before it can measure, as pure functions: facts in, checks out.

diagnosis  all checks of a machine
facts      what was found, and what is said of it
hardware   the driver and its GPUs
machine    the facts that `doctor` judges; the CPU as a device
software   the Python of the kernels
tools      NVIDIA's tools, and the permission to read counters
versions   which versions belong together
"""
