"""The simple face of an election: run a function while leading."""

from __future__ import annotations

import os
import sys
import weakref
from collections.abc import Callable, Iterable
from functools import partial, wraps
from typing import Any, Concatenate, Final, Literal, ParamSpec, TypeVar

import pykka

from locks import MisuseError
from locks.actors import Down
from locks.errors import InvalidOption, OperatingError
from locks.model import check_timeout
from locks.node import Node
from locks.ownership.worker import check_node
from locks.program.origin import Movable, Origin
from locks.runtime.callables import check_begun, check_callable, check_callbacks, check_ran
from locks.runtime.interrupts import whole
from locks.runtime.monitor import current_client, watch_end
from locks.runtime.native import native_rlock
from locks.runtime.port import world
from locks.runtime.waiter import Event
from locks_leader.api import check_is_shared, start
from locks_leader.behaviour import Behaviour
from locks_leader.errors import LeadershipLost, LeaderTimeout
from locks_leader.policy import Policy, named_nodes
from locks_leader.shell.obstacles import obstacles_of
from locks_leader.state import ElectionState

if sys.version_info >= (3, 11):
    from typing import TypeVarTuple, Unpack
else:
    from typing_extensions import TypeVarTuple, Unpack

__all__ = ["Election", "Leadership"]

P = ParamSpec("P")
R = TypeVar("R")
Ts = TypeVarTuple("Ts")
RUN_IN_A_COROUTINE: Final = "in a coroutine use `await locks_leader.aio.Election(name).run(function)`; pass a function that does its work in the call"
_elections: weakref.WeakSet[Election] = weakref.WeakSet()


class Leadership:
    """What a leader has in hand, from its election to the loss of the leadership.

    Pass its term along with what you do: it is larger than that of each leader before, on the same
    nodes, unless a server was restarted after its clock was set back. Whatever carries it out
    should refuse a term smaller than one it has seen.

    Attributes:
        lost: Opens when the leadership is lost, or is to be given back because the election was
            stopped: `lost.is_open`, `lost.wait(timeout)`.
    """

    def __init__(self, state: ElectionState) -> None:
        self.lost = Event()
        self._term = state.term
        self._state = state

    def __repr__(self) -> str:
        return f"<Leadership of term {self.term}{', lost' if self.lost.is_open else ''}>"

    @property
    def term(self) -> int:
        """The leader's term, which stays the same as long as it leads.

        Leaders of islands (no servers, no `nodes`) that meet later are not ordered by their terms.
        """
        return self._term

    def ensure_leading(self) -> None:
        """Make sure, as far as this node knows, that nobody else leads.

        Raises:
            LeadershipLost: The leadership is lost, or is to be given back.
        """
        if self.lost.is_open:
            raise LeadershipLost(
                f"the leadership of term {self.term} has ended; stop the work that relies on it"
            )
        self._state.ensure_leading()


