"""The parts of scripts/bench-kernels: `measure` beside the kernels, `goals` and `table` on what was measured."""
