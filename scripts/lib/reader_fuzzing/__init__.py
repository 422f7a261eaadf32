"""What `scripts/fuzz-readers` does.

seeds    the files that are damaged, and how each is read
damage   the ways to damage a file
outcome  reads damaged files in a process of their own, and says what became of them
"""
