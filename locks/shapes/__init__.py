"""Everyday shapes of locks, made of `locks.Lock`'s transaction.

* `reentrant.py`: `RLock`.
* `semaphore.py`: `Semaphore`.
* `barrier.py`: `Barrier`, made of transactions of its own.
* `decorator.py`: `locked`, for functions and coroutine functions.
"""
