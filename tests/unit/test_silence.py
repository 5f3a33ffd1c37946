"""A node that is connected and says nothing (decision 0015): who finds it, and what agents do then."""

from __future__ import annotations

from typing import Any

import pytest

from locks.core.agent.machine import AgentMachine
from locks.core.messages import AnswerWait, ToServer
from locks.errors import LocksError
from locks.model import AgentId
from locks.node.peers.silence import (
    CALM,
    LOOK,
    MOST_PATIENCE,
    PATIENCE,
    ROUND,
    SOON,
    WITNESSES,
    Found,
    Suspects,
)
from locks_lab.explorer.freezing import UNORDERED, freeze
from tests.helpers import SEED
from tests.unit.net import ALL, N1, N2, N3, A, B, Net
from tests.unit.test_gate import Contest


class Mute(Net):
    """Lock servers of which some take in nothing, until they speak; what they are sent waits."""

    def __init__(self, *nodes: str) -> None:
        super().__init__(*nodes)
        self.mute: dict[str, list[Any]] = {}

    def do(self, agent: AgentMachine, effects: list[Any]) -> None:
        """Carry out what an agent wants; what is for a server that is mute waits there."""
        waiting = [e for e in effects if isinstance(e, ToServer) and e.node in self.mute]
        for effect in waiting:
            self.mute[effect.node].append((agent, effect))
        super().do(agent, [e for e in effects if e not in waiting])

    def hush(self, node: str) -> None:
        """All agents are told that a node is silent."""
        self.mute.setdefault(node, [])
        for agent in list(self.agents.values()):
            self.do(agent, agent.node_silent(node))

    def speak(self, node: str) -> None:
        """It takes in what it was sent, and all agents are told."""
        for agent, effect in self.mute.pop(node):
            self.do(agent, [effect])
        for agent in list(self.agents.values()):
            self.do(agent, agent.node_speaks(node))


def answer(net: Net, wait: str) -> str | None:
    """What somebody who waits was answered."""
    found = net.answers.get(wait)
    return None if found is None else found.status


# --- What agents do ------------------------------------------------------------------------------


def test_the_next_node_is_the_gate_if_the_first_one_says_nothing() -> None:
    """A free lock is held as soon as that is known, and what was asked for there is asked for still."""
    net = Mute(*ALL)
    net.mute[N1] = []
    agent = net.agent()
    net.do(agent, agent.ask(A, "write", ALL, "majority", "wait"))
    assert answer(net, "wait") is None
    assert not agent.is_answered("wait")
    net.hush(N1)
    assert answer(net, "wait") == "have_all_locks"
    assert [info.granted for info in agent.lock_info()] == [(N2, N3)]
    net.speak(N1)
    assert [info.granted for info in agent.lock_info()] == [ALL]


def test_a_try_is_answered_by_those_that_speak() -> None:
    """That the lock is held, or has to be waited for, is said by the next gate; and if too few speak, that is the answer."""
    net = Mute(*ALL)
    net.mute[N1] = []
    silent = frozenset({N1})
    holder, other = net.agent(silent=silent), net.agent(silent=silent)
    net.do(holder, holder.ask(A, "write", ALL, "majority", "holder"))
    net.do(other, other.ask(A, "write", ALL, "majority", "try"))
    assert other.is_answered("try")
    assert answer(net, "try") is None
    late = net.agent(silent=silent)
    net.mute[N2] = []
    net.do(late, late.ask(B, "write", ALL, "majority", "late"))
    assert not late.is_answered("late")
    net.hush(N2)
    assert late.is_answered("late"), "of three, one speaks"
    everywhere = net.agent(silent=silent)
    net.do(everywhere, everywhere.ask(("c",), "write", (N1, N3), "all", "all"))
    assert everywhere.is_answered("all"), "a silent one is not waited for"


def test_a_surrender_that_a_silent_node_does_not_answer_holds_up_nothing_else() -> None:
    """What is given up there counts as gone; if enough is held without it, whoever waits is told."""
    net = Mute(*ALL)
    agent, other = net.agent(), net.agent()
    net.do(agent, agent.ask(A, "write", ALL, "majority", "wait"))
    net.mute[N1] = []
    net.do(agent, agent.surrender(A, other.id, (N1,)))
    net.do(agent, agent.ask(B, "write", ALL, "majority", "more"))
    assert answer(net, "more") is None
    net.hush(N1)
    assert answer(net, "more") == "have_all_locks"
    net.speak(N1)
    assert agent.status() == "have_all_locks"


