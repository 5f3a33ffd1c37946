"""Faces of other libraries' locks, so that a program changes one import: `redis` (redis-py), `filelock`, `kazoo`.

Each has the names, arguments and errors of the library, and `locks.Lock` and `locks.Semaphore` do the work. What differs is in
`docs/compat.md`; what can't be had is refused.
"""
