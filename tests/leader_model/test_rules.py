"""Machines that are wrong in one point: each is caught by a check, and ours is not."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import pytest

from locks.core.messages import RaiseVersion
from locks_lab.leader.explore import explore
from locks_lab.leader.node import EAGER, ONE_WIRE, Uses
from locks_lab.leader.parties import MemberId
from locks_lab.leader.plan import with_clients
from locks_lab.leader.rules import RULES
from locks_lab.leader.runs import replay, run_seeds
from locks_lab.leader.schedule import in_order, settle
from locks_lab.leader.world import ElectionPlan, ElectionWorld
from locks_lab.worlds.host import Violation
from locks_lab.worlds.network import Link

NODES = ("n1", "n2", "n3")


def a_newcomer(rule: str) -> ElectionWorld:
    """A second candidate has started when the first one leads."""
    world = ElectionPlan(instances=((),), eager=ONE_WIRE, rule=rule).world()
    world.start("n1")
    settle(world)
    world.start("n2")
    return world


def a_late_start(rule: str) -> None:
    """A second candidate starts when the first one leads."""
    settle(a_newcomer(rule))


def random_worlds(rule: str, first: int = 0) -> None:
    """What the random tests do."""
    failure = run_seeds(range(first, first + 200), rule=rule)
    if failure is not None:
        raise failure.error


def rare_worlds(rule: str) -> None:
    """The same, not from the beginning."""
    random_worlds(
        rule,
        {
            "retrying": 39,
            "stuck": 66,
            "indiscreet": 102,
            "talkative": 29,
            "unaware": 27,
            "impatient": 240,
        }[rule],
    )


def without(world: ElectionWorld, *links: Link | MemberId) -> None:
    """Carry on with all but the messages on some links, or the news of some instances."""
    while choices := [c for c in world.choices(free=False) if c[1] not in links]:
        world.do(in_order(world, choices))


def a_question_that_takes_long(rule: str) -> None:
    """n1.1 leads n1 and n2, and asks n2.1, who is new, for its state; that takes long.

    It also waits for n3, which was connected just now, and whose candidate leads there. All
    deadlocks are resolved to the debit of n1.1, whose agents are the youngest, and then of n3.1.
    So n2.1 gets the lock everywhere, and asks the others.
    """
    world = ElectionPlan(NODES, instances=((),), rule=rule).world()
    world.nodes["n1"].now, world.nodes["n3"].now = 2 << 40, 1 << 40
    world.split(["n3"])
    settle(world)
    leader, other = world.start("n1"), world.start("n3")
    settle(world)
    contest = world.instance(other).contest
    assert contest is not None
    requests: list[Link] = [(contest.id, "n1"), (contest.id, "n2")]
    world.heal()
    without(world, *requests)
    newcomer = world.start("n2")
    question = (leader, newcomer)
    without(world, *requests, question)
    assert question in world.network.links
    without(world, question)
    settle(world)


def an_announcement_that_takes_long(rule: str) -> None:
    """n1.1 is elected, and dies; n3.1 hears of that long after n2.1 was elected."""
    world = ElectionPlan(NODES, rule=rule).world()
    old, _, follower = (each.ref for each in world.instances)
    while world.instance(old).machine.role != "leader":
        world.do(in_order(world, world.choices(free=False)))
    world.kill(old)
    without(world, (old, follower))
    settle(world)


def a_token_of_fewer_nodes(rule: str) -> None:
    """n1.1 leads n1 and n3, and is about to lead n2, where versions are large.

    n3 is to confirm the new term, and is cut off before. Then a candidate starts there.
    """
    world = ElectionPlan(NODES, instances=((),), rule=rule).world()
    world.split(["n1"], ["n2"])
    settle(world)
    leader = world.start("n1")
    for _ in range(5):
        world.kill(world.start("n2"))
    world.start("n2")
    world.network.mend(("n1", "n3"))
    settle(world)
    contest = world.instance(leader).contest
    assert contest is not None
    to_n3: Link = (contest.id, "n3")
    world.network.mend(("n1", "n2"))
    while not any(isinstance(m, RaiseVersion) for _, m in world.network.links.get(to_n3, ())):
        world.do(in_order(world, world.choices(free=False)))
    without(world, to_n3)
    world.network.cut(("n1", "n3"))
    world.do(("notice", ("n3", "n1")))
    settle(world)
    world.start("n3")
    settle(world)


def a_call_after_the_answer(rule: str) -> None:
    """n2.1 has surrendered the lock, and does not know yet; n1.1 asks it for its state.

    When it has answered that, it is called.
    """
    world = ElectionPlan(eager=EAGER - {"news"}, rule=rule).world()
    world.split(["n1"])
    settle(world)
    world.heal()
    new, old = world.instances
    while old.contest is not None and "n2" in old.contest.lock_info()[0].granted:
        world.do(in_order(world, world.choices(free=False)))
    without(world, old.ref, (old.ref, new.ref))
    world.call(old.ref)
    settle(world)


def a_connection_lost_while_states_are_asked_for(rule: str) -> None:
    """n2.1 is about to lead; n3.1 is lost before it was asked, and back when n4.1 answers.

    What the last leader wrote only n3.1 has.
    """
    world = ElectionPlan((*NODES, "n4"), rule=rule).world()
    settle(world)
    last, new, lost, slow = (each.ref for each in world.instances)
    world.call(last)
    world.do(("deliver", (last, lost)))
    world.do(("crash", "n1"))
    without(world, (last, new), (last, slow), (new, lost), (slow, new))
    poll = world.instance(new).poll
    assert poll is not None
    assert poll.waits == [lost, slow]
    pair, riap = ("n2", "n3"), ("n3", "n2")
    for kind, which in (
        *(("cut", pair), ("notice", pair), ("notice", riap)),
        *(("mend", pair), ("connect", pair), ("notice", pair), ("notice", riap)),
    ):
        world.do((kind, which))
    settle(world)


def the_merge_lock_lost_while_states_are_asked_for(rule: str) -> None:
    """n2.1 asks n3.1 for its state, and the agent of its merge lock ends: it does not wait any more.

    What the last leader wrote only n3.1 has.
    """
    world = ElectionPlan(NODES, rule=rule, uses=Uses(lose=1)).world()
    settle(world)
    last, new, asked = (each.ref for each in world.instances)
    world.call(last)
    world.do(("deliver", (last, asked)))
    world.do(("crash", "n1"))
    without(world, (last, new), (new, asked))
    instance = world.instance(new)
    assert instance.poll is not None
    assert instance.poll.waits == [asked]
    assert instance.merge is not None
    world.do(("lose", instance.merge.id))
    settle(world)
    assert world.instance(new).app.keys == world.instance(asked).app.keys == {"w-1"}


def a_question_of_one_who_is_cut_off(rule: str) -> None:
    """c1.1, of a client program, has won and asks c2.1 for its state; then the servers lose it.

    The two clients are still connected. So c2.1 wins, and asks c1.1.
    """
    plan = with_clients(ElectionPlan(NODES, instances=(("candidate",),), rule=rule), 2)
    world = plan.world()
    old, new = (each.ref for each in world.instances)
    question = (old, new)
    without(world, question)
    assert world.instance(old).poll is not None
    for server in NODES:
        world.do(("cut", (old.node, server)))
        world.do(("notice", (server, old.node)))
    without(world, question, *((old.node, server) for server in NODES))
    poll = world.instance(new).poll
    assert poll is not None
    assert poll.waits == [old]
    settle(world)


def a_victory_that_is_over(rule: str) -> None:
    """c2.1 has won, and the server loses it; c1.1 leads it when c2.1 is told that it has the merge lock."""
    plan = with_clients(
        ElectionPlan(("n1",), instances=(("candidate",),), eager=ONE_WIRE, rule=rule), 2
    )
    world = plan.world()
    there, back = ("c2", "n1"), ("n1", "c2")
    for link in (there, there, back, there):
        world.do(("deliver", link))
    world.do(("cut", there))
    world.do(("notice", back))
    without(world, there, back)
    leader, other = world.instances
    assert other.machine.leader == leader.ref
    world.do(("deliver", back))
    world.heal()
    settle(world)


class Example(NamedTuple):
    """A world in which a rule goes wrong, what is said of it, and by which error."""

    world: Callable[[str], None]
    says: str
    error: type[Exception] = Violation


EXAMPLES = {
    "hasty": Example(random_worlds, "terms fall|two leaders with the same term"),
    "eager": Example(a_question_that_takes_long, "these wait for each other's state"),
    "retrying": Example(rare_worlds, "carried out twice|carries out the call"),
    "loud": Example(random_worlds, "loses|follows None"),
    "clinging": Example(random_worlds, "loses|leads, and must not broadcast"),
    "credulous": Example(an_announcement_that_takes_long, "n3.1 follows"),
    "quiet": Example(random_worlds, "follows"),
    "closed": Example(a_late_start, "n2.1 follows None"),
    "greedy": Example(random_worlds, "leaders in"),
    "deaf": Example(random_worlds, "follows"),
    "patient": Example(a_question_of_one_who_is_cut_off, "these wait for each other's state"),
    "belated": Example(a_victory_that_is_over, "c2.1 follows None"),
    # Agents that end by themselves.
    "unaware": Example(rare_worlds, "loses|leaders in|is syncing"),
    "stuck": Example(rare_worlds, "follows None|leaders in"),
    "oblivious": Example(the_merge_lock_lost_while_states_are_asked_for, "n3.1 loses"),
    # Broadcasts.
    "boastful": Example(random_worlds, "broadcasts, and does not lead"),
    "indiscreet": Example(rare_worlds, "is told what is for candidates"),
    # Calls and casts.
    "indifferent": Example(random_worlds, "have given up in vain"),
    "obstinate": Example(random_worlds, "it was answered"),
    "talkative": Example(rare_worlds, "answers the call for .* twice"),
    "stuttering": Example(random_worlds, "answers the call for r. twice"),
    "mute": Example(random_worlds, "are not answered"),
    "forgetful": Example(random_worlds, "casts through .* are lost"),
    "echoing": Example(random_worlds, "carries out the call for c. twice|carried out twice"),
    # What is taken when, and what is looked at before.
    "blind": Example(a_token_of_fewer_nodes, "terms fall"),
    "trusting": Example(a_call_after_the_answer, "n2.1 loses"),
    "rash": Example(a_connection_lost_while_states_are_asked_for, "n3.1 loses"),
    "impatient": Example(rare_worlds, "'candidate', 'elected'", KeyError),
}

WORLDS = {e.world for e in EXAMPLES.values()} - {random_worlds, rare_worlds}


def test_each_wrong_rule_has_a_counter_example() -> None:
    """No rule is without one but ours, and each says what is wrong with it."""
    assert set(EXAMPLES) == set(RULES) - {"ours"}
    for name, rule in RULES.items():
        assert name == rule.name
        assert rule.about


# Those that need many worlds are slow.
NEEDS_MANY = {"retrying", "stuck"}


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.slow] * (name in NEEDS_MANY)) for name in EXAMPLES],
)
def test_a_wrong_rule_is_caught(name: str) -> None:
    """Its world goes wrong, in the way that is expected."""
    example = EXAMPLES[name]
    with pytest.raises(example.error, match=example.says):
        example.world(name)


@pytest.mark.parametrize("world", sorted(WORLDS, key=str), ids=lambda world: world.__name__)
def test_nothing_is_wrong_there_under_our_rules(world: Callable[[str], None]) -> None:
    """The same worlds, with the machine as it is."""
    world("ours")


def test_what_goes_wrong_can_be_replayed() -> None:
    """The schedule of a run that went wrong leads to the same violation again."""
    failure = run_seeds(range(14, 200), rule="loud")
    assert failure is not None
    with pytest.raises(Violation) as caught:
        replay(failure.drawn.plan, failure.schedule)
    assert str(caught.value) == str(failure.error)


def test_what_an_exploration_finds_can_be_replayed() -> None:
    """What leads to a violation is told as choices of the world."""
    with pytest.raises(Violation) as caught:
        explore(a_newcomer("closed"))
    world = a_newcomer("closed")
    for choice in caught.value.schedule:  # type: ignore[attr-defined]
        world.do(choice)
    with pytest.raises(Violation) as again:
        world.check_quiet()
    assert str(again.value) == str(caught.value)
