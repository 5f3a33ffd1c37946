"""Ownership over several nodes of one process: joining, leaving, leaders that end, parted networks."""

from __future__ import annotations

import logging
import threading
from typing import Any

import pytest

import locks
import locks_leader
from locks.ownership import Backlog, NotOwner, OwnershipEnded
from locks_leader import Ownership
from tests.cluster.nodes import Nodes
from tests.helpers import eventually
from tests.leader.members import (
    GROUPS,
    NAMES,
    Diary,
    Hand,
    hire,
    join,
    leader_of,
    part,
    shared,
    staff,
)

THREE = NAMES[:3]
MAJORITY: dict[str, Any] = {"policy": "majority", "nodes": THREE}
POLICIES = [pytest.param({}, id="island"), pytest.param(MAJORITY, id="majority")]


def gained(*workers: Ownership) -> list[int]:
    """How many groups each was granted."""
    return [worker.statistics().gained for worker in workers]


def kill(worker: Ownership) -> None:
    """Kill its candidate."""
    assert worker._participant is not None
    locks.actors.kill(worker._participant)


def oldest(worker: Ownership) -> int:
    """The smallest of its tokens; 0 if it owns nothing."""
    return min(worker.owned().values(), default=0)


def lost(*workers: Ownership) -> list[int]:
    """How many groups each has lost."""
    return [worker.statistics().lost for worker in workers]


# --- Coming and going -----------------------------------------------------------------------------


def test_an_agreement_for_each_who_comes_or_goes(nodes: Nodes) -> None:
    """Six workers that come one by one and five that go: eleven agreements at most, for all groups.

    A new leader knows how many there were before.
    """
    met = nodes.meet(*THREE, mesh=False)
    workers: list[Ownership] = []
    for node in [*met, *met]:
        workers.append(hire(node, **MAJORITY))
        eventually(lambda: shared(workers))
    assert leader_of(workers).statistics().agreements <= 6
    while len(workers) > 1:
        leader = leader_of(workers)
        leader.stop()
        workers.remove(leader)
        eventually(lambda: shared(workers))
    assert 6 < workers[0].statistics().agreements <= 11


@pytest.mark.parametrize("policy", POLICIES)
def test_a_newcomer_and_a_leaver_move_what_must_move(nodes: Nodes, policy: dict[str, Any]) -> None:
    """Each group that moves goes to the newcomer, or comes from the leaver; tokens rise."""
    diary = Diary()
    one, two, three = nodes.meet(*THREE, mesh=False)
    workers = [hire(n, **diary.callbacks(i), **policy) for i, n in enumerate((one, two))]
    eventually(lambda: shared(workers))
    workers.append(hire(three, **diary.callbacks(2), **policy))
    eventually(lambda: shared(workers))
    assert gained(workers[2]) == [4]
    moved = sum(gained(*workers)), sum(lost(*workers))
    workers[2].stop()
    eventually(lambda: shared(workers[:2]))
    assert (sum(gained(*workers)), sum(lost(*workers[:2]))) == (moved[0] + 4, moved[1])
    eventually(lambda: not workers[2].joined)
    diary.check()


