"""`Barrier`: all who must be there pass together; who dies or gives up is not counted; misuse."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import gevent
import pytest

import locks
from locks import aio
from locks.testing import Simulation, simulate
from tests.api.clients import Run, many
from tests.helpers import eventually

START = ("start",)


def until_there(barrier: locks.Barrier, number: int) -> None:
    """Wait until so many wait there, as everybody can see."""
    eventually(lambda: len(barrier.waiting()) == number)


def outcome(job: Any, *args: Any) -> Any:
    """What a job returns, or the error that it raises."""
    try:
        return job(*args)
    except locks.LocksError as error:
        return error


def test_all_pass_together_each_with_a_number_of_its_own(run: Run) -> None:
    """Nobody before the last one has come; numbers are in the order of arrival; nothing is left; and again."""
    barrier = locks.Barrier(START, 3)
    clients = [run.client(f"client {n}") for n in range(3)]
    for _ in range(3):
        waits = []
        for number, client in enumerate(clients):
            until_there(barrier, number)
            assert not any(wait.ready for wait in waits)
            waits.append(client.do(barrier.wait))
        assert [wait.get() for wait in waits] == [0, 1, 2]
    assert barrier.waiting() == locks.queue(barrier.lock_id).requests == ()


def test_who_comes_again_is_in_the_next_round(run: Run) -> None:
    """A fast party is in no round twice: it has passed once more only when the other one has."""
    fast, slow = run.client(), run.client()
    barrier = locks.Barrier(START, 2)
    rounds = many(40, 500)
    passed = {"fast": 0, "slow": 0}

    def go(who: str, other: str) -> list[int]:
        numbers = []
        for number in range(rounds):
            numbers.append(barrier.wait(30))
            passed[who] = number + 1
            assert passed[other] in (number, number + 1, number + 2)
        return numbers

    answers = fast.do(go, "fast", "slow"), slow.do(go, "slow", "fast")
    assert {
        frozenset(pair) for pair in zip(*(answer.get() for answer in answers), strict=True)
    } == {frozenset((0, 1))}


def test_more_clients_than_parties(run: Run) -> None:
    """Two of four pass at a time; none of them is left behind, but for one that is left alone in the end."""
    clients = [run.client() for _ in range(4)]
    owners = [locks.Owner(f"owner {n}") for n in range(4)]
    rounds = many(20, 200)

    def go(owner: locks.Owner) -> int:
        return sum(locks.Barrier(START, 2, owner=owner).wait() for _ in range(rounds))

    answers = [client.do(outcome, go, owner) for client, owner in zip(clients, owners, strict=True)]
    eventually(lambda: sum(answer.ready for answer in answers) >= 3)
    for owner in owners:
        owner.end()
    alone = [answer for answer in answers if isinstance(answer.get(), locks.LocksError)]
    assert len(alone) <= 1


def test_who_gives_up_is_not_counted(run: Run) -> None:
    """It gets `LockTimeout`, which says who was there; the others wait on, and pass when another one comes."""
    barrier = locks.Barrier(START, 3)
    one, two, three = (run.client() for _ in range(3))
    waits = [one.do(locks.Barrier(START, 3, label="first").wait)]
    until_there(barrier, 1)
    error = two.call(outcome, locks.Barrier(START, 3, label="second").wait, 0.01)
    assert isinstance(error, locks.LockTimeout)
    assert (
        str(error)
        == "timed out after 0.01 s waiting for all 3 parties at barrier start; arrived: first, second"
    )
    assert [each.client for each in error.holders] == ["first", "second"]
    until_there(barrier, 1)
    waits.append(two.do(barrier.wait))
    until_there(barrier, 2)
    assert not any(wait.ready for wait in waits)
    assert three.call(barrier.wait, 0) == 2  # the others wait already, so it is there in time
    assert [wait.get() for wait in waits] == [0, 1]


def test_the_first_one_gives_up(run: Run) -> None:
    """Those who have come after it stay, with numbers of their own."""
    barrier = locks.Barrier(START, 3)
    one, two, three = (run.client() for _ in range(3))
    first = one.do(outcome, barrier.wait, 0.2)
    waits = [two.do(barrier.wait)]
    assert isinstance(first.get(), locks.LockTimeout)
    until_there(barrier, 1)
    waits.append(three.do(barrier.wait))
    until_there(barrier, 2)
    assert not any(wait.ready for wait in waits)
    waits.append(one.do(barrier.wait))
    assert sorted(wait.get() for wait in waits) == [0, 1, 2]


@pytest.mark.parametrize("which", [0, 1], ids=["first", "second"])
def test_an_owner_that_ends_is_not_counted(run: Run, which: int) -> None:
    """Its place is free at once; who waits for it is told that it has ended."""
    owners = [locks.Owner(f"job {n}") for n in range(2)]
    one, two, three = (run.client() for _ in range(3))
    waits = []
    for number, (client, owner) in enumerate(zip((one, two), owners, strict=True)):
        waits.append(client.do(outcome, locks.Barrier(START, 3, owner=owner).wait))
        until_there(locks.Barrier(START, 3), number + 1)
    owners[which].end()
    error = waits[which].get()
    assert isinstance(error, locks.errors.BrokenBarrier)
    assert error.lock_id == START
    assert "job" in str(error)
    until_there(locks.Barrier(START, 3), 1)
    client = (one, two)[which]
    again = [client.do(locks.Barrier(START, 3).wait), three.do(locks.Barrier(START, 3).wait)]
    assert sorted([waits[1 - which].get(), *(each.get() for each in again)]) == [0, 1, 2]
    for owner in owners:
        owner.end()


def test_who_holds_a_lock_while_it_waits(run: Run) -> None:
    """Others wait for that lock meanwhile; nobody takes this for a deadlock, and nobody is aborted."""
    clients = [run.client() for _ in range(3)]
    barrier, x = locks.Barrier(START, 3), ("x",)

    def holds_it() -> int:
        with locks.transaction() as tx:
            tx.write_lock(x)
            return barrier.wait()

    def wants_it() -> int:
        number = barrier.wait()
        with locks.transaction() as tx:
            tx.write_lock(x)
        return number

    def wants_it_first() -> int:
        with locks.transaction() as tx:
            try:  # it would come only then: nobody can know, and the time-out is what helps
                tx.write_lock(x, timeout=0.05)
            except locks.LockTimeout:
                return barrier.wait()
        raise AssertionError

    waits = []
    for number, (client, job) in enumerate(zip(clients, (holds_it, wants_it), strict=False)):
        waits.append(client.do(job))
        until_there(barrier, number + 1)
    waits.append(clients[2].do(wants_it_first))
    assert [wait.get() for wait in waits] == [0, 1, 2]
    assert locks.statistics().deadlocks == 0


def test_misuse(run: Run) -> None:
    """Who names another number of parties is refused, and changes nothing; nor has a lock on the id to do with it."""
    one, two = run.client(), run.client()
    wait = one.do(locks.Barrier(START, 2).wait)
    until_there(locks.Barrier(START, 2), 1)
    error = two.call(outcome, locks.Barrier(START, 3).wait)
    assert isinstance(error, locks.errors.ConflictingRequest)
    assert "the clients that wait there use 2" in str(error)
    assert two.call(locks.Lock(START).acquire)
    assert two.call(locks.Barrier(START, 2).wait) == 1
    assert wait.get() == 0
    two.call(locks.Lock(START).release)
    assert two.call(locks.Barrier(START, 1).wait) == 0


@pytest.mark.parametrize("parties", [0, -1, 1_001, True, 2.0, "2", None])
def test_what_is_no_number_of_parties(parties: Any) -> None:
    """It is refused with the value, before anything is asked for; so are other options that are wrong."""
    with pytest.raises(locks.errors.InvalidOption, match=r"parties=.* is wrong"):
        locks.Barrier(START, parties)
    for wrong in ({"timeout": -1}, {"label": ""}, {"owner": "me"}, {"nodes": [1]}):
        with pytest.raises(locks.errors.InvalidOption):
            locks.Barrier(START, 2, **wrong)  # type: ignore[arg-type]
    with pytest.raises(locks.errors.InvalidOption):
        locks.Barrier(START, 2).wait(-1)


def test_labels_and_timeouts_of_a_barrier() -> None:
    """A party is shown as it is called; a barrier's own time goes where none is said."""
    barrier = locks.Barrier(START, 2, timeout=30, label="nightly import")
    thread = threading.Thread(target=barrier.wait)
    thread.start()
    until_there(barrier, 1)
    assert barrier.waiting()[0].client.startswith("nightly import")
    assert {each.client for each in locks.holders(barrier.lock_id)} == {"nightly import"}
    barrier.wait()
    thread.join()
    with pytest.raises(locks.LockTimeout):
        locks.Barrier(START, 2, timeout=0.01).wait()


