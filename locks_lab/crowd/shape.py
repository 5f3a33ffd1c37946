"""The parameters of a crowd: numbers, times and faults. A `Shape` and a seed decide everything."""

from __future__ import annotations

from typing import Literal, NamedTuple, get_args

from locks.model import Require

__all__ = ["FAULTS", "ORDERS", "Fault", "FaultKind", "Learn", "OnDeadlock", "Order", "Shape"]

Order = Literal["sorted", "opposite", "random", "together"]
OnDeadlock = Literal["abort", "surrender"]
Learn = Literal["no", "free", "one-by-one"]
FaultKind = Literal["silent", "slow", "restart"]

ORDERS: tuple[Order, ...] = get_args(Order)
FAULTS: tuple[FaultKind, ...] = get_args(FaultKind)


class Fault(NamedTuple):
    """A server is in trouble for a while.

    Attributes:
        kind: `silent`: it reads nothing, and its connections last. `slow`: each step takes `factor`
            times as long. `restart`: it ends, and runs again after that while without its locks.
        node: Which one.
        at: When that begins.
        lasts: How long that lasts, in seconds.
        factor: How many times as long a step takes.
    """

    kind: FaultKind
    node: str
    at: float
    lasts: float
    factor: float = 5.0


class Shape(NamedTuple):
    """A crowd. All times are in seconds of virtual time.

    Attributes:
        clients: The number of clients, spread evenly over the programs.
        servers: The number of lock servers: n1, n2, ...
        programs: The number of programs: p1, p2, ...
        processors: How many processors the lock servers share; by default each has its own.
        locks: The number of lock ids.
        pick: How many of them each transaction locks.
        order: The order of these locks: `sorted`; `opposite`: every second client in reverse order;
            `random`; or `together`, in one request.
        reads: The share of clients that read: the first ones of each program.
        rounds: How many transactions each client runs, one after the other.
        hold: How long a transaction works when it holds all its locks.
        between: How long it works between one lock and the next.
        think: How long a client pauses between two transactions.
        arrive: The period over which the clients' start times are spread.
        require: How many of the servers a lock needs.
        on_deadlock: What a transaction does when it must give way.
        learn: What an aborted transaction does with the locks that it wanted before: nothing; or it
            locks them first, if they are free together (`locks.retries.Learned`), or one by one.
        delay: How long a message takes.
        jitter: By which share of `delay` a message may take longer, drawn from the seed.
        faults: The faults of servers.
    """

    clients: int = 100
    servers: int = 3
    programs: int = 3
    processors: int = 0
    locks: int = 1
    pick: int = 1
    order: Order = "sorted"
    reads: float = 0.0
    rounds: int = 1
    hold: float = 0.001
    between: float = 0.0
    think: float = 0.0
    arrive: float = 0.0
    require: Require = "majority"
    on_deadlock: OnDeadlock = "abort"
    learn: Learn = "no"
    delay: float = 50e-6
    jitter: float = 0.2
    faults: tuple[Fault, ...] = ()

    @property
    def nodes(self) -> tuple[str, ...]:
        """The names of the lock servers."""
        return tuple(f"n{number}" for number in range(1, self.servers + 1))
