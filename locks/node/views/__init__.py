"""Watching lock ids of other nodes."""
