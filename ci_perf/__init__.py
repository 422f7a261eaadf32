"""CI for GPU kernels: check, time, profile and judge each kernel, and explain the verdict."""

__version__ = "0.1.0"
