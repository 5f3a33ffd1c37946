"""Common kinds of locks, built on the transaction of `locks.Lock`.

* `reentrant.py`: `RLock`.
* `semaphore.py`: `Semaphore`.
* `barrier.py`: `Barrier`, built on separate transactions.
* `decorator.py`: `locked`, for functions and coroutine functions.
"""