class Muttering(Contest):
    """The same, and each agent may be told at any moment that a node is silent, or speaks: true or not, and for each apart."""

    def run(self, rounds: int) -> None:
        """Until all have had it; at the end each of them sees all nodes again."""
        self.told: dict[AgentId, set[str]] = {}
        self.left = 20 + 4 * rounds
        super().run(rounds)

    def carry_out(self, sender: Any, effects: list[Any]) -> None:
        """And then somebody may be told something."""
        super().carry_out(sender, effects)
        if self.agents and getattr(self, "left", 0) and self.random.random() < 0.2:
            self.left -= 1
            agent = self.random.choice(list(self.agents))
            node = self.random.choice(ALL)
            silent = self.told.setdefault(agent, set())
            machine = self.agents[agent]
            event = machine.node_speaks if node in silent else machine.node_silent
            silent ^= {node}
            super().carry_out(agent, event(node))
            if not any(to == agent for _, to in self.links):
                super().carry_out(agent, machine.settle())


@pytest.mark.parametrize("number", [2, 3, 8])
def test_nobody_gets_stuck_and_two_never_have_it_whoever_is_told_what(number: int) -> None:
    """Agents are told at random that nodes are silent, some and others not; each gets the lock, one at a time."""
    for each in range(SEED, SEED + 8):
        contest = Muttering(number, each)
        contest.run(16)
        assert contest.done == 16 + number, each


class Stopped(Contest):
    """Agents that want two ids, one after the other, in any order; a server stops, which each finds out when it likes.

    Args:
        number: How many want them at the same time.
        seed: Of the order.
        node: The server that stops. It takes in what it was sent when all are done.
    """

    def __init__(self, number: int, seed: int, node: str) -> None:
        self.node = node
        self.has_stopped = False
        self.told: set[AgentId] = set()
        self.wants: dict[AgentId, list[Any]] = {}
        self.have: dict[Any, AgentId] = {}
        super().__init__(number, seed)

    def begin(self) -> None:
        """One more wants both."""
        self.begun += 1
        ref = AgentId(self.begun, f"c{self.begun}", self.begun)
        silent = frozenset({self.node} if self.has_stopped and self.random.random() < 0.5 else ())
        agent = AgentMachine(ref, "c", ALL, silent=silent)
        if silent:
            self.told.add(ref)
        self.agents[ref] = agent
        self.wants[ref] = self.random.sample([A, B], 2)
        self.ask(ref)

    def ask(self, ref: AgentId) -> None:
        """It asks for the next one, or has all."""
        if self.wants[ref]:
            lock_id = self.wants[ref].pop()
            self.carry_out(ref, self.agents[ref].ask(lock_id, "write", ALL, "majority", lock_id))
        else:
            self.held.append(ref)

    def carry_out(self, sender: Any, effects: list[Any]) -> None:
        """Send what is to be sent; whoever has one asks for the next one."""
        super().carry_out(sender, [e for e in effects if not isinstance(e, AnswerWait)])
        for effect in effects:
            if isinstance(effect, AnswerWait):
                self.ask(sender)

    def check(self) -> None:
        """No two are told that they have the same."""
        for lock_id in (A, B):
            have = [ref for ref, agent in self.agents.items() if vouched(agent, lock_id)]
            assert len(have) <= 1, (lock_id, have)

    def choices(self) -> list[tuple[str, Any]]:
        """What can happen next; not that an agent finds out, of which it may be sure only if it waits."""
        links = [
            link
            for link, messages in self.links.items()
            if messages and not (self.has_stopped and self.node in link)
        ]
        return [*(("link", link) for link in links), *(("held", ref) for ref in self.held)]

    def unaware(self) -> list[tuple[str, Any]]:
        """Who may find out."""
        return [("told", ref) for ref in self.agents if ref not in self.told] * self.has_stopped

    def happen(self, what: str, which: Any) -> None:
        """One of these."""
        if what == "told":
            self.told.add(which)
            self.carry_out(which, self.agents[which].node_silent(self.node))
            self.settle(which)
        elif what == "held":
            self.held.remove(which)
            self.carry_out(which, self.agents.pop(which).end_transaction())
            self.done += 1
        else:
            self.deliver(*which)

    def run(self, rounds: int) -> None:
        """Until all have had both, without the server that has stopped."""
        more, steps = rounds, self.random.randrange(60)
        while self.agents:
            self.check()
            steps -= 1
            self.has_stopped = self.has_stopped or steps < 0
            choices, unaware = self.choices(), self.unaware()
            # It takes a while until they find out; but each does if it waits.
            if unaware and (not choices or self.random.random() < 0.1):
                choices = unaware
            assert choices, "nobody has all, and nothing is on its way"
            what, which = self.random.choice(choices)
            self.happen(what, which)
            if what == "held" and more:
                more -= 1
                self.begin()

    def deliver(self, sender: Any, receiver: Any) -> None:
        """The first message of a link arrives."""
        message = self.links[sender, receiver].popleft()
        if not self.links[sender, receiver]:
            del self.links[sender, receiver]
        if receiver in self.servers:
            self.carry_out(receiver, self.servers[receiver].handle(message))
        elif receiver in self.agents:
            self.carry_out(receiver, self.agents[receiver].receive(message))
            self.settle(receiver)

    def settle(self, ref: AgentId) -> None:
        """All that had arrived is taken in, of those that speak."""
        on_their_way = (s for s, to in self.links if to == ref and s != self.node)
        if ref in self.agents and not any(on_their_way):
            self.carry_out(ref, self.agents[ref].settle())


