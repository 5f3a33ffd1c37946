"""Functions of a program as simulated clients: what `locks.testing` stands on."""
