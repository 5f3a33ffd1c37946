"""Connections between two nodes by way of a third one."""
