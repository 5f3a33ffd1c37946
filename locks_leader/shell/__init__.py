"""The actor around the core of an election, and its transactions."""
