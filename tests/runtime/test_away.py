"""What may block is called in native threads, which are kept for the next call."""

from __future__ import annotations

import os
import threading

import pytest

from locks.runtime.away import call_in_thread
from locks.runtime.native import get_ident


def test_a_thread_is_used_again() -> None:
    """One after the other, calls need one thread; what they raise is raised for the caller."""
    first = call_in_thread(get_ident)
    assert first != get_ident()
    with pytest.raises(ZeroDivisionError):
        call_in_thread(lambda: 1 // 0)
    assert call_in_thread(get_ident) == first


def test_a_call_that_does_not_return() -> None:
    """Who stops waiting for it does not keep others from calling."""
    go_on = threading.Event()
    try:
        with pytest.raises(TimeoutError, match=r"timed out after 0\.01 s"):
            call_in_thread(go_on.wait, 0.01)
        assert call_in_thread(lambda: "other") == "other"
    finally:
        go_on.set()


def test_a_child_has_threads_of_its_own() -> None:
    """Those of the parent are not there after a fork."""
    call_in_thread(get_ident)
    child = os.fork()
    if child == 0:
        try:
            os._exit(call_in_thread(lambda: 7))
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
