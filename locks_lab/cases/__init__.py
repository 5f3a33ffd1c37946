"""Failures as text that can be replayed, and the smallest of them."""
