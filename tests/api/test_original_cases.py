"""The local cases of the original's own test list, under their names there."""

from __future__ import annotations

import pytest

import locks
from tests.api.clients import Run
from tests.helpers import eventually

L = ("locks_tests", "l")


def test_simple_lock(run: Run) -> None:
    """A client locks an id and ends its transaction; the agent is gone then."""
    (one,) = run.begin(1)
    assert one.lock(L).get() == ("have_all_locks", ())
    assert one.holds(L)
    one.end()
    assert not one.agent.is_alive()
    assert locks.queue(L).requests == ()


def test_one_lock_two_clients(run: Run) -> None:
    """The second client gets the lock when the first one dies."""
    one, two = run.begin(2)
    one.lock(L).get()
    answer = two.lock(L)
    run.until_waiting(two, L)
    assert not answer.ready
    run.stop(one)
    assert answer.get() == ("have_all_locks", ())
    assert two.holds(L)


def test_one_lock_wrr_clients(run: Run) -> None:
    """Two readers that wait for a writer get the lock together when it ends."""
    one, two, three = run.begin(3)
    one.lock(L, "write").get()
    two.lock_nowait(L, "read")
    three.lock_nowait(L, "read")
    assert two.waits(L)
    assert three.waits(L)
    one.end()
    assert two.await_all().get() == ("have_all_locks", ())
    assert three.await_all().get() == ("have_all_locks", ())
    assert two.holds(L)
    assert three.holds(L)


def test_three_locks_three_clients(run: Run) -> None:
    """Three clients that ask for the same three locks in different orders all get them in the end.

    In the original either the first or the second one wins the deadlock; here the older one does.
    """
    l1, l2, l3 = ((*L, i) for i in (1, 2, 3))
    one, two, three = run.begin(3)
    one.lock(l1, "write").get()
    one.lock(l2, "write").get()
    two.lock_nowait(l2, "write")
    one.lock_nowait(l3, "write")
    three.lock_nowait(l3, "write")
    two.lock_nowait(l3, "write")
    three.lock_nowait(l1, "write")
    two.lock_nowait(l1, "write")
    assert one.await_all().get().status == "have_all_locks"
    assert two.status().status == "waiting"
    one.end()
    eventually(lambda: two.status().status == "have_all_locks" or three.holds(l3))
    two.end()
    assert three.await_all().get().status == "have_all_locks"
    assert three.lock(l2, "write").get().status == "have_all_locks"
    assert three.await_all().get().status == "have_all_locks"


def test_lock_merge(run: Run) -> None:
    """A client that reads one child and writes another may write their parent too."""
    (one,) = run.begin(1)
    assert one.lock((*L, 1), "read").get() == ("have_all_locks", ())
    assert one.lock((*L, 2), "write").get() == ("have_all_locks", ())
    assert one.lock(L, "write").get() == ("have_all_locks", ())
    assert all(info.held for info in locks.original.lock_info(one.agent))


def test_lock_upgrade1(run: Run) -> None:
    """A client upgrades its read lock on the parent; a reader of a child waits for it."""
    one, two = run.begin(2)
    one.lock(L, "read").get()
    one.lock(L, "write").get()
    answer = two.lock((*L, 1), "read")
    run.until_waiting(two, (*L, 1))
    run.stop(one)
    assert answer.get() == ("have_all_locks", ())


def test_lock_upgrade1_while_the_child_waits(run: Run) -> None:
    """A client upgrades its read lock on the parent while a writer of a child waits for it."""
    one, two = run.begin(2)
    one.lock(L, "read").get()
    answer = two.lock((*L, 1), "write")
    run.until_waiting(two, (*L, 1))
    assert one.lock(L, "write").get() == ("have_all_locks", ())
    assert not answer.ready
    run.stop(one)
    assert answer.get() == ("have_all_locks", ())


def test_lock_upgrade2(run: Run) -> None:
    """An upgrade of the parent waits for a reader of a child."""
    one, two = run.begin(2)
    one.lock(L, "read").get()
    two.lock((*L, 1), "read").get()
    answer = one.lock(L, "write")
    run.until_waiting(one, L)
    assert one.holds(L)  # for reading, still
    assert not answer.ready
    run.stop(two)
    assert answer.get() == ("have_all_locks", ())
    assert {c.mode for c in locks.holders(L)} == {"read", "write"}


