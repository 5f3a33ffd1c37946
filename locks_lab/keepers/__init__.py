"""Grants that stay at their node when a transaction ends: machines, and a model of them (decision 0118)."""
