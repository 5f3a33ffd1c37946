"""Every order in which things can happen to two candidates on two nodes.

Run with -s to see for each world how many states there are. `make explore` explores more of
them than `make test`, and `LOCKS_EXPLORE=1` larger ones, too.
"""

from __future__ import annotations

import pytest

from locks_lab.leader.explore import TooManyStates, explore
from locks_lab.leader.node import EAGER, ONE_WIRE, Uses
from locks_lab.leader.plan import PolicyName, policy_for, with_clients
from locks_lab.leader.schedule import settle
from locks_lab.leader.world import ElectionPlan
from tests.helpers import EXPLORE

explored = pytest.mark.skipif(not EXPLORE, reason="takes minutes: set LOCKS_EXPLORE=1")
NODES = ("n1", "n2")
MAILBOXES = ONE_WIRE - {"take"}  # and instances take what has come in at any moment
NEWS = ONE_WIRE - {"news"}  # and what agents notify comes in at any moment
LINKS = EAGER  # and each pair of parties has a link
ALL = frozenset({"wire", "news"})  # all parties take their time, on one connection
# What users do; each at any moment.
USES = [
    Uses(call=1, cancel=1),
    Uses(odd=1),
    Uses(cast=1),
    Uses(broadcast=1),
    Uses(lose=1),
]


# Among two nodes a quorum of both is a majority, reached another way.
BOTH = ["majority", pytest.param("quorum", marks=pytest.mark.explore)]
policies = pytest.mark.parametrize("policy", ["island", *BOTH])


def named(uses: Uses) -> list[str]:
    """What users do there."""
    return [kind for kind, often in uses._asdict().items() if often]


@policies
@pytest.mark.parametrize(
    "calls", [0, *(pytest.param(calls, marks=pytest.mark.explore) for calls in (1, 2))]
)
def test_a_split_and_a_heal_at_any_moment(policy: PolicyName, calls: int) -> None:
    """Two candidates start; the connection is cut and mended, and calls are made, at any moment.

    Whatever the order, what must always be true is, it comes to an end, and both agree then.
    """
    plan = ElectionPlan(
        NODES, policy=policy_for(policy, NODES), eager=ONE_WIRE, cuts=1, uses=Uses(call=calls)
    )
    outcome = explore(plan.world())
    print(f"{policy}, {calls} calls: {outcome}")
    assert outcome.quiet > 3
    assert outcome.elections > 1


@policies
@pytest.mark.parametrize("calls", [0, pytest.param(2, marks=pytest.mark.explore)])
def test_a_split_and_a_heal_of_settled_candidates(policy: PolicyName, calls: int) -> None:
    """The same when both have agreed before anything happens."""
    plan = ElectionPlan(
        NODES, policy=policy_for(policy, NODES), eager=ONE_WIRE, cuts=1, uses=Uses(call=calls)
    )
    world = plan.world()
    settle(world)
    outcome = explore(world)
    print(f"{policy}, {calls} calls: {outcome}")
    assert outcome.quiet >= 3


@pytest.mark.parametrize(
    ("servers", "cuts", "uses", "settled"),
    [
        (1, 1, Uses(), True),
        pytest.param(2, 1, Uses(), True, marks=pytest.mark.explore),
        pytest.param(1, 1, Uses(call=1), True, marks=pytest.mark.explore),
        pytest.param(1, 2, Uses(), True, marks=explored),
        pytest.param(1, 1, Uses(lose=1), True, marks=explored),
        pytest.param(1, 1, Uses(), False, marks=explored),
    ],
)
def test_client_programs(servers: int, cuts: int, uses: Uses, settled: bool) -> None:
    """Two candidates on nodes that don't count; any connection is cut and mended at any moment."""
    plan = ElectionPlan(NODES[:servers], instances=(("candidate",),), eager=ONE_WIRE)
    world = with_clients(plan._replace(cuts=cuts, uses=uses), 2).world()
    if settled:
        settle(world)
    outcome = explore(world)
    print(f"{servers} servers, {cuts} cuts, {uses}: {outcome}")
    assert outcome.quiet > 3


@pytest.mark.parametrize("policy", ["island", "majority"])
@pytest.mark.parametrize("uses", USES, ids=lambda uses: "+".join(named(uses)))
def test_what_users_do_around_a_split(policy: PolicyName, uses: Uses) -> None:
    """A caller gives up, a cast is made, an agent ends by itself, ... at any moment around a split."""
    plan = ElectionPlan(NODES, policy=policy_for(policy, NODES), eager=ONE_WIRE, cuts=1, uses=uses)
    world = plan.world()
    settle(world)
    outcome = explore(world)
    print(f"{policy}, {named(uses)}: {outcome}")
    assert outcome.quiet > 3


@pytest.mark.slow
@policies
@pytest.mark.parametrize(
    "eager",
    [
        pytest.param(MAILBOXES, id="take", marks=pytest.mark.explore),
        pytest.param(NEWS, id="news", marks=pytest.mark.explore),
        pytest.param(LINKS, id="links", marks=pytest.mark.explore),
        pytest.param(ALL, id="all"),
    ],
)
def test_start_in_every_order(policy: PolicyName, eager: frozenset[str]) -> None:
    """Two candidates start, in finer steps: mailboxes, links or parties take their time, too."""
    plan = ElectionPlan(NODES, policy=policy_for(policy, NODES), eager=eager)
    outcome = explore(plan.world())
    print(f"{policy}, {sorted(eager)}: {outcome}")
    assert outcome.ends
    assert outcome.elections == 1


@pytest.mark.parametrize("instances", [(("candidate", "candidate"),), (("candidate", "worker"),)])
def test_several_on_a_node(instances: tuple[tuple[str, ...], ...]) -> None:
    """Two instances on each node, a cut and a mend at any moment."""
    world = ElectionPlan(NODES, instances=instances, eager=ONE_WIRE, cuts=1).world()  # type: ignore[arg-type]
    settle(world)
    print(explore(world))


@pytest.mark.explore
@pytest.mark.parametrize("policy", [pytest.param("island", marks=explored), "majority", "quorum"])
@pytest.mark.parametrize(
    "eager",
    [MAILBOXES, LINKS],
    ids=["take", "links"],
)
def test_a_split_and_a_heal_in_every_order(policy: PolicyName, eager: frozenset[str]) -> None:
    """Settled candidates are cut off, and connected again at any moment, in finer steps."""
    world = ElectionPlan(NODES, policy=policy_for(policy, NODES), eager=eager).world()
    settle(world)
    world.split(["n1"])
    print(f"{policy}, {sorted(eager)}: {explore(world)}")


@explored
@pytest.mark.parametrize("policy", ["majority", "quorum"])
def test_a_split_and_a_heal_while_all_take_their_time(policy: PolicyName) -> None:
    """The same in the finest steps, with one connection for each pair of nodes."""
    world = ElectionPlan(NODES, policy=policy_for(policy, NODES), eager=ALL).world()
    settle(world)
    world.split(["n1"])
    print(f"{policy}: {explore(world, limit=3_000_000)}")


def test_too_many_states() -> None:
    """A world with more states than allowed proves nothing, and says so."""
    with pytest.raises(TooManyStates, match="nothing is proven"):
        explore(ElectionPlan(NODES, eager=ONE_WIRE, cuts=1).world(), limit=100)