def explored(wants: list[list[Any]], node: str, most: int) -> int:
    """Play all that can happen to agents that want these ids, while a server is stopped; return how many states there are.

    Each agent finds out at any moment. A state is known by all that the machines have, and what is on its way.
    """

    def played(path: tuple[tuple[str, Any], ...]) -> Stopped:
        contest = Stopped(0, 0, node)
        contest.has_stopped = True
        for ids in wants:
            contest.begun += 1
            ref = AgentId(contest.begun, f"c{contest.begun}", contest.begun)
            contest.agents[ref] = AgentMachine(ref, "c", ALL)
            contest.wants[ref] = list(reversed(ids))
            contest.ask(ref)
        for choice in path:
            contest.happen(*choice)
        return contest

    seen = {state(played(()))}
    todo: list[tuple[tuple[str, Any], ...]] = [()]
    while todo:
        path = todo.pop()
        contest = played(path)
        options = [*contest.choices(), *contest.unaware()]
        assert options or not contest.agents, "nobody has all, and nothing is on its way"
        for number, choice in enumerate(options):
            after = contest if number == len(options) - 1 else played(path)
            after.happen(*choice)
            after.check()
            key = state(after)
            if key not in seen:
                assert len(seen) < most, "these are more states than expected"
                seen.add(key)
                todo.append((*path, choice))
    return len(seen)


def state(contest: Stopped) -> Any:
    """All that matters of a contest."""
    labels: dict[int, int] = {}
    parts = [
        {ref: contest.agents[ref] for ref in sorted(contest.agents)},
        {name: server for name, server in contest.servers.items() if name != contest.node},
        {
            str(link): list(messages)
            for link, messages in sorted(contest.links.items(), key=str)
            if messages and contest.node not in link
        },
        sorted(contest.held),
        sorted(contest.told),
        {ref: wants for ref, wants in contest.wants.items() if ref in contest.agents},
    ]
    return hash(freeze(parts, UNORDERED, labels))


@pytest.mark.explore
def test_all_that_can_happen_to_two_agents_while_the_gate_is_stopped() -> None:
    """Whoever finds out when, and whatever arrives first: one at a time has it, and both get it."""
    print("states:", explored([[A], [A]], N1, 20_000))


def vouched(agent: AgentMachine, lock_id: Any) -> bool:
    """Whether a client was told that it has a lock, and may rely on it."""
    try:
        agent.ensure_held(lock_id)
    except LocksError:
        return False
    return True


@pytest.mark.parametrize("node", ALL)
@pytest.mark.parametrize("number", [2, 4])
def test_all_get_all_while_a_server_is_stopped(number: int, node: str) -> None:
    """Whatever it had granted, whoever waited there, and whatever surrender it has not answered."""
    for each in range(SEED, SEED + 8):
        contest = Stopped(number, each, node)
        contest.run(8)
        assert contest.done == 8 + number, each


# --- Who is silent -------------------------------------------------------------------------------


class Clock:
    """Nodes that say something when a test wants it, and looks."""

    def __init__(self, *names: str) -> None:
        self.suspects = Suspects()
        self.heard = dict.fromkeys(names, 0)
        self.now = 100.0
        self.waits_at: tuple[str, ...] = ()

    def ask(self, *names: str) -> None:
        """They are asked for something."""
        for name in names:
            self.suspects.asked(name, self.heard[name], sum(self.heard.values()))

    def say(self, *names: str) -> None:
        """Something arrives from them."""
        for name in names:
            self.heard[name] += 1

    def look(self, times: int = 1) -> Found:
        """Look so many times, when it is time; return what the last look has found."""
        found = Found([], [], [], [], LOOK)
        for _ in range(times):
            assert found.pause is not None
            self.now += found.pause
            messages = sum(self.heard.values())
            found = self.suspects.look(self.heard, messages, self.now, lambda: self.waits_at)
        return found

    def until_silent(self, name: str) -> int:
        """The others answer, and it does not: after how many looks it is silent."""
        self.ask(*self.heard)
        self.say(*(each for each in self.heard if each != name))
        for looks in range(1, 1000):
            if name in self.look().silent:
                return looks
        raise AssertionError(f"{name} is never silent")


