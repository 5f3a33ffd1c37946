"""`once`: work that is to be done once for a lock id, by all programs that share lock servers.

`locks.core.done` has the rules, and why they suffice. This module asks the servers.
"""

from __future__ import annotations

import functools
import inspect
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from math import inf
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from locks.core.done import are_set, can_be_set, extended, grants_over, read, shifted, why_not
from locks.core.facts import AskMark, Mark, MarkFact
from locks.errors import (
    AlreadyDone,
    CannotServe,
    InvalidOption,
    LocksError,
    MisuseError,
    NotMarked,
    causes,
)
from locks.lock_ids import shown
from locks.model import LockId, check_lock_id, show
from locks.node.client.agent import Agent
from locks.node.client.options import ClientOptions, check_names
from locks.node.client.scope import all_servers
from locks.node.observing.inquiries import ask_all
from locks.primitives import ASK
from locks.program.default import check_shared, default_node
from locks.ranges import replace
from locks.runtime.away import begin_in_thread
from locks.runtime.callables import check_callable, check_ran
from locks.runtime.hints import Unpack
from locks.runtime.leaving import ClientBlock, Hold
from locks.runtime.shown import Shown
from locks.runtime.waiter import Event, Waiter
from locks.transactions import transaction

if TYPE_CHECKING:
    from types import FrameType

    from typing_extensions import Self

__all__ = ["DAY", "MarkAsker", "Once", "once"]

P = ParamSpec("P")
R = TypeVar("R")

DAY = 86_400.0
LONGEST = 100 * 366 * DAY
READ = 10.0  # seconds to wait until enough servers know what is done
SET = 30.0  # seconds to try to set a mark
ANSWERS = 1.0  # seconds that servers have at least to take a mark that was found, also without waiting for another client
PAUSE = 0.1  # seconds between two tries
# Seconds between two looks whether there are new grants. The only notification of a grant is that of the option `notify`, and
# with that option a lock that was lost and is held again counts as held: its client has been told.
LOOK = 0.1
WITHIN = "pass a function; for a coroutine function, use locks.aio.once"


def once(
    lock_id: Sequence[Any],
    *,
    remember: float = DAY,
    **options: Unpack[ClientOptions],
) -> Once:
    """Do some work once for a lock id, whichever of the programs that share lock servers begins first.

        with locks.once(("nightly", "2026-11-23")) as run:
            import_all(run.token)

        @locks.once(("report", 47), remember=3600)
        def report(): ...

    The block holds the write lock of the id. If it ends without an exception, the servers remember that the work is done. Then a
    later `with`, or call of the function, raises `AlreadyDone` and runs nothing. If the block raises, or its client dies, the next
    one runs, with a larger token.

    The servers can't know of work whose client dies after it and before they were told. Then it runs again. If that must
    not be, store the token together with the work, in one database transaction, and refuse a second token.

    Args:
        lock_id: A non-empty tuple or list of key elements. It is the lock of the same id.
        remember: Seconds for which the servers remember it, at least one.
        **options: `timeout`, which limits the wait while another client does the work, `owner` and `label`; see
            `locks.values.ClientOptions`.

    Returns:
        A context manager for one block, or a decorator.

    Raises:
        InvalidOption: An option is wrong.
    """
    check_names("once", options, ClientOptions, "remember")
    return Once(lock_id, remember, options)


