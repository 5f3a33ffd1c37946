"""Failures as text that can be replayed, and how they are made smaller."""