@pytest.mark.parametrize("number", [1, 2])
def test_the_node_is_stopped(number: int, caplog: pytest.LogCaptureFixture) -> None:
    """Who waits is told so; the next use of locks begins with a new node."""
    barrier = locks.Barrier(START, 3)
    told: list[Any] = []
    threads = []
    for n in range(number):
        threads.append(threading.Thread(target=lambda: told.append(outcome(barrier.wait))))
        threads[-1].start()
        until_there(barrier, n + 1)
    locks.stop()
    for thread in threads:
        thread.join()
    assert [type(each) for each in told] == [locks.errors.BrokenBarrier] * number
    assert "stopped" in str(told[0])
    assert barrier.waiting() == ()
    assert caplog.text == ""


def test_a_greenlet_that_is_killed_is_not_counted() -> None:
    """It leaves nothing behind; the next one has its place."""
    barrier = locks.Barrier(START, 3)
    for victim in (0, 1):
        greenlets = []
        for number in range(2):
            greenlets.append(gevent.spawn(barrier.wait))
            eventually(
                lambda number=number: gevent.sleep(0) or len(barrier.waiting()) == number + 1
            )
        greenlets.pop(victim).kill()
        eventually(lambda: gevent.sleep(0) or len(barrier.waiting()) == 1)
        greenlets += [gevent.spawn(barrier.wait) for _ in range(2)]
        gevent.joinall(greenlets)
        assert sorted(each.value for each in greenlets) == [0, 1, 2]


