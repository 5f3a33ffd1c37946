"""Common kinds of locks, built on the transaction of `locks.Lock`.

* `reentrant.py`: `RLock`.
* `semaphore.py`: `Semaphore`.
* `decorator.py`: `locked`, for functions and coroutine functions.
"""