def test_a_leaver_ends_its_task_first(nodes: Nodes) -> None:
    """What a leaver has at hand is not handed on before its end, nor is what was asked back."""
    diary = Diary()
    met = nodes.meet(*THREE, mesh=False)
    old = hire(met[0], **diary.callbacks(0))
    eventually(lambda: shared([old]))
    hands = [Hand(old, group) for group in range(GROUPS)]
    new = hire(met[1], **diary.callbacks(1))
    eventually(lambda: len(old.owned()) == GROUPS // 2)
    assert not new.owned()
    for hand in hands[: GROUPS - 1]:
        hand.put_down()
    old.stop()
    with pytest.raises((NotOwner, OwnershipEnded)), old.hold(0):
        pass
    hands[-1].put_down()
    eventually(lambda: shared([new]))
    diary.check()


def test_a_worker_ends_with_its_thread(nodes: Nodes) -> None:
    """A thread that has joined, and ends: its groups go to the others, and using its part says so."""
    one, two = nodes.meet(*NAMES[:2], mesh=False)
    left = hire(one, **{"policy": "majority", "nodes": NAMES[:2]})
    hired: list[Ownership] = []
    may_end = threading.Event()

    def work() -> None:
        hired.append(hire(two, policy="majority", nodes=NAMES[:2]))
        may_end.wait(20)

    thread = threading.Thread(target=work)
    thread.start()
    eventually(lambda: bool(hired) and shared([left, hired[0]]))
    may_end.set()
    thread.join()
    eventually(lambda: shared([left]))
    with pytest.raises(OwnershipEnded), hired[0].hold(1):
        pass


def test_a_callback_that_fails(nodes: Nodes, caplog: pytest.LogCaptureFixture) -> None:
    """It ends that worker's part, with its exception as the cause; the others take over."""
    caplog.set_level(logging.CRITICAL, "pykka")
    one, two = nodes.meet(*NAMES[:2], mesh=False)

    def fail(group: int, token: int) -> None:
        raise ValueError("as it was asked to")

    left = hire(one)
    eventually(lambda: shared([left]))
    broken = hire(two, on_gained=fail)
    eventually(lambda: not broken.joined)
    eventually(lambda: shared([left]))
    with pytest.raises(OwnershipEnded) as caught, broken.hold(1):
        pass
    assert isinstance(caught.value.__cause__, ValueError)


def test_it_can_join_again(nodes: Nodes) -> None:
    """A worker that has left may take part anew; while it does, it can't join once more."""
    (worker,) = staff(nodes, NAMES[:1])
    with pytest.raises(locks.MisuseError):
        worker.join()
    before = worker.owned()
    worker.stop()
    eventually(lambda: not worker.joined)
    with worker:
        eventually(lambda: shared([worker]))
        assert min(worker.owned().values()) > max(before.values())
    assert not worker.joined
    assert worker.statistics().at_hand == 0


def test_a_join_that_is_broken_off(nodes: Nodes) -> None:
    """`KeyboardInterrupt`, or a kill, when the others know of the worker already: it keeps nothing."""

    (worker,) = staff(nodes, NAMES[:1])

    class Interrupted(Ownership):
        def _start(self, part: Any) -> None:
            super()._start(part)
            eventually(lambda: worker.statistics().agreements > 1)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Interrupted("ingest", GROUPS, group_for=int, node=nodes.started[0]).join()
    eventually(lambda: shared([worker]))


def test_the_end_of_a_node(nodes: Nodes) -> None:
    """Workers of a node that is stopped are told so; the others take over."""
    workers = staff(nodes, **MAJORITY)
    nodes.started[0].stop()
    eventually(lambda: shared(workers[1:]))
    with pytest.raises(OwnershipEnded), workers[0].hold(0):
        pass


def test_workers_of_a_node_run_a_backlog(nodes: Nodes) -> None:
    """Two nodes with a backlog each, of the same tasks: each task is done by the owner of its group."""
    tasks = list(range(200))
    done: list[int] = []
    threads, workers = [], []
    for node in nodes.meet(*NAMES[:2], mesh=False):
        backlog = Backlog(tasks, groups=GROUPS, group_for=group_of, more=True)
        worker = Ownership("ingest", GROUPS, group_for=group_of, node=node)
        handler = lambda task, token: done.append(task)  # noqa: E731
        threads.append(threading.Thread(target=worker.run, args=(backlog, handler)))
        threads[-1].start()
        workers.append(worker)
    eventually(lambda: set(done) == set(tasks))
    eventually(lambda: shared(workers))
    for worker in workers:
        worker.stop()
    for thread in threads:
        thread.join(10)
    assert not any(thread.is_alive() for thread in threads)
    assert sum(worker.statistics().done for worker in workers) == len(done)


def group_of(task: Any) -> int:
    """The group of a task that is its own resource."""
    return int(task) % GROUPS


# --- Leaders that end -----------------------------------------------------------------------------


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("end", ["stop", "kill", "node"])
def test_groups_stay_where_they_are_when_a_leader_ends(
    nodes: Nodes, end: str, policy: dict[str, Any]
) -> None:
    """Only the leader's own groups move: nobody loses one, and those that are gained were its."""
    workers = staff(nodes, **policy)
    leader = leader_of(workers)
    others = [worker for worker in workers if worker is not leader]
    before = [worker.owned().keys() for worker in others]
    counts = sum(gained(*others)), sum(lost(*others))
    if end == "stop":
        leader.stop()
    elif end == "kill":
        kill(leader)
    else:
        nodes.started[workers.index(leader)].stop()
    eventually(lambda: shared(others))
    for worker, owned in zip(others, before, strict=True):
        assert owned <= worker.owned().keys()
    assert (sum(gained(*others)), sum(lost(*others))) == (counts[0] + 4, counts[1])


def test_a_task_at_hand_outlives_the_leader(nodes: Nodes) -> None:
    """Who has a task at hand when the leader dies keeps the group; the next task has a larger token."""
    diary = Diary()
    met = nodes.meet(*THREE, mesh=False)
    workers = [hire(n, **diary.callbacks(i), **MAJORITY) for i, n in enumerate(met)]
    eventually(lambda: shared(workers))
    leader = leader_of(workers)
    one, two = (worker for worker in workers if worker is not leader)
    group = min(one.owned())
    hand = Hand(one, group)
    leader.stop()
    eventually(lambda: shared([one, two]))
    eventually(lambda: one.owned()[group] > hand.token)
    hand.put_down()
    diary.check()


def test_nothing_is_begun_without_a_leader(nodes: Nodes) -> None:
    """Cut off from all others, a worker begins nothing under "majority"; what it has at hand goes on."""
    workers = staff(nodes, **MAJORITY)
    hand = Hand(workers[0], min(workers[0].owned()))
    part(nodes.started[:1], nodes.started[1:])
    eventually(lambda: not workers[0].owned())
    assert workers[0].statistics().at_hand == 1
    with pytest.raises(NotOwner), workers[0].hold(0):
        pass
    hand.put_down()
    eventually(lambda: shared(workers[1:]))


# --- A network that is parted ---------------------------------------------------------------------


@pytest.mark.parametrize("leads", [True, False])
def test_a_minority_begins_nothing(nodes: Nodes, leads: bool) -> None:
    """The majority shares out all groups, with larger tokens; after the heal all do, with larger ones.

    It makes no difference on which side the leader was.
    """
    workers = staff(nodes, NAMES, policy="majority", nodes=NAMES)
    before = {group: token for worker in workers for group, token in worker.owned().items()}
    leader = workers.index(leader_of(workers))
    small = [leader, (leader + 1) % 5] if leads else [(leader + 1) % 5, (leader + 2) % 5]
    large = [number for number in range(5) if number not in small]
    parts = [[nodes.started[n] for n in numbers] for numbers in (small, large)]
    part(*parts)
    eventually(lambda: not any(workers[n].owned() for n in small))
    eventually(lambda: shared(workers[n] for n in large))
    between = {g: t for n in large for g, t in workers[n].owned().items()}
    assert all(between[group] >= token for group, token in before.items())
    assert sum(between[group] > token for group, token in before.items()) >= 4
    join(*parts)
    eventually(lambda: shared(workers))
    after = {group: token for worker in workers for group, token in worker.owned().items()}
    assert all(after[group] >= token for group, token in between.items())


def test_islands_own_all_and_meet(nodes: Nodes) -> None:
    """Under "island" each part shares out all groups; after the heal each has one owner.

    Its token is larger than those of both parts.
    """
    workers = staff(nodes, NAMES[:4])
    parts = [nodes.started[:1], nodes.started[1:]]
    part(*parts)
    eventually(lambda: shared(workers[:1]) and shared(workers[1:]))
    apart = [worker.owned() for worker in workers]
    join(*parts)
    newest = max(token for owned in apart for token in owned.values())
    eventually(lambda: shared(workers) and min(oldest(worker) for worker in workers) > newest)


def test_workers_on_nodes_that_do_not_count(nodes: Nodes) -> None:
    """Three nodes count, and a worker on a fourth one owns groups; it begins nothing without them."""
    workers = staff(nodes, NAMES[:4], **MAJORITY)
    part(nodes.started[:3], nodes.started[3:])
    eventually(lambda: shared(workers[:3]))
    eventually(lambda: not workers[3].owned())
    join(nodes.started[:3], nodes.started[3:])
    eventually(lambda: shared(workers))


# --- What is refused ------------------------------------------------------------------------------


def test_another_number_of_groups(nodes: Nodes) -> None:
    """Who has another number of groups than the leader is told so, and takes no part."""
    one, two = nodes.meet(*NAMES[:2], mesh=False)
    first = hire(one)
    eventually(lambda: shared([first]))
    wrong = hire(two, groups=GROUPS + 1)
    eventually(lambda: not wrong.joined)
    said = "12 groups, but this one has groups=13"
    with pytest.raises(OwnershipEnded, match=said) as caught, wrong.hold(0):
        pass
    assert isinstance(caught.value.__cause__, locks.errors.InvalidOption)
    eventually(lambda: shared([first]))


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"name": 1.5}, "can't be shared"),
        ({"name": ["a"]}, "can't be shared"),
        ({"groups": 0}, "groups=0"),
        ({"groups": 40_000}, "groups=40000 is more than 32,768"),
        ({"policy": "lions"}, "unknown policy 'lions'"),
        ({"policy": "majority"}, "the nodes of which it is a majority"),
        ({"policy": "island", "nodes": ["a@h"]}, '"island" cannot be combined'),
        ({"policy": "majority", "nodes": "a@h"}, "pass a list"),
        ({"on_gained": 17}, "on_gained=17"),
        ({"group_for": 17}, "group_for=17"),
    ],
)
def test_bad_arguments(options: dict[str, Any], text: str) -> None:
    """Each is refused when the worker is made, with a message that says what was wrong."""
    with pytest.raises(locks.errors.InvalidOption, match=text):
        Ownership(**{"name": "ingest", **options})


def test_it_is_the_same_face(nodes: Nodes) -> None:
    """It is a `Worker` like that of one process, and both have the same methods."""
    public = {name for name in dir(Ownership) if not name.startswith("_")}
    assert public == {name for name in dir(locks.ownership.Ownership) if not name.startswith("_")}
    assert "Ownership" in locks_leader.__all__
