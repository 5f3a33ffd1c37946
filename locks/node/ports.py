"""The ports of a node: the interfaces that its actors need, as protocols.

A node makes its lock server and its agents, and carries their messages. They know it by these
protocols only, so imports go one way: the ports, then `agent` and `server`, then the modules for
other nodes, then `dispatch`, then `node`. Any class with these interfaces can replace a node, as a
simulated one does (`locks.runtime.port`).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

from locks.core.agent.requests import needed
from locks.core.messages import AgentEffect, AgentMessage, ServerEffect, ServerMessage
from locks.errors import InvalidOption
from locks.model import AgentId, LockId, LockResult, Mode, RequestRecord, Require, View, show
from locks.node.observing.statistics import Counters
from locks.runtime.inline import Turn
from locks.runtime.monitor import Client, Ending
from locks.runtime.waiter import Waiter

if TYPE_CHECKING:
    from typing_extensions import TypeVarTuple, Unpack

    Ts = TypeVarTuple("Ts")

__all__ = [
    "Answering",
    "AskedAlready",
    "Background",
    "NodePort",
    "PendingCall",
    "Scope",
    "Servers",
]

T = TypeVar("T")


class AskedAlready(Exception):
    """The lock is requested already, by another thread of the same owner, or by the caller."""


class PendingCall:
    """One call of a client that waits for its answer.

    Attributes:
        result: The answer, once there is one.
        begun: Whether it has requested anything.
        checked: Whether its caller is known to be the client.
        first: Whether it fails if the lock is requested already, except by an acquisition that
            shares it.
        acquisition: The acquisition of an `RLock` that it is made for, if any.
        token: The fencing token of the lock, if it was known in the turn that requested the lock.
        quiet: Whether a timeout error leaves out the holders.
        sent: Whether its request was sent to another node's lock server before the agent had a machine.
    """

    __slots__ = (
        *("_waiter", "acquisition", "begun", "checked", "first", "quiet", "result", "sent"),
        "token",
    )

    def __init__(self) -> None:
        self.result: LockResult | int | Exception | None = None
        self.token: int | None = None
        self.acquisition: Any = None
        self.begun = False
        self.checked = False
        self.first = False
        self.quiet = False
        self.sent = False
        self._waiter: Waiter | None = None

    @property
    def waiter(self) -> Waiter:
        """Its waiter. The caller gets the waiter before it checks for a result.

        So no caller sleeps through the answer: the result is set before the waiter is woken.
        """
        if self._waiter is None:
            self._waiter = Waiter()
        return self._waiter

    def renew(self) -> None:
        """It is waited for anew, with a waiter that was not woken; the caller checks for a result afterwards."""
        self._waiter = Waiter()

    def answer(self, result: LockResult | int | Exception) -> None:
        """Give the answer and wake the client."""
        self.result = result
        if self._waiter is not None:
            self._waiter.wake()


class Answering(NamedTuple):
    """A wait that does not block: a function is called with the answer when it comes."""

    answer: Callable[[Any], object]


class Background(Protocol):
    """Where foreign code is called, outside of the turn; `locks.runtime.executor.Executor` is the real one."""

    def run_soon(self, function: Callable[[Unpack[Ts]], object], *args: Unpack[Ts]) -> bool:
        """Call a function soon, after all that was given before; returns whether it will: not when the node has stopped."""

    def tell(self, function: Callable[[Unpack[Ts]], object], *args: Unpack[Ts]) -> None:
        """Call a function of the program, which may block, after its earlier calls; functions that are equal are one."""

    def call(self, function: Callable[[Unpack[Ts]], T], *args: Unpack[Ts]) -> T:
        """Call a function there, and wait for its result."""

    def stop(self, timeout: float | None = None) -> object:
        """End it, after the work that it was given."""

    def is_here(self) -> bool:
        """Whether it is a function that was given to it that calls this."""


class Scope(NamedTuple):
    """Where a lock is taken.

    Attributes:
        nodes: On which nodes.
        require: How many of them are needed.
    """

    nodes: tuple[str, ...]
    require: Require

    @property
    def needed(self) -> int:
        """How many of the nodes a lock needs while all are up."""
        return needed(self.require, self.nodes, self.nodes)


class Servers(NamedTuple):
    """The lock servers of a program. All programs that share some of them must have the same.

    Attributes:
        nodes: Their names.
        require: How many of those that have an id a lock needs.
        copies: How many of them have each id (`locks.core.placement`); 0 if all have all ids.
    """

    nodes: tuple[str, ...]
    require: Require
    copies: int = 0

    @classmethod
    def alone(cls, name: str) -> Servers:
        """Those of a node that is its own and only server."""
        return cls((name,), "all")

    @property
    def everywhere(self) -> Scope | None:
        """Where all locks are taken; `None` if that depends on the id."""
        return None if self.copies else Scope(self.nodes, self.require)

    @property
    def of_an_id(self) -> int:
        """How many of them have each id."""
        return self.copies or len(self.nodes)

    @property
    def needed(self) -> int:
        """How many servers a lock needs."""
        return Scope(self.nodes[: self.of_an_id], self.require).needed

    @property
    def enough(self) -> int:
        """How many of the servers must be up so that every lock can be taken."""
        return len(self.nodes) - self.of_an_id + self.needed

    def at(self, lock_id: LockId) -> Scope:
        """Where a lock is taken.

        Raises:
            InvalidOption: The id covers ids that are on different servers.
        """
        nodes = self.around(lock_id)
        if len(nodes) != self.of_an_id:
            raise InvalidOption(
                f"can't lock {show(lock_id)}, or ask for its queue: it covers ids that are on different servers (copies={self.copies}); "
                "name one of these ids, or nodes=[...]",
                lock_id=lock_id,
            )
        return Scope(nodes, self.require)

    def around(self, lock_id: LockId) -> tuple[str, ...]:
        """The servers that have an id, or ids that are related to it."""
        if not self.copies:
            return self.nodes
        from locks.core.placement import key_of  # most programs need none of it

        key = key_of(lock_id)
        return _placed(key, self.nodes, self.copies) if key else self.nodes


@lru_cache(maxsize=1024)
def _placed(key: tuple[Any, ...], servers: tuple[str, ...], copies: int) -> tuple[str, ...]:
    from locks.core.placement import place
    from locks.net.messages import encode

    return place(encode(key), servers, copies)


class Spans(Protocol):
    """Receives the waits and locks of clients, for `locks.tracing`. Never called in a turn."""

    def waiting(self, agent: Any) -> Callable[[Any], None] | None:
        """Note that a client begins to wait; return a function to call with the answer, or with `None`."""

    def granted(self, agent: Any, lock_ids: Iterable[LockId]) -> None:
        """Note that a client holds these locks; it may have held some of them before."""

    def released(self, agent: AgentId, lock_id: LockId) -> None:
        """A client has released a lock before the end of its transaction."""

    def ended(self, agent: AgentId, reason: Exception | None) -> None:
        """A transaction has ended, with a reason unless its client has ended it."""


class NodePort(Protocol):
    """The part of a node that agents and lock servers need. All but `log` and `stop` is for the turn."""

    name: str
    alive: frozenset[str]  # the nodes whose lock servers can be asked
    silent: frozenset[str]  # of these, those that are connected but do not answer
    refusals: dict[str, str]  # why nodes that run can't be connected
    program: str  # the text for the program behind the names of its clients
    is_clustered: bool  # whether other nodes may hear of its locks
    servers: Servers | None  # where locks are taken; `None` if none was set, and none was used yet
    scope: Scope | None  # where all locks are taken, if that is known and does not depend on the id
    turn: Turn
    touched: dict[Any, int]  # the actors of this turn, and how long their histories were before
    unsettled: dict[Any, None]  # agents that look for deadlocks at the end of this turn
    counters: Counters
    thin: Any  # the `ThinLocks` of its clients
    now: Callable[[], int]  # the time, in nanoseconds since 1970
    clock: Callable[[], float]  # returns the time in seconds; it never goes back

    @property
    def executor(self) -> Background:
        """Where foreign code is called."""

    @property
    def clients(self) -> Mapping[Hashable, Mapping[Any, None]]:
        """The agents of each client that has transactions here, by its key."""

    @property
    def agents_by_id(self) -> Mapping[AgentId, Any]:
        """The agents that live here."""

    def look_awake(self) -> None:
        """Notice that others may have lost this node while its program did not run. Not in the turn."""

    def place_of(self, name: str) -> str | None:
        """The address at which another node is looked for, as text, if known."""

    def spawn_agent(
        self,
        client: Client | None = None,
        created: int | None = None,
        keep: Callable[[Any], object] | None = None,
        label: str | None = None,
        **options: Any,
    ) -> Any:
        """Begin a transaction, of the caller by default; not in a turn."""

    def hand_over(self, agent: Any, client: Ending) -> None:
        """An agent has another client from now on."""

    def agent_ref(self, agent: AgentId) -> Any:
        """A reference to an agent of this node or of a connected one; `None` if there is none."""

    def deliver(self, receiver: Any, message: ServerMessage | AgentMessage) -> None:
        """Put a message for the lock server, or an agent of this node, into the queue."""

    def perform(self, sender: Any, effects: Sequence[ServerEffect | AgentEffect]) -> None:
        """Carry out effects of a machine."""

    def request(
        self, agent: AgentId, client: str, lock_id: LockId, mode: Mode
    ) -> tuple[RequestRecord, ...]:
        """Make an agent's request by a direct call; return its records, or none if it must send a message."""

    def watcher_down(self, watcher: Any) -> None:
        """An actor that watched lock ids has ended."""

    def watchers_elsewhere(self, lock_id: LockId) -> list[Any]:
        """The readers on other nodes that watch exactly this lock id of this node."""

    def view(
        self,
        lock_id: LockId,
        node: str | tuple[str, ...] | None = None,
        timeout: float | None = None,
        patient: bool = True,
    ) -> View:
        """The view of a lock id on this node or another one; of several nodes, on one that is not silent."""

    def log(self, text: str, *args: Any) -> None:
        """Log an error, outside of the turn."""

    def check_running(self) -> None:
        """Raise `NodeNotRunning` when the node was stopped."""

    def stop(self) -> None:
        """Stop the node."""
