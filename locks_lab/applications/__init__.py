"""Functions of a program as simulated clients; `locks.testing` is built on this package."""