class Election(Movable):
    """One program's part in an election, of which all that is wanted is to lead at times.

        election = Election("nightly-report")
        election.run(report)            # or: @election, above the function

    Args:
        name: What the election is about; all with the same name take part in the same one.
        on_elected: Called when this program leads, with its `Leadership`.
        on_lost: Called when it does not any more, with the same.
        policy: See `locks_leader.start`.
        nodes: Likewise.
        node: The node on which it takes part; this program's node by default.
        label: What this program's part is called where the election's lock is shown; `candidate` by
            default.

    The callbacks are for programs that do not use `run`, but `start` and `stop`. They run in the
    background, one at a time, and must be quick. An exception in them gives the leadership up, and
    ends this program's part in the election.

    Raises:
        InvalidOption: There is no name; or a callback, the nodes or the node are none.
    """

    def __init__(
        self,
        name: Any,
        *,
        on_elected: Callable[[Leadership], object] | None = None,
        on_lost: Callable[[Leadership], object] | None = None,
        policy: Literal["island", "majority"] | Policy | None = None,
        nodes: Iterable[str] | None = None,
        node: Node | None = None,
        label: str | None = None,
    ) -> None:
        check_callbacks(on_elected=on_elected, on_lost=on_lost)
        if name is None:
            raise InvalidOption(
                'name=None is wrong; pass the subject of the election, such as "nightly-report": all programs with the same name take part'
            )
        self.name = name
        self.on_elected = on_elected
        self.on_lost = on_lost
        self._policy = policy
        self._nodes = named_nodes(nodes)
        self._node = check_node(node)
        self._label = "candidate" if label is None else label
        self._part: _Part | None = None
        self._beginning = native_rlock()
        _elections.add(self)

    def __getstate__(self) -> dict[str, Any]:
        if self._node is not None:
            raise MisuseError(
                f"election {self.name!r} can't be copied or pickled: its node, {self._node.name}, is in this process; make it where "
                "it is needed"
            )
        state = super().__getstate__()
        del state["_part"], state["_beginning"]
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._part = None
        self._beginning = native_rlock()
        _elections.add(self)

    def _origin_now(self) -> Origin | None:
        """Where it is in this program; nodes that were given no servers elect among all that are connected."""
        found = super()._origin_now()
        if found is None or found.servers or not self._home().is_clustered:
            return found
        return None

    def __repr__(self) -> str:
        return f"<Election {self.name!r}{' leading' if self.leadership else ''}>"

    @property
    def leadership(self) -> Leadership | None:
        """What this program leads by now; `None` if it does not lead."""
        part = self._part
        return None if part is None or part.over.is_open else part.leadership

    def start(self) -> None:
        """Stand for election; `on_elected` and `on_lost` tell how it goes.

        Raises:
            MisuseError: It takes part already; or the program has no lock servers, so each one would lead.
            InvalidOption: An argument of the election is wrong.
        """
        self._begin(_Part(self, once=False))

    def stop(self) -> None:
        """Stop taking part. The function in `run` is asked to end, and keeps the leadership until it has.

        From anywhere; without waiting. Stopping what does not run does nothing.
        """
        part = self._part
        if part is not None:
            part.stop()

    def run(
        self,
        function: Callable[[Leadership, Unpack[Ts]], R],
        *args: Unpack[Ts],
        timeout: float | None = None,
    ) -> R | None:
        """Wait until this program leads, run a function, and give the leadership back.

        The function runs in the caller's thread or greenlet. If the leadership is lost meanwhile,
        it should end: it can look at, or wait for, `lost`.

        Args:
            function: Called with the `Leadership`, and `args`.
            *args: More arguments for it.
            timeout: Seconds to wait for the leadership at most; `None` waits for ever.

        Returns:
            What the function returns; `None` if the election was stopped before it began.

        Raises:
            LeaderTimeout: Time ran out; this program does not take part any more.
            MisuseError: It takes part already; the program has no lock servers, so each one would lead; or the function is
                a coroutine function or a generator, or returned a coroutine, of which nothing was run.
            OperatingError: The node was stopped meanwhile.
            Exception: What the function raises; the leadership is given up.
        """
        check_timeout(timeout)
        check_callable(function, "function", RUN_IN_A_COROUTINE)
        if self._origin is None:  # otherwise `_home` says where it belongs
            check_is_shared(self.name, self._node)
        # The same one each time, if the leadership is lost before the function has begun.
        node = self._node or self._home()
        deadline = None if timeout is None else node.clock() + timeout
        part = before = _Part(self, once=True)
        while True:
            try:
                self._begin(part, node)
                if before.stopping:  # by another thread, while this part was not to be found yet
                    part.stop()
                left = None if deadline is None else max(0.0, deadline - node.clock())
                if not part.decided.wait(left):
                    raise LeaderTimeout(
                        f"timed out after {timeout} s waiting to be elected in {self.name!r}{part.why_not()}",
                        timeout=timeout,
                    )
                if part.leadership is None:
                    part.check_stopped()
                    return None
                if node.running and not part.leadership.lost.is_open:
                    return check_ran(
                        function(part.leadership, *args), "the function", RUN_IN_A_COROUTINE
                    )
                if part.stopping:
                    return None
            finally:
                # Repeat it if an exception from outside interrupts it, so that another instance can
                # lead in any case.
                try:
                    part.end_part()
                except BaseException:
                    part.end_part()
                    raise
                part.over.wait(5)
            part.check_failed()
            before, part = part, _Part(self, once=True, stopping=part.stopping)

    def __call__(self, function: Callable[Concatenate[Leadership, P], R]) -> Callable[P, R | None]:
        """As a decorator: to call the function is to `run` it. The leadership comes first, before the arguments of the call."""
        check_callable(function, "function", RUN_IN_A_COROUTINE)

        @wraps(function)
        def led(*args: P.args, **options: P.kwargs) -> R | None:
            return self.run(partial(function, **options), *args)

        return led

    def _begin(self, part: _Part, node: Node | None = None) -> None:
        if self._origin is not None:
            self._home()
        with self._beginning:  # in several threads, perhaps
            before = self._part
            free = before is None or before.ending or before.over.is_open
            if free:
                self._part = part
        if not free:
            part.over.open()
            raise MisuseError(
                f"this program already takes part in {self.name!r}; stop that first, or create another "
                "Election"
            )
        try:
            start(
                _Callbacks,
                part,
                resource=self.name,
                policy=self._policy,
                nodes=self._nodes,
                node=node or self._node,
                label=self._label,
            )
        except BaseException:
            try:
                part.broken_off()
            except BaseException:
                part.broken_off()
                raise
            raise


