"""Everyday shapes of locks, made of `locks.Lock`'s transaction.

* `reentrant.py`: `RLock`.
* `decorator.py`: `locked`, for functions and coroutine functions.
"""
