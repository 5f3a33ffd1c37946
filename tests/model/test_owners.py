"""Owners: clients for which several threads or tasks act, each in transactions of the owner's, at the same time.

To the machines an owner is a client with several transactions, of which any number wait at once, and that may end at any
moment. Worlds of `test_many_transactions`, with such clients: small ones in every order, large ones at random.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import permutations
from typing import Any

import pytest

from locks.core.agent.hold_ups import HoldUps
from locks.core.agent.machine import AgentMachine
from locks.core.messages import AnswerWait
from locks.errors import DeadlockAborted, TransactionEnded
from locks.model import HELD_UP, LockId, LockResult
from tests.helpers import EXPLORE, SEED
from tests.model.test_many_transactions import Call, Client, World

WORLDS = 4000 if EXPLORE else 150

Thread = Sequence[Call]


class Owner(Client):
    """An owner: each of its threads makes one call after the other, while others of them wait.

    Args:
        threads: What each does.
        mortal: Whether somebody may end it at any moment.
        patient: Whether it begins anew after an abort.
    """

    def __init__(
        self,
        world: World,
        home: str,
        threads: Sequence[Thread],
        options: Any,
        mortal: bool = False,
        patient: bool = True,
    ) -> None:
        super().__init__(world, home, (), options)
        self.threads = threads
        self.mortal = mortal
        self.patient = patient
        self.places = [0] * len(threads)
        self.waits: dict[tuple[AgentMachine, int], int] = {}

    @property
    def free(self) -> list[int]:
        """The threads that wait for nothing, and have something to do."""
        waiting = self.waits.values()
        every = range(len(self.threads))
        return [t for t in every if t not in waiting and self.places[t] < len(self.threads[t])]

    @property
    def ready(self) -> bool:
        return not self.done and (self.mortal or bool(self.free) or not self.waits)

    def step(self) -> None:
        """One of its threads does its next call; it ends with the last one, or because it is ended."""
        free = self.free
        choices = [*free, *([-1] if self.mortal else [])]
        if any(agent.ended for agent in self.agents):
            self.world.aborted.append(self)
        elif not (free or self.waits) or (thread := self.world.rng.choice(choices)) == -1:
            self.end()
            self.done = True
        else:
            self.act(thread)

    def act(self, thread: int) -> None:
        """A thread does its next call."""
        call = self.threads[thread][self.places[thread]]
        self.places[thread] += 1
        agent, wait = self.agents[call.transaction], next(self.world.numbers)
        self.waits[agent, wait] = thread
        self.blocked = agent, wait
        objects = [(lock_id, mode, (node,), "all") for lock_id, mode, node in call.wanted]
        self.world.do(agent, agent.ask_all(objects, wait))
        if (agent, wait) in self.waits:
            self.hold_up(agent, wait)
        self.world.finish()
        self.blocked = next(iter(self.waits), None)

    def hold_up(self, agent: AgentMachine, wait: int) -> None:
        """As `locks.node.client.one_client` does it."""
        others = [each for each in self.agents if each is not agent]
        if others:
            self.world.perform(agent, agent.hold_up(wait))
            lock_id = agent.hold_up_id(wait)
            for other in others:
                if lock_id is not None:
                    self.world.perform(other, other.held_up(lock_id, beside=True))

    def time_out(self) -> None:
        """One of its waits is given up."""
        agent, wait = self.world.rng.choice(list(self.waits))
        del self.waits[agent, wait]
        self.blocked = next(iter(self.waits), None)
        self.world.do(agent, agent.abandon_wait(wait))

    def end(self) -> None:
        """Somebody ends it: so do its transactions, the oldest first, whoever waits in them."""
        for agent in self.agents:
            self.world.do(
                agent,
                agent.end_transaction(TransactionEnded("its owner has ended", agent=agent.id)),
            )
        self.waits.clear()
        self.blocked = None

    def begin_again(self) -> None:
        """All anew, or not at all."""
        super().begin_again()
        self.places = [0] * len(self.threads)
        if self.aborts > 1 and not self.patient:
            self.end()
            self.done = True

    def answered(self, agent: AgentMachine, answer: AnswerWait) -> None:
        del self.waits[agent, answer.wait]  # type: ignore[arg-type]
        self.blocked = next(iter(self.waits), None)
        if isinstance(answer.result, DeadlockAborted) and self not in self.world.aborted:
            self.world.aborted.append(self)
        assert isinstance(answer.result, (LockResult, DeadlockAborted, TransactionEnded))


class Owners(World):
    """A world of owners."""

    def owner(self, threads: Sequence[Thread], transactions: int, **options: Any) -> Owner:
        home = self.rng.choice(list(self.servers))
        abort = [{"abort_on_deadlock": True} for _ in range(transactions)]
        owner = Owner(self, home, threads, abort, **options)
        self.clients.append(owner)
        return owner

    def check(self) -> None:
        """Only those are held up for whose owner somebody waits; with one node, no cycle is left."""
        for client in self.clients:
            table = self.servers[client.home].table
            machines = {agent.id: agent for agent in client.agents}
            lasting = [
                i for a in client.agents if a._hold_ups for i in a._hold_ups.by_wait.values()
            ]
            for owner in (table.requesters[ref] for ref in machines if ref in table.requesters):
                stands = {each.slot.lock_id for each in owner.all()}
                assert {i for i in stands if i[0] == HELD_UP} <= set(lasting)
        self.check_cycles()


# --- Small worlds, in every order -----------------------------------------------------------------


class EveryOrder:
    """In the place of a generator of random numbers: each choice is made, in one run after the other."""

    def __init__(self) -> None:
        self.taken: list[list[int]] = []  # of each choice of this run: which one, and of how many
        self._at = 0

    def choice(self, several: Sequence[Any]) -> Any:
        """One of several."""
        if self._at == len(self.taken):
            self.taken.append([0, len(several)])
        number = self.taken[self._at][0]
        self._at += 1
        return several[number]

    def random(self) -> float:
        """Nobody is impatient."""
        return 0.0

    def runs(self) -> Iterator[None]:
        """One for each way to choose."""
        while True:
            self._at = 0
            yield
            while self.taken and self.taken[-1][0] == self.taken[-1][1] - 1:
                self.taken.pop()
            if not self.taken:
                return
            self.taken[-1][0] += 1


def takes(transaction: int, *lock_ids: str) -> Call:
    """A call for locks, to write."""
    return Call(transaction, tuple(((lock_id,), "write", "n1") for lock_id in lock_ids))


SMALL: dict[str, tuple[list[tuple[int, list[Thread]]], tuple[int, int]]] = {
    # Of each owner how many transactions it has, and its threads; how often somebody yields, at least and at most.
    "waits in two at once, for one who goes on": (
        [
            (2, [[takes(0, "a"), takes(0, "x")], [takes(1, "b"), takes(1, "y")]]),
            (1, [[takes(0, "x", "y"), takes(0, "z")]]),
        ],
        (0, 0),
    ),
    "a circle through two threads": (
        [
            (2, [[takes(0, "a"), takes(0, "p")], [takes(1, "b"), takes(1, "q")]]),
            (1, [[takes(0, "p"), takes(0, "b")]]),
            (1, [[takes(0, "q"), takes(0, "a")]]),
        ],
        (1, 2),  # two, if one was there, and resolved, before the other
    ),
    "a circle through nested transactions, while another thread waits": (
        [
            (3, [[takes(0, "a"), takes(1, "p")], [takes(2, "b"), takes(2, "q")]]),
            (1, [[takes(0, "p"), takes(0, "a")]]),
            (1, [[takes(0, "q"), takes(0, "z")]]),
        ],
        (1, 1),
    ),
    "two circles": (
        [
            (2, [[takes(0, "a"), takes(0, "p")], [takes(1, "b"), takes(1, "q")]]),
            (1, [[takes(0, "p"), takes(0, "a")]]),
            (1, [[takes(0, "q"), takes(0, "b")]]),
        ],
        (1, 2),
    ),
}


def explored(name: str, mortal: bool = False) -> Counter[int]:
    """How often there were how many who yielded, in all orders, and for all orders of age.

    Each has done its first call. Who was aborted does not come again.
    """
    owners, _ = SMALL[name]
    found: Counter[int] = Counter()
    for ages in permutations(range(len(owners))):
        orders = EveryOrder()
        for _ in orders.runs():
            world = Owners(["n1"], orders)  # type: ignore[arg-type]
            for number in ages:
                transactions, threads = owners[number]
                dies = mortal and number == 0
                world.owner(threads, transactions, mortal=dies, patient=False)
            world.aborted += world.clients
            world.begin_again()
            for client in world.clients:
                assert isinstance(client, Owner)
                for thread in range(len(client.threads)):
                    client.act(thread)
                assert not client.waits
            world.run_on()
            assert not world.superfluous
            found[len(world.reports)] += 1
    return found


@pytest.mark.parametrize("name", SMALL)
def test_small_worlds(name: str) -> None:
    """In every order of calls, and of ages: nobody is stuck, and one of each circle yields."""
    found = explored(name)
    print(sum(found.values()), "runs:", found)
    assert (min(found), max(found)) == SMALL[name][1]


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.explore if index > 1 else ())
        for index, name in enumerate(SMALL)
    ],
)
def test_an_owner_that_ends(name: str) -> None:
    """An owner that is ended at any moment, also while it waits in two transactions, leaves nothing; others go on."""
    found = explored(name, mortal=True)
    print(sum(found.values()), "runs:", found)
    assert max(found) <= SMALL[name][1][1]


# --- Large ones, at random ------------------------------------------------------------------------


def random_world(seed: int, nodes: int) -> Owners:
    """Owners of one to three threads, with transactions of their own, or with one that they share."""
    rng = random.Random(seed)
    world = Owners([f"n{i}" for i in range(1, nodes + 1)], rng)
    names = list(world.servers)
    ids = ["a", "b", "c", "d", "e", "f"]
    for _ in range(rng.randint(2, 4)):
        threads: list[Thread] = []
        mine = rng.sample(
            ids, len(ids)
        )  # no owner asks in one transaction for what it has in another one
        transactions = rng.randint(1, 3)
        for thread in range(rng.randint(1, 3)):
            calls = []
            for _ in range(rng.randint(1, 3)):
                transaction = thread % transactions if rng.random() < 0.7 else 0
                lock_id = rng.choice(mine[transaction::transactions])
                where = names[ord(lock_id) % nodes]
                mode: Any = "write" if rng.random() < 0.7 else "read"
                calls.append(Call(transaction, (((lock_id,), mode, where),)))
            threads.append(calls)
        owner = world.owner(threads, transactions)
        owner.mortal = rng.random() < 0.1
    return world


@pytest.mark.slow
@pytest.mark.parametrize("nodes", [1, 3])
def test_random_worlds(nodes: int) -> None:
    """Whatever owners do in several threads, and wherever they are ended: nobody is stuck, and nothing is left.

    With several nodes a few yield for what is outdated, as ever.
    """
    seen: Counter[str] = Counter()
    for seed in range(SEED, SEED + WORLDS):
        world = random_world(seed, nodes)
        try:
            world.run(patience=world.rng.choice([1.0, 1.0, 0.98]))
        except Exception as error:
            raise AssertionError(f"seed {seed}, {nodes} nodes: {error}") from error
        seen["deadlocks"] += len(world.reports)
        seen["by hold-ups"] += sum(any(e.is_hold_up for e in r.cycle) for r in world.reports)
        seen["superfluous"] += len(world.superfluous)
    print(nodes, seen)
    assert seen["by hold-ups"] > WORLDS // 20
    assert seen["superfluous"] <= (0.01 if nodes == 1 else 0.1) * seen["deadlocks"]


# --- Rules that are wrong -------------------------------------------------------------------------


def _always(self: HoldUps, lock_id: LockId, beside: bool = False) -> None:
    """A transaction in which the owner waits is held up by its other waits, too."""
    if self._ledger.requests and lock_id not in self._ledger.hidden:
        self._ledger.hide(lock_id, "read")


def _never_again(self: HoldUps, lock_id: LockId, beside: bool = False) -> None:
    """When its wait is over, it is not held up by one that lasts."""
    if not self.by_wait:
        _always(self, lock_id)


def _nothing(*_: Any) -> Any:
    """Nobody is held up."""
    return ()


WRONG = {
    "held up by each other": (
        ((HoldUps, "join_hold_up", _always), (HoldUps, "_held_up_by", _nothing)),
        "yields",
    ),
    "not held up again": (((HoldUps, "join_hold_up", _never_again),), "stuck"),
    "nobody is held up": (((Owner, "hold_up", _nothing),), "stuck"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_rules(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """If two transactions in which an owner waits held each other up, one would yield for nothing; if one were not held up
    again when its wait is over, a circle would not be found."""
    patches, what = WRONG[name]
    for of, method, wrong in patches:
        monkeypatch.setattr(of, method, wrong)
    monkeypatch.setattr(Owners, "check", lambda self: None)
    if what == "stuck":
        with pytest.raises(AssertionError, match=r"^stuck"):
            explored("a circle through two threads")
    else:
        assert max(explored("waits in two at once, for one who goes on")) > 0
