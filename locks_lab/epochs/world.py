"""A model of a list of servers that changes while programs run: every order of events of a small world.

    world = World((0,), [(1,)])
    print(visit_all(world, world.check))

Agents want one lock, each once. A question to a server and its answer are one event, and what somebody knows of a server may be old at
the next one. A server pushes nothing: an agent looks whether it was granted, as another event. A release reaches all servers at once.

**Faults**: whoever changes the list dies at any point; a connection of an agent that has asked a server breaks, and the agent notices later; a server
restarts without memory, with larger versions than all others (decision 0005). When nothing else can happen, another one comes, who undoes the change or finishes it.
`down` names servers that never answer.

**Checks**, in each state:

* *Tokens*: no two agents have the same one; while the grants of a holder stand, no agent ever had a larger one.
* *Exclusion*: of two holders, one has lost a grant by a broken connection or a restart.
* *Kept*: a holder without a fault keeps its lock.
* *Agreed*: what is decided in a step is the same for all.
* *Progress*: when nothing can happen any more, all agents have had the lock or lost it, and all servers that answer know the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from locks.model import majority
from locks_lab.epochs.machines import Changer, Config, Server, Value
from locks_lab.worlds.host import Violation

__all__ = ["OURS", "Rules", "World"]

Move = tuple[Any, ...]


class Agent(NamedTuple):
    """An agent.

    Attributes:
        config: What it knows to be decided.
        phase: `waits`, `holds`, `over` or `lost`.
        grants: Its grants: server, version, and whether the token is confirmed there.
        token: Its token, when it holds the lock.
        hurt: Whether a grant was lost by a fault.
    """

    config: Config
    phase: str = "waits"
    grants: tuple[tuple[int, int, bool], ...] = ()
    token: int = 0
    hurt: bool = False


class Recovery(NamedTuple):
    """A server that was restarted asks others, twice: for the largest ballot, and for what was accepted."""

    step: int
    ballot: int = 0
    said: frozenset[int] = frozenset()
    again: bool = False
    best: tuple[int, Value] | None = None


class State(NamedTuple):
    """All of it, and how many faults may still happen."""

    servers: tuple[Server, ...]
    agents: tuple[Agent, ...]
    changers: tuple[Changer, ...]
    recoveries: tuple[Recovery | None, ...]
    decided: tuple[tuple[int, Config], ...] = ()
    tokens: tuple[tuple[int, int], ...] = ()  # who had which
    deaths: int = 0
    cuts: int = 0
    restarts: int = 0


class Rules(NamedTuple):
    """The machines; each can be replaced by a wrong one."""

    server: type[Server] = Server
    changer: type[Changer] = Changer
    config: type[Config] = Config
    recovers: bool = True


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
        rounds: How many more ballots each of those who change it uses before it gives up.
        rules: The machines.
    """

    def __init__(
        self,
        old: tuple[int, ...],
        wants: Sequence[tuple[int, ...]],
        agents: int = 2,
        held: bool = True,
        deaths: int = 0,
        cuts: int = 0,
        restarts: int = 0,
        down: tuple[int, ...] = (),
        rounds: int = 2,
        rules: Rules = OURS,
    ) -> None:
        self.old, self.wants, self.rules, self.down = old, wants, rules, {*down}
        self.number = max(max(each) for each in (old, *wants)) + 1
        self.agents, self.held, self.rounds = agents, held, rounds
        self.faults = (deaths, cuts, restarts)

    # --- The model

    def start(self) -> State:
        """The state in which all begins."""
        config = self.rules.config(0, self.old)
        unknown = self.rules.config(-1, self.old)
        # Versions of the old servers are larger, so that a floor is needed.
        servers = [
            self.rules.server(config, version=5) if at in self.old else self.rules.server(unknown)
            for at in range(self.number)
        ]
        agents = [Agent(config)] * self.agents
        tokens: tuple[tuple[int, int], ...] = ()
        if self.held:
            having = self.old[: majority(len(self.old))]
            for at in having:
                servers[at] = servers[at].ask(0, config, False, False)
            agents[0] = Agent(config, "holds", tuple((at, 6, True) for at in having), 6)
            tokens = ((0, 6),)
        changers = [
            self.rules.changer(name, wants, config, 10 + name, rounds=self.rounds)
            for name, wants in enumerate(self.wants)
        ]
        return State(
            tuple(servers),
            tuple(agents),
            tuple(changers),
            (None,) * self.number,
            (),
            tokens,
            *self.faults,
        )

    def moves(self, state: State) -> Sequence[Move]:
        """All moves that are possible in a state."""
        found: list[Move] = []
        up = [at for at in range(self.number) if at not in self.down]
        for name, changer in enumerate(state.changers):
            if changer.phase == "over":
                continue
            asked = changer.config.old
            if changer.phase == "tell":
                asked = tuple(sorted({*changer.config.old, *changer.config.new}))
            for at in asked:
                server = state.servers[at]
                if at in self.down or at in changer.said:
                    continue
                if changer.phase != "tell" and server.blank:
                    continue
                if changer.phase != "tell" and server.config.step < changer.config.step:
                    found.append(("change", name, at))
                    continue
                same = changer.phase == "prepare" and server.config.step == changer.config.step
                if same and changer.needs_ready() and not server.ready():
                    continue
                found.append(("change", name, at))
        for at in up:
            recovery = state.recoveries[at]
            if recovery is not None:
                found.extend(
                    ("recover", at, other)
                    for other in self.old
                    if other != at
                    and other not in self.down
                    and other not in recovery.said
                    and not state.servers[other].blank
                )
        for name, agent in enumerate(state.agents):
            found.extend(
                (kind, name, at) for at in up for kind in self._can(state, agent, name, at)
            )
        if not found:
            # Nothing else can happen: servers that are connected tell each other, and another one comes.
            best = max((each.config.step for each in state.servers), default=0)
            late = [at for at in up if state.servers[at].config.step < best]
            late = [at for at in late if best < 2 or at in {*self.old, *self._best(state).new}]
            if late:
                return [("sync", late[0])]
            unfinished = any(each.phase != "over" for each in state.changers) or best == 1
            if unfinished and len(state.changers) == len(self.wants):
                return [("comes",)]
            return []
        if state.deaths:
            found.extend(
                ("dies", name)
                for name, each in enumerate(state.changers)
                if each.phase != "over" and name < len(self.wants)
            )
        if state.cuts:
            for at in up:
                found.extend(("cut", each.agent, at) for each in state.servers[at].queue)
        if state.restarts and not any(each.blank for each in state.servers):
            found.extend(("restart", at) for at in up)
        return found

    def _best(self, state: State) -> Config:
        return max((each.config for each in state.servers), key=lambda each: each.step)

    def _can(self, state: State, agent: Agent, name: int, at: int) -> list[str]:
        """What an agent can do at a server."""
        if agent.phase in ("over", "lost"):
            return []
        server, can = state.servers[at], []
        entry = next((each for each in server.queue if each.agent == name), None)
        mine = next((each for each in agent.grants if each[0] == at), None)
        if agent.phase == "holds" and self._secure(agent):
            can += ["end"] if at == min(each[0] for each in agent.grants) else []
        if mine is not None and (entry is None or entry.version != mine[1]):
            return [*can, "see"]
        if server.config.step > agent.config.step and entry is not None:
            can.append("hear")
        if at not in agent.config.servers:
            return can
        fresh = agent.phase == "waits" or at not in agent.config.old or agent.config.step == 2
        if entry is None:
            return [*can, "ask"] if fresh and not server.blank else can
        if mine is None and entry.version:
            can.append("see")
        if mine is not None and not mine[2]:
            can.append("confirm")
        may_join = agent.phase == "waits" or self._secure(agent)
        if agent.config.step >= 1 and not entry.joined and may_join:
            can.append("join")
        if agent.phase == "waits" and entry.version:
            others = [e for e in server.queue if e.agent != name and server.may_have(e)]
            if any(e.agent < name or e.holds for e in others):
                can.append("yield")
        return can

    def _secure(self, agent: Agent) -> bool:
        """Whether an agent has the lock as what it knows demands."""
        return agent.config.enough(each[0] for each in agent.grants if each[2])

    def after(self, state: State, move: Move) -> State:
        """The state after a move."""
        kind = move[0]
        if kind in ("change", "dies", "comes"):
            return self._changes(state, move)
        if kind == "sync":
            return self._server(state, move[1], state.servers[move[1]].learn(self._best(state)))
        if kind == "restart":
            return self._restart(state, move[1])
        if kind == "recover":
            return self._recover(state, move[1], move[2])
        _, name, at = move
        server, agent = state.servers[at], state.agents[name]
        if kind == "cut":
            hurt = agent._replace(hurt=True)
            new = state._replace(cuts=state.cuts - 1)
            return self._agent(self._server(new, at, server.drop(name)), name, hurt)
        others = tuple([each for each in agent.grants if each[0] != at])
        if kind == "see":
            entry = next((each for each in server.queue if each.agent == name), None)
            if entry is not None and entry.version:
                others = (*others, (at, entry.version, False))
            return self._weigh(state, name, agent._replace(grants=others))
        if kind == "hear":
            return self._hears(state, name, server.config)
        if kind == "ask":
            holds = agent.phase == "holds"
            joined = agent.config.step >= 1
            state = self._server(state, at, server.ask(name, agent.config, holds, joined))
            return self._hears(state, name, server.config)
        if kind == "join":
            return self._server(state, at, server.join(name, agent.config))
        if kind == "yield":
            state = self._server(
                state,
                at,
                server.learn(agent.config)
                .drop(name)
                .ask(name, agent.config, False, agent.config.step >= 1),
            )
            return self._weigh(state, name, agent._replace(grants=others))
        if kind == "confirm":
            version = next(each[1] for each in agent.grants if each[0] == at)
            confirmed = server.confirm(name, version, self._token(agent))
            assert confirmed is not None
            grants = (*others, (at, version, True))
            state = self._server(state, at, confirmed)
            return self._weigh(state, name, agent._replace(grants=grants))
        assert kind == "end"
        servers = tuple([each.drop(name) for each in state.servers])
        over = Agent(agent.config, "over")
        return self._agent(state._replace(servers=servers), name, over)

    # --- Agents

    def _token(self, agent: Agent) -> int:
        if agent.phase == "holds":
            return agent.token
        floor = agent.config.floor + 1 if agent.config.step == 2 else 0
        return max((floor, *(each[1] for each in agent.grants)))

    def _hears(self, state: State, name: int, config: Config) -> State:
        agent = state.agents[name]
        if config.step <= agent.config.step:
            return state
        grants = tuple([each for each in agent.grants if each[0] in config.servers])
        return self._weigh(state, name, agent._replace(config=config, grants=grants))

    def _weigh(self, state: State, name: int, agent: Agent) -> State:
        """The grants of an agent have changed, or what it knows."""
        before = state.agents[name]
        token = self._token(agent)
        if agent.phase == "waits" and token != self._token(before):
            agent = agent._replace(grants=tuple([(a, v, False) for a, v, _ in agent.grants]))
        grants = tuple(sorted(agent.grants))
        agent = agent._replace(grants=grants)
        if agent.phase == "waits" and self._secure(agent):
            agent = agent._replace(phase="holds", token=token)
            state = state._replace(tokens=(*state.tokens, (name, token)))
        elif agent.phase == "holds":
            having = [each[0] for each in grants]
            config = agent.config
            # It keeps what it has by the old list alone until it has both.
            alone = config._replace(step=0) if config.step == 1 else config
            if not alone.enough(having):
                if not agent.hurt:
                    raise Violation(f"agent {name} has lost its lock without a fault")
                servers = tuple([each.drop(name) for each in state.servers])
                state = state._replace(servers=servers)
                agent = Agent(config, "lost")
        return self._agent(state, name, agent)

    def _agent(self, state: State, name: int, agent: Agent) -> State:
        agents = (*state.agents[:name], agent, *state.agents[name + 1 :])
        return state._replace(agents=agents)

    # --- Servers, and those who change the list

    def _server(self, state: State, at: int, server: Server) -> State:
        servers = (*state.servers[:at], server, *state.servers[at + 1 :])
        recoveries = state.recoveries
        if recoveries[at] is not None and not server.blank:
            recoveries = (*recoveries[:at], None, *recoveries[at + 1 :])
        return state._replace(servers=servers, recoveries=recoveries)

    def _restart(self, state: State, at: int) -> State:
        old = state.servers[at]
        member = at in self.old
        hurt = {each.agent for each in old.queue if each.version}
        largest = max(each.version for each in state.servers) + 1
        blank = member and self.rules.recovers
        config = self.rules.config(0 if member else -1, self.old)
        server = self.rules.server(config, blank=blank, version=largest)
        agents = tuple(
            [e._replace(hurt=True) if n in hurt else e for n, e in enumerate(state.agents)]
        )
        state = state._replace(restarts=state.restarts - 1, agents=agents)
        state = self._server(state, at, server)
        recovery = Recovery(0) if blank else None
        recoveries = (*state.recoveries[:at], recovery, *state.recoveries[at + 1 :])
        return state._replace(recoveries=recoveries)

    def _recover(self, state: State, at: int, other: int) -> State:
        """A server that was restarted asks another one: so many that each majority has one of them."""
        server, asked, recovery = state.servers[at], state.servers[other], state.recoveries[at]
        assert recovery is not None
        if asked.config.step > server.config.step:
            server = server.learn(asked.config)
            state = self._server(state, at, server)
            recovery = Recovery(server.config.step)
        elif server.config.step > asked.config.step:
            return self._server(state, other, asked.learn(server.config))
        else:
            if recovery.step != server.config.step:
                recovery = Recovery(server.config.step)
            # An acceptance that is on its way may not count together with one that was forgotten.
            again = recovery.again
            ballot = max(recovery.ballot, asked.ballot // 10 * 10 + 9)
            best = recovery.best
            if again:
                asked = asked.barred(ballot)
                state = self._server(state, other, asked)
                best = max((e for e in (best, asked.accepted) if e is not None), default=None)
            said = recovery.said | {other}
            recovery = recovery._replace(ballot=ballot, said=said, best=best)
            size = len(self.old)
            if len(said) >= min(size - 1, size - majority(size) + 1):
                if again:
                    new = server._replace(blank=False, ballot=ballot, accepted=best)
                    return self._server(state, at, new.grant())
                recovery = recovery._replace(again=True, said=frozenset())
        if not server.blank:
            return state
        recoveries = (*state.recoveries[:at], recovery, *state.recoveries[at + 1 :])
        return state._replace(recoveries=recoveries)

    def _changes(self, state: State, move: Move) -> State:
        changers = state.changers
        if move[0] == "comes":
            best = max((each.config for each in state.servers), key=lambda each: each.step)
            ballot = max(each.ballot for each in state.servers) // 10 * 10 + 18
            new = self.rules.changer(8, self.old, best, ballot, rounds=9)
            over = tuple([each._replace(phase="over") for each in changers])
            return state._replace(changers=(*over, new))
        name = move[1]
        changer = changers[name]
        if move[0] == "dies":
            changer = self.rules.changer(name, changer.wants, changer.config, 0, "over")
            state = state._replace(deaths=state.deaths - 1)
        else:
            at = move[2]
            server = state.servers[at]
            if changer.phase == "tell":
                if server.config.step > changer.config.step:
                    changer = changer.knows(server.config)
                else:
                    state = self._server(state, at, server.learn(changer.config))
                    changer = changer.told(at)
            elif server.config.step < changer.config.step:
                return self._server(state, at, server.learn(changer.config))
            else:
                step = changer.config.step
                if changer.phase == "prepare":
                    server, promise = server.prepare(step, changer.ballot)
                else:
                    assert changer.best is not None
                    server, promise = server.accept(step, *changer.best)
                state = self._server(state, at, server)
                before = changer.config.step
                changer = changer.heard(at, promise)
                if changer.config.step == before + 1 and promise.config.step == before:
                    state = self._decided(state, changer.config)
        return state._replace(changers=(*changers[:name], changer, *changers[name + 1 :]))

    def _decided(self, state: State, config: Config) -> State:
        known = dict(state.decided).get(config.step)
        if known is not None and known != config:
            raise Violation(f"{known} and {config} are decided")
        decided = tuple(sorted({**dict(state.decided), config.step: config}.items()))
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
        concerned = {*best.servers} - self.down
        if best.step == 1 or {state.servers[at].config for at in concerned} != {best}:
            raise Violation("servers don't agree")
