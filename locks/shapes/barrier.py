"""`Barrier`: a number of parties wait for each other, and then continue together.

`locks.core.barrier` decides each step of a party; this module carries the steps out. Each wait is a party. It has
its own owner, which ends with the waiting client, so its locks are never mixed up with those of the client.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from locks.api import unwatch_on, watch_on
from locks.core import barrier as protocol
from locks.core.barrier import (
    Await,
    AwaitCall,
    Begin,
    Broken,
    Disagree,
    End,
    Enter,
    Leave,
    Look,
    Open,
    Outcome,
    Passed,
    Stand,
    Step,
    TimedOut,
)
from locks.errors import (
    BrokenBarrier,
    ConflictingRequest,
    InvalidOption,
    LocksError,
    LockTimeout,
    MisuseError,
    ReentrantCall,
    assert_never,
)
from locks.lock_ids import shown
from locks.model import Contender, LockId, Notification, View, check_lock_id, check_timeout, show
from locks.node.client.agent import Agent
from locks.node.client.clients import checked_label, label_of
from locks.node.client.owner import Owner, checked_owner
from locks.node.client.scope import Nodes, all_servers, checked_where, where
from locks.node.node import Node
from locks.node.ports import Scope
from locks.node.sendable import check_sendable
from locks.primitives import ASK, await_servers
from locks.program.origin import Movable
from locks.runtime.identity import Own
from locks.runtime.leaving import Block, entering
from locks.runtime.monitor import Client, Down, Monitor, current_client
from locks.runtime.native import insist
from locks.runtime.shown import Shown
from locks.runtime.waiter import Waiter

__all__ = ["MOST_PARTIES", "Barrier"]

MOST_PARTIES = 1_000  # each of them reads all requests


class Barrier(Movable, metaclass=Shown):
    """A place where a number of parties wait for each other, like a `threading.Barrier`, but over all that share lock servers.

    It can be reused: a party that arrives after all have arrived, or that arrives again, waits in the next round. Unlike a
    `threading.Barrier`, it does not break for the others when a party dies or gives up: that party no longer counts.

    The barrier does not know which parties are still missing. So if a party holds a lock that a missing party needs, no
    deadlock can be found: use `timeout`, or hold no locks while you wait.

    Args:
        lock_id: A non-empty tuple or list of key elements. All `Barrier`s of the same id are the same barrier. A lock on this id, or
            above it, is independent of it.
        parties: The number of parties, at most 1,000. All parties must use the same number.
        nodes: Names of nodes, or `locks.HERE`; by default the `servers` of `locks.start`, or this program's own
            node. The first of them by name has the barrier.
        timeout: Default time limit of a wait, in seconds; `None` waits for ever.
        label: The name of a party as shown to others; by default the name of its thread, greenlet or actor.
        owner: The owner with which a party ends; by default the owner that the caller acts for, or else the caller.

    Attributes:
        lock_id: The id under which `locks.queue` and `locks.watch` show the barrier's requests.
        parties: The number of parties.
        timeout: The default time limit.

    Raises:
        InvalidOption: `parties` is not such a number, or another option is wrong.
    """

    _for_users = frozenset(("wait", "waiting"))

    def __init__(
        self,
        lock_id: Sequence[Any],
        parties: int,
        *,
        nodes: Nodes | None = None,
        timeout: float | None = None,
        label: str | None = None,
        owner: Owner | None = None,
    ) -> None:
        self._name = check_lock_id(lock_id)
        if (
            isinstance(parties, bool)
            or not isinstance(parties, int)
            or not 1 <= parties <= MOST_PARTIES
        ):
            raise InvalidOption(
                f"parties={shown(parties)} is wrong; use an int from 1 to {MOST_PARTIES:,}",
                value=shown(parties),
            )
        self.lock_id = check_lock_id(protocol.root_of(self._name))
        self.parties = int(parties)
        checked_where(nodes, None)
        self._nodes = nodes
        check_timeout(timeout)
        self.timeout = timeout
        self._label = None if label is None else checked_label(label)
        self._owner = checked_owner(owner)

    def __repr__(self) -> str:
        return f"<Barrier {show(self._name)} of {self.parties}>"

    def wait(self, timeout: float | None = None) -> int:
        """Wait until all parties have arrived.

        Args:
            timeout: Seconds to wait at most for the others; by default the limit of the barrier.

        Returns:
            The caller's number in the order of arrival, from 0 to `parties` - 1, unique among the parties that pass together.

        Raises:
            LockTimeout: Not all parties arrived in time. The caller is not counted, and the others keep waiting; `holders`
                has the parties that had arrived.
            BrokenBarrier: The lock server was lost, or did not answer: it is unknown whether the others have passed.
            ConflictingRequest: Other clients wait there with another number of parties.
            CannotServe: The lock server can't be reached; the caller was not counted.
        """
        check_timeout(timeout)
        limit = self.timeout if timeout is None else timeout
        node = self._home()
        client = current_client() if self._owner is None else self._owner
        deadline = None if limit is None else node.clock() + limit
        place = partial(self._place, node)
        while True:
            party = _Party(self.lock_id, node, self._server(node), place, deadline)
            try:
                with party:
                    outcome = party.attend(self.parties, client, self._label)
            except MisuseError:
                raise
            except LocksError as error:
                if party.has_arrived:
                    raise self._broken(str(error)) from error
                if not party.has_moved:
                    raise
                continue
            is_late = deadline is not None and node.clock() >= deadline
            if is_late or not (isinstance(outcome, TimedOut) and party.has_moved):
                break
        if isinstance(outcome, Passed):
            return outcome.number
        if isinstance(outcome, TimedOut):
            there = protocol.who_waits(self.lock_id, outcome.seen)
            raise LockTimeout(
                f"timed out after {limit} s waiting for all {self.parties} parties at barrier {show(self._name)}"
                + ("; arrived: " if there else "")
                + ", ".join([each.client for each in there]),
                lock_ids=(self._name,),
                holders=there,
                timeout=limit,
            )
        if isinstance(outcome, Broken):
            raise self._broken(
                "its lock server does not answer, or a client that reads it is blocked"
            )
        if isinstance(outcome, Disagree):
            raise ConflictingRequest(
                f"can't wait at barrier {show(self._name)} with parties={self.parties}: the clients that wait there use {outcome.parties}; "
                "use the same number everywhere",
                lock_id=self._name,
            )
        return assert_never(outcome)

    def waiting(self) -> tuple[Contender, ...]:
        """The parties that are waiting, in the order of their numbers, according to the lock server.

        Raises:
            NodeNotRunning: The lock server can't be reached.
            LockTimeout: It did not answer within five seconds.
        """
        node = self._home()
        seen = node.view(self.lock_id, self._server(node), ASK)
        return protocol.who_waits(self.lock_id, seen.requests)

    def _server(self, node: Node) -> str:
        """The node that has the barrier; waits briefly if it is not connected yet."""
        if node.is_clustered:
            check_sendable(self.lock_id)
        server = self._place(node)
        await_servers(node, (server,), None)
        return server

    def _place(self, node: Node) -> str:
        """Where the barrier is now: the list of servers may change."""
        if self._nodes is None:
            return all_servers(node).home_of(self.lock_id)
        return min(where(node, self._nodes, None, self.lock_id).nodes)

    def _broken(self, why: str) -> BrokenBarrier:
        return BrokenBarrier(
            f"barrier {show(self._name)} is broken for this party: {why}. It is unknown whether the others have passed",
            lock_id=self._name,
        )


class _Party(Block):
    """One wait at a barrier: carries out the steps of `locks.core.barrier`, in a block that releases everything at its end.

    If the barrier's place changes meanwhile, its time is over.

    Args:
        root: The barrier's id.
        node: The program's node.
        server: The node that has the barrier.
        place: Returns the node that has it now.
        deadline: How long to wait for the others.

    Attributes:
        has_arrived: Whether the others may count this party.
    """

    def __init__(
        self,
        root: LockId,
        node: Node,
        server: str,
        place: Callable[[], str],
        deadline: float | None,
    ) -> None:
        self._root = root
        self._node = node
        self._at = Scope((server,), "all")
        self._place = place
        self._deadline = deadline
        self._bell = _Bell()
        self._owners: list[Owner] = []
        self._tie = Monitor(self._client_ended, surely=True)
        self._agents: list[Agent] = []  # of all its transactions
        self._mutex: Agent | None = None
        self._standing: Agent | None = None
        self._end_watch: partial[None] | None = None
        self._called = False
        self._label: str | None = None
        self.has_arrived = False

    @property
    def has_moved(self) -> bool:
        """Whether the barrier is at another place now."""
        return self._place() != self._at.nodes[0]

    def attend(self, parties: int, client: Client, label: str | None) -> Outcome:
        """Wait for the others; call it within the block."""
        self._label = label
        # Two owners, because all transactions of one client are searched for deadlocks together.
        for _ in range(2):
            self._owners.append(Owner(label or label_of(client)))
        self._tie.begin_monitoring(client)
        steps = protocol.attend(self._root, parties)
        answer: Any = None
        while True:
            try:
                step = steps.send(answer)
            except StopIteration as done:
                return done.value  # type: ignore[no-any-return]
            answer = self._carry_out(step)
            if isinstance(step, End) and self.has_moved:
                return TimedOut()

    def __enter__(self) -> _Party:
        entering(self).take(self)
        self._parties()[self._bell.ring] = None
        return self

    def _leave(self, held: _Party | None, error: BaseException | None) -> None:
        """End the block; see `Block`."""
        ends = [agent.let_go for agent in self._agents]
        failed: BaseException | None = None
        for end in (*ends, self._watch_no_longer, self._tie.cancel, self._moves_no_longer):
            try:
                insist(end)
            except BaseException as raised:  # the other transactions must be ended anyway
                failed = raised
        if failed is not None:
            raise failed

    def _moves_no_longer(self) -> None:
        self._parties().pop(self._bell.ring, None)

    def _parties(self) -> dict[Callable[[], object], int | None]:
        """Who is told when the list of servers has changed."""
        cluster = self._node.cluster  # a simulated one has no such list
        return {} if cluster is None or cluster.rosters is None else cluster.rosters.parties

    def _client_ended(self, _: Down) -> None:
        for owner in self._owners:
            owner.end("its client has ended")

    def _let_go(self, held: _Party) -> None:
        """Clean up after a block whose end was interrupted; see `Block`."""
        held._leave(held, None)

    def _end_transactions(self) -> None:
        for agent in self._agents:
            agent.let_go()
        self._agents.clear()
        self._mutex = self._standing = None

    def _carry_out(self, step: Step) -> Any:
        if isinstance(step, Enter):
            return self._enter_mutex()
        if isinstance(step, Leave):
            return self._leave_mutex()
        if isinstance(step, Look):
            return self._node.view(self._root, self._at.nodes[0], ASK).requests
        if isinstance(step, Begin):
            self._standing = self._spawn(self._owners[1], notify=Own(self._told))
            return self._standing.id
        if isinstance(step, Stand):
            return self._stand(step)
        if isinstance(step, Await):
            return self._await(step)
        if isinstance(step, AwaitCall):
            return self._await_call(step.call)
        if isinstance(step, Open):
            return self._stands().unlock(step.turnstile)
        if isinstance(step, End):
            self._watch_no_longer()
            return self._end_transactions()
        return assert_never(step)

    def _spawn(self, owner: Owner, **options: Any) -> Agent:
        return self._node.spawn_agent(
            owner, keep=self._agents.append, abort_on_deadlock=True, label=self._label, **options
        )

    def _stands(self) -> Agent:
        assert self._standing is not None
        return self._standing

    def _left(self, least: float = 0.0) -> float | None:
        """The remaining seconds, but at least `least`."""
        if self._deadline is None:
            return None
        return max(self._deadline - self._node.clock(), least)

    def _enter_mutex(self) -> bool:
        mutex = self._mutex = self._spawn(self._owners[0])
        try:
            mutex.lock_all((((*self._root, "mutex"), "write", *self._at),), self._left(ASK))
        except LockTimeout:
            self._leave_mutex()
            return False
        return True

    def _leave_mutex(self) -> None:
        mutex, self._mutex = self._mutex, None
        if mutex is not None:
            mutex.let_go()

    def _stand(self, step: Stand) -> None:
        self.has_arrived = True
        self._stands().ask_for([(lock_id, mode, *self._at) for lock_id, mode in step.wanted])
        assert self._mutex is not None
        self._mutex.ensure_held(None)  # the request took the same way as the mutex

    def _await(self, step: Await) -> dict[LockId, int]:
        if step.patience == "moment":
            limit: float | None = ASK
        else:
            limit = 0.0 if step.patience == "none" else self._left()
        while True:
            granted = {
                info.lock_id: info.versions[0]
                for info in self._stands().lock_info()
                if info.granted and info.lock_id in step.wanted
            }
            is_over = step.patience == "deadline" and self.has_moved
            if granted or is_over or not self._bell.wait(limit):
                return granted

    def _await_call(self, call: LockId) -> bool:
        self._called = False
        node, nodes = self._node, self._at.nodes
        self._end_watch = partial(unwatch_on, node, call, nodes, self._seen)
        watch_on(node, call, nodes, self._seen)
        try:
            while True:
                if self._called:
                    return True
                self._stands().lock_info()  # raises if the transaction has ended
                if not self.has_moved and self._bell.wait(self._left()):
                    continue
                return False
        finally:
            self._watch_no_longer()

    def _watch_no_longer(self) -> None:
        end_watch = self._end_watch
        if end_watch is not None:
            try:
                end_watch()  # calling it twice is harmless
            except (ReentrantCall, RecursionError):  # in a finaliser that has interrupted a step
                self._node.executor.run_soon(end_watch)
            except RuntimeError:  # the node was stopped
                pass
            self._end_watch = None

    def _seen(self, view: View) -> None:
        """Take a view of the barrier; called by the node's executor."""
        if view.requests:
            self._called = True
            self._bell.ring()

    def _told(self, news: Notification) -> None:
        """Take a notification about a request; called by the node's executor."""
        if news.kind == "ended":  # perhaps together with the client
            self._watch_no_longer()
        self._bell.ring()


class _Bell:
    """Wakes a waiter, which then checks again."""

    def __init__(self) -> None:
        self._rings = self._heard = 0
        self._waiter: Waiter | None = None

    def ring(self) -> None:
        """Wake the waiter; called by the node's executor."""
        self._rings += 1
        waiter = self._waiter
        if waiter is not None:
            waiter.wake()

    def wait(self, timeout: float | None) -> bool:
        """Wait until it rings, unless it has rung since the last call; return whether it rang."""
        waiter = self._waiter = Waiter()
        try:
            if self._rings == self._heard:
                waiter.wait(timeout)
        finally:
            self._waiter = None
        heard, self._heard = self._heard, self._rings
        return heard != self._heard
