"""The pure core of an election: the machine of one instance, and what instances say to each other.

Nothing here has a clock, threads, sockets or actors; of `locks` only the errors are imported.
"""