class Once(ClientBlock, metaclass=Shown):
    """Work that is to be done once; `locks.once` creates it.

    At the start of the block it raises `AlreadyDone` if the work is done, `LockTimeout` if the wait for another client timed out,
    `CannotServe` if a majority of the servers does not know what is done, and `MisuseError` if the program has no lock servers. At
    its end it raises `NotMarked` if the servers could not be told.

    Attributes:
        lock_id: The lock id.
        remember: Seconds for which the servers remember it.
    """

    _for_users = frozenset(("ensure_held", "lock_id", "lost", "remember", "token"))

    def __init__(
        self,
        lock_id: Sequence[Any],
        remember: float,
        options: ClientOptions,
    ) -> None:
        self.lock_id: LockId = check_lock_id(lock_id)
        if (
            isinstance(remember, bool)
            or not isinstance(remember, (int, float))
            or not 1 <= remember <= LONGEST
        ):
            raise InvalidOption(
                f"remember={shown(remember)} is wrong; use a number of seconds from 1 to {LONGEST:.0f}",
                value=shown(remember),
            )
        self.remember = float(remember)
        self._options = options
        self._tx = transaction(**options)
        self._token: int | None = None
        self._asker: MarkAsker | None = None

    def __repr__(self) -> str:
        return f"<Once {show(self.lock_id)}>"

    def __call__(self, function: Callable[P, R]) -> Callable[P, R]:
        """Decorate a function: each call is a block of its own."""
        check_callable(function, "function", WITHIN)
        if inspect.iscoroutinefunction(function):
            raise InvalidOption(f"can't decorate {shown(function)}: {WITHIN}")

        @functools.wraps(function)
        def called(*args: P.args, **kwargs: P.kwargs) -> R:
            with self.anew():
                return check_ran(function(*args, **kwargs), "the function", WITHIN)

        return called

    def anew(self) -> Once:
        """The same work, for another block."""
        return Once(self.lock_id, self.remember, self._options)

    @property
    def token(self) -> int:
        """The fencing token of this run: larger than those of all earlier ones, unless a server was restarted after its clock was set back."""
        if self._token is None:
            raise MisuseError("the work has not begun; use it in a with statement")
        return self._token

    @property
    def lost(self) -> Event:
        """An event that opens when the lock is lost; see `locks.Transaction.lost`."""
        return self._tx.lost

    def ensure_held(self) -> None:
        """Check that the lock is still held; see `locks.original.ensure_held`."""
        self._tx.ensure_held()

    # --- The block ------------------------------------------------------------------------------

    def _of_generator(self, hold: Hold, frame: FrameType | None = None) -> Self:
        """See `ClientBlock`."""
        self._tx._of_generator(hold, frame)
        return self

    def _enter(self, hold: Hold) -> None:
        """Take the lock, and read whether the work is done."""
        check_shared(
            f"only this program would know that {show(self.lock_id)} is done, and another one would do it again"
        )
        node = default_node()
        begun = node.clock()
        self._tx._enter(hold)
        try:
            token = self._tx.write_lock(self.lock_id)
            self._asker = MarkAsker(self._tx.agent, self.lock_id)
            timeout = self._options.get("timeout")
            left = inf if timeout is None else max(0.0, timeout - (node.clock() - begun))
            mark = self._asker.find(min(READ, left), min(SET, max(left, ANSWERS)))
            if mark is not None:
                raise _already_done(mark)
            self._tx.ensure_held()
            self._token = token
            self._asker.follow()
        except BaseException:
            hold.held.let_go()
            hold.drop()
            raise

    def _leave(self, held: Agent | None, error: BaseException | None) -> None:
        """End the block; see `Block`."""
        try:
            if error is None:
                self.finish()
        finally:
            self._let_go(self._tx.agent)

    def _let_go(self, held: Agent) -> None:
        """Clean up after a block, also if its end was interrupted; see `Block`."""
        if self._asker is not None:
            self._asker.follows = False
        held.let_go()

    def finish(self) -> None:
        """Have the servers remember that the work is done.

        Raises:
            NotMarked: It is unknown whether they do.
        """
        token, asker = self.token, self._asker
        assert asker is not None
        try:
            asker.refresh_grants()
            asker.set(asker.new(token, self.remember))
        except LocksError as error:
            raise NotMarked(
                f"{show(self.lock_id)} is done, but the lock servers may not remember it: {error}. It may run again",
                lock_id=self.lock_id,
            ) from error


class GrantsOver(CannotServe):
    """A mark can't be set under the grants of the last reading, because too few of them are left."""


