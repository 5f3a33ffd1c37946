"""A simulator and model checker for the algorithm."""
