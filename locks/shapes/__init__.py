"""Everyday shapes of locks, made of `locks.Lock`'s transaction.

* `reentrant.py`: `RLock`.
* `semaphore.py`: `Semaphore`.
* `decorator.py`: `locked`, for functions and coroutine functions.
"""