def test_coroutines() -> None:
    """Tasks meet as threads do; one that is cancelled is not counted; a plain wait in a coroutine is refused."""
    barrier = aio.Barrier(START, 3)

    async def until_waiting(number: int) -> None:
        while len(await barrier.waiting()) != number:
            await asyncio.sleep(0.001)

    async def pass_by_block() -> int:
        async with barrier as number:
            return number

    async def work() -> None:
        assert barrier.parties == 3
        for _ in range(3):
            assert sorted(await asyncio.gather(*(barrier.wait() for _ in range(3)))) == [0, 1, 2]
        assert sorted(await asyncio.gather(*(pass_by_block() for _ in range(3)))) == [0, 1, 2]
        with pytest.raises(locks.errors.BlocksEventLoop):
            locks.Barrier(START, 3).wait()
        for victim in (0, 1):
            tasks = []
            for number in range(2):
                tasks.append(asyncio.create_task(barrier.wait()))
                await until_waiting(number + 1)
            tasks[victim].cancel()
            with pytest.raises(asyncio.CancelledError):
                await tasks.pop(victim)
            await until_waiting(1)
            with pytest.raises(locks.LockTimeout):
                await barrier.wait(timeout=0.01)
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(barrier.wait(), 0.01)
            await until_waiting(1)
            assert sorted(await asyncio.gather(barrier.wait(), barrier.wait(), *tasks)) == [0, 1, 2]

    asyncio.run(work())


@pytest.mark.slow
@pytest.mark.parametrize("parties", [2, 3])
def test_in_a_simulation(parties: int) -> None:
    """A program with barriers is simulated as it is: under each schedule all rounds are complete."""

    def scenario(simulation: Simulation) -> None:
        barrier = locks.Barrier(START, parties)
        passed: list[list[int]] = [[], []]

        def work() -> None:
            for each in passed:
                each.append(barrier.wait())

        for _ in range(parties):
            simulation.client(work)
        simulation.run()
        assert [sorted(each) for each in passed] == [list(range(parties))] * 2

    simulate(scenario, 40)


@pytest.mark.slow
def test_deaths_in_a_simulation() -> None:
    """Whoever dies, and when: those who pass were complete, and nobody waits when all are there."""

    def scenario(simulation: Simulation) -> None:
        barrier = locks.Barrier(START, 2)
        passed: list[int] = []
        late: list[object] = []

        def work() -> None:
            try:
                passed.append(barrier.wait(timeout=60))
            except locks.LockTimeout as error:
                late.append(error)

        for _ in range(3):
            simulation.client(work)
        simulation.run(deaths=1)
        assert len(late) <= 1
        assert len(passed) in (1, 2)
        assert len(set(passed)) == len(passed)

    simulate(scenario, 100)
