"""Processes that other nodes can reach: references, calls, monitors, and links."""
