"""Random worlds of elections by seed: the participants, the faults, and the schedule.

The seed and the arguments determine everything.
"""

from __future__ import annotations

import random
from typing import Literal, NamedTuple, get_args

from locks.model import majority
from locks_lab.leader.node import EAGER, Uses
from locks_lab.leader.schedule import ORDERS, Order
from locks_lab.leader.world import ElectionPlan
from locks_leader.core.messages import Kind
from locks_leader.policy import Policy, quorum

__all__ = [
    "GRAINS",
    "Drawn",
    "Grain",
    "PolicyName",
    "draw",
    "node_names",
    "policy_for",
    "with_clients",
]

PolicyName = Literal["island", "majority", "quorum"]
Grain = Literal["nodes", "mailboxes", "parties"]
# Which events are eager: all events within a node; or all except those of mailboxes; or none.
GRAINS: dict[Grain, frozenset[str]] = {
    "nodes": EAGER,
    "mailboxes": EAGER - {"take"},
    "parties": frozenset(),
}
INSTANCES: tuple[tuple[tuple[Kind, ...], ...], ...] = (
    (("candidate",),),
    (("candidate",),),
    (("candidate", "candidate"), ("candidate",)),
    (("candidate", "worker"),),
    (("candidate",), ("candidate",), ("worker",)),
)


class Drawn(NamedTuple):
    """A random world and how it runs.

    Attributes:
        plan: The world before it runs.
        order: How its schedule is chosen.
        rate: The probability that the next event is one that never needs to happen.
    """

    plan: ElectionPlan
    order: Order
    rate: float


def node_names(nodes: int) -> tuple[str, ...]:
    """Names of nodes."""
    return tuple(f"n{number}" for number in range(1, nodes + 1))


def with_clients(plan: ElectionPlan, clients: int) -> ElectionPlan:
    """The world with more nodes, those of client programs, which have the candidates.

    The old nodes are the electorate, like lock servers.
    """
    servers = plan.nodes
    names = tuple(f"c{number}" for number in range(1, clients + 1))
    kinds = [plan.instances[number % len(plan.instances)] for number in range(clients)]
    return plan._replace(
        nodes=servers + names,
        instances=((),) * len(servers) + tuple(kinds),
        policy=policy_for("majority", servers),
    )


def policy_for(name: PolicyName, nodes: tuple[str, ...]) -> Policy:
    """A policy for some nodes, under which two leaders at once are impossible but for islands."""
    if name == "island":
        return Policy()
    most = majority(len(nodes))
    return quorum(most) if name == "quorum" else Policy(most, frozenset(nodes))


def draw(
    seed: int,
    rng: random.Random,
    nodes: int | None = None,
    policy: PolicyName | None = None,
    grain: Grain | None = None,
    rule: str = "ours",
    clients: int = 0,
) -> Drawn:
    """The world of a seed.

    Args:
        seed: The seed.
        rng: The source of all random choices; the schedule must be drawn from it, too.
        nodes: The number of nodes; 2 to 4 by default.
        policy: The election's policy.
        grain: Which events are eager.
        rule: The machines of the world.
        clients: The number of additional nodes, which then have the candidates (`with_clients`).
    """
    drawn_nodes = rng.choice((2, 3, 3, 4))
    names = node_names(nodes or drawn_nodes)
    drawn_policy = rng.choice(("island", *get_args(PolicyName)))
    drawn_grain = rng.choice(get_args(Grain))
    later: tuple[tuple[str, Kind], ...] = tuple(
        (rng.choice(names), "candidate") for _ in range(rng.choice((0, 0, 2)))
    )
    plan = ElectionPlan(
        names,
        instances=rng.choice(INSTANCES),
        later=later,
        policy=policy_for(policy or drawn_policy, names),
        rule=rule,
        eager=GRAINS[grain or drawn_grain],
        downs_first=rng.random() < 0.5,
        uses=Uses(
            call=rng.choice((0, 3, 10)),
            cast=rng.choice((0, 3)),
            odd=rng.choice((0, 3)),
            cancel=rng.choice((0, 3)),
            broadcast=rng.choice((0, 2)),
            lose=rng.choice((0, 0, 3)),
        ),
        cuts=rng.randint(0, 8),
        crashes=rng.choice((0, 0, 1, 2)),
        kills=rng.choice((0, 0, 1)),
        yields=rng.choice((0, 0, 0, 2)),
    )
    if clients:
        plan = with_clients(plan, clients)
    return Drawn(plan, rng.choice(ORDERS), rng.choice((0.02, 0.1, 0.3)))
