"""Schedules of worlds, chosen at random by a policy.

    any      any choice
    skewed   some links are many times as slow as others
    oldest   usually messages in the order of sending
    quiet    clients take their next steps only when nothing else can happen, and agents settle when
             all messages have arrived

A run with faults has two phases. In the first phase anything may happen, and faults come now and
then. When nothing else can happen, clients may wait only for nodes that are down. In the second
phase there are no more faults, and everything is repaired. Then all clients must finish.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, Literal, NoReturn, Protocol, TypeVar, get_args

from locks.errors import InvalidOption, assert_never
from locks_lab.worlds.client import SERIALS
from locks_lab.worlds.events import Choice
from locks_lab.worlds.host import Violation
from locks_lab.worlds.network import Network
from locks_lab.worlds.world import World

__all__ = [
    "POLICIES",
    "AnyChoice",
    "Chooser",
    "Policy",
    "Simulated",
    "calm",
    "carry_on",
    "endless",
    "finish",
    "now_and_then",
    "run",
    "usual_rank",
]

Policy = Literal["any", "skewed", "oldest", "quiet"]
POLICIES: tuple[Policy, ...] = get_args(Policy)

FAULT_RATE = 0.03  # how likely the next event is a fault

REPAIRS = ("mend", "restart")

AnyChoice = tuple[str, Any]  # an event and its parties, in any world
C = TypeVar("C", bound=AnyChoice)


class Simulated(Protocol[C]):
    """A world that can run under a schedule: of locks, or of elections."""

    network: Network

    def choices(self, faults: bool, /) -> list[C]:
        """All events that are possible next; with `faults`, also those that never need to happen."""
        ...  # pragma: no cover

    def do(self, choice: C, /) -> None:
        """Make one of the choices happen."""
        ...  # pragma: no cover

    def check_quiet(self) -> None:
        """Make the checks when nothing needs to happen any more."""
        ...  # pragma: no cover


# --- The loop -----------------------------------------------------------------------------------


def carry_on(
    world: Simulated[C],
    choose: Callable[[Any, list[C]], C],
    limit: int,
    schedule: list[C] | None = None,
    fault: Callable[[bool], C | None] = lambda quiet: None,
) -> int:
    """Continue until nothing needs to happen any more.

    Args:
        world: The world.
        choose: Chooses one of the possible events that need to happen.
        limit: The largest number of events.
        schedule: The events are added here, for a replay.
        fault: Returns a fault that happens instead, or None. It is called before each event, with
            whether nothing else can happen.

    Returns:
        The number of events.

    Raises:
        Violation: A check failed, or the run does not end.
    """
    for number in range(limit):
        choices = world.choices(False)
        choice = fault(not choices)
        if not choices:
            world.check_quiet()
        if choice is None:
            if not choices:
                return number
            choice = choose(world, choices)
        if schedule is not None:
            schedule.append(choice)
        world.do(choice)
    endless(limit)


def endless(limit: int) -> NoReturn:
    """Say that there have been too many events."""
    raise Violation(f"no end after {limit} events")


def now_and_then(
    rng: random.Random, rate: float, faults: Callable[[bool], list[C]]
) -> Callable[[bool], C | None]:
    """Faults for `carry_on`: one happens with this probability, or if nothing else can happen.

    Args:
        rng: The source of the choices.
        rate: The probability that the next event is a fault, while there are any.
        faults: Returns the possible faults; called with whether nothing else can happen.
    """

    def fault(quiet: bool) -> C | None:
        found = faults(quiet)
        return rng.choice(found) if found and (quiet or rng.random() < rate) else None

    return fault


# --- At random ----------------------------------------------------------------------------------


def oldest_message(world: Simulated[Any], choices: list[Any]) -> Any:
    """The arrival of the message that was sent first; nothing if none is on its way."""
    links = [what for kind, what in choices if kind == "deliver"]
    return ("deliver", world.network.oldest(links)) if links else None


class Chooser:
    """Chooses the next event, by a policy.

    Args:
        rng: The source of its choices.
        policy: See this module.
        in_order: For the policy `oldest`: returns the usual choice, or None if it may be any.
    """

    def __init__(
        self,
        rng: random.Random,
        policy: Policy,
        in_order: Callable[[Any, list[Any]], Any] = oldest_message,
    ) -> None:
        self.rng = rng
        self.policy = policy
        self.in_order = in_order
        self.pace: dict[Any, float] = {}

    def __call__(self, world: Simulated[C], choices: list[C]) -> C:
        """One of the choices."""
        rng = self.rng
        match self.policy:
            case "any":
                pass
            case "skewed":
                return rng.choices(choices, [self._weight(choice) for choice in choices])[0]
            case "oldest":
                if rng.random() < 0.9:
                    first: C | None = self.in_order(world, choices)
                    if first is not None:
                        return first
            case "quiet":
                for kind in ("deliver", "settle"):
                    found = [choice for choice in choices if choice[0] == kind]
                    if found:
                        return rng.choice(found)
            case _:
                assert_never(self.policy)
        return rng.choice(choices)

    def _weight(self, choice: C) -> float:
        if choice[0] != "deliver":
            return 0.2
        if choice not in self.pace:
            self.pace[choice] = 10 ** self.rng.uniform(-2.5, 0)
        return self.pace[choice]


def calm(world: World, rng: random.Random, quiet: bool = False) -> None:
    """Carry on until only clients can do anything; `quiet` is the policy of that name."""
    choose = Chooser(rng, "quiet" if quiet else "any")
    while choices := [c for c in world.choices(False) if c[0] not in ("step", "time out")]:
        world.do(choose(world, choices))


def run(
    world: World,
    rng: random.Random,
    policy: Policy = "any",
    limit: int = 200_000,
    fault_rate: float = FAULT_RATE,
    schedule: list[Choice] | None = None,
) -> None:
    """Continue until nothing can happen any more; then all must be finished and clean.

    Args:
        world: The world.
        rng: The source of all choices.
        policy: How choices are made.
        limit: The largest number of events.
        fault_rate: The probability that the next event is a fault, while there are any.
        schedule: The events are added here, for a replay.

    Raises:
        Violation: A check failed.
    """

    def faults(quiet: bool) -> list[Choice]:
        if not _is_faulty(world):
            return []
        found = world.fault_choices()
        if quiet and all(client.finished for client in world.clients):
            return [choice for choice in found if choice[0] in REPAIRS]
        return found

    fault = now_and_then(rng, fault_rate, faults)
    carry_on(world, Chooser(rng, policy), limit, schedule, fault)
    world.check_end()


def _is_faulty(world: World) -> bool:
    """Whether a fault may happen, or be mended."""
    network = world.network
    return bool(world.mortal or world.cuts or world.crashes or network.apart or network.crashed)


# --- In order -----------------------------------------------------------------------------------


def finish(
    world: World,
    limit: int = 200_000,
    schedule: list[Choice] | None = None,
    turns: Iterable[int] = (),
) -> None:
    """Continue until all clients have finished, always in the same order, without new faults.

    Messages arrive in the order of sending, and agents settle when all messages have arrived. Only
    then nodes notice changes of other nodes, and clients take their steps in turn. Faults are
    repaired.

    Args:
        world: The world.
        limit: The largest number of events.
        schedule: The events are added here.
        turns: The clients that take the first steps, by number.

    Raises:
        Violation: A check failed.
        InvalidOption: A client whose turn it is cannot take a step.
    """
    wanted = deque(turns)
    turn = 0  # the client that took the last step

    def choose(world: World, choices: list[Choice]) -> Choice:
        nonlocal turn
        choice = min(choices, key=lambda choice: usual_rank(world, choice, turn))
        if wanted and choice[0] in ("step", "time out"):
            choice = _next_turn(choices, wanted.popleft())
        if choice[0] == "step":
            turn = choice[1]
        return choice

    def repair(quiet: bool) -> Choice | None:
        if not quiet:
            return None
        if wanted:
            return _next_turn([], wanted.popleft())
        found = [choice for choice in world.fault_choices() if choice[0] in REPAIRS]
        return min(found, key=lambda choice: usual_rank(world, choice, turn), default=None)

    carry_on(world, choose, limit, schedule, repair)
    world.check_end()


def _next_turn(choices: list[Choice], number: int) -> Choice:
    """The next step of a client, if it can take one."""
    choice: Choice = ("step", number)
    if choice not in choices:
        ready = [what for kind, what in choices if kind == "step"]
        raise InvalidOption(f"turns: client {number} can't take a step; can: {ready}")
    return choice


def usual_rank(world: World, choice: Choice, turn: int) -> tuple[int, int]:
    """The rank of a choice in `finish`, the smallest first; `turn` is the client that took the last step."""
    match choice:
        case ("deliver", link):
            number: int = world.links[link][0][0]
            return 0, number
        case ("settle", _):
            return 1, 0
        case ("notice", _):
            return 2, 0
        case ("connect", _):
            return 3, 0
        case ("step", number):
            return 4, number + SERIALS * (number <= turn)
        case ("time out", _):
            return 5, 0
        case ("mend", _):
            return 6, 0
        case ("restart", _):
            return 7, 0
        case ("cut" | "crash", _) | ("die", _):
            return 8, 0  # not here: no faults come
        case _:
            assert_never(choice)
