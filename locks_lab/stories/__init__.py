"""Traces of worlds, as sentences and pictures."""
