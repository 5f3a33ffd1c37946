"""Locks for the engines and frameworks that programs are built on: each in a module of its own, with an extra of the same name.

A module here imports its engine; nothing else of `locks` imports a module of these.
"""
