"""A model of an eventually consistent store, and of workers that use it to lock one data set.

The store keeps the lock on `n` primary servers: A, B and C. Each of them has a fallback server that
stands in for it while it can't be reached.

* **Requests.** A worker sends each request to all primaries; for one that can't be reached, to its
  fallback. Each message arrives at any time, or never if its server becomes unreachable; those from one
  worker to one server arrive in order. A read or a write succeeds when enough *primaries* have answered
  (`pr`, `pw`): more than half, if nothing else is said. It fails when all have answered or are lost, and
  these are too few. Writes that have arrived stay. Nothing is undone, and what has not arrived yet
  still arrives.
* **Versions.** A server knows which writes it has seen, and which of them were not replaced. A write
  replaces what its worker had read before. Two that replace nothing of each other are in conflict: both
  are kept (siblings, `allow_mult=true`), or the one with the latest timestamp (`allow_mult=false`).
* **Deletion** is a write of a tombstone. It replaces what the worker has read and written. Tombstones
  are forgotten at some time, and with them all that the server knew of the lock.
* **Hinted handoff.** When a server is back, its fallback hands over what it has kept, at any time.

A worker whose request fails gives up. It never dies. Its clock is right; or, with `wrong_clocks`, it may show
whatever it likes. A message that has arrived is answered, and its answer is not lost.

A state is a tuple of tuples; what can happen in it are moves, also tuples. Servers are interchangeable,
so two states that differ only in which server is which count once (`Tale.key`).
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, Literal, NamedTuple

from locks.errors import InvalidOption
from locks_lab.worlds.host import Violation

from .drafts import (
    Action,
    Create,
    Draft,
    Ended,
    Lock,
    Process,
    Read,
    Remove,
    Value,
    Write,
    next_action,
)

__all__ = [
    "ENDED",
    "NOTHING",
    "TOMBSTONES",
    "Message",
    "Move",
    "Setting",
    "State",
    "Tale",
    "Worker",
]

Doing = Literal["ready", "waiting", "failed", "processing", "moved on", "gave up", "done"]
ENDED = ("moved on", "gave up", "done")
# What happens, the worker (-1: to a server), and the server (-1: to none). If clocks are wrong and a worker
# begins to write: instead of the server, how many timestamps are earlier.
Move = tuple[str, int, int]


class Setting(NamedTuple):
    """A setting to explore.

    Attributes:
        draft: The program of the workers.
        workers: How many of them.
        outages: How often a primary may become unreachable.
        in_turn: A worker begins only when the one before has ended. Otherwise all begin at any time.
        forget: When servers forget tombstones: never; all together, when all primaries have one (as
            Riak does); or each by itself, at any time (as after a grace period).
        refuses: A request for which too few primaries can be reached is refused, and nothing is sent.
            Otherwise it is sent, and fails later.
        lossless: Only servers to which nothing is on its way become unreachable.
        servers: How many primaries (`n_val`).
        pr: How many of them have to answer a read; a quorum, if nothing is said: more than half.
        pw: How many have to answer a write; likewise.
        wrong_clocks: A timestamp may be earlier or later than any other. Otherwise it is later than all.
        in_time: No worker begins a write before those that others have begun have succeeded.
        data_sets: How many data sets there are; for more than one, see `several`.
        spread: Each worker begins with another data set. Otherwise all begin with the first one.
    """

    draft: Draft
    workers: int = 2
    outages: int = 0
    in_turn: bool = False
    forget: Literal["never", "all", "each"] = "never"
    refuses: bool = False
    lossless: bool = False
    servers: int = 3
    pr: int | None = None
    pw: int | None = None
    wrong_clocks: bool = False
    in_time: bool = False
    data_sets: int = 1
    spread: bool = False

    def needed(self, action: Action) -> int:
        """How many servers have to answer a request: primaries, but for a removal."""
        wanted = self.pr if isinstance(action, Read) else self.pw
        return self.servers // 2 + 1 if wanted is None else wanted


# Writes have numbers: 2 * worker for its ID, and 2 * worker + 1 for its deletion, with workers counted
# from 0. A set of writes is a number, too, with one bit for each of them.


class Copy(NamedTuple):
    """What a server knows of the lock.

    Attributes:
        live: The writes that are not replaced; a set.
        seen: All writes that it knows of, also those that are replaced; a set.
    """

    live: int = 0
    seen: int = 0


NOTHING = Copy()
TOMBSTONES = sum(1 << (2 * worker + 1) for worker in range(8))


class Message(NamedTuple):
    """A message on its way from a worker to a server.

    Attributes:
        request: How many answers the worker had when it sent it.
        kind: `"read"`, `"write"` or `"create"`; a deletion is a write.
        copy: What is written.
        fallback: Whether it goes to the server's fallback.
    """

    request: int
    kind: str
    copy: Copy
    fallback: bool


class Server(NamedTuple):
    """A primary server, with its fallback.

    Attributes:
        up: Whether it can be reached.
        copy: What it knows of the lock.
        kept: What its fallback keeps for it.
        mail: The messages on their way, of each worker, in order.
    """

    up: bool
    copy: Copy
    kept: Copy
    mail: tuple[tuple[Message, ...], ...]


class Worker(NamedTuple):
    """A worker.

    Attributes:
        doing: What it does; `"failed"`: its request has failed, and it is about to notice.
        answers: The answers that its program has got.
        heard: How many servers that count have answered its request so far.
        read: What they have answered.
        knows: All writes that it has read or made; a set.
    """

    doing: Doing = "ready"
    answers: tuple[Any, ...] = ()
    heard: int = 0
    read: Copy = NOTHING
    knows: int = 0


class State(NamedTuple):
    """A state of the store and the workers.

    Attributes:
        servers: The servers.
        workers: The workers.
        order: The writes whose order matters, by their timestamps: as they were begun, if clocks are right.
        outages: How many outages there may still be.
    """

    servers: tuple[Server, ...]
    workers: tuple[Worker, ...]
    order: tuple[int, ...]
    outages: int


class Tale:
    """The states of a setting, and the moves between them: a `locks_lab.explorer.shortest.Model`.

    Args:
        setting: The setting.

    Raises:
        InvalidOption: The setting makes no sense.
    """

    def __init__(self, setting: Setting) -> None:
        if not 1 <= setting.workers <= 8:
            raise InvalidOption(f"workers={setting.workers!r}: there are 1 to 8")
        if not 1 <= setting.servers <= 8:
            raise InvalidOption(f"servers={setting.servers!r}: there are 1 to 8")
        for name, wanted in (("pr", setting.pr), ("pw", setting.pw)):
            if wanted is not None and not 1 <= wanted <= setting.servers:
                raise InvalidOption(f"{name}={wanted!r}: give 1 to {setting.servers}, the servers")
        if setting.outages < 0:
            raise InvalidOption(f"outages={setting.outages!r}: give 0 or more")
        self.setting = setting
        self.draft = setting.draft

    def start(self) -> State:
        """No worker has done anything."""
        setting = self.setting
        server = Server(True, NOTHING, NOTHING, ((),) * setting.workers)
        return State(
            (server,) * setting.servers, (Worker(),) * setting.workers, (), setting.outages
        )

    def key(self, state: State) -> Hashable:
        """The key by which two states are the same: servers are interchangeable."""
        return (tuple(sorted(state.servers)), *state[1:])

    def price(self, state: State, party: Hashable, other: Hashable) -> int:
        """The cost when another worker goes on; worker 1 begins, and requests are not split."""
        if party is None:
            return int(other == 1)
        if not isinstance(party, int) or party < 0 or state.workers[party].doing != "waiting":
            return 2
        return 6 + state.workers[party].heard

    # --- What can happen

    def moves(self, state: State) -> list[Move]:
        """All that can happen next."""
        found: list[Move] = []
        before, lossless = "done", self.setting.lossless
        for w, worker in enumerate(state.workers):
            if worker.doing in ("ready", "failed", "processing") and (
                not self.setting.in_turn or before in ENDED
            ):
                found += self._steps(state, w)
            found += [("arrive", w, s) for s, server in enumerate(state.servers) if server.mail[w]]
            before = worker.doing
        for s, server in enumerate(state.servers):
            if not server.up:
                found.append(("up", -1, s))
            elif server.kept != NOTHING:
                found.append(("hand over", -1, s))
            if server.up and state.outages and not (lossless and any(server.mail)):
                found.append(("down", -1, s))
            if self.setting.forget == "each" and server.up and _is_tombstone(server.copy):
                found.append(("forget", -1, s))
        if self.setting.forget == "all" and all(
            server.up and _is_tombstone(server.copy) for server in state.servers
        ):
            found.append(("forget", -1, -1))
        return found

    def _steps(self, state: State, w: int) -> list[Move]:
        """How a worker may go on: if it writes a timestamp by a wrong clock, in several ways."""
        if state.workers[w].doing == "failed":
            return [("step", w, -1)]
        action = self._begins(state.workers[w], w)
        if isinstance(action, Write) and self.setting.in_time:
            for other, worker in enumerate(state.workers):
                if worker.doing == "waiting" and isinstance(self._begins(worker, other), Write):
                    return []
        if self.setting.wrong_clocks and self._is_stamped(action):
            return [("step", w, earlier) for earlier in range(len(state.order) + 1)]
        return [("step", w, -1)]

    def _begins(self, worker: Worker, w: int) -> Action | Ended:
        """What a worker does now, or does next."""
        answers = worker.answers + (None,) * (worker.doing == "processing")
        return next_action(self.draft, w + 1, answers)

    def _is_stamped(self, action: Action | Ended) -> bool:
        """Whether it matters when it was begun: for the worker, or, without siblings, for the store."""
        if self.draft.allow_mult:
            return isinstance(action, Write) and action.with_timestamp
        return isinstance(action, (Write, Create, Remove))

    def after(self, state: State, move: Move) -> State:
        """The state after a move.

        Raises:
            InvalidOption: The draft does something that needs a single server.
        """
        kind, w, s = move
        if kind == "step":
            return self._step(state, w, s)
        if kind == "arrive":
            return self._arrive(state, w, s)
        if kind == "forget":
            which = range(len(state.servers)) if s < 0 else (s,)
            return state._replace(
                servers=tuple(
                    server._replace(copy=NOTHING) if each in which else server
                    for each, server in enumerate(state.servers)
                )
            )
        server = state.servers[s]
        if kind == "up":
            return _put(state, s, server._replace(up=True))
        if kind == "hand over":
            copy = self._merged(server.copy, server.kept, state.order)
            return _put(state, s, server._replace(copy=copy, kept=NOTHING))
        mail = tuple(tuple(each for each in queue if each.fallback) for queue in server.mail)
        state = _put(state, s, server._replace(up=False, mail=mail))
        state = state._replace(outages=state.outages - 1)
        for each in range(len(state.workers)):
            state = self._fail(state, each)
        return state

    def _step(self, state: State, w: int, earlier: int) -> State:
        """A worker begins its next action; so many timestamps are earlier (-1: all)."""
        worker = state.workers[w]
        if worker.doing == "failed":
            return _set(state, w, worker._replace(doing="gave up", read=NOTHING, heard=0))
        if worker.doing == "processing":
            worker = worker._replace(answers=(*worker.answers, None))
        action = next_action(self.draft, w + 1, worker.answers)
        if isinstance(action, Ended):
            return _set(state, w, worker._replace(doing="done"))
        if isinstance(action, Process):
            return _set(state, w, worker._replace(doing="processing"))
        if isinstance(action, Create) and self.setting.servers != 1:
            raise InvalidOption(
                f"servers={self.setting.servers!r}: only one server can look and write in one step"
            )
        number = 2 * w + isinstance(action, Remove)
        kind, copy, order = "read", NOTHING, state.order
        if not isinstance(action, Read):
            kind = "create" if isinstance(action, Create) else "write"
            copy = Copy(1 << number, worker.knows | 1 << number)
            worker = worker._replace(knows=copy.seen)
            if self._is_stamped(action):
                place = len(order) if earlier < 0 else earlier
                order = (*order[:place], number, *order[place:])
        state = _set(state, w, worker._replace(doing="waiting"))._replace(order=order)
        reachable = sum(server.up for server in state.servers)
        if not (
            self.setting.refuses
            and reachable < self.setting.needed(action)
            and not isinstance(action, Remove)
        ):
            for s, server in enumerate(state.servers):
                message = Message(len(worker.answers), kind, copy, not server.up)
                mail = server.mail[w]
                queues = (*server.mail[:w], (*mail, message), *server.mail[w + 1 :])
                state = _put(state, s, server._replace(mail=queues))
        return self._fail(state, w)

    def _arrive(self, state: State, w: int, s: int) -> State:
        """A message arrives, and is answered at once."""
        server, worker = state.servers[s], state.workers[w]
        message, *rest = server.mail[w]
        server = server._replace(mail=(*server.mail[:w], tuple(rest), *server.mail[w + 1 :]))
        old = server.kept if message.fallback else server.copy
        created = message.kind != "create" or not old.live & ~TOMBSTONES
        if message.kind != "read" and created:
            new = self._merged(old, message.copy, state.order)
            if message.kind == "create":  # it replaces whatever the server knows
                new = message.copy._replace(seen=old.seen | message.copy.seen)
            server = server._replace(kept=new) if message.fallback else server._replace(copy=new)
        state = _put(state, s, server)
        if worker.doing != "waiting" or message.request != len(worker.answers):
            return state  # the worker does not wait for it any more
        action = next_action(self.draft, w + 1, worker.answers)
        read = worker.read
        if message.kind == "read":
            read = self._merged(read, old, state.order)
        heard = worker.heard + (not message.fallback or isinstance(action, Remove))
        worker = worker._replace(heard=heard, read=read)
        if isinstance(action, Ended) or heard < self.setting.needed(action):
            return self._fail(_set(state, w, worker), w)
        answer: Any = None
        if message.kind == "read":
            answer = self._lock(read, state.order)
            servers = [_without(each, w, message.request) for each in state.servers]
            state = state._replace(servers=tuple(servers))
        elif message.kind == "create":
            answer = created
        answers = (*worker.answers, answer)
        doing: Doing = "ready"
        following = next_action(self.draft, w + 1, answers)
        if isinstance(following, Ended):
            doing = "done" if following.step is None else "moved on"
        return _set(state, w, Worker(doing, answers, 0, NOTHING, worker.knows | read.seen))

    def _fail(self, state: State, w: int) -> State:
        """The request of a worker fails if no more answers can come."""
        worker = state.workers[w]
        if worker.doing != "waiting" or any(
            message.request == len(worker.answers)
            for server in state.servers
            for message in server.mail[w]
        ):
            return state
        return _set(state, w, worker._replace(doing="failed"))

    # --- Versions

    def _merged(self, a: Copy, b: Copy, order: tuple[int, ...]) -> Copy:
        """The union of two copies; without siblings, only the write with the latest timestamp."""
        live = (a.live & b.live) | (a.live & ~b.seen) | (b.live & ~a.seen)
        if not self.draft.allow_mult and live & (live - 1):
            live = 1 << max((n for n in order if live >> n & 1), key=order.index)
        return Copy(live, a.seen | b.seen)

    def _lock(self, copy: Copy, order: tuple[int, ...]) -> Lock:
        """A copy as a worker sees it. A tombstone alone is nothing; beside a value it is a sibling."""
        if not copy.live & ~TOMBSTONES:
            return Lock()
        numbers = [n for n in range(2 * self.setting.workers) if copy.live >> n & 1]
        values = [
            Value(0)
            if n % 2
            else Value(
                n // 2 + 1, order.index(n) + 1 if self.draft.allow_mult and n in order else 0
            )
            for n in numbers
        ]
        return Lock(tuple(sorted(values)))

    # --- What must be true

    def check_safe(self, state: State, moves: object = ()) -> None:
        """Never two workers at once.

        Raises:
            Violation: Two workers process the data set.
        """
        at_work = [w + 1 for w, worker in enumerate(state.workers) if worker.doing == "processing"]
        if len(at_work) > 1:
            raise Violation(f"workers {_listed(at_work)} process the data set at once")

    def check_live(self, state: State, moves: object = ()) -> None:
        """A worker processes the data set, unless too few servers can be reached for all of them.

        Raises:
            Violation: All have ended, none of them has processed it, and a lock made one move on.
        """
        doing = [worker.doing for worker in state.workers]
        if "moved on" in doing and all(each in ("moved on", "gave up") for each in doing):
            raise Violation("nobody processes the data set")

    def check_free(self, state: State, moves: Sequence[Move]) -> None:
        """At rest, when nothing has to happen any more, there is no lock: no worker is left.

        Raises:
            Violation: A worker that has ended has left its lock, and another one moved on.
        """
        if all(kind == "down" for kind, _, _ in moves):
            doing = [worker.doing for worker in state.workers]
            left = any(server.copy.live & ~TOMBSTONES for server in state.servers)
            if left and "moved on" in doing and all(each in ENDED for each in doing):
                raise Violation("a lock stays that nobody holds")


def _is_tombstone(copy: Copy) -> bool:
    return bool(copy.live) and not copy.live & ~TOMBSTONES


def _put(state: State, s: int, server: Server) -> State:
    servers = (*state.servers[:s], server, *state.servers[s + 1 :])
    return State(servers, *state[1:])


def _set(state: State, w: int, worker: Worker) -> State:
    workers = (*state.workers[:w], worker, *state.workers[w + 1 :])
    return state._replace(workers=workers)


def _without(server: Server, w: int, request: int) -> Server:
    """A server without the messages of a request that its worker does not wait for."""
    left = tuple(message for message in server.mail[w] if message.request != request)
    if len(left) == len(server.mail[w]):
        return server
    return server._replace(mail=(*server.mail[:w], left, *server.mail[w + 1 :]))


def _listed(numbers: list[int]) -> str:
    return " and ".join(map(str, numbers))
