"""How fast locks is, beside yardsticks measured in the same run: `python -m benchmarks`."""
