"""Thin transactions at a lock server of another node, in the simulator: small worlds whole, with an inflation before each event or without, and
wrong rules. Each event of a client that is thin leads to what it leads to if the client is inflated before (`Reactions.compare`).
"""

from __future__ import annotations

import pickle
import random
import re
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest

from locks.__main__ import main
from locks.core.agent.machine import AgentMachine, Object
from locks.core.messages import AgentMessage, Remove, Request, RequestStates
from locks.core.thin import Holder, Remote
from locks.model import AgentId
from locks.ranges import replace
from locks_lab.explorer.explore import Explored, explore
from locks_lab.explorer.reactions import Reactions
from locks_lab.explorer.small_worlds import Kind
from locks_lab.explorer.space import Space
from locks_lab.schedules.plan import Shape, client_names, plan
from locks_lab.schedules.schedule import run
from locks_lab.worlds.client import Fate
from locks_lab.worlds.host import Violation
from locks_lab.worlds.remote import RemoteClient
from locks_lab.worlds.rules import OURS, RULES, Rule
from locks_lab.worlds.world import Faults, World
from tests.helpers import EXPLORE, SEED
from tests.model.test_thin_clients import check_kind

THIN = RULES["thin"]
CUT = Faults((), 1)
CRASH = Faults((), 0, 1, ("n1",), False)
RESTART = CRASH._replace(restarts=True)


class Case(NamedTuple):
    """A world of clients on nodes of their own."""

    scripts: list[str]
    faults: Faults = Faults()
    nodes: tuple[str, ...] = ("n1",)
    homes: tuple[str, ...] = ()

    def world(self, rule: Rule) -> World:
        """The world under a rule."""
        homes = self.homes or client_names(len(self.scripts))
        return World(self.scripts, self.nodes, self.faults, homes, rule)


def explored(case: Case, rule: type[Remote] = Remote) -> Explored:
    """Explore a world whole."""
    return explore(case.world(THIN._replace(remote=rule)))


# --- Worlds in every order