def test_who_says_nothing_while_others_answer_is_silent_soon() -> None:
    """Within a tenth of a second; a word is enough, and then nothing is looked at any more."""
    clock = Clock("a", "b", "c")
    assert clock.until_silent("a") * LOOK <= 0.1
    assert clock.suspects.silent == {"a"}
    clock.say("a")
    assert clock.look() == Found([], ["a"], [], [], None)
    assert not clock.suspects.silent


def test_a_word_counts_when_one_is_asked_again_before_the_next_look() -> None:
    """A silent node that speaks, speaks, though there is a new request."""
    clock = Clock("a", "b")
    clock.until_silent("a")
    clock.say("a")
    clock.ask("a", "b")
    assert clock.look().speaking == ["a"]


def test_who_answers_anything_is_not_silent() -> None:
    """Not what it was asked for, but a word since: it is busy."""
    clock = Clock("a", "b")
    clock.ask("a", "b")
    clock.say("a", "b")
    assert clock.look() == Found([], [], [], [], None)
    for _ in range(20):
        clock.ask("a", "b")
        clock.say("a", "b")
        clock.ask("a", "b")
        assert clock.look(PATIENCE - 1).silent == []


def test_time_alone_makes_nobody_silent() -> None:
    """This program may have been stopped: what was said meanwhile is read before the next look."""
    clock = Clock("a", "b")
    clock.ask("a", "b")
    clock.say("b")
    clock.now += 100
    assert clock.look() == Found([], [], [], [], LOOK)
    clock.say("a")
    assert clock.look() == Found([], [], [], [], None)


def test_if_nobody_answers_nobody_is_silent() -> None:
    """It may be this program that hears nothing: others are asked for a sign of life; without others, nobody looks."""
    clock = Clock("a", "b", "c", "d", "e")
    clock.ask("a")
    found = clock.look(PATIENCE)
    assert found.silent == []
    assert len(found.doubted) == WITNESSES
    clock.ask(*found.doubted)
    for _ in range(50):
        found = clock.look()
        assert found.silent == []
        assert found.pause is not None
    clock.say("e")
    found = clock.look()
    assert found.silent == ["a", "b", "c", "d"]
    alone = Clock("a")
    alone.ask("a")
    assert alone.look(PATIENCE) == Found([], [], [], [], None)


def test_who_lasts_is_named_once() -> None:
    """Not who is only busy."""
    clock = Clock("a", "b")
    clock.until_silent("a")
    named = [clock.look().lasting for _ in range(100)]
    assert named.count(["a"]) == 1
    assert 0.5 <= named.index(["a"]) * LOOK <= 2
    assert named.count([]) == 99


def test_who_was_busy_is_given_more_time() -> None:
    """Twice as much each time, up to a limit; it is forgotten when there was nothing of the kind for a while."""
    clock = Clock("a", "b")
    took = []
    for _ in range(10):
        took.append(clock.until_silent("a"))
        clock.look(SOON // 2)
        clock.say("a")
        clock.look()
    assert took == sorted(took)
    assert took[1] == 2 * took[0]
    assert took[-1] == MOST_PATIENCE
    clock.now += CALM
    assert clock.until_silent("a") == PATIENCE
    clock.look(SOON + 1)
    clock.say("a")
    clock.look()
    assert clock.until_silent("a") == PATIENCE, "it was really silent"


def test_who_is_lost_is_forgotten() -> None:
    """It is neither silent nor busy when it is back."""
    clock = Clock("a", "b")
    clock.until_silent("a")
    clock.suspects.lost("a")
    assert not clock.suspects.silent
    assert clock.look() == Found([], [], [], [], None)
    assert clock.until_silent("a") == PATIENCE


def test_who_has_stopped_before_one_is_silent_when_one_waits_there() -> None:
    """Nobody owes an answer to who waits for others: it is asked for a sign of life now and then, and nobody else is."""
    clock = Clock("a", "b", "c")
    clock.ask("a", "b", "c")
    clock.say("a", "b", "c")
    clock.waits_at = ("a",)
    assert clock.look() == Found([], [], [], [], ROUND)
    found = clock.look(2)
    assert found.doubted == ["a"]
    clock.ask("a")
    clock.say("a")
    found = clock.look()
    assert found.doubted == []
    assert found.pause is not None
    assert found.pause <= ROUND
    clock.say("a")
    clock.now += ROUND
    assert clock.look().doubted == [], "it has said something"
    assert clock.look(2).doubted == ["a"]
    clock.ask("a")
    clock.waits_at = ()
    found = clock.look(PATIENCE)
    assert found.doubted == ["b", "c"]
    clock.ask("b", "c")
    clock.say("b", "c")
    assert clock.look().silent == ["a"]
