"""Where `locks` does something else than other people's tests want, and why that is so.

Each difference is a test that fails. One that passes all of a sudden, or another one that fails, fails the run (`test_others.py`): then either `locks` has
changed, or this list is wrong.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

__all__ = ["ACCEPTED", "NEWER", "SOMETIMES", "Difference"]


class Difference(NamedTuple):
    """A kind of differences.

    Attributes:
        what: What `locks` does.
        why: Why it is right.
    """

    what: str
    why: str


RELEASE = Difference(
    "Only the client that has a lock releases it",
    "A lock belongs to its client: it is free when the client dies, and its deadlocks are found. Several threads that share a lock act for one `locks.Owner`.",
)
ONCE = Difference(
    "A client has a semaphore only once, and releases only what it has",
    "A unit belongs to its client, is free when that one dies, and has a fencing token. So there is no value that grows by releasing, and none of 0: nobody "
    "could ever release it.",
)
LONG = Difference(
    "A limit beyond `threading.TIMEOUT_MAX` is accepted",
    "That is how long the interpreter can wait in one piece. Here `math.inf` and equally large numbers are ordinary limits.",
)
REPR = Difference(
    "`repr` says which lock it is, not whether it is held",
    "That is known to lock servers, perhaps on other nodes. A `repr` is called by debuggers, loggers and handlers, and must ask nobody, wait for nobody, and not "
    "fail; `locked()`, `owned()` and `waiting()` do ask.",
)
PRIVATE = Difference(
    "The interpreter's private names are missing",
    "`_recursion_count`, `_waiters`, `_value` and `_count` are internals of the interpreter's own classes. `owned()` says whether the caller has a lock.",
)
FORK = Difference(
    "There is no `_at_fork_reinit`",
    "It frees a lock that another thread had when the process was forked. A forked process is another client here: it has nothing of its parent's, and what "
    "its parent has stays taken.",
)
PASSES = Difference(
    "A task continues a few passes of the event loop later",
    "Its wait may be ended from any thread, so `call_soon_threadsafe` wakes its loop. These tests count passes.",
)
LOOP = Difference(
    "`locks.aio` works only in tasks",
    "The client is the task. Without a task there is no client that could release anything: `MisuseError` instead of `ValueError`.",
)
OWN_TASK = Difference(
    "An `acquire` is no task of its own",
    "That task would have the lock, and lose it with its end, which comes next: `create_task(lock.acquire())` raises `MisuseError`.",
)
ALONE = Difference(
    "An actor dies alone",
    "Whatever ends an actor, even a `BaseException`, is reported to its monitors. In Pykka a `BaseException` stops all actors of the program.",
)
OPERATIONS = Difference(
    "A proxy of a lock server or an agent has operations and properties, and nothing else",
    "Anything set, added or reached past its operations would change it behind its back. `MisuseError` says so.",
)
AT_ONCE = Difference(
    "A lock server or an agent answers at once",
    "The caller does the work, so the answer arrives before a limit of 0 is over.",
)
HOOKS = Difference(
    "A lock server or an agent has no `on_failure`",
    "User code does not run in the middle of a step. A failure that nobody waits for is logged.",
)
ENDS = Difference(
    "What a client has is free when it ends",
    "It could no longer release it. If a greenlet acquires a lock and ends, and others should keep waiting, another client is needed: `locks.Owner`.",
)
REENTRY = Difference(
    "An `RWLock` is not re-entrant",
    "`MisuseError` says so at once. `RLock` is re-entrant, even from reading to writing; if two clients do that at once, the deadlock is found and resolved.",
)
REDIS = Difference(
    "A lock of ours does not need Redis",
    "The test wants an error while Redis is away.",
)
NO_FILE = Difference(
    "The path of `locks.compat.filelock.FileLock` is only a name: no file or folder is made, so none has a wrong path or mode",
    "Lock servers have the lock, and nothing is left when a program is killed.",
)
NO_LOG = Difference(
    "`locks.compat.filelock` logs nothing for each acquire and release",
    "`locks` logs waits that take long, deadlocks and losses. Traces and metrics show the rest.",
)
FOREIGN = Difference(
    "What a library's tests reach into is missing: private names, nodes of ZooKeeper, sessions, the loop that sleeps and asks again, old arguments, words "
    "of errors",
    "A face has the public names. Lock servers do what these do, and nobody polls.",
)
TOKEN = Difference(
    "`locks.compat.redis.Lock` has no `local.token`, and takes no token",
    "The lock server chooses the token, a number that rises from holder to holder: `token()`.",
)
OUTLIVES = Difference(
    "`ephemeral=False` is refused",
    "No lock outlives its program: nobody could ever release it.",
)
AT_ONCE_NEXT = Difference(
    "The next in the queue has the lock as soon as it is released",
    "These tests wait for a moment in which nobody has it, which passes before they look.",
)

Kinds = Mapping[Difference, tuple[str, ...]]

LOCK_TESTS: Kinds = {
    RELEASE: ("TestLock::test_different_thread", "TestLock::test_reacquire"),
    ONCE: tuple(
        f"TestSemaphore::test_{name}"
        for name in (
            *("acquire", "acquire_contended", "acquire_timeout", "multirelease"),
            *("release_unacquired", "try_acquire", "try_acquire_contended", "with"),
        )
    ),
    LONG: ("TestLock::test_timeout", "TestRLock::test_timeout"),
    REPR: (
        *("TestLock::test_repr", "TestLock::test_locked_repr"),
        *("TestRLock::test_repr", "TestRLock::test_locked_repr"),
        "TestSemaphore::test_repr",
    ),
    PRIVATE: ("TestRLock::test_recursion_count",),
    FORK: ("TestLock::test_at_fork_reinit",),
}

TRAVERSABLE = ("decorator_marker", "attr_marker", "attr_marker_and_slots")

ACCEPTED: dict[str, Kinds] = {
    "cpython-threads": LOCK_TESTS,
    "cpython-greenlets": LOCK_TESTS,
    "cpython-patched": LOCK_TESTS,
    "cpython-asyncio": {
        PASSES: (*("TestLock::test_acquire", "TestLock::test_cancel_release_race"),),
        PRIVATE: (
            *("TestLock::test_acquire_cancel", "TestLock::test_cancel_race"),
            *("TestLock::test_finished_waiter_cancelled", "TestSemaphore::test_acquire_cancel"),
            "TestSemaphore::test_semaphore",
        ),
        REPR: (*("TestLock::test_repr", "TestSemaphore::test_repr"),),
        ONCE: (
            *("TestSemaphore::test_acquire", "TestSemaphore::test_acquire_cancel_before_awoken"),
            *(
                "TestSemaphore::test_acquire_fifo_order_2",
                "TestSemaphore::test_acquire_fifo_order_3",
                "TestSemaphore::test_acquire_fifo_order_4",
            ),
            *("TestSemaphore::test_acquire_hang", "TestSemaphore::test_initial_value_zero"),
        ),
        LOOP: ("TestSemaphore::test_release_not_acquired",),
        OWN_TASK: ("TestSemaphore::test_acquire_no_hang",),
    },
    "cpython-multiprocessing": {
        ONCE: (
            *("TestSemaphore::test_semaphore", "TestSemaphore::test_bounded_semaphore"),
            "TestSemaphore::test_timeout",
        ),
    },
    "gevent-patched": {
        RELEASE: LOCK_TESTS[RELEASE],
        ONCE: tuple(
            f"TestSemaphore::test_{name}"
            for name in (
                "acquire",
                "acquire_contended",
                "release_unacquired",
                "try_acquire",
                "with",
            )
        ),
    },
    "gevent-threads": {ENDS: ("TestLock::test_acquire_in_one_wait_greenlet_wait_thread_gives_up",)},
    "pykka-gevent": {
        ALONE: (
            "test_actor::test_all_actors_are_stopped_on_base_exception[threading]",
            "test_logging::test_base_exception_is_logged[threading]",
        )
    },
    "pykka-turns": {
        OPERATIONS: (
            "test_attribute_access::test_attr_can_be_read_using_get_postfix[threading]",
            "test_attribute_access::test_attr_can_be_set_using_assignment[threading]",
            "test_attribute_access::test_property_can_be_set_using_assignment[threading]",
            "test_attribute_access::test_read_only_property_cannot_be_set[threading]",
            "test_dynamic_method_calls::test_can_call_method_that_was_added_at_runtime[threading]",
            "test_dynamic_method_calls::test_can_proxy_itself_and_use_attrs_added_at_runtime[threading]",
            "test_mocking::test_actor_with_noncallable_mock_property_works[threading]",
            "test_static_method_calls::test_side_effect_of_method_call_is_observable[threading]",
            "test_static_method_calls::test_side_effect_of_deferred_method_call_is_observable[threading]",
            *(
                f"test_traversable::test_attr_of_traversable_attr_can_be_read[threading-{outer}-{inner}.inner]"
                for outer, inner in (
                    ("nested_with_function_marker", "nested_with_no_marker"),
                    *[(f"nested_with_{name}",) * 2 for name in TRAVERSABLE],
                )
            ),
            "test_typed_proxy::test_proxy_field[threading]",
            "test_typed_proxy::test_proxy_traversable_object_field[threading]",
        ),
        AT_ONCE: ("test_ref::test_ask_can_timeout_if_blocked_too_long[threading]",),
        HOOKS: (
            "test_static_method_calls::test_exception_in_deferred_method_call_triggers_on_failure[threading]",
        ),
    },
    "fasteners": {
        REENTRY: tuple(
            f"test_lock::test_{name}"
            for name in (
                *("double_reader_ctx", "double_reader_plain", "double_reader_writer"),
                *("double_writer_ctx", "double_writer_plain"),
                *("reader_to_writer_ctx", "reader_to_writer_plain"),
                *("writer_reader_writer_ctx", "writer_reader_writer_plain"),
                *("writer_to_reader_ctx", "writer_to_reader_plain"),
            )
        )
    },
    "redbeat": {REDIS: ("test_scheduler::RedBeatStartupAcquiresLock::test_connection_error",)},
    "tldextract": {},
    "redis": {
        FOREIGN: tuple(
            f"test_lock::TestLock::test_{name}"
            for name in ("blocking_timeout", "context_manager_blocking_timeout")
        ),
        TOKEN: tuple(
            f"test_lock::TestLock::test_{name}"
            for name in (
                *("lock", "lock_token", "lock_token_thread_local_false", "context_manager"),
                "releasing_lock_no_longer_owned_raises_error",
            )
        ),
    },
    "filelock": {
        NO_FILE: (
            *(
                f"test_filelock::test_bad_lock_file[{case}-FileLock{number}]"
                for case in ("blank_filename", "current_directory")
                for number in "01"
            ),
            *(
                f"test_filelock::test_{name}"
                for name in (
                    *("cleanup_soft_lock", "flock_not_implemented_unix", "lock_mode"),
                    *("lock_mode_soft", "soft_errors"),
                )
            ),
        ),
        NO_LOG: tuple(
            f"test_filelock::test_simple[{name}-{kind}-FileLock{number}]"
            for name in ("a", "new/b", "new2/new3/c")
            for kind in ("str", "PurePath", "Path")
            for number in "01"
        ),
        FOREIGN: (
            *(
                f"test_filelock::test_{name}[FileLock{number}]"
                for name in (
                    "poll_intervall_deprecated",
                    "singleton_instance_tracking_is_unique_per_subclass",
                    "singleton_locks_are_deleted_when_no_external_references_exist",
                    "singleton_locks_must_be_initialized_with_the_same_args",
                )
                for number in "01"
            ),
            "test_filelock::test_singleton_locks_when_inheriting_init_is_called_once",
            "test_filelock::test_wrong_platform",
        ),
    },
    "kazoo": {
        AT_ONCE_NEXT: tuple(
            f"test_lock::KazooLockTests::test_{name}" for name in ("lock", "rw_lock")
        ),
        OUTLIVES: ("test_lock::KazooLockTests::test_lock_ephemeral",),
        FOREIGN: (
            "test_lock::KazooLockTests::test_lock_reconnect",
            "test_lock::TestSemaphore::test_handle_session_loss",
            "test_lock::TestSemaphore::test_inconsistent_max_leases_other_data",
            "test_lock::TestSequence::test_get_predecessor",
            "test_lock::TestSequence::test_get_predecessor_go",
        ),
    },
}

# Tests that pass or fail by chance: clients that end give back what they have, and others that still wait may get it; or see `AT_ONCE_NEXT`.
SOMETIMES = {
    "TestSemaphore::test_try_acquire_contended",
    "TestLock::test_acquire_in_one_wait_greenlet_wait_thread_gives_up",
    "test_lock::KazooLockTests::test_lock",
    "test_lock::KazooLockTests::test_rw_lock",
}

# Tests that came after the versions that are recorded.
NEWER = {"TestSemaphore::test_acquire_fifo_order_4"}
