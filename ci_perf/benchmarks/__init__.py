"""What other benchmarks wrote, as cases: pure parsers, one for each program that writes such files."""
