"""A model of a list of servers that changes while programs run: every order of events of a small world, with the product's machines.

    world = World(("a",), [("b",)])
    print(visit_all(world, world.check))

Agents, each a program, want one lock, each once. A question to a server and its answer are one event, and what somebody knows of a server may be
old at the next one. A release reaches all servers at once. The lock is requested on the servers of the roster that the program knows then.

**Faults**: whoever changes the list dies at any point; a connection of an agent that has asked a server breaks, and the agent notices later; a server
restarts with its file, without its queue, and with larger versions than all others (decision 0005). When nothing else can happen, another one comes, who undoes the
change, or finishes it if that was decided. `down` names servers that never answer.

**Checks**, in each state:

* *Tokens*: no two agents have the same one; while the grants of a holder stand, no agent ever had a larger one.
* *Exclusion*: of two holders, one has lost a grant by a broken connection or a restart.
* *Kept*: a holder without a fault keeps its lock.
* *Agreed*: what is decided in a step is the same for all.
* *Progress*: when nothing can happen any more, all agents have had the lock or lost it, and all servers that answer know the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from locks.core.rosters import Acceptor, Changer, Roster, RosterFact
from locks.model import majority
from locks_lab.worlds.host import Violation

__all__ = ["OURS", "Rules", "Served", "State", "World"]

Move = tuple[Any, ...]
List = tuple[str, ...]


class Entry(NamedTuple):
    """A request at a server.

    Attributes:
        agent: Who asks.
        version: The version of its grant; 0 if it waits.
    """

    agent: int
    version: int = 0


class Served(NamedTuple):
    """A server, and whom it serves.

    Attributes:
        acceptor: What it remembers, on its disk, of the agreement.
        version: Its last version.
        queue: Who has the lock, and who waits.
        joined: The agents that it serves, and what they have joined.
    """

    acceptor: Acceptor
    version: int = 0
    queue: tuple[Entry, ...] = ()
    joined: tuple[tuple[int, int], ...] = ()

    def learn(self, roster: Roster) -> Served:
        """Something was decided; agents that have not joined enough are cut off."""
        if roster.number <= self.acceptor.roster.number:
            return self
        acceptor = self.acceptor.learn(roster)
        new = self._replace(acceptor=acceptor, version=max(self.version, roster.floor))
        for agent, joined in self.joined:
            if joined < acceptor.serves_from:
                new = new.drop(agent, with_all=True)
        return new

    def report(self, agent: int, roster: Roster, joined: int) -> Served:
        """An agent says what it knows, and what it has joined; it is served, if it may be."""
        new = self.learn(roster)
        if new.acceptor.roster.number > roster.number or joined < new.acceptor.serves_from:
            return new
        others = [each for each in new.joined if each[0] != agent]
        return new._replace(joined=tuple(sorted([*others, (agent, joined)])))

    @property
    def ready(self) -> bool:
        """Whether all that it serves have joined."""
        return all(joined == self.acceptor.roster.number for _, joined in self.joined)

    def ask(self, agent: int) -> Served:
        """An agent asks for the lock."""
        return self._replace(queue=(*self.queue, Entry(agent)))._grant()

    def drop(self, agent: int, with_all: bool = False) -> Served:
        """An agent releases the lock; `with_all`, its connection is lost."""
        new = self._replace(queue=tuple([each for each in self.queue if each.agent != agent]))
        if with_all:
            new = new._replace(joined=tuple([each for each in self.joined if each[0] != agent]))
        return new._grant()

    def _grant(self) -> Served:
        if not self.queue or self.queue[0].version:
            return self
        first = self.queue[0]._replace(version=self.version + 1)
        return self._replace(version=first.version, queue=(first, *self.queue[1:]))


class Agent(NamedTuple):
    """An agent, and its program.

    Attributes:
        roster: What it knows to be decided.
        joined: From which number on all its requests are.
        phase: `idle`, `waits`, `holds`, `over` or `lost`.
        nodes: Where it has requested the lock.
        grants: Its grants: server, version, and whether the token is confirmed there.
        token: Its token, when it holds the lock.
        hurt: Whether a grant was lost by a fault.
    """

    roster: Roster
    joined: int = 0
    phase: str = "idle"
    nodes: List = ()
    grants: tuple[tuple[str, int, bool], ...] = ()
    token: int = 0
    hurt: bool = False

    def enough(self, those: Iterable[str]) -> bool:
        """Whether these servers are enough for its lock."""
        return len({*those}) >= majority(len(self.nodes))


class State(NamedTuple):
    """All of it, and how many faults may still happen."""

    servers: tuple[Served, ...]
    agents: tuple[Agent, ...]
    changers: tuple[Changer, ...]
    decided: tuple[tuple[int, Roster], ...] = ()
    tokens: tuple[tuple[int, int], ...] = ()  # who had which
    deaths: int = 0
    cuts: int = 0
    restarts: int = 0


def _places(roster: Roster) -> List:
    return roster.places


class Rules(NamedTuple):
    """The machines; each can be replaced by a wrong one.

    Attributes:
        server: A server.
        acceptor: Its part in the agreement.
        changer: Whoever changes the list.
        roster: What is decided.
        nodes: Where the lock is requested.
        forgets: Whether a server that restarts has lost its file.
    """

    server: type[Served] = Served
    acceptor: type[Acceptor] = Acceptor
    changer: type[Changer] = Changer
    roster: type[Roster] = Roster
    nodes: Callable[[Roster], List] = _places
    forgets: bool = False


OURS = Rules()


class World:
    """A small world, as a model to search.

    Args:
        old: The old list.
        wants: The list that each of those wants who change it.
        agents: How many agents want the lock.
        held: Whether the first one has it at the beginning.
        deaths: How often one of those who change it dies.
        cuts: How often a connection breaks.
        restarts: How often a server restarts.
        down: Servers that never answer.
        ballots: How large the ballots are of those who change it; then they give up.
        rules: The machines.
    """

    def __init__(
        self,
        old: List,
        wants: Sequence[List],
        agents: int = 2,
        held: bool = True,
        deaths: int = 0,
        cuts: int = 0,
        restarts: int = 0,
        down: List = (),
        ballots: int = 2,
        rules: Rules = OURS,
    ) -> None:
        self.old, self.wants, self.rules, self.down = old, wants, rules, {*down}
        self.names = sorted({*old}.union(*wants))
        self.agents, self.held, self.ballots = agents, held, ballots
        self.faults = (deaths, cuts, restarts)

    # --- The model

    def start(self) -> State:
        """The state in which all begins."""
        roster = self.rules.roster(0, 0, 0, 0, self.old)
        acceptor = self.rules.acceptor(roster)
        # Versions of the old servers are larger, so that a floor is needed.
        servers = {at: self.rules.server(acceptor, 5 if at in self.old else 0) for at in self.names}
        agents = [Agent(roster)] * self.agents
        tokens: tuple[tuple[int, int], ...] = ()
        if self.held:
            having = self.old[: majority(len(self.old))]
            for at in having:
                servers[at] = servers[at].report(0, roster, 0).ask(0)
            grants = tuple([(at, 6, True) for at in having])
            agents[0] = Agent(roster, 0, "holds", self.old, grants, 6)
            tokens = ((0, 6),)
        changers = [self.rules.changer(wants, roster) for wants in self.wants]
        return State(
            tuple(servers.values()), tuple(agents), tuple(changers), (), tokens, *self.faults
        )

    def moves(self, state: State) -> Sequence[Move]:
        """All moves that are possible in a state."""
        found: list[Move] = []
        up = [at for at in self.names if at not in self.down]
        for name, changer in enumerate(state.changers):
            found += [("change", name, at) for at in changer.asked if at not in self.down]
        for name, agent in enumerate(state.agents):
            if agent.phase == "idle":
                found.append(("begin", name, ""))
            if self._is_stuck(agent):
                found.append(("ends", name, ""))
            found += [(kind, name, at) for at in up for kind in self._can(state, agent, name, at)]
        found = [each for each in found if self.after(state, each) != state]
        if not found:
            # Nothing else can happen: servers that are connected tell each other, and another one comes.
            best = self._best(state)
            late = [at for at in up if self._at(state, at).acceptor.roster.number < best.number]
            if late:
                return [("sync", late[0])]
            unfinished = any(each.phase != "over" for each in state.changers) or best.is_changing
            if unfinished and len(state.changers) == len(self.wants):
                return [("comes",)]
            return []
        if state.deaths:
            found += [
                ("dies", name)
                for name, each in enumerate(state.changers)
                if each.phase != "over" and not each.gives_up
            ]
        if state.cuts:
            for at in up:
                found += [("cut", each.agent, at) for each in self._at(state, at).queue]
        if state.restarts:
            found += [("restart", at) for at in up]
        return found

    def _at(self, state: State, at: str) -> Served:
        return state.servers[self.names.index(at)]

    def _best(self, state: State) -> Roster:
        return max((each.acceptor.roster for each in state.servers), key=lambda each: each.number)

    def _can(self, state: State, agent: Agent, name: int, at: str) -> list[str]:
        """What an agent can do at a server."""
        if agent.phase in ("over", "lost"):
            return []
        server, can = self._at(state, at), []
        entry = next((each for each in server.queue if each.agent == name), None)
        mine = next((each for each in agent.grants if each[0] == at), None)
        served = dict(server.joined)
        if at in {*agent.roster.places, *agent.nodes}:
            can.append("report")
        if agent.phase == "holds" and self._secure(agent):
            can += ["end"] if at == min(each[0] for each in agent.grants) else []
        if mine is not None and (entry is None or entry.version != mine[1]):
            return [*can, "see"]
        if at not in agent.nodes or name not in served:
            return can
        if entry is None:
            return [*can, "ask"] if agent.phase == "waits" else can
        if mine is None and entry.version:
            can.append("see")
        if mine is not None and not mine[2]:
            can.append("confirm")
        if agent.phase == "waits" and entry.version and any(e.agent < name for e in server.queue):
            can.append("yield")
        return can

    def _is_stuck(self, agent: Agent) -> bool:
        """Whether an agent waits for servers that are down, by an earlier roster, and others would be enough."""
        nodes, present = {*agent.nodes}, agent.roster.places
        waits = agent.phase == "waits" and nodes != {*present}
        is_up = len({*present} - self.down) >= majority(len(present))
        return waits and is_up and not agent.enough(nodes - self.down)

    def _secure(self, agent: Agent) -> bool:
        """Whether an agent has the lock as it was requested."""
        return agent.enough(each[0] for each in agent.grants if each[2])

    def after(self, state: State, move: Move) -> State:
        """The state after a move."""
        kind = move[0]
        if kind in ("change", "dies", "comes"):
            return self._changes(state, move)
        if kind == "sync":
            return self._server(state, move[1], self._at(state, move[1]).learn(self._best(state)))
        if kind == "restart":
            return self._restart(state, move[1])
        _, name, at = move
        agent = state.agents[name]
        if kind == "begin":
            nodes = self.rules.nodes(agent.roster)
            return self._agent(state, name, agent._replace(phase="waits", nodes=nodes))
        if kind == "ends":
            return self._gone(state, name, agent, "lost")
        server = self._at(state, at)
        if kind == "report":
            new = server.report(name, agent.roster, agent.joined)
            state = self._server(state, at, new)
            return self._hears(state, name, new.acceptor.roster)
        if kind == "cut":
            new_state = state._replace(cuts=state.cuts - 1)
            new_state = self._server(new_state, at, server.drop(name, with_all=True))
            return self._agent(new_state, name, agent._replace(hurt=True))
        others = tuple([each for each in agent.grants if each[0] != at])
        if kind == "see":
            entry = next((each for each in server.queue if each.agent == name), None)
            if entry is not None and entry.version:
                others = (*others, (at, entry.version, False))
            return self._weigh(state, name, agent._replace(grants=others))
        if kind == "ask":
            return self._server(state, at, server.ask(name))
        if kind == "yield":
            state = self._server(state, at, server.drop(name).ask(name))
            return self._weigh(state, name, agent._replace(grants=others))
        if kind == "confirm":
            version = next(each[1] for each in agent.grants if each[0] == at)
            confirmed = server._replace(version=max(server.version, self._token(agent)))
            state = self._server(state, at, confirmed)
            grants = (*others, (at, version, True))
            return self._weigh(state, name, agent._replace(grants=grants))
        assert kind == "end"
        return self._gone(state, name, agent, "over")

    # --- Agents

    def _gone(self, state: State, name: int, agent: Agent, phase: str) -> State:
        """An agent, and its program, ends."""
        servers = tuple([each.drop(name, with_all=True) for each in state.servers])
        over = Agent(agent.roster, phase=phase)
        return self._agent(state._replace(servers=servers), name, over)

    def _token(self, agent: Agent) -> int:
        if agent.phase == "holds":
            return agent.token
        return max((0, *(each[1] for each in agent.grants)))

    def _hears(self, state: State, name: int, roster: Roster) -> State:
        """An agent hears what is decided."""
        agent = state.agents[name]
        if roster.number <= agent.roster.number:
            return state
        behind = bool(agent.nodes) and {*agent.nodes} != {*self.rules.nodes(roster)}
        joined = agent.joined if behind else roster.number
        if joined < roster.base:
            if agent.phase == "holds" and not agent.hurt:
                raise Violation(f"agent {name} has lost its lock without a fault")
            return self._gone(state, name, agent, "lost")
        return self._agent(state, name, agent._replace(roster=roster, joined=joined))

    def _weigh(self, state: State, name: int, agent: Agent) -> State:
        """The grants of an agent have changed."""
        before = state.agents[name]
        token = self._token(agent)
        if agent.phase == "waits" and token != self._token(before):
            agent = agent._replace(grants=tuple([(a, v, False) for a, v, _ in agent.grants]))
        agent = agent._replace(grants=tuple(sorted(agent.grants)))
        if agent.phase == "waits" and self._secure(agent):
            agent = agent._replace(phase="holds", token=token)
            state = state._replace(tokens=(*state.tokens, (name, token)))
        elif agent.phase == "holds" and not agent.enough(each[0] for each in agent.grants):
            if not agent.hurt:
                raise Violation(f"agent {name} has lost its lock without a fault")
            return self._gone(state, name, agent, "lost")
        return self._agent(state, name, agent)

    def _agent(self, state: State, name: int, agent: Agent) -> State:
        agents = (*state.agents[:name], agent, *state.agents[name + 1 :])
        return state._replace(agents=agents)

    # --- Servers, and those who change the list

    def _server(self, state: State, at: str, server: Served) -> State:
        index = self.names.index(at)
        servers = (*state.servers[:index], server, *state.servers[index + 1 :])
        return state._replace(servers=servers)

    def _restart(self, state: State, at: str) -> State:
        old = self._at(state, at)
        hurt = {each.agent for each in old.queue if each.version}
        largest = max(each.version for each in state.servers) + 1
        first = self.rules.acceptor(self.rules.roster(0, 0, 0, 0, self.old))
        acceptor = first if self.rules.forgets else old.acceptor
        agents = tuple(
            [e._replace(hurt=True) if n in hurt else e for n, e in enumerate(state.agents)]
        )
        state = state._replace(restarts=state.restarts - 1, agents=agents)
        return self._server(state, at, self.rules.server(acceptor, largest))

    def _changes(self, state: State, move: Move) -> State:
        changers = state.changers
        if move[0] == "comes":
            new = self.rules.changer((), self._best(state), gives_up=True)
            over = tuple([each._replace(phase="over") for each in changers])
            return state._replace(changers=(*over, new))
        name = move[1]
        changer = changers[name]
        if move[0] == "dies":
            changer = self._over(changer)
            state = state._replace(deaths=state.deaths - 1)
        else:
            at = move[2]
            server, fact = self._question(self._at(state, at), changer)
            state = self._server(state, at, server)
            before = changer
            changer = changer.heard(at, fact)
            if before.phase == "accept" and changer.roster == before.best:
                state = self._decided(state, changer.roster)
            # The command ends when the list has changed.
            is_late = changer.phase == "prepare" and changer.roster.number > 1
            is_late = is_late and not changer.roster.is_changing
            if (is_late or changer.ballot > self.ballots) and not changer.gives_up:
                changer = self._over(changer)
        return state._replace(changers=(*changers[:name], changer, *changers[name + 1 :]))

    def _over(self, changer: Changer) -> Changer:
        return self.rules.changer(changer.wants, changer.roster, phase="over")

    def _question(self, server: Served, changer: Changer) -> tuple[Served, RosterFact]:
        """Whoever changes the list asks a server."""
        acceptor, roster = server.acceptor, changer.roster
        if changer.phase in ("tell", "collect"):
            server = server.learn(roster)
            return server, server.acceptor.fact(server.acceptor.roster.number >= roster.number)
        if changer.phase == "prepare":
            asked = (roster.number, changer.ballot, changer.seals)
            acceptor, good = acceptor.prepare(*asked, server.ready)
        else:
            assert changer.best is not None
            acceptor, good = acceptor.accept(changer.ballot, changer.best)
        return server._replace(acceptor=acceptor), acceptor.fact(good, server.version)

    def _decided(self, state: State, roster: Roster) -> State:
        known = dict(state.decided).get(roster.number)
        if known is not None and known != roster:
            raise Violation(f"{known} and {roster} are decided")
        decided = tuple(sorted({**dict(state.decided), roster.number: roster}.items()))
        return state._replace(decided=decided)

    # --- Checks

    def check(self, state: State, moves: Sequence[Move]) -> None:
        """Check a state, and whether somebody is stuck in it.

        Raises:
            Violation: Something is wrong.
        """
        if len({token for _, token in state.tokens}) < len(state.tokens):
            raise Violation("two agents have one token")
        holders = [(n, each) for n, each in enumerate(state.agents) if each.phase == "holds"]
        if sum(not each.hurt for _, each in holders) > 1:
            raise Violation("two agents hold the lock")
        for name, agent in holders:
            if not agent.hurt and any(
                token > agent.token for n, token in state.tokens if n != name
            ):
                raise Violation(f"agent {name} holds the lock, and another one had a larger token")
        if moves:
            return
        if any(each.phase not in ("over", "lost") for each in state.agents):
            raise Violation("an agent is stuck")
        if any(each.phase != "over" for each in state.changers):
            raise Violation("whoever changes the list is stuck")
        best = self._best(state)
        concerned = {*best.places} - self.down
        if best.is_changing or {self._at(state, at).acceptor.roster for at in concerned} != {best}:
            raise Violation("servers don't agree")