def test_lock_upgrade3(run: Run) -> None:
    """Of two readers who both upgrade, the older one gets the lock, the other after it.

    The original leaves open which one is first.
    """
    one, two = run.begin(2)
    one.lock(L, "read").get()
    two.lock(L, "read").get()
    one.lock_nowait(L, "write")
    two.lock_nowait(L, "write")
    status, deadlocks = one.await_all().get()
    assert status == "have_all_locks"
    assert [d.agent for d in deadlocks] == [two.agent.id]
    assert two.status().status == "waiting"
    assert not two.holds(L)
    run.stop(one)
    status, deadlocks = two.await_all().get()
    assert status == "have_all_locks"
    assert [d.agent for d in deadlocks] == [two.agent.id]
    assert two.holds(L)


def test_two_w_locks_parent_read(run: Run) -> None:
    """A writer of one child that reads the parent waits for the writer of the other child."""
    one, two = run.begin(2)
    one.lock((*L, 1), "write").get()
    two.lock((*L, 2), "write").get()
    answer = one.lock(L, "read")
    run.until_waiting(one, L)
    run.stop(two)
    assert answer.get() == ("have_all_locks", ())


def test_two_w_locks_parent_read_deadlock(run: Run) -> None:
    """When both writers of children read the parent it is a deadlock; both are told."""
    one, two = run.begin(2)
    one.lock((*L, 1), "write").get()
    two.lock((*L, 2), "write").get()
    first = one.lock(L, "read")
    run.until_waiting(one, L)
    second = two.lock(L, "read")
    _, deadlocks = first.get()
    assert len(deadlocks) == 1
    run.stop(one)
    assert second.get() == ("have_all_locks", deadlocks)
    assert two.holds((*L, 2))
    assert two.holds(L)


def test_two_clients_direct_deadlock(run: Run) -> None:
    """A direct deadlock of two is resolved by one surrender; both are told which."""
    a, b = (*L, "a"), (*L, "b")
    one, two = run.begin(2)
    one.lock(a).get()
    two.lock(b).get()
    first = one.lock(b)
    run.until_waiting(one, b)
    second = two.lock(a)
    status, deadlocks = first.get()
    assert status == "have_all_locks"
    (deadlock,) = deadlocks
    assert deadlock.lock == (b, one.agent.node.name)
    assert deadlock.agent == two.agent.id
    assert deadlock.action == "surrendered"
    assert set(deadlock.agents) == {one.agent.id, two.agent.id}
    run.stop(one)
    assert second.get() == ("have_all_locks", deadlocks)
    assert two.holds(a)
    assert two.holds(b)


def test_three_clients_deadlock(run: Run) -> None:
    """A deadlock of three: the agent that has nothing to do with the surrendered lock is told too."""
    a, b, c = ("a",), ("b",), ("c",)
    one, two, three = run.begin(3)
    one.lock(a).get()
    two.lock(b).get()
    three.lock(c).get()
    first = one.lock(c)
    run.until_waiting(one, c)
    second = two.lock(a)
    run.until_waiting(two, a)
    third = three.lock(b)
    _, deadlocks = first.get()
    (deadlock,) = deadlocks
    # Agent two neither holds nor waits for c.
    assert deadlock.lock == (c, three.agent.node.name)
    assert deadlock.agent == three.agent.id
    run.stop(one)
    assert second.get() == ("have_all_locks", deadlocks)
    run.stop(two)
    assert third.get() == ("have_all_locks", deadlocks)
    assert three.holds(b)
    assert three.holds(c)


def test_two_clients_hierarchical_deadlock(run: Run) -> None:
    """Two holders of parents, each of which wants a child of the other's, are in a deadlock."""
    a, b = (*L, "a"), (*L, "b")
    one, two = run.begin(2)
    one.lock(a).get()
    two.lock(b).get()
    first = one.lock((*b, 1))
    run.until_waiting(one, (*b, 1))
    second = two.lock((*a, 1))
    _, deadlocks = first.get()
    (deadlock,) = deadlocks
    assert deadlock.lock_id == (*b, 1)  # what the neighbour waits for, not all of b
    run.stop(one)
    assert second.get() == ("have_all_locks", deadlocks)
    assert two.holds(b)
    assert two.holds((*a, 1))


def test_two_clients_abort_on_deadlock(run: Run) -> None:
    """With `abort_on_deadlock` the youngest is aborted, and the other one goes on."""
    a, b = (*L, "a"), (*L, "b")
    one = run.client().begin()
    two = run.client().begin(abort_on_deadlock=True)
    one.lock(a).get()
    two.lock(b).get()
    first = one.lock(b)
    run.until_waiting(one, b)
    with pytest.raises(locks.DeadlockAborted, match="run it again") as caught:
        two.lock(a).get()
    assert caught.value.deadlock.action == "aborted"
    assert caught.value.deadlock.agent == two.agent.id
    assert first.get() == ("have_all_locks", (caught.value.deadlock,))
    assert not two.agent.is_alive()
    assert locks.holders(b)[0].agent == one.agent.id
