"""What the actors of a node need of it, as protocols.

A node makes its lock server and its agents, and carries what they say to each other. They know it by
these protocols only, so imports go one way: the ports, then `agent` and `server`, then what has to do
with other nodes, then `dispatch`, then `node`. Whatever keeps a port can stand in for a node, as a simulated one does
(`locks.runtime.port`).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, TypeVar

from locks.core.agent.lines import Lines
from locks.core.agent.machine import AgentMachine
from locks.core.messages import AgentEffect, AgentMessage, ServerEffect, ServerMessage
from locks.model import AgentId, LockId, LockResult, Mode, RequestRecord, Require, View
from locks.node.history import Event
from locks.node.observing.statistics import Counters
from locks.runtime import Client, Down, Ending, Monitor, Waiter
from locks.runtime.inline import Turn

__all__ = [
    "Answering",
    "AskedAlready",
    "Background",
    "NodePort",
    "OriginalGuard",
    "PendingCall",
    "Scope",
]

T = TypeVar("T")


class AskedAlready(Exception):
    """What was to be asked for first is asked for already: by another thread of the same owner, or by the caller."""


class PendingCall:
    """One call of a client that waits for its answer.

    Attributes:
        result: The answer, once there is one.
        begun: Whether anything was asked for with it.
        checked: Whether it is known that its client calls.
        first: Whether it fails if the lock is asked for already, but for an acquisition that shares it.
        acquisition: The acquisition of an `RLock` that it is made for, if it is for one.
        token: The fencing token of the lock, if that was known in the turn that requested it.
        quiet: Whether nobody is told who has what it has waited for in vain.
    """

    __slots__ = ("_waiter", "acquisition", "begun", "checked", "first", "quiet", "result", "token")

    def __init__(self) -> None:
        self.result: LockResult | int | Exception | None = None
        self.token: int | None = None
        self.acquisition: Any = None
        self.begun = False
        self.checked = False
        self.first = False
        self.quiet = False
        self._waiter: Waiter | None = None

    @property
    def waiter(self) -> Waiter:
        """What it waits with. Who waits looks here before it looks whether there is a result.

        So nobody sleeps through the answer: that is put down before it is looked whom to wake.
        """
        if self._waiter is None:
            self._waiter = Waiter()
        return self._waiter

    def answer(self, result: LockResult | int | Exception) -> None:
        """Give the answer and wake the client."""
        self.result = result
        if self._waiter is not None:
            self._waiter.wake()


class Answering(NamedTuple):
    """A wait that blocks nobody: the answer is told whenever it comes."""

    answer: Callable[[Any], object]


class Background(Protocol):
    """Where foreign code is called, outside of the turn; `locks.runtime.Executor` is the real one."""

    def run_soon(self, function: Callable[..., object], *args: Any) -> None:
        """Call a function soon, after all that was given before."""

    def tell(self, function: Callable[..., object], *args: Any) -> None:
        """Call a function of the program, which may block, after its earlier calls; functions that are equal are one."""

    def call(self, function: Callable[..., T], *args: Any) -> T:
        """Call a function there, and wait for what it returns."""

    def stop(self, timeout: float | None = None) -> object:
        """End it, after the work that it was given."""

    def is_here(self) -> bool:
        """Whether it is a function that was given to it that calls this."""


class Scope(NamedTuple):
    """Where locks are taken.

    Attributes:
        nodes: On which nodes.
        require: How many of them are needed.
    """

    nodes: tuple[str, ...]
    require: Require


class OriginalGuard(Protocol):
    """Refuses what can't be promised for locks on nodes that run the original."""

    def check_unlock(self, agent: AgentMachine, lock_id: LockId) -> None:
        """Raise `MisuseError` if the lock can't be released before the transaction ends."""

    def check_token(self, agent: AgentMachine, lock_id: LockId) -> None:
        """Raise `InvalidOption` if the lock has no fencing token."""


