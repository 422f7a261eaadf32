"""The parts of scripts/compare-rules: `rules` of other systems, `shares` that they flag, a `table`, a `plot`."""
