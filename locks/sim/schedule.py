"""How a world runs: schedules that are chosen at random, by a policy.

    any      any choice
    skewed   some links are many times as slow as others
    oldest   messages in the order in which they were sent, as a rule
    quiet    clients take their next steps only when nothing else can happen, and agents look at what
             they know when all has arrived
    timed    by the clock: messages take a random time, some of them a long one, clients think, and
             agents look at what they know when nothing more has arrived; the world's time goes on

A run with faults has two phases. In the first one anything may happen, and faults come now and then;
whoever waits when nothing else can happen must do so for nodes that are down. When no faults are
left, and all that was broken is mended, everybody must finish.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Iterable
from typing import Literal, NoReturn, get_args

from locks.errors import InvalidOption
from locks.sim.client import SERIALS
from locks.sim.host import Violation
from locks.sim.world import Choice, World

__all__ = ["POLICIES", "Chooser", "Policy", "calm", "endless", "finish", "run"]

Policy = Literal["any", "skewed", "oldest", "quiet", "timed"]
POLICIES: tuple[Policy, ...] = get_args(Policy)

FAULT_RATE = 0.03  # how likely the next event is a fault

REPAIRS = ("mend", "restart")
ORDER = ("deliver", "settle", "notice", "connect", "step", "time out", *REPAIRS)

# Mean delays in seconds of virtual time, by the kind of choice.
DELAYS = {
    "step": 0.002,
    "time out": 0.05,
    "notice": 0.02,
    "connect": 0.05,
    "deliver": 0.001,
    "settle": 0.0,
}


class Chooser:
    """Chooses what happens next, by a policy.

    Args:
        rng: Where its choices come from.
        policy: See this module.
    """

    def __init__(self, rng: random.Random, policy: Policy) -> None:
        self.rng = rng
        self.policy = policy
        self.pace: dict[Choice, float] = {}
        self.due: dict[tuple[Choice, int], float] = {}

    def __call__(self, world: World, choices: list[Choice]) -> Choice:
        """One of the choices."""
        rng = self.rng
        if self.policy == "timed":
            return self._first_due(world, choices)
        if self.policy == "skewed":
            return rng.choices(choices, [self._weight(choice) for choice in choices])[0]
        if self.policy == "quiet":
            for kind in ("deliver", "settle"):
                found = [choice for choice in choices if choice[0] == kind]
                if found:
                    return rng.choice(found)
        elif self.policy == "oldest" and rng.random() < 0.9:
            links = [what for kind, what in choices if kind == "deliver"]
            if links:
                return ("deliver", world.network.oldest(links))
        return rng.choice(choices)

    def _weight(self, choice: Choice) -> float:
        if choice[0] != "deliver":
            return 0.2
        if choice not in self.pace:
            self.pace[choice] = 10 ** self.rng.uniform(-2.5, 0)
        return self.pace[choice]

    def _first_due(self, world: World, choices: list[Choice]) -> Choice:
        """The choice that is due first; each is given its time when it becomes possible."""
        due: dict[tuple[Choice, int], float] = {}
        best, first = choices[0], float("inf")
        for choice in choices:
            began, key = world.network.time, (choice, 0)
            if choice[0] == "deliver":
                number, began, _ = world.links[choice[1]][0]
                key = (choice, number)
            when = self.due.get(key)
            if when is None:
                mean = DELAYS[choice[0]]
                if choice[0] == "deliver":
                    mean *= self._pace(choice)
                when = began + self.rng.expovariate(1 / mean) if mean else began
            due[key] = when
            if when < first:
                best, first = choice, when
        self.due = due
        world.network.time = max(world.network.time, first)
        return best

    def _pace(self, choice: Choice) -> float:
        """Most links are fast, some are slow."""
        if choice not in self.pace:
            self.pace[choice] = 30.0 if self.rng.random() < 0.1 else 1.0
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
    """Carry on until nothing can happen any more; then all must be finished and clean.

    Args:
        world: The world.
        rng: Where all choices come from.
        policy: How they are made.
        limit: The most events.
        fault_rate: How likely each next event is a fault, while there are any left.
        schedule: Where what happens is kept, to be replayed.

    Raises:
        Violation: Something is not as it must be.
    """
    choose = Chooser(rng, policy)
    done = [] if schedule is None else schedule
    for _ in range(limit):
        choices = world.choices(faults=False)
        faults = world.fault_choices() if _is_faulty(world) else []
        if not choices:
            world.check_quiet()
            if all(client.finished for client in world.clients):
                faults = [choice for choice in faults if choice[0] in REPAIRS]
            if not faults:
                break
        if faults and (not choices or rng.random() < fault_rate):
            choice = rng.choice(faults)
        else:
            choice = choose(world, choices)
        done.append(choice)
        world.do(choice)
    else:
        endless(limit)
    world.check_end()


def endless(limit: int) -> NoReturn:
    """Say that there have been too many events."""
    raise Violation(f"no end after {limit} events")


def _is_faulty(world: World) -> bool:
    """Whether a fault may happen, or be mended."""
    network = world.network
    return bool(world.mortal or world.cuts or world.crashes or network.apart or network.crashed)


def finish(
    world: World,
    limit: int = 200_000,
    schedule: list[Choice] | None = None,
    turns: Iterable[int] = (),
) -> None:
    """Carry on, always in the same way, until all is finished: faults are mended, and none come.

    Messages arrive in the order in which they were sent; agents look when all has arrived; only
    then, nodes notice what has become of others, and clients take their steps in turn.

    Args:
        world: The world.
        limit: The most events.
        schedule: Where what happens is kept.
        turns: Who takes the first steps, by number.

    Raises:
        Violation: Something is not as it must be.
        InvalidOption: A client whose turn it is can't take a step.
    """
    done = [] if schedule is None else schedule
    wanted = deque(turns)
    turn = 0
    for _ in range(limit):
        choices = world.choices(faults=False)
        if wanted and all(choice[0] in ("step", "time out") for choice in choices):
            choices = [_next_turn(choices, wanted.popleft())]
        elif not choices:
            world.check_quiet()
            choices = [choice for choice in world.fault_choices() if choice[0] in REPAIRS]
            if not choices:
                break
        choice = min(choices, key=lambda choice: _rank(world, choice, turn))
        if choice[0] == "step":
            turn = choice[1]
        done.append(choice)
        world.do(choice)
    else:
        endless(limit)
    world.check_end()


def _next_turn(choices: list[Choice], number: int) -> Choice:
    """The next step of a client, if it can take one."""
    choice = ("step", number)
    if choice not in choices:
        ready = [what for kind, what in choices if kind == "step"]
        raise InvalidOption(f"turns: client {number} can't take a step; can: {ready}")
    return choice


def _rank(world: World, choice: Choice, turn: int) -> tuple[int, int]:
    """What comes first when all is finished; `turn` is the client that took the last step."""
    kind, what = choice
    if kind == "deliver":
        number: int = world.links[what][0][0]
    elif kind == "step":
        number = what + SERIALS * (what <= turn)
    else:
        number = 0
    return ORDER.index(kind), number