class MarkAsker:
    """Asks the lock servers for the mark of one lock id, and sets it.

    Args:
        agent: The agent that holds the write lock of the id.
        lock_id: The lock id.

    Attributes:
        follows: Whether it accepts grants from servers that restarted while the work continues.
    """

    def __init__(self, agent: Agent, lock_id: LockId) -> None:
        self._agent = agent
        self._node: Any = agent.node
        self._lock_id = lock_id
        self._servers = all_servers(agent.node).at(lock_id).nodes
        self._all = dict.fromkeys(self._servers, 0)  # to read
        self._grants: dict[str, int] = {}
        self.follows = False

    def _now(self) -> int:
        return int(self._node.now() // 1000)

    def new(self, token: int, remember: float) -> Mark:
        """A mark that says that the work was done now.

        Args:
            token: The token; the largest one counts.
            remember: Seconds for which it is remembered.
        """
        now = self._now()
        by = f"{self._agent.machine.client} on {self._node.name}"[:1000]
        return Mark(self._lock_id, token, now, now + int(remember * 1e6), by)

    def _ask(
        self, grants: Mapping[str, int], mark: Mark | None = None
    ) -> tuple[dict[str, MarkFact], dict[str, str]]:
        """Ask servers for the mark, or set it under these grants; return the answers, and why there is none."""
        now = self._now()
        questions = {
            name: AskMark(self._agent.id, self._lock_id, now, since, mark)
            for name, since in grants.items()
        }
        said, silent = ask_all(self._node, questions, ASK)
        now = self._now()
        facts = {
            name: replace(fact, mark=fact.mark and shifted(fact.mark, fact.now, now))
            for name, fact in said.items()
            if isinstance(fact, MarkFact)
        }
        return facts, silent

    def read(self, timeout: float) -> Mark | None:
        """Ask the servers until enough know whether the work is done; the mark, if there is one.

        Args:
            timeout: Seconds to try.

        Raises:
            CannotServe: It is unknown.
            LocksError: The lock was lost.
        """
        deadline = self._node.clock() + timeout
        while True:
            facts, silent = self._ask(self._all)
            found = read(self._servers, facts)
            if found is not None:
                self._grants = found.grants
                return found.mark
            self._agent.ensure_held()
            if self._node.clock() >= deadline:
                raise CannotServe(
                    f"can't find out whether {show(self._lock_id)} is done: {self._why(facts, silent)}",
                    lock_id=self._lock_id,
                    nodes=[name for name in self._servers if name not in facts],
                )
            Waiter().wait(PAUSE)

    def find(self, timeout: float, setting: float = SET) -> Mark | None:
        """Read the mark; one that is found is set, for its setter may have died before all had it.

        Args:
            timeout: Seconds to try to read.
            setting: Seconds to try to set what was read.

        Raises:
            CannotServe: It is unknown.
            LocksError: The lock was lost.
        """
        deadline = self._node.clock() + setting
        while True:
            mark = self.read(timeout)
            try:
                if mark is not None:
                    self.set(mark, setting)
            except GrantsOver:
                if self._node.clock() < deadline:
                    continue
                raise
            return mark

    def follow(self) -> None:
        """Accept grants from servers that restarted, from now on: each server may be restarted while the work continues."""
        self.follows = True
        self._look_later()

    def _look_later(self) -> None:
        self._node.executor.run_later(LOOK, self._node.turn.run, self._look)

    def _look(self) -> None:
        if not (self.follows and self._agent.machine.holds(self._lock_id)):
            return
        if self._has_new_grants():
            begin_in_thread(self._refresh_and_look)
        else:
            self._look_later()

    def _has_new_grants(self) -> bool:
        return not self._agent.machine.grants(self._lock_id).items() <= self._grants.items()

    def _refresh_and_look(self) -> None:
        with suppress(LocksError):  # what it means for the mark is said where it is set
            self.refresh_grants()
        self._look_later()

    def refresh_grants(self) -> None:
        """Accept grants from servers that restarted since `read`, if the lock was held all the time.

        Raises:
            LocksError: Servers can't be asked.
        """
        while True:
            before = self._grants
            if not self._node.turn.run(self._has_new_grants):
                return
            first, _ = self._ask(self._all)
            second, _ = self._ask(self._all)
            if self._node.turn.run(self._extend, before, first, second):
                return

    def _extend(
        self,
        before: dict[str, int],
        first: Mapping[str, MarkFact],
        second: Mapping[str, MarkFact],
    ) -> bool:
        """Count new grants, unless another thread has done so since: its answers may be newer. In the turn."""
        if self._grants is not before:
            return False
        self._grants = extended(self._servers, before, first, second)
        return True

    def set(self, mark: Mark, timeout: float = SET) -> None:
        """Set a mark until a majority has it at one time; after `read`.

        Args:
            mark: The mark.
            timeout: Seconds to try.

        Raises:
            CannotServe: It is unknown whether it is set.
            LocksError: The lock was lost.
        """
        deadline = self._node.clock() + timeout
        had: set[str] = set()
        grants = self._grants
        while True:
            facts, silent = self._ask(grants, mark)
            is_set, now_had = are_set(self._servers, grants, had, facts)
            if is_set:
                return
            self._agent.ensure_held()
            if not can_be_set(self._servers, grants, facts):
                over = ", ".join(grants_over(grants, facts))
                raise GrantsOver(
                    f"the grants under which {show(self._lock_id)} was begun are over at {over}, so too few are left: these "
                    "servers were restarted, or lost the connection with this program",
                    lock_id=self._lock_id,
                    nodes=[name for name in self._servers if name not in now_had],
                )
            if self._node.clock() >= deadline:
                raise CannotServe(
                    f"no majority of the lock servers has taken the mark within {timeout:g} s: {self._why(facts, silent)}",
                    lock_id=self._lock_id,
                    nodes=[name for name in self._servers if name not in now_had],
                )
            if now_had == had:  # no progress
                Waiter().wait(PAUSE)
            had = now_had

    def _why(self, facts: Mapping[str, MarkFact], silent: Mapping[str, str]) -> str:
        """Why the answers of some servers do not count."""
        reasons: dict[str, str] = {}
        for name in self._servers:
            fact = facts.get(name)
            if fact is None:
                reasons[name] = silent.get(name, "it was not asked")
            elif why := why_not(name, fact, self._servers):
                reasons[name] = why
            elif not fact.since:
                reasons[name] = f"{name} has not granted the lock"
        return causes(reasons) or "the lock was taken anew meanwhile"


def _already_done(mark: Mark) -> AlreadyDone:
    at = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(mark.at / 1e6))
    return AlreadyDone(
        f"{show(mark.lock_id)} is already done: by {mark.by}, {at}",
        lock_id=mark.lock_id,
        by=mark.by,
        at=mark.at / 1e6,
        token=mark.token,
    )