class Spans(Protocol):
    """Who wants to know what clients wait for and hold; `locks.tracing` does. Never called in a turn."""

    def waiting(self, agent: Any) -> Callable[[Any], None] | None:
        """A client begins to wait; returns what is to be called with the answer, or with `None` if there is none."""

    def granted(self, agent: Any, lock_ids: Iterable[LockId]) -> None:
        """A client has these locks; it may have had some of them before."""

    def released(self, agent: AgentId, lock_id: LockId) -> None:
        """A client has released a lock before the end of its transaction."""

    def ended(self, agent: AgentId, reason: Exception | None) -> None:
        """A transaction has ended, with a reason unless its client has ended it."""


class NodePort(Protocol):
    """What an agent, or a lock server, needs of its node. All but `log` and `stop` is for the turn."""

    name: str
    alive: frozenset[str]  # the nodes whose lock servers can be asked
    silent: frozenset[str]  # of these, those that are connected and say nothing
    refusals: dict[str, str]  # why nodes that run can't be connected
    program: str  # what others see behind the names of its clients
    is_clustered: bool  # whether other nodes may hear of its locks
    scope: Scope | None  # where locks are taken; `None`: it was not said, and there was none yet
    turn: Turn
    touched: list[tuple[Any, Event]]  # what was put down in this turn, and in whose history
    unsettled: dict[Any, None]  # agents that are to look for deadlocks at the end of this turn
    counters: Counters
    lines: Lines
    now: Callable[[], int]  # the time, in nanoseconds since 1970
    clock: Callable[[], float]  # tells the time in seconds from somewhere on; it is never set back

    @property
    def executor(self) -> Background:
        """Where foreign code is called."""

    @property
    def clients(self) -> Mapping[Hashable, Mapping[Any, None]]:
        """The agents of each client that has transactions here, by its key."""

    @property
    def agents_by_id(self) -> Mapping[AgentId, Any]:
        """The agents that live here."""

    @property
    def guard(self) -> OriginalGuard | None:
        """What refuses calls, if nodes that run the original may be asked."""

    def place_of(self, name: str) -> str | None:
        """Where another node is looked for, in words, if that is known."""

    def spawn_agent(
        self,
        client: Client | None = None,
        created: int | None = None,
        keep: Callable[[Any], object] | None = None,
        **options: Any,
    ) -> Any:
        """Begin a transaction, of the caller by default; not in a turn."""

    def hand_over(self, agent: Any, client: Ending) -> None:
        """An agent has another client from now on."""

    def agent_ref(self, agent: AgentId) -> Any:
        """A reference to an agent, of this node or of one that is connected; `None` if there is none."""

    def deliver(self, receiver: Any, message: ServerMessage | AgentMessage) -> None:
        """Put a message for the lock server, or an agent of this node, into the queue."""

    def perform(self, sender: Any, effects: Sequence[ServerEffect | AgentEffect]) -> None:
        """Do what a machine wants done."""

    def request(
        self, agent: AgentId, client: str, lock_id: LockId, mode: Mode
    ) -> tuple[RequestRecord, ...]:
        """Make an agent's request at the own lock server; return what the agent is told, nothing if it has to send a message."""

    def knows_agent(self, agent: AgentId) -> bool:
        """Whether an agent lives here, or may live on a node that is connected."""

    def monitor_agent(self, agent: AgentId, told: Callable[[Down], object]) -> Monitor | None:
        """Have the end of an agent told, of this node or of one that is connected; not in a turn.

        Returns:
            The monitor; `None` if there is no such agent here, or its node is not connected.
        """

    def watcher_down(self, watcher: Any) -> None:
        """An actor that watched lock ids has ended."""

    def watchers_elsewhere(self, lock_id: LockId) -> list[Any]:
        """The processes of other nodes that watch exactly this lock id of this node."""

    def view(
        self,
        lock_id: LockId,
        node: str | tuple[str, ...] | None = None,
        timeout: float | None = None,
        patient: bool = True,
    ) -> View:
        """What is known of a lock id on this node, or on another one; of several nodes on one that is not silent."""

    def log(self, text: str, *args: Any) -> None:
        """Log an error, outside of the turn."""

    def stop(self) -> None:
        """Stop the node."""