class _Part:
    """One part taken in the election, from standing for it to its end."""

    def __init__(self, election: Election, once: bool, stopping: bool = False) -> None:
        self.election = election
        self.once = once
        self.leadership: Leadership | None = None
        self.decided = Event()  # it is elected, or ended before
        self.over = Event()
        self.instance: pykka.ActorRef[Any] | None = None
        self.stopping = stopping
        self.ending = False
        self._reason: object = None

    def why_not(self) -> str:
        """Why this program was not elected in time: the end of a sentence."""
        obstacles = obstacles_of(self.instance)
        if obstacles is None:
            return ""
        if why := obstacles.why():
            return f": {why}"
        leader = obstacles.who_leads()
        return f": {leader} leads" if leader else ""

    def begin_part(self, instance: pykka.ActorRef[Any]) -> None:
        """In the actor: note that it stands for election; end it again if it was stopped meanwhile."""
        self.instance = instance
        watch_end(instance, self.has_ended)
        if self.stopping:
            self.stop()
        if self.ending:
            self.end_part()

    @whole
    def broken_off(self) -> None:
        """End the part after an exception left its start: the actor may exist now, later, or never."""
        self.end_part()
        self.over.open()

    def elected(self, state: ElectionState) -> None:
        """In the actor: this program leads."""
        self.leadership = Leadership(state)
        if self.stopping:
            self.leadership.lost.open()
        self.decided.open()
        if not self.once and self.election.on_elected is not None:
            check_begun(self.election.on_elected(self.leadership), "on_elected")

    def stepped_down(self, state: ElectionState) -> None:
        """In the actor: note that it no longer leads."""
        leadership = self.leadership
        if leadership is not None:
            self.leadership = leadership if self.once else None
            was_told = not leadership.lost.is_open or self.stopping
            leadership.lost.open()
            if was_told and not self.once and self.election.on_lost is not None:
                check_begun(self.election.on_lost(leadership), "on_lost")
        if self.once:
            state.stop()  # it must not be elected again while the function still runs

    def stop(self) -> None:
        """Give the leadership back as soon as the function has returned; at once if none runs."""
        self.stopping = True
        leadership = self.leadership
        if leadership is not None:
            leadership.lost.open()
        if self.instance is not None and not (self.once and leadership is not None):
            self.end_part()

    @whole
    def end_part(self) -> None:
        """Take part no longer."""
        self.ending = True
        if self.instance is not None and self.instance.is_alive():
            self.instance.stop(block=False)

    def has_ended(self, down: Down) -> None:
        """The actor has ended."""
        self._end(down.reason)

    @whole
    def _end(self, reason: object) -> None:
        self._reason = reason
        if not self.once:  # otherwise the caller of `run` notices
            world().failed(reason)
        if self.leadership is not None:
            self.leadership.lost.open()
        self.over.open()
        self.decided.open()

    def leave_to_parent(self) -> None:
        """In a forked child: end the part, which belongs to the parent; waiting callers get an error."""
        self.instance = None
        self._end("it belongs to the parent process")

    def check_failed(self) -> None:
        """Raise the exception that has ended it, if one has."""
        if isinstance(self._reason, Exception):
            raise self._reason

    def check_stopped(self) -> None:
        """Raise an error if it has ended for another reason than `stop`."""
        if not self.stopping:
            why = "the node was stopped" if self._reason == "normal" else self._reason
            raise OperatingError(
                f"the election {self.election.name!r} ended before this program was elected: {why}"
            )


class _Callbacks(Behaviour):
    """The callbacks of a candidate without state."""

    def init(self, part: _Part) -> None:
        self.part = part
        me: Any = current_client()
        part.begin_part(me)

    def elected(self, election: ElectionState, newcomer: Any) -> None:
        if newcomer is None:
            self.part.elected(election)

    def stepped_down(self, election: ElectionState) -> None:
        self.part.stepped_down(election)

    def terminate(self, reason: object, election: ElectionState) -> None:
        if self.part.leadership is not None and not self.part.once:
            self.part.stepped_down(election)


def _forget_parts() -> None:
    """In a forked child: end all parts, because their actors are in the parent."""
    for election in list(_elections):
        part, election._part = election._part, None
        election._beginning = native_rlock()
        if part is not None:
            part.leave_to_parent()


os.register_at_fork(after_in_child=_forget_parts)
