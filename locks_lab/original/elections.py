"""A world of elections of the original: instances, their agents and helpers, lock servers, process groups.

A script says what happens from outside: `start 1, start 2; put 1 x; kill 2; start 3`. What stands behind a `;` happens
when all before has settled; what stands behind a `,` at any moment. Everything else happens in any order:

    ("act", process)    an instance handles the first message of its mailbox
    ("arrive", link)    the first message on the connection of two nodes arrives
    ("recheck", number) the 20 ms have passed after which a candidate looks at the contest again
    ("next", number)    the script goes on

Lock servers, process groups, agents and helpers handle at once what arrives, and 20 ms pass only when nothing is under way.
A mailbox with `MOST` messages is emptied first. Nodes are connected, and do not fail. Longer time limits never end here, neither
the 5 s of `syncing` nor the 60 s of a helper that nobody releases: what only they resolve counts as stuck.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal, NamedTuple

from locks.errors import InvalidOption
from locks.model import AgentId, LockId
from locks_lab.explorer.shortest import Found, shortest
from locks_lab.original.agent import Agent, Known, Sent
from locks_lab.original.leader import Crash, Facts, Instance, Message, Role
from locks_lab.original.messages import End, Info, Surrendered
from locks_lab.original.server import serve
from locks_lab.original.table import EMPTY, Table, watch
from locks_lab.worlds.host import Violation
from locks_lab.worlds.network import Link, Party, home_of

__all__ = ["Choice", "Elections", "ends", "failure", "tell"]

LOCK: LockId = ("locks_leader", "r")
MERGE: LockId = ("locks_leader", "sync", "r")
HELPERS = 1000  # helpers have larger numbers than agents
MOST = 6  # messages in a mailbox; one with so many is handled next
Choice = (
    tuple[Literal["act"], AgentId]
    | tuple[Literal["arrive"], Link]
    | tuple[Literal["recheck", "next"], int]
)
State = tuple[Any, ...]


class Contender(Agent):
    """The agent of a candidate, which notifies it of queues and of its own status."""

    STATE = (*Agent.STATE, "asked", "fresh")

    def __init__(self, me: AgentId) -> None:
        super().__init__(me)
        self.asked = 0  # how often it was asked to say when it holds all
        self.fresh: Known | None = None  # a queue that it was informed of, and has not passed on

    def take(self, message: Info | Surrendered | Literal["await", "notify"]) -> list[str]:
        """Take something in; return the notifications of the status that are due at once."""
        if message == "notify":
            return [self._word]
        if message == "await":
            self.asked = min(self.asked + 1, 2)  # so that the states are finite
            if isinstance(self.status, int):
                return self._said()
            self.awaited = self.unseen = True
        else:
            assert not isinstance(message, str)
            before = self.known
            self.receive(message)
            if isinstance(message, Info) and self.known is not before:
                now = Known(message.key, message.row.version, message.row.queue)
                # Of the queues on several nodes, the one with the largest version counts.
                if self.fresh is None or now.version > self.fresh.version:
                    self.fresh = now
        return []

    def examine(self) -> tuple[list[Sent], list[str | Known]]:
        """Look at what it knows; return its messages to others, and to its client."""
        before, queue, self.fresh = self.status, self.fresh, None
        look = self.look()
        said: list[str | Known] = [*self._said()] if look.answered else []
        said += [queue] if queue is not None else []
        said += [self._word] if self.status != before else []
        return look.sent, said

    def _said(self) -> list[str]:
        asked, self.asked = self.asked, 0
        return ["have all"] * asked

    @property
    def _word(self) -> str:
        return "have all" if isinstance(self.status, int) else self.status


class Helper(NamedTuple):
    """A process that takes the merge lock for an instance; the agent is `process`, too.

    Attributes:
        agent: Its agent's state.
        leader: The instance.
        holds: Whether it holds the lock.
        released: Whether it was told to let go.
    """

    agent: tuple[Any, ...]
    leader: AgentId
    holds: bool = False
    released: bool = False


class Step(NamedTuple):
    """A step of the script; `settled` says that all before must have settled."""

    verb: str
    words: tuple[str, ...]
    settled: bool


def _steps(script: str) -> Iterator[Step]:
    for group in script.split(";"):
        for place, step in enumerate(group.split(",")):
            verb, *words = step.split()
            yield Step(verb, tuple(words), place == 0)


class Elections:
    """A world of elections; it is also a model for searches. The whole mutable state is in `state`.

    Args:
        script: What happens from outside.
        homes: The nodes of the instances 1, 2, ..., in turn.
        ages: The agents of the instances by age, the oldest first. In Erlang it is chance on several nodes.
        workers: The instances that are workers.
        delays: A lock server may handle later what comes from its own node, too.
    """

    def __init__(
        self,
        script: str,
        homes: Sequence[str] = ("n1",),
        ages: Sequence[int] = (),
        workers: Sequence[int] = (),
        delays: bool = False,
    ) -> None:
        self.steps = tuple(_steps(script))
        numbers = sorted({int(s.words[0]) for s in self.steps if s.verb == "start"})
        ages = ages or numbers
        self.delays = delays
        self.instances: dict[AgentId, Instance] = {}
        self.clients: dict[AgentId, AgentId] = {}
        for number in numbers:
            home = homes[(number - 1) % len(homes)]
            me, agent = AgentId(number, home, 0), AgentId(100 + ages.index(number), home, 0)
            is_worker = number in workers
            self.instances[me] = Instance(me, None if is_worker else agent, f"f{number}", self)
            self.clients[agent] = me
        self.contenders = {
            agent: Contender(agent)
            for agent, me in self.clients.items()
            if self.instances[me].agent
        }
        self.alive: frozenset[AgentId] = frozenset()
        self.tables: dict[str, Table] = {home_of(each): EMPTY for each in self.instances}
        self.groups: dict[str, tuple[AgentId, ...]] = dict.fromkeys(self.tables, ())
        self.mail: dict[Link, tuple[Any, ...]] = {}
        self.helpers: dict[AgentId, Helper] = {}
        self.monitors: tuple[tuple[AgentId, AgentId, Role], ...] = ()
        self.helped = 0
        self.at = 0
        self.first = self.state

    @property
    def state(self) -> State:
        """All that changes."""
        return (
            tuple(self.tables.values()),
            tuple(self.groups.values()),
            frozenset(self.mail.items()),
            tuple(each.state for each in self.instances.values()),
            tuple(each.state for each in self.contenders.values()),
            *(self.alive, tuple(self.helpers.items()), self.monitors, self.helped, self.at),
        )

    @state.setter
    def state(self, state: State) -> None:
        tables, groups, mail, instances, agents, self.alive, helpers, *others = state
        self.monitors, self.helped, self.at = others
        self.tables = dict(zip(self.tables, tables, strict=True))
        self.groups = dict(zip(self.tables, groups, strict=True))
        self.mail, self.helpers = dict(mail), dict(helpers)
        for instance, each in zip(self.instances.values(), instances, strict=True):
            instance.state = each
        for agent, each in zip(self.contenders.values(), agents, strict=True):
            agent.state = each

    # --- What can happen

    def start(self) -> State:
        """See `Model`."""
        return self.first

    def moves(self, state: State) -> list[Choice]:
        """See `Model`."""
        self.state = state
        return self.choices()

    def after(self, state: State, move: Choice) -> State:
        """See `Model`."""
        self.state = state
        self.do(move)
        return self.state

    def choices(self) -> list[Choice]:
        """All events that are possible next."""
        found: list[Choice] = []
        for link in sorted(self.mail, key=lambda link: (isinstance(link[1], str), link)):
            if isinstance(link[1], AgentId):
                if len(self.mail[link]) >= MOST:
                    return [("act", link[1])]
                found.append(("act", link[1]))
            else:
                found.append(("arrive", link))
        if not found:
            found += [
                ("recheck", me.created)
                for me, each in self.instances.items()
                if me in self.alive and each.timed
            ]
        step = self.steps[self.at] if self.at < len(self.steps) else None
        if step is not None and not (step.settled and found):
            found.append(("next", self.at))
        return found

    @property
    def leaders(self) -> list[Instance]:
        """Those that lead."""
        living = [each for me, each in self.instances.items() if me in self.alive]
        return [each for each in living if each.phase == "leader"]

    def do(self, choice: Choice) -> None:
        """Make one of the choices happen."""
        match choice:
            case ("act", process):
                self._act(process)
            case ("arrive", link):
                self._arrive(link)
            case ("recheck", number):
                me = self._numbered(number)
                self.instances[me].timed = False
                self._post(me.node, me, Message("recheck", me))
            case (_, _):
                step = self.steps[self.at]
                self.at += 1
                self._step(step.verb, *step.words)
        while (busy := self._busy()) is not None:
            self._act(busy)
        if len(self.leaders) > 1:
            raise Violation(f"two leaders: candidates {[each.me.created for each in self.leaders]}")

    def _busy(self) -> AgentId | None:
        """An agent or a helper with mail."""
        mailboxes = (to for _, to in self.mail if isinstance(to, AgentId))
        return min((each for each in mailboxes if each not in self.instances), default=None)

    def _numbered(self, number: int) -> AgentId:
        return next(me for me in self.instances if me.created == number)

    # --- The script

    def _step(self, verb: str, who: str, *words: str) -> None:
        me = self._numbered(int(who))
        match verb:
            case "start":
                self._start(self.instances[me])
            case "put":
                self._post(me.node, me, Message("cast", me, None, words[0]))
            case "kill":
                self._end(me)
            case _:
                raise InvalidOption(f"step {verb!r} of an election: there is start, put and kill")

    def _start(self, instance: Instance) -> None:
        me, agent = instance.me, instance.agent
        self.alive |= {me}
        if agent is None:
            self.tables[me.node] = watch(self.tables[me.node], me, LOCK)
            return
        known = self.groups[me.node]
        self._everywhere(me, Message("join", me))
        self.alive |= {agent}
        contender = self.contenders[agent]
        self._post_all(agent, contender.ask(LOCK, "write", tuple(self.tables), "all_alive", False))
        self._examine(agent, contender)
        for each in known:
            instance.receive(Message("join", each))

    def _end(self, me: AgentId) -> None:
        """An instance leaves its group, and is killed. A helper of it goes on."""
        agent = self.instances[me].agent
        if agent is not None:
            self._everywhere(me, Message("leave", me))
            self._gone(agent)
        self._gone(me)

    def _gone(self, process: AgentId) -> None:
        """A process has ended: lock servers notice, and those that monitor it."""
        self.alive -= {process}
        self.mail = {link: queue for link, queue in self.mail.items() if link[1] != process}
        for watcher, other, role in self.monitors:
            if other == process:
                self._post(process, watcher, Message("down", process, None, role))
        self.monitors = tuple(each for each in self.monitors if process not in each[:2])
        if process not in self.clients.values() or self.instances[process].role == "worker":
            for node in self.tables:
                self._post(process, node, End(process))

    # --- Messages

    def _everywhere(self, me: AgentId, message: Message) -> None:
        """A process group changes, on each node."""
        for node in self.tables:
            self._post(me, node, message)

    def _post_all(self, sender: AgentId, sent: Sequence[Sent]) -> None:
        for receiver, message in sent:
            self._post(sender, receiver, message)

    def _post(self, sender: Party, receiver: Party, message: Any) -> None:
        """Send a message; within a node it is in the mailbox at once. Between two nodes all keep their order."""
        link: Link = (home_of(sender), home_of(receiver))
        if link[0] != link[1] or (
            self.delays and isinstance(receiver, str) and not isinstance(message, Message)
        ):
            message = (receiver, message)
        elif isinstance(receiver, str):
            self._serve(receiver, message)
            return
        elif receiver not in self.alive:
            return
        else:
            link = (receiver.node, receiver)
        self.mail[link] = (*self.mail.get(link, ()), message)

    def _take(self, link: Link) -> Any:
        first, *others = self.mail.pop(link)
        if others:
            self.mail[link] = tuple(others)
        return first

    def _arrive(self, link: Link) -> None:
        receiver, message = self._take(link)
        if isinstance(receiver, str):
            self._serve(receiver, message)
        else:
            self._post(receiver.node, receiver, message)

    def _serve(self, node: str, message: Any) -> None:
        """A process group, or the lock server of a node, handles a message."""
        if isinstance(message, Message):
            others = tuple(each for each in self.groups[node] if each != message.about)
            self.groups[node] = (message.about, *others) if message.kind == "join" else others
            for me, instance in self.instances.items():
                if me.node == node and instance.role == "candidate":
                    self._post(node, me, message)
            return
        self.tables[node], told = serve(node, self.tables[node], message)
        for receiver, info in told:
            if receiver in self.instances:  # a worker that watches
                queue = Message("queue", receiver, None, info.row.queue)
                self._post(node, receiver, queue)
            else:
                self._post(node, receiver, info)

    def _act(self, process: AgentId) -> None:
        if process in self.instances:
            self._receive(process, self._take((process.node, process)))
            return
        agent = self.contenders.get(process) or self._helper(process)
        for message in self.mail.pop((process.node, process), ()):
            if isinstance(agent, Contender):
                self._notify(process, agent.take(message))
            else:
                agent.receive(message)
        self._examine(process, agent)

    def _receive(self, me: AgentId, message: Message) -> None:
        instance = self.instances[me]
        phase = instance.phase
        try:
            instance.receive(message)
        except Crash as crash:
            instance.called += (("crash", str(crash)),)
            self._end(me)
        if instance.phase != phase and (link := (me.node, me)) in self.mail:
            # The time limit of a phase ends with it.
            left = tuple(m for m in self.mail.pop(link) if m.kind != "recheck")
            self.mail |= {link: left} if left else {}

    def _notify(self, agent: AgentId, said: Sequence[str | Known]) -> None:
        me = self.clients[agent]
        for each in said:
            status = isinstance(each, str)
            payload = each if isinstance(each, str) else each.queue
            self._post(me.node, me, Message("status" if status else "queue", agent, None, payload))

    def _examine(self, process: AgentId, agent: Agent) -> None:
        """An agent, or a helper, looks at what it knows."""
        if isinstance(agent, Contender):
            if agent.unseen:
                sent, said = agent.examine()
                self._post_all(process, sent)
                self._notify(process, said)
            return
        helper, look = self.helpers[process], agent.look()
        holds = helper.holds or look.answered
        self.helpers[process] = helper._replace(agent=agent.state, holds=holds)
        self._post_all(process, look.sent)
        if look.answered:
            self._post(process, helper.leader, Message("merge_lock", process))
            if helper.released:
                self.release(process)

    def _helper(self, process: AgentId) -> Agent:
        agent = Agent(process, aborts=True)
        agent.state = self.helpers[process].agent
        return agent

    # --- The port of instances

    def send(self, sender: AgentId, receiver: AgentId, message: Message) -> None:
        """See `Port`."""
        self._post(sender, receiver, message)

    def monitor(self, watcher: AgentId, process: AgentId, role: Role) -> None:
        """See `Port`."""
        if process in self.alive:
            self.monitors = tuple(sorted((*self.monitors, (watcher, process, role))))
        else:
            self._post(process, watcher, Message("down", process, None, role))

    def lock_info(self, agent: AgentId) -> Sequence[Known]:
        """See `Port`. A call: the agent handles first what it has received."""
        self._act(agent)
        return self.contenders[agent].known

    def has_all(self, agent: AgentId) -> bool:
        """See `Port`."""
        self._act(agent)
        return isinstance(self.contenders[agent].status, int)

    def tell_agent(self, agent: AgentId, what: Literal["await", "notify"]) -> None:
        """See `Port`."""
        self._post(agent.node, agent, what)

    def client_of(self, agent: AgentId) -> AgentId:
        """See `Port`."""
        return self.clients[agent]

    def start_helper(self, leader: AgentId) -> AgentId:
        """See `Port`."""
        self.helped += 1
        process = AgentId(HELPERS + self.helped, leader.node, 0)
        agent = Agent(process, aborts=True)
        sent = agent.ask(MERGE, "write", tuple(self.tables), "all_alive", True)
        self.alive |= {process}
        self.helpers[process] = Helper(agent.state, leader)
        self._post_all(process, sent)
        self._examine(process, agent)
        return process

    def release(self, helper: AgentId) -> None:
        """See `Port`."""
        if helper not in self.helpers:
            return
        if self.helpers[helper].holds:
            del self.helpers[helper]
            self._gone(helper)
        else:
            self.helpers[helper] = self.helpers[helper]._replace(released=True)

    # --- What must be true in the end

    @property
    def callbacks(self) -> str:
        """The callbacks of each instance, each where it was first called."""
        return " / ".join(
            ", ".join(f"{name} {_shown(argument)}".strip() for name, argument in each.called)
            for each in self.instances.values()
        )

    def check(self, state: State, moves: Sequence[Choice]) -> None:
        """Check that all follow one leader, and know the same, when nothing needs to happen any more."""
        self.state = state
        if not moves:
            wrong = self.verdict()
            if wrong:
                raise Violation(wrong)

    def verdict(self) -> str:
        """What is wrong when nothing happens any more; empty if nothing is."""
        living = [each for me, each in self.instances.items() if me in self.alive]
        crashed = [
            each.me.created
            for each in self.instances.values()
            if any(name == "crash" for name, _ in each.called)
        ]
        if crashed:
            return f"crashed: {crashed}"
        if not self.leaders:
            return "nobody leads" if living else ""
        first = self.leaders[0]
        for each in living:
            if each.leader != first.me or each.phase not in ("leader", "following"):
                follows = each.leader.created if each.leader else "nobody"
                return f"not followed: instance {each.me.created} is {each.phase} and follows {follows}"
            if each.facts != first.facts:
                return f"lost: instance {each.me.created} knows {sorted(each.facts)}, its leader {sorted(first.facts)}"
        if self.helpers:
            return "merge lock: a helper keeps it"
        return ""


def _shown(argument: AgentId | Facts | str | None) -> str:
    if isinstance(argument, AgentId):
        return str(argument.created)
    return "+".join(sorted(argument)) if isinstance(argument, frozenset) else argument or ""


def failure(world: Elections, limit: int = 500_000) -> Found[State, Choice]:
    """Look for a shortest schedule that goes wrong."""
    return shortest(world, world.check, limit)


def tell(world: Elections, schedule: Sequence[Choice]) -> Iterator[str]:
    """What a schedule does: the script, changed phases, callbacks, and what is wrong in the end."""
    world.state = world.first
    for choice in schedule:
        if choice[0] == "next":
            step = world.steps[world.at]
            yield " ".join((step.verb, *step.words))
        before = [(each.phase, len(each.called)) for each in world.instances.values()]
        world.do(choice)
        for each, (phase, calls) in zip(world.instances.values(), before, strict=True):
            for name, argument in each.called[calls:]:
                yield f"  {each.me.created}: {name} {_shown(argument)}".rstrip()
            if each.phase != phase:
                yield f"  {each.me.created} is {each.phase}"
    yield world.verdict()


def ends(world: Elections, of: Callable[[Elections], Any], limit: int = 500_000) -> Counter[Any]:
    """All that can be seen when nothing happens any more, and in how many states."""
    found: Counter[Any] = Counter()

    def see(state: State, moves: Sequence[Choice]) -> None:
        if not moves:
            world.state = state
            found[of(world)] += 1

    shortest(world, see, limit)
    return found
