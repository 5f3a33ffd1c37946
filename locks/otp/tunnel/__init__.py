"""Connections between two nodes through a third one."""
