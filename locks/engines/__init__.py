"""Locks for what runs a program on many machines: it knows which processes there are, and has a secret to share."""
