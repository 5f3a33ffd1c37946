"""Schedules that were once found to go wrong, step by step."""

from __future__ import annotations

import random

from locks_lab.schedules.schedule import run
from locks_lab.worlds.world import World

A, B, C, D = ("a",), ("b",), ("c",), ("d",)
BOTH = (("n1", "n2"), "all")


def finish(world: World) -> None:
    """Deliver and carry on until all have finished."""
    run(world, random.Random(0), "quiet")


def test_an_upgrade_that_is_asked_for_again_is_not_held_by_the_read_lock() -> None:
    """After a withdrawn upgrade, asking again must wait, although the read lock is granted."""
    world = World(
        [[("lock", A, "read"), ("try", A, "write"), ("lock", A, "write")], [("lock", A, "read")]]
    )
    world.step(1, 2)
    world.deliver()
    world.step(1)
    world.deliver()
    world.do(("time out", 1))
    world.step(1)  # while the release of the upgrade is not answered
    assert not world.clients[0].ready, "client 1 has a write lock beside client 2's read lock"
    finish(world)


def test_standing_elsewhere_is_told_again_after_all_was_released() -> None:
    """A lock server forgets an agent without requests; what it does elsewhere is told again."""
    world = World(
        [
            [("lock", A, "write", *BOTH), ("unlock", A), ("lock", A, "write", *BOTH)],
            [("lock", A, "write", *BOTH)],
        ],
        nodes=("n1", "n2"),
    )
    world.step(1)
    world.deliver()
    world.step(1, 1)  # unlocks and asks again: new requests are sent when the release is answered
    world.step(2)
    world.deliver_one(2, "n1")  # 2 stands behind 1 on n1
    world.deliver("n1")  # and gets it when 1's release comes
    world.deliver_between(1, "n2")
    world.deliver_between("n2", 1)  # released: 1 asks n2 again
    world.deliver_between(1, "n2")  # 1 has n2 again, before 2 comes there
    world.deliver()
    finish(world)


def test_knowledge_that_comes_while_a_request_is_unanswered_is_not_lost() -> None:
    """An agent that still waits for an answer, but waits for no lock, is told again later.

    2 has waited for d, and has got it, when 1 tells it that 3 stands behind 1's own wait; only
    then does 2 learn that its request for c waits for 1. Nobody else can tell 3 of 2 and 1.
    """
    world = World(
        [
            [("lock", C, "write"), ("lock", B, "write")],
            [("lock", A, "write"), ("ask", D, "write"), ("ask", C, "write"), ("await",)],
            [("lock", B, "write"), ("lock", A, "write")],
            [("lock", D, "write")],
        ]
    )
    world.step(1, 2, 3, 4)
    world.deliver()
    world.step(2, 2)  # asks for d and c
    world.deliver_one(2, "n1")
    world.deliver_one("n1", 2)  # d waits
    world.step(4)
    world.deliver_one(4, "n1")  # d is granted
    world.deliver_one(2, "n1")  # c waits
    world.step(1, 3)
    world.deliver("n1", 1, 3)
    world.deliver_one("n1", 2)  # d is granted
    world.deliver_one(1, 2)
    world.deliver()
    finish(world)


def test_a_deadlock_between_two_requests_that_stand_in_one_queue() -> None:
    """Somebody ahead in a queue may wait for nobody but an agent behind it.

    2 stands behind 1 for a row, and then gets the whole table, ahead of 1, because 3 waits for 2.
    So 1 waits for 2's table, and 2 for 1's place in the queue of the row.
    """
    row, other, below_other = ("a", 1), ("a", 2), ("a", 2, "x")
    world = World(
        [
            [("lock", row, "write")],
            [("lock", below_other, "write"), ("ask", row, "write"), ("lock", A, "write")],
            [("lock", row, "write"), ("lock", other, "write")],
        ]
    )
    for number in (3, 2, 3, 1):
        world.step(number)
        world.deliver()
    world.step(2, 2)
    finish(world)


def test_a_lock_surrendered_while_an_upgrade_is_withdrawn_is_not_held() -> None:
    """What becomes of the read lock is taken in, although a release on its id is not answered.

    1 and 2 both read and want to write. 2 surrenders and, at the same time, gives up wanting.
    """
    world = World(
        [
            [("lock", A, "read"), ("lock", A, "write")],
            [("lock", A, "read"), ("try", A, "write"), ("await",)],
        ]
    )
    world.step(1, 2)
    world.deliver()
    world.step(1, 2)
    world.deliver("n1")
    world.deliver(2)
    assert world.sent["Surrender"] == 1
    world.do(("time out", 2))
    world.step(2)  # waits until it has what is left of its lock requests: the read lock
    world.deliver("n1")
    world.deliver(2)
    finish(world)


def test_two_agents_that_surrender_one_lock_node_by_node() -> None:
    """After a deadlock an agent is told again of all its locks, also where it waits for nothing.

    2 has the lock on n1 and n2, and 1 has it on n3. 2 gives it up on one node after the other.
    """
    nodes = ("n1", "n2", "n3")
    for seed in range(20):
        want = [("lock", A, "write", nodes, "all")]
        world = World([want, want], nodes)
        world.step(1, 2)
        for client, node in ((2, "n1"), (2, "n2"), (1, "n3")):
            world.deliver_one(client, node)
        run(world, random.Random(seed))


def test_a_request_that_goes_ahead_of_others_closes_a_deadlock() -> None:
    """A conversion stands ahead of one that its agent already waits for with another request.

    1 stands behind 4's part of the table; then it asks for the whole table, ahead of 3, which waits
    for 1, and so ahead of 4 as well. From now on 1 and 4 wait for each other.
    """
    x, y, part, other = ("a", 1, "x"), ("a", 2, "y"), ("a", 2), ("a", 1)
    world = World(
        [
            [("ask", x, "read"), ("ask", y, "write"), ("lock", A, "write")],
            [("ask", y, "read")],
            [("lock", other, "write")],
            [("ask", part, "write"), ("await",)],
        ]
    )
    for number in (1, 3, 2, 4, 1, 1):
        world.step(number)
        world.deliver()
    finish(world)
