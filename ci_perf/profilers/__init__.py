"""NVIDIA's profilers as pure functions: the command that starts one, and the meaning of what it wrote."""
