"""The lock of redis-py: `from locks.compat.redis import Lock` instead of `from redis.lock import Lock`.

It also works as `client.lock("report", lock_class=Lock)`, with a client of redis-py.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from types import SimpleNamespace, TracebackType
from typing import Any, Literal

import locks
from locks.compat.holding import Holding, check_shared, theirs
from locks.lock_ids import shown
from locks.model import check_timeout

__all__ = ["Lock", "LockError", "LockNotOwnedError"]


class _Errors:
    """The errors, where redis-py is not installed."""

    class LockError(ValueError):
        """The lock could not be acquired, released or extended."""

    class LockNotOwnedError(LockError):
        """The lock is not held any more."""


LockError = theirs("redis.exceptions", _Errors.LockError)
LockNotOwnedError = theirs("redis.exceptions", _Errors.LockNotOwnedError)
logger = logging.getLogger("locks.compat")


class Lock:
    """A lock with the arguments of redis-py's.

    Args:
        redis: Not used: the lock is on the program's lock servers. Pass the client as before, or `None`.
        name: Its name; the lock id is `("redis", name)`.
        timeout: Seconds after which it is released, and lost to its holder. `None` keeps it until `release`, or until the
            program ends; so does 0.
        sleep: Not used: nobody polls.
        blocking: Whether `acquire` waits.
        blocking_timeout: Seconds that `acquire` waits at most; `None` waits for ever.
        thread_local: Whether a thread can release only what it has acquired itself.
        raise_on_release_error: Whether the end of a `with` block raises an error if the lock is not held any more; otherwise it
            is logged.
    """

    def __init__(
        self,
        redis: object,
        name: str | bytes,
        timeout: float | None = None,
        sleep: float = 0.1,
        blocking: bool = True,
        blocking_timeout: float | None = None,
        thread_local: bool = True,
        raise_on_release_error: bool = True,
    ) -> None:
        check_timeout(timeout)
        self.redis = redis
        self.name = name
        self.timeout = timeout
        self.sleep = sleep
        self.blocking = blocking
        self.blocking_timeout = blocking_timeout
        self.thread_local = bool(thread_local)
        self.raise_on_release_error = raise_on_release_error
        self.lock_id = ("redis", name.decode() if isinstance(name, bytes) else name)
        self._look = locks.Lock(self.lock_id)
        self._local: Any = threading.local() if self.thread_local else SimpleNamespace()

    def __repr__(self) -> str:
        return f"<Lock of redis {self.name!r}>"

    @property
    def _held(self) -> _Leased | None:
        held: _Leased | None = getattr(self._local, "held", None)
        return held

    def acquire(
        self,
        sleep: float | None = None,
        blocking: bool | None = None,
        blocking_timeout: float | None = None,
        token: object = None,
    ) -> bool:
        """Acquire the lock.

        Args:
            sleep: Not used.
            blocking: As for the lock.
            blocking_timeout: As for the lock.
            token: Refused; `token()` returns the fencing token.

        Returns:
            Whether it was acquired.

        Raises:
            InvalidOption: A token was passed.
            MisuseError: The program has no lock servers.
        """
        if token is not None:
            raise locks.errors.InvalidOption(
                f"token={shown(token)} can't be set: the lock server chooses fencing tokens, which token() returns; leave it out",
                token=shown(token),
            )
        if blocking_timeout is None:
            blocking_timeout = self.blocking_timeout
        if not (self.blocking if blocking is None else blocking):
            blocking_timeout = 0
        new = _Leased(self.lock_id)
        if not new.take(blocking_timeout, self.timeout or None):
            return False
        self._local.held = new
        return True

    def locked(self) -> bool:
        """Whether anybody holds it."""
        check_shared()
        return self._look.locked()

    def owned(self) -> bool:
        """Whether this object, in this thread, holds it."""
        return self._held is not None and self._held.owned()

    def token(self) -> int:
        """The fencing token, which is larger than that of each earlier holder.

        Raises:
            LockError: The lock is not held.
        """
        return self._holding("token of").lock.token()

    def release(self) -> None:
        """Release the lock.

        Raises:
            LockError: It is not held.
            LockNotOwnedError: It is not held any more.
        """
        held, self._local.held = self._holding("release"), None
        try:
            held.release()
        except locks.LockLost as error:
            raise self._error(LockNotOwnedError, "release", "no longer held") from error

    def extend(self, additional_time: float, replace_ttl: bool = False) -> Literal[True]:
        """Let the lock last longer.

        Args:
            additional_time: Seconds that are added to the rest of its time.
            replace_ttl: Whether they replace the rest.

        Raises:
            LockError: It is not held, or has no timeout.
            LockNotOwnedError: It is not held any more.
        """
        return self._extend("extend", additional_time, replace_ttl)

    def reacquire(self) -> Literal[True]:
        """Begin the lock's time anew; see `extend`."""
        return self._extend("reacquire", self.timeout or 0, True)

    def _extend(self, what: str, seconds: float, replaces: bool) -> Literal[True]:
        held = self._holding(what)
        if not self.timeout:
            raise self._error(LockError, what, "it has no timeout")
        if not held.extend(seconds, replaces):
            raise self._error(LockNotOwnedError, what, "no longer held")
        return True

    def _holding(self, what: str) -> _Leased:
        held = self._held
        if held is None:
            raise self._error(LockError, what, "not held, or released already")
        return held

    def _error(self, kind: type[Exception], what: str, why: str) -> Exception:
        error = kind(f"can't {what} the lock {self.name!r}: {why}")
        error.lock_name = self.name  # type: ignore[attr-defined]
        return error

    def __enter__(self) -> Lock:
        if not self.acquire():
            raise self._error(LockError, "acquire", "held by others for as long as it may wait")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            self.release()
        except LockError as lost:
            if self.raise_on_release_error:
                raise
            logger.warning("at the end of a block: %s", lost)


class _Leased(Holding):
    """A lock that is released after a time, unless that is extended."""

    def __init__(self, lock_id: tuple[str, str]) -> None:
        super().__init__(lambda owner: locks.Lock(lock_id, owner=owner))
        self._until = math.inf
        self._timer: threading.Timer | None = None
        self._changing = threading.Lock()

    def take(self, timeout: float | None, lease: float | None) -> bool:
        try:
            if not self.acquire(timeout):
                return False
            if lease is not None:
                self.extend(lease, True)
            return True
        except BaseException:
            self.owner.end()
            raise

    def extend(self, seconds: float, replaces: bool) -> bool:
        """Change its time, unless it is over; return whether it is not."""
        with self._changing:
            now = time.monotonic()
            if self._until <= now or not self.owned():
                return False
            self._stop()
            self._until = seconds + (now if replaces or self._until == math.inf else self._until)
            self._timer = threading.Timer(self._until - now, self._expire, (self._until,))
            self._timer.daemon = True
            self._timer.start()
            return True

    def _expire(self, until: float) -> None:
        with self._changing:
            if self._until == until:  # otherwise it was extended just now
                self.owner.end("its time is over")

    def release(self) -> None:
        with self._changing:
            self._stop()
        super().release()

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