OPPOSITE = ["write a; write b", "write b; write a"]
WORLDS = {
    "one lock": Case(["write a"] * 2),
    "one lock after the other": Case(["write a; write b"] * 2),
    "opposite orders": Case(OPPOSITE),
    "an upgrade": Case(["read a; write a"] * 2),
    "parent and child": Case(["write a; write a/1", "read a/1; write b"]),
    "a release": Case(["write a; write b; unlock a", "write a"]),
    "a surrender on own wish": Case(["write a; surrender a", "write a"]),
    "one that gives up": Case(["try write a", "write a"]),
    "one that gives up in opposite orders": Case(["try write a; write b", "write b; write a"]),
    "two calls that are withdrawn": Case(["try write a; try write b", "write b"]),
    "again": Case(["write a; again; write a", "write a"]),
    "tokens": Case(["write a; token a; again; write a; token a", "write a; token a"]),
    "one that dies": Case(["write a; write b", "write b"], Faults(((1, "ends"),))),
    "an agent that crashes": Case(["write a; write b", "write b"], Faults(((1, "crashes"),))),
    "the server is lost": Case(["write a; write b", "try write b"], CRASH),
    "the server is restarted": Case(["write a; write b", "try write b"], RESTART),
    "a connection is lost": Case(["write a", "write a"], CUT),
    "a connection is lost while one gives up": Case(["try write a; write b", "write b"], CUT),
    "two servers": Case(
        ["write a on n1; write b on n2", "write b on n2; write a on n1"], nodes=("n1", "n2")
    ),
    "at home and elsewhere": Case(
        ["write a on n2; write b on n1", "write b on n1; write a on n2"],
        nodes=("n1", "n2"),
        homes=("n1", "n2"),
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", WORLDS)
def test_small_worlds_of_two(name: str) -> None:
    """Nothing is wrong in any order, and there are the same ends and surrenders as without thin transactions."""
    case = WORLDS[name]
    thin, usual = explored(case), explore(case.world(OURS))
    assert thin.terminal == usual.terminal
    assert thin.surrenders == usual.surrenders
    assert thin.superfluous == usual.superfluous
    assert thin.states > usual.states


@pytest.mark.explore
@pytest.mark.parametrize(
    "scripts",
    [
        ["write a; write b", "write b; write c", "write c; write a"],
        ["write a", "read a", "try write a"],
    ],
)
def test_small_worlds_of_three(scripts: list[str]) -> None:
    """The same for three clients."""
    assert explored(Case(scripts)).terminal == explore(Case(scripts).world(OURS)).terminal


KINDS = {
    "reads, writes, upgrades": Kind(modes="rw", spokes=True),
    "one lock: writes, release, timeouts": Kind(
        locks=1, steps=3, extras=("try", "unlock"), spokes=True
    ),
    "transactions again": Kind(extras=("again",), spokes=True),
    "parents and children": Kind(locks=1, depth=2, spokes=True),
    "tokens": Kind(extras=("token",), spokes=True),
    "a connection that is lost": Kind(faults=CUT, spokes=True),
    "a server that is restarted": Kind(locks=1, extras=("try",), faults=RESTART, spokes=True),
}


@pytest.mark.explore
@pytest.mark.parametrize("name", KINDS)
def test_worlds_of_a_kind(name: str) -> None:
    """Ways to give two clients their steps: one in three, and with LOCKS_EXPLORE=1 all."""
    check_kind(KINDS[name])


def test_random_worlds() -> None:
    """Random schedules of larger worlds, with faults."""
    for seed in range(SEED, SEED + (3000 if EXPLORE else 100)):
        drawn = plan(seed, Shape(spokes=True, require=("all",)), THIN)
        run(drawn.world(), random.Random(seed), drawn.policy)


def test_without_reduction() -> None:
    """The orders that are left out lead to no other ends."""
    for name in ("opposite orders", "two calls that are withdrawn", "again"):
        case = WORLDS[name]
        whole = explore(case.world(THIN), reduce=False)
        assert explored(case).terminal == whole.terminal
        assert explored(case).surrenders == whole.surrenders


def test_each_moment_is_there() -> None:
    """A client is thin before it requests, while it is not answered, and while it holds one lock or two; each may be inflated, or interrupted."""
    space = Space(World(["try write a; write b", "write b"], homes=client_names(2), rule=THIN))
    states = {space.start()}
    todo = list(states)
    thin: set[tuple[int, bool]] = set()
    events: set[str] = set()
    while todo:
        state = todo.pop()
        for move in space.moves(state):
            kinds = [kind for kind, _ in space.choices(move)]
            events.add(" ".join(kinds[: 2 if kinds[0] == "inflate" else 1]))
            after = space.after(state, move)
            if after is not None and after not in states:
                states.add(after)
                todo.append(after)
    for party in _thin_parties(space):
        remote = party.remote
        thin.add((-1, False) if remote is None else (len(remote.held), remote.asked is not None))
    assert thin == {(-1, False), (0, True), (1, False), (1, True), (2, False)}
    assert {"deliver", "step", "inflate deliver", "inflate step"} < events
    assert {"time out", "withdraw", "interrupted after", "interrupted before"} < events


def _thin_parties(space: Space) -> Iterator[RemoteClient]:
    """The clients that are thin, in any state."""
    for number, kept in enumerate(space.kept):
        if space.inflated[number] != number:
            yield pickle.loads(kept)


# --- Wrong rules


class ForgetsALock(Remote):
    """A second lock takes the place of the first one."""

    def granted(self, *args: Any) -> Remote | None:
        after = super().granted(*args)
        return after and after._replace(held=after.held[-1:])


class TakesAnyAnswer(Remote):
    """A request that has to wait counts as granted."""

    def granted(self, speaker: str, agent: AgentId, message: AgentMessage) -> Remote | None:
        if isinstance(message, RequestStates):
            own = [each for each in message.records if each.agent == agent]
            message = RequestStates(
                message.node, tuple(replace(each, state="granted") for each in own)
            )
        return super().granted(speaker, agent, message)


class ForgetsTheRequest(Remote):
    """The agent does not know what was requested and is not answered."""

    def steps(self, machine: AgentMachine, sent: bool) -> Iterator[Any]:
        yield from Remote(self.node, self.held).steps(machine, sent)


class BelievesItWasSent(Remote):
    """A request that was interrupted is not sent again."""

    def steps(self, machine: AgentMachine, sent: bool) -> Iterator[Any]:
        return super().steps(machine, True)


class SendsTwice(Remote):
    """A request that was sent is sent again."""

    def steps(self, machine: AgentMachine, sent: bool) -> Iterator[Any]:
        return super().steps(machine, False)


class AsksForWhatItHas(Remote):
    """The agent does not take in the grants."""

    def steps(self, machine: AgentMachine, sent: bool) -> Iterator[Any]:
        for wanted, _, call in self.held:
            yield machine.has_asked, (wanted, call)
        yield from Remote(self.node, (), self.asked).steps(machine, sent)


class ForgetsTheOrder(Remote):
    """The agent learns of its locks in the opposite order."""

    def steps(self, machine: AgentMachine, sent: bool) -> Iterator[Any]:
        return Remote(self.node, self.held[::-1], self.asked).steps(machine, sent)


class ForgetsTheToken(Remote):
    """The agent takes the grant for an earlier one."""

    def steps(self, machine: AgentMachine, sent: bool) -> Iterator[Any]:
        held = tuple(
            (wanted, replace(record, since=record.since - 1), call)
            for wanted, record, call in self.held
        )
        return Remote(self.node, held, self.asked).steps(machine, sent)


class EndsAnother(Remote):
    """The end names another agent."""

    def end(self, agent: AgentId) -> Remove | None:
        return Remove(agent._replace(created=agent.created + 1))


class AsksAnywhere(Remote):
    """What is on another node is requested as well."""

    def may_ask(self, wanted: Object) -> bool:
        return super().may_ask((*wanted[:2], (self.node,), wanted[3]))


class AsksAgain(Remote):
    """What it has is requested again, in a stronger mode."""

    def may_ask(self, wanted: Object) -> bool:
        return Remote(self.node, (), self.asked).may_ask(wanted)


class ForgetsTheName(Remote):
    """The lock server is told another name of the client."""

    def ask(self, holder: Holder, wanted: Object, call: Any) -> tuple[Remote, Request]:
        after, message = super().ask(holder, wanted, call)
        return after, replace(message, client="somebody")


# --- What a node forgets to inflate


def is_deaf(self: RemoteClient, message: AgentMessage) -> None:
    """While it is thin, it takes in nothing but grants."""
    if self.whole or (
        self.remote is not None
        and self.remote.granted(getattr(message, "node", ""), self.ref, message)
    ):
        RECEIVE(self, message)


def forgets_the_wait(self: RemoteClient) -> None:
    """A wait that is over is not withdrawn."""
    if self.whole:
        TIME_OUT(self)
    elif self.remote is not None:
        self.waiting, self.remote = "no", self.remote._replace(asked=None)


def does_not_withdraw(self: RemoteClient) -> None:
    """What was granted to a call that is interrupted is kept."""
    if self.whole:
        WITHDRAW(self)
    else:
        self.undo = None


def misses_the_loss(self: RemoteClient, node: str) -> None:
    """It does not learn that the server is lost."""
    if self.whole:
        NODE_DOWN(self, node)


def dies_in_silence(self: RemoteClient, fate: Fate) -> None:
    """Its end is not told."""
    if self.whole or self.remote is None:
        DIE(self, fate)
    else:
        self.vanish()


RECEIVE, TIME_OUT, WITHDRAW = RemoteClient.receive, RemoteClient.time_out, RemoteClient.withdraw
NODE_DOWN, DIE = RemoteClient.node_down, RemoteClient.die
CARELESS: list[tuple[str, Callable[..., None], str, str]] = [
    ("receive", is_deaf, "opposite orders", r"stuck: clients \[1, 2\]"),
    ("time_out", forgets_the_wait, "one that gives up", "left in n1"),
    ("withdraw", does_not_withdraw, "two calls that are withdrawn", ""),
    ("node_down", misses_the_loss, "the server is restarted", "stuck"),
    ("node_down", misses_the_loss, "a connection is lost", "stuck"),
    ("die", dies_in_silence, "one that dies", "left in n1"),
]


# --- They are caught


WRONG: list[tuple[type[Remote], str, str]] = [
    (ForgetsALock, "opposite orders", r"had \{.*\}, and has"),
    (TakesAnyAnswer, "one lock", "the lock table does not know"),
    (ForgetsTheRequest, "one lock", "stuck"),
    (BelievesItWasSent, "one lock", "stuck"),
    (AsksForWhatItHas, "one lock", "is answered, and does not wait"),
    (EndsAnother, "one lock", "stuck"),
    (AsksAnywhere, "two servers", r"had \{.*\}, and has"),
    (AsksAgain, "an upgrade", ""),
    (ForgetsTheToken, "one lock", ""),
    (ForgetsTheOrder, "opposite orders", ""),
    (SendsTwice, "one that gives up", ""),
    (ForgetsTheName, "one lock", ""),
]
ALL: list[tuple[type[Remote], dict[str, Callable[..., None]], str, str]] = [
    *((rule, {}, name, found) for rule, name, found in WRONG),
    *((Remote, {method: wrong}, name, found) for method, wrong, name, found in CARELESS),
]
NAMES = [rule.__name__ for rule, *_ in WRONG] + [wrong.__name__ for _, wrong, *_ in CARELESS]
DIFFER = "a thin client does something else than one that is not"


@pytest.mark.parametrize("compares", [False, True])
@pytest.mark.parametrize(("rule", "wrong", "name", "found"), ALL, ids=NAMES)
def test_what_is_wrong_is_caught(
    rule: type[Remote],
    wrong: dict[str, Callable[..., None]],
    name: str,
    found: str,
    compares: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """By the comparison, and by the check that is meant for it without the comparison, unless it harms nobody in the simulator."""
    for method, careless in wrong.items():
        monkeypatch.setattr(RemoteClient, method, careless)
    if not compares:
        monkeypatch.setattr(Reactions, "compare", lambda self, *event: None)
        if not found:
            explored(WORLDS[name], rule)
            return
    with pytest.raises(Violation, match=f"{found}|{DIFFER}" if compares else found) as caught:
        explored(WORLDS[name], rule)
    assert caught.value.schedule


def test_the_command_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`--rule thin --spokes` explores them; of what goes wrong the events are said."""
    command = ["sim", "explore", "--spokes", "--locks", "1", "--steps", "1", "--rule"]
    assert main([*command, "thin"]) == 0
    assert "no violation" in capsys.readouterr().out
    monkeypatch.setitem(RULES, "wrong", THIN._replace(remote=TakesAnyAnswer))
    assert main([*command, "wrong"]) == 1
    assert re.search(r"\nturns: .*step 1, .*deliver n1>\d\n$", capsys.readouterr().out)
