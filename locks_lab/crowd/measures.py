"""Measurements of a crowd, and the properties that must hold whatever the measurements are."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from statistics import fmean, median
from typing import NamedTuple, Protocol

from locks.core.messages import Request, Surrender
from locks.model import RIVALS, AgentId, LockId, Mode, related, show
from locks_lab.crowd.shape import Shape
from locks_lab.worlds.host import Violation

__all__ = ["Measures", "Report", "Who", "most_messages"]


def most_messages(servers: int) -> int:
    """The largest mean number of messages of a transaction with one contended lock, for any crowd.

    Six messages at the gate: the request, the answer "waiting", the grant, the end, and two reports
    of what the agent does elsewhere. Ten at each other server: the request and its answer, the
    release and its answer, the second request, the answer "waiting", the grant, the end, and two
    reports of what the agent does elsewhere. Two more for knowledge of others.
    """
    return 6 + 12 * (servers - 1)


class Who(Protocol):
    """A client, as it is measured."""

    number: int

    @property
    def home(self) -> str:
        """The name of its program."""
        ...


class Report(NamedTuple):
    """The measurements. Times are in seconds of virtual time.

    Attributes:
        shape: The parameters of the crowd.
        makespan: When all transactions were finished.
        grants: How often a client was notified that it holds the locks that it requested.
        hand_over: The median time from the end of a holder to the grant of the next, waiting
            client.
        slowest_hand_over: The longest such time.
        each: The makespan divided by the number of transactions.
        gap: The longest time without a grant while a client waited.
        mean_wait: The mean wait for a request.
        longest_wait: The longest wait for a request.
        programs: The mean wait of each program, divided by that of all.
        slowest_client: The largest mean wait of a client, divided by that of all.
        messages: The messages between programs and servers, by kind.
        per_transaction: The number of messages for each transaction.
        overtaken: The largest number of later, conflicting requests that overtook one request at
            the gate.
        passed: The largest number of requests of other agents of the same program that were read
            ahead of an urgent message.
        withheld: How long a processor was idle while there were unread messages, in total.
        busy: How long each processor worked, by name.
        aborts: The number of aborted transactions.
        most_runs: The largest number of runs of one transaction.
        surrenders: The number of surrenders, including aborts.
        losses: The number of locks that were lost with a server.
        events: The number of simulated events.
    """

    shape: Shape
    makespan: float
    grants: int
    hand_over: float
    slowest_hand_over: float
    each: float
    gap: float
    mean_wait: float
    longest_wait: float
    programs: dict[str, float]
    slowest_client: float
    messages: Counter[str]
    per_transaction: float
    overtaken: int
    passed: int
    withheld: float
    busy: dict[str, float]
    aborts: int
    most_runs: int
    surrenders: int
    losses: int
    events: int

    @property
    def fairness(self) -> float:
        """The longest wait over the mean one."""
        return self.longest_wait / self.mean_wait if self.mean_wait else 1.0

    def violations(self) -> list[str]:
        """Which of the properties of a crowd are not true: one sentence for each."""
        shape = self.shape
        found = []
        if self.withheld > 0:
            found.append(
                f"not work-conserving: processors were idle for {self.withheld:.3f} s while somebody had input"
            )
        if self.passed:
            found.append(
                f"a release was read behind {self.passed} requests of other agents of its program"
            )
        queues = shape.require == "majority" and not shape.faults  # all of them at one gate
        # A request that was surrendered in a deadlock is last. Writers of one lock have no deadlocks;
        # readers beside them may, because their grants arrive in another order. Two locks "together"
        # are two messages, which may arrive as one.
        ordered = shape.pick == 1 or shape.order in ("sorted", "together")
        resolved = self.surrenders and (shape.pick > 1 or shape.reads)
        if queues and ordered and not resolved and self.overtaken:
            found.append(f"a request was overtaken {self.overtaken} times at the gate")
        most = most_messages(shape.servers)
        if queues and shape.pick == 1 and self.per_transaction > most:
            found.append(
                f"a transaction took {self.per_transaction:.1f} messages; at most {most} are allowed"
            )
        return found

    def lines(self) -> list[str]:
        """The measurements as lines of text."""
        ms = 1000
        programs = ", ".join(f"{name} {share:.2f}" for name, share in self.programs.items())
        busy = ", ".join(
            f"{name} {min(100.0, 100 * took / self.makespan):.0f} %"
            for name, took in self.busy.items()
        )
        kinds = ", ".join(f"{n:,} {kind}" for kind, n in self.messages.most_common())
        return [
            f"all done      after {self.makespan:.3f} s; {self.grants:,} grants, a transaction every {self.each * ms:.2f} ms",
            f"hand-over     {self.hand_over * ms:.2f} ms (median), {self.slowest_hand_over * ms:.2f} ms at most",
            f"longest gap   {self.gap * ms:.1f} ms without a grant",
            f"waits         {self.mean_wait * ms:.1f} ms (mean), {self.longest_wait * ms:.1f} ms at most, "
            f"{self.fairness:.2f} times the mean",
            f"programs      mean wait, over that of all: {programs}; of one client {self.slowest_client:.2f} at most",
            f"messages      {self.per_transaction:.1f} for each transaction: {kinds}",
            f"processors    busy {busy}; idle with input for {self.withheld:.3f} s",
            f"order         overtaken at the gate {self.overtaken} times at most; "
            f"releases behind {self.passed} requests at most",
            f"deadlocks     {self.surrenders:,} surrenders, {self.aborts:,} aborts, "
            f"{self.most_runs} runs of a transaction at most",
            f"losses        {self.losses:,}",
        ]

    def __str__(self) -> str:
        return "\n".join(self.lines())


class _Wait(NamedTuple):
    """The wait of a client."""

    since: float
    ids: tuple[LockId, ...]


class Measures:
    """Records events, and checks that no two clients hold conflicting locks.

    Args:
        gate: The server that decides the order.
        clock: Returns the time.

    Attributes:
        messages: The number of messages sent, by kind.
    """

    def __init__(self, gate: str, clock: Callable[[], float]) -> None:
        self.messages: Counter[str] = Counter()
        self._gate = gate
        self._clock = clock
        self._waits: dict[int, _Wait] = {}
        self._waited: dict[str, list[float]] = defaultdict(list)
        self._by_client: dict[int, list[float]] = defaultdict(list)
        self._relies: dict[LockId, dict[int, Mode]] = defaultdict(dict)
        self._released: dict[LockId, float] = {}
        self._hand_overs: list[float] = []
        self._queues: dict[LockId, dict[AgentId, list[int]]] = defaultdict(dict)
        self._modes: dict[tuple[LockId, AgentId], Mode] = {}
        self._over: set[AgentId] = set()  # their transactions were aborted
        self._overtaken = 0
        self._quiet_since = 0.0  # since when a client waits and nothing was granted
        self._gap = 0.0
        self._grants = 0
        self._surrenders = 0
        self._aborts: Counter[int] = Counter()
        self._aborted = 0
        self._most_runs = 1
        self._losses = 0
        self._transactions = 0
        self._end = 0.0

    # --- At the gate

    def arrives(self, node: str, request: Request) -> None:
        """A lock server takes a request in."""
        key = (request.lock_id, request.agent)
        if node == self._gate and key not in self._modes and request.agent not in self._over:
            self._modes[key] = request.mode
            self._queues[request.lock_id][request.agent] = [0]

    def _leaves(self, lock_id: LockId, agent: AgentId, granted: bool) -> None:
        """A request has left the gate's queue."""
        queue = self._queues[lock_id]
        if agent not in queue:
            return
        rivals = RIVALS[self._modes[lock_id, agent]]
        if granted:
            for other, overtaken in queue.items():
                if other == agent:
                    break
                if self._modes[lock_id, other] in rivals:
                    overtaken[0] += 1
                    self._overtaken = max(self._overtaken, overtaken[0])
        del queue[agent]

    # --- Clients

    def asks(self, who: Who, ids: tuple[LockId, ...]) -> None:
        """A client requests locks."""
        now = self._clock()
        if not self._waits:
            self._quiet_since = now
        self._waits[who.number] = _Wait(now, ids)

    def has(self, who: Who, agent: AgentId, ids: Sequence[LockId], mode: Mode) -> None:
        """A client is notified that it holds everything that it has requested so far.

        Args:
            who: The client.
            agent: Its agent.
            ids: All lock ids that it has requested.
            mode: The mode of these locks.
        """
        now = self._clock()
        wait = self._waits.pop(who.number)
        self._waited[who.home].append(now - wait.since)
        self._by_client[who.number].append(now - wait.since)
        self._gap = max(self._gap, now - self._quiet_since)
        self._quiet_since = now
        self._grants += 1
        rivals = RIVALS[mode]
        for each in ids:
            for other, held in self._relies[each].items():
                if other != who.number and held in rivals:
                    raise Violation(f"clients {other} and {who.number} both hold {show(each)}")
            if each in wait.ids:
                self._leaves(each, agent, True)
                self._modes[each, agent] = mode  # `arrives` ignores the request if it comes late
                released = self._released.get(each)
                free = not self._relies[each]
                if released is not None and free and wait.since <= released:
                    self._hand_overs.append(now - released)
            self._relies[each][who.number] = mode

    def ends(self, who: Who) -> None:
        """A client ends its transaction."""
        self._transactions += 1
        self._end = self._clock()
        self._most_runs = max(self._most_runs, self._aborts.pop(who.number, 0) + 1)
        self._lets_go(who)

    def _lets_go(self, who: Who) -> None:
        now = self._clock()
        for lock_id, holders in self._relies.items():
            if holders.pop(who.number, None) is not None and not holders:
                self._released[lock_id] = now

    def gives_up(self, who: Who, message: Surrender) -> None:
        """A client's agent surrenders a lock.

        The client relies on no related lock until it is notified that it holds it again.
        """
        self._surrenders += 1
        for lock_id, holders in self._relies.items():
            if related(lock_id, message.lock_id) or message.aborts:
                holders.pop(who.number, None)
        for lock_id, queue in self._queues.items():
            if related(lock_id, message.lock_id) and message.agent in queue:
                queue[message.agent] = queue.pop(message.agent)  # now it is last

    def aborts(self, who: Who, agent: AgentId, deadlock: bool) -> None:
        """A client's transaction was aborted, by a deadlock or because locks were lost."""
        self._waits.pop(who.number, None)
        if deadlock:
            self._aborts[who.number] += 1
            self._aborted += 1
        self._over.add(agent)
        for lock_id in list(self._queues):
            self._leaves(lock_id, agent, False)
        self._lets_go(who)

    def misses(self, who: Who, agent: AgentId, ids: tuple[LockId, ...]) -> None:
        """A client gives up an attempt to take all of these, and holds none of them."""
        self._waits.pop(who.number, None)
        for each in ids:
            self._leaves(each, agent, False)
            self._modes.pop((each, agent), None)  # it is queued there when it requests it again
        self._lets_go(who)

    def loses(self, who: Who, ids: tuple[LockId, ...]) -> None:
        """A client is notified that it has lost locks with a server."""
        self._losses += len(ids)
        for each in ids:
            self._relies[each].pop(who.number, None)

    # --- Results

    def report(
        self,
        shape: Shape,
        passed: int,
        withheld: float,
        busy: dict[str, float],
        events: int,
    ) -> Report:
        """All that was measured."""
        end = self._end
        waits = [each for there in self._waited.values() for each in there]
        mean = fmean(waits) if waits else 0.0
        number = max(1, self._transactions)
        return Report(
            shape,
            end,
            self._grants,
            median(self._hand_overs) if self._hand_overs else 0.0,
            max(self._hand_overs, default=0.0),
            end / number,
            self._gap,
            mean,
            max(waits, default=0.0),
            {
                name: fmean(there) / mean if mean else 1.0
                for name, there in sorted(self._waited.items())
            },
            max(map(fmean, self._by_client.values()), default=0.0) / mean if mean else 1.0,
            self.messages,
            self.messages.total() / number,
            self._overtaken,
            passed,
            withheld,
            busy,
            self._aborted,
            self._most_runs,
            self._surrenders,
            self._losses,
            events,
        )
