"""Finds what a machine lacks for measuring. The diagnosis is pure: facts in, diagnoses out.

diagnosis  the diagnoses of a machine
facts      the facts about a machine, and the type of a diagnosis
hardware   driver and GPUs
machine    gathers the facts from this machine
software   the Python of the kernels, torch and cuda-core
tools      NVIDIA's tools, and the permission to read counters
versions   which versions of CUDA, torch and NVIDIA's tools work together
"""
