"""The thin edges: one module for each kind of outside world (processes, files, the GPU, git, a terminal)."""
