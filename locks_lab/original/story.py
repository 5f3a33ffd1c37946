"""Traces of a world of the original, in sentences and drawings.

`finish` lets clients take their steps in turn. `tell` turns the events of a world that was made
with `trace=True` into sentences: lines at the margin are actions of clients, indented lines their
consequences. The arrival of a message is not mentioned, unless its receiver has done something
since it was sent. `sequence` draws the same as a Mermaid diagram.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Iterator
from itertools import groupby

from locks.errors import assert_never
from locks.model import AgentId, show
from locks_lab.original.agent import Finding
from locks_lab.original.messages import Ask, End, Info, Key, Surrender, Surrendered
from locks_lab.original.queues import Group
from locks_lab.original.table import Row
from locks_lab.original.world import Choice, Event, Mail, World
from locks_lab.schedules.schedule import carry_on
from locks_lab.stories.diagrams import folded
from locks_lab.stories.formatter import name_of
from locks_lab.stories.words import capital, listed
from locks_lab.worlds.client import SERIALS
from locks_lab.worlds.network import Link, Party

__all__ = ["Narrator", "finish", "sequence", "tell", "tell_each", "usual"]

MOST = 20_000


# --- Acting -------------------------------------------------------------------------------------


def finish(world: World, limit: int = MOST) -> list[Choice]:
    """Continue in order: messages as they were sent, then looks, then clients in turn.

    Returns:
        The events.

    Raises:
        Violation: A check failed, or a client is stuck.
    """
    schedule: list[Choice] = []

    def choose(world: World, choices: list[Choice]) -> Choice:
        steps = [choice[1] for choice in schedule if choice[0] == "step"]
        return usual(world, choices, steps[-1] if steps else 0)

    carry_on(world, choose, limit, schedule)
    return schedule


def usual(world: World, choices: list[Choice], turn: int) -> Choice:
    """The choice that comes next in the order of `finish`; `turn` is the client that took the last step."""
    links = [choice[1] for choice in choices if choice[0] == "deliver"]
    if links:
        return ("deliver", world.network.oldest(links))
    looks = [choice for choice in choices if choice[0] == "settle"]
    ready = [choice[1] for choice in choices if choice[0] == "step"]
    return looks[0] if looks else ("step", min(ready, key=lambda n: (n <= turn, n)))


# --- Telling ------------------------------------------------------------------------------------


class _Post:
    """The times at which messages in flight were sent, and at which parties last acted."""

    def __init__(self) -> None:
        self._links: dict[Link, deque[int]] = defaultdict(deque)
        self._acted: dict[Party, int] = {}
        self._now = 0

    def note(self, event: Event, delays: bool) -> bool:
        """Note an event; return whether a message has arrived so late that this must be mentioned."""
        self._now += 1
        late = False
        if event.choice[0] == "deliver":
            link = event.choice[1]
            late = self._links[link].popleft() < self._acted.get(link[1], 0)
        elif event.agent is not None:
            self._acted[event.agent] = self._now
        for sender, receiver, _ in event.sent:
            if delays or not isinstance(receiver, str):
                self._links[sender, receiver].append(self._now)
        return late


def tell(world: World) -> Iterator[str]:
    """Describe the events of a world in sentences.

    Args:
        world: A world that was made with `trace=True`.
    """
    for lines in tell_each(world):
        yield from lines


def tell_each(world: World) -> Iterator[list[str]]:
    """Describe the beginning, and then each event, in sentences.

    Args:
        world: A world that was made with `trace=True`.
    """
    return Narrator(world).tell(world.events or [])


class Narrator:
    """Tells events."""

    def __init__(self, world: World) -> None:
        self.delays = world.delays
        self.several = len(world.tables) > 1
        self.first = [client.number for client in world.clients]
        self.homes = [client.home for client in world.clients]
        self.reads = any(step.mode == "read" for c in world.clients for step in c.script)
        self.post = _Post()

    def tell(self, events: Iterable[Event]) -> Iterator[list[str]]:
        """Describe the beginning, and then each event."""
        where = [f" (on {home})" if self.several else "" for home in self.homes]
        names = [f"client {n}{at}" for n, at in zip(self.first, where, strict=True)]
        yield [f"By age, the oldest first: {', '.join(names)}."] if len(names) > 1 else []
        for event in events:
            late = self.post.note(event, self.delays)
            yield [*self._event(event, late)]

    def _event(self, event: Event, late: bool) -> Iterator[str]:
        margin = "" if event.choice[0] == "step" else "  "
        who = capital(name_of(event.agent)) if event.agent is not None else ""
        message = event.message
        if late and isinstance(message, Info):
            yield f"  Only now {name_of_party(event.agent)} gets to know {self.queue(message)}."
        if event.choice[0] == "step":
            yield from self._step(event, who)
        if event.choice[0] == "die":
            yield f"{who} dies, and its agent ends."
        if event.found is not None:
            yield from self._finding(who, event.found, event.agent)
        yield from (f"  {line}" for line in self._sent(event))
        if event.answered:
            yield f"  {who} is told that it has all that it asked for."
        if event.again is not None:
            yield f"{margin}{who} begins again, as {name_of(event.again)}: a new transaction, so the youngest."

    def _step(self, event: Event, who: str) -> Iterator[str]:
        step = event.step
        if step is None or step.kind == "again":
            yield f"{who} is done and lets go of everything."
        elif step.kind == "await":
            yield f"{who} waits until it has all that it asked for."
        else:
            wish = show(step.lock_id)
            wish = f"to {step.mode} {wish}" if self.reads else f"for {wish}"
            where = f" on {listed(step.nodes)}" if self.several and step.nodes else ""
            asks = any(isinstance(message, Ask) for *_, message in event.sent)
            before = "" if asks else ", and has asked for that before"
            later = " It does not wait for it now." if step.kind == "ask" else ""
            yield f"{who} asks {wish}{where}{before}.{later}"

    def _finding(self, who: str, found: Finding, me: AgentId | None) -> Iterator[str]:
        agents = listed(map(name_of, sorted({place.agent for place in found.circle})))
        agent, key = found.place
        lock = self.lock(key)
        sees = f"  {who} sees a circle of {agents}"
        if found.aborts:
            yield f"{sees}. It must yield, and its client was told that it has {lock}: it aborts."
        elif agent == me:
            yield f"{sees}. It must yield: it surrenders {lock}."
        else:
            yield (
                f"{sees}, in which {name_of(agent)} must give up {lock}. It forgets what it knows of "
                f"{lock}, and tells nobody."
            )

    def _sent(self, event: Event) -> Iterator[str]:
        """The messages of an event; one line for all receivers of one queue from one party."""

        def same(mail: Mail) -> tuple[Party, object]:
            return mail[0], mail[2]

        for (sender, message), mails in groupby(event.sent, same):
            names = listed(name_of_party(receiver) for _, receiver, _ in mails)
            match message:
                case Info() if isinstance(sender, str):
                    yield f"{self.server(sender)} tells {names} {self.queue(message)}."
                case Info():
                    yield f"{capital(name_of_party(sender))} passes on to {names} {self.queue(message)}."
                case Surrendered():
                    what = self.lock(message.key)
                    yield f"{capital(name_of(message.agent))} tells {names} that it surrenders {what}."
                case Surrender() | Ask() | End():
                    pass  # it was mentioned before
                case _:
                    raise AssertionError(f"nobody says {message}")

    def queue(self, info: Info) -> str:
        """A queue in words."""
        lock = self.lock(info.key)
        return f"the queue of {lock}: {self.groups(info.row) or 'nobody'}"

    def groups(self, row: Row) -> str:
        """The holders of a lock, and the waiting agents."""
        if not row.queue:
            return ""
        head, *tail = row.queue
        names = self.names(head)
        several = len(head.entries) > 1
        if several and head.mode == "write":
            first = f"{names} stand first, and neither has it"
        elif self.reads:
            first = f"{names} {head.mode}{'' if several else 's'} it"
        else:
            first = f"{names} has it"
        rest = [
            f"then {self.names(group)}" + (f", to {group.mode}" if self.reads else "")
            for group in tail
        ]
        return ", ".join([first, *rest])

    def names(self, group: Group) -> str:
        """The agents of a group; copies are marked."""
        return listed(
            name_of(e.agent) + ("" if e.direct else " (a copy)")
            for e in sorted(group.entries, key=lambda e: e.agent)
        )

    def lock(self, key: Key) -> str:
        """The name of a lock."""
        return show(key[0]) + (f" on {key[1]}" if self.several else "")

    def server(self, node: str) -> str:
        """The name of a lock server, at the beginning of a sentence."""
        return f"The lock server of {node}" if self.several else "The lock server"


def name_of_party(party: Party | None) -> str:
    """The name of a client, or a node."""
    return name_of(party) if isinstance(party, AgentId) else str(party)


# --- Drawing ------------------------------------------------------------------------------------


def sequence(world: World) -> str:
    """Draw the messages, and the findings of agents, as a Mermaid sequence diagram.

    A message to an agent is drawn where it arrives. A message that has not arrived is not drawn.
    """
    narrator = Narrator(world)
    events = world.events or []
    ids: dict[Party, str] = {
        node: f"S{n}" if narrator.several else "S" for n, node in enumerate(world.tables, 1)
    }
    agents = {client.agent.me for client in world.clients}
    agents |= {event.agent for event in events if event.agent is not None}
    for agent in sorted(agents, key=lambda a: (a.serial % SERIALS, a.serial)):
        generation, number = divmod(agent.serial, SERIALS)
        ids[agent] = f"A{number}" + (f"_{generation + 1}" if generation else "")
    lines = ["sequenceDiagram"]
    for party, short in ids.items():
        name = f"lock server of {party}" if narrator.several else "lock server"
        lines.append(
            f"    participant {short} as {name if isinstance(party, str) else name_of(party)}"
        )
    for event in events:
        if event.choice[0] == "deliver" and event.message is not None:
            sender, receiver = event.choice[1]
            lines += _arrow(narrator, ids, (sender, receiver, event.message))
        lines += _notes(narrator, ids, event)
        if not world.delays:
            mails = [mail for mail in event.sent if isinstance(mail[1], str)]
            lines += [line for mail in mails for line in _arrow(narrator, ids, mail)]
        if event.answered and event.agent is not None:
            lines.append(f"    Note over {ids[event.agent]}: I have all")
    return "\n".join(lines)


def _arrow(narrator: Narrator, ids: dict[Party, str], mail: Mail) -> Iterator[str]:
    sender, receiver, message = mail
    match message:
        case Ask(_, lock_id, mode):
            label = (
                f"wants to {mode} {show(lock_id)}" if narrator.reads else f"wants {show(lock_id)}"
            )
        case Surrender(_, lock_id, _, _):
            label = f"surrenders {show(lock_id)}"
        case Surrendered(_, key, _):
            label = f"I surrender {narrator.lock(key)}"
        case End():
            label = "has ended"
        case Info():
            label = f"{narrator.lock(message.key)}: {narrator.groups(message.row) or 'nobody'}"
        case _:
            assert_never(message)
    yield f"    {ids[sender]}->>{ids[receiver]}: {folded(label)}"


def _notes(narrator: Narrator, ids: dict[Party, str], event: Event) -> Iterator[str]:
    found = event.found
    if found is None or event.agent is None:
        return
    if found.aborts:
        text = "a circle, and I must yield: I abort"
    elif found.place.agent == event.agent:
        text = "a circle, and I must yield"
    else:
        lock = narrator.lock(found.place.key)
        text = f"a circle, {name_of(found.place.agent)} must yield, I forget {lock}"
    yield f"    Note over {ids[event.agent]}: {folded(text)}"
