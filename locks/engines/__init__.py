"""Locks for engines and frameworks, each in a separate module, with an extra of the same name.

A module here imports its engine; no other module of `locks` imports one of these.
"""
