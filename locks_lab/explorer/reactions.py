"""The steps of single parties in an exploration: everything has a number, and each step is run once.

A party's next state and its messages depend only on its own state and on the event. So each such
step is run once, and looked up afterwards (`Reactions.react`). States and messages are frozen to
plain tuples, and each gets a number. Statistics are left out, and so are reports of deadlocks
except for their number. (`locks_lab.explorer.freezing` defines which states count as equal.)
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from typing import Any, NamedTuple

from locks.core.messages import ServerMessage
from locks.core.server.machine import ServerMachine
from locks.model import AgentId
from locks_lab.explorer.freezing import SINGLE, UNORDERED, Labels, freeze
from locks_lab.worlds.checks import check_done, check_rule, mail_of, serve
from locks_lab.worlds.client import SERIALS, ScriptedClient
from locks_lab.worlds.host import Violation
from locks_lab.worlds.network import Link, Party
from locks_lab.worlds.remote import RemoteClient
from locks_lab.worlds.study import study, subjects
from locks_lab.worlds.world import World

__all__ = ["DIE", "KINDS", "NODES", "VANISH", "Reaction", "Reactions"]

STEP, TIME_OUT, SETTLE, DIE, VANISH, NODES = -1, -2, -3, -4, -5, -10
SENT, UNSENT, WITHDRAW = -6, -7, -8  # only of thin clients
KINDS = {
    STEP: "step",
    TIME_OUT: "time out",
    SETTLE: "settle",
    DIE: "die",
    SENT: "interrupted after",
    UNSENT: "interrupted before",
    WITHDRAW: "withdraw",
}


class Reaction(NamedTuple):
    """The result of a step of a party.

    Attributes:
        after: The number of its next state.
        sent: Its messages: link and message.
        done: Whether a surrender was carried out.
        silent: Whether no other party can see that anything happened.
    """

    after: int
    sent: tuple[tuple[int, int], ...]
    done: bool
    silent: bool


class Reactions:
    """The states of parties, messages and links by number, and the result of each step.

    Args:
        world: The world.
        rename: Rename counters, so that more states are equal.
        fused: `settle` is one event with the event before it.
    """

    def __init__(self, world: World, rename: bool, fused: bool) -> None:
        self.world = world
        self.rename = rename
        self.fused = fused
        self.names = list(world.servers)
        self.nodes = list(world.network.nodes)
        self.servers = len(self.names)
        self.unordered = SINGLE if self.servers == 1 else UNORDERED
        # For each state of a party:
        self.kept: list[bytes] = []  # itself, to be run
        self.live: list[Any] = []  # itself, to be looked at
        self.inflated: list[int] = []  # the number of the same with nothing thin
        self.unsettled: list[bool] = []
        self.forced: list[bool] = []  # whether the next event must be one of this party
        self.refs: list[AgentId | None] = []  # its agent, if that is alive
        self.own: list[tuple[int, ...]] = []  # its steps without a message
        self.mentions: list[frozenset[AgentId]] = []  # the agents that its messages may mention
        self.ids: dict[Any, int] = {}
        self.messages: list[Any] = []
        self.mentioned: list[frozenset[AgentId]] = []  # in each message
        self.message_ids: dict[Any, int] = {}
        self.links: list[Link] = []
        self.link_ids: dict[Link, int] = {}
        self.link_from: list[int] = []  # the place of its sender in a state of the world
        self.link_to: list[int] = []
        self.reactions: dict[tuple[int, int, bool], Reaction] = {}

    def label(self, server: ServerMachine, life: int = 0) -> None:
        """Rename the counters of a server from now on."""
        if self.rename:
            server.labels = Labels(server, life, not self.world.cuts)  # type: ignore[attr-defined]

    def react(self, old: int, what: int, settle: bool) -> Reaction:
        """The result of one step of a party."""
        found = self.reactions.get((old, what, settle))
        if found is not None:
            return found
        party = pickle.loads(self.kept[old])
        if isinstance(party, ServerMachine):
            found = self._serve(party, self.messages[what])
        else:
            found = self._act(party, old, what, settle)
        self.reactions[old, what, settle] = found
        return found

    def compare(self, old: int, what: int, settle: bool) -> None:
        """Check that a client that is thin does what it does if it is inflated before."""
        whole = self.inflated[old]
        if whole == old:
            return
        found = self.react(old, what, settle)
        usual = self.react(whole, STEP if what in (SENT, UNSENT) else what, settle)
        sent = found.sent[1:] if what == SENT else found.sent  # that was sent twice
        after = self.inflated[found.after], self.inflated[usual.after]
        if sent != usual.sent or after[0] != after[1]:
            raise Violation("a thin client does something else than one that is not")

    def _serve(self, server: ServerMachine, message: ServerMessage) -> Reaction:
        if self.rename:
            server.labels.begin(server, message)  # type: ignore[attr-defined]
        served = serve(server, message)
        check_rule(server, served.before)
        mail = mail_of(server.node, served.effects)
        sent = [each for _, _, each in mail]
        if self.rename:
            sent = server.labels.end(server, message, sent)  # type: ignore[attr-defined]
        numbers = [
            (self.link(server.node, receiver), self.message(each))
            for (_, receiver, _), each in zip(mail, sent, strict=True)
        ]
        done = served.resolved is not None
        return Reaction(self.party(server, False), tuple(numbers), done, False)

    def _noticed_node(self, what: int) -> tuple[str, bool]:
        node, there = divmod(NODES - what, 2)
        return self.nodes[node], bool(there)

    def _act(self, client: ScriptedClient, old: int, what: int, settle: bool) -> Reaction:
        unsettled = self.unsettled[old] and what != SETTLE
        before = (client.told, client.waiting, client.ref)
        if what >= 0:
            client.receive(self.messages[what])
            unsettled = unsettled or client.agent.unsettled
        elif what <= NODES:
            node, there = self._noticed_node(what)
            if node not in self.names:
                client.peer(node, there)
            else:
                (client.node_up if there else client.node_down)(node)
            unsettled = unsettled or client.agent.unsettled
        elif what == DIE:
            client.die(self.world.mortal[client.number])
        elif what == VANISH:
            client.vanish()
        elif isinstance(client, RemoteClient) and what == WITHDRAW:
            client.withdraw()
        elif isinstance(client, RemoteClient) and what in (SENT, UNSENT):
            client.interrupted(what == SENT)
        elif what == SETTLE:
            client.settle()
        else:
            (client.step if what == STEP else client.time_out)()
            unsettled = unsettled or client.agent.unsettled
        if settle:
            client.settle()
            unsettled = False
        out = client.host.out
        sent = tuple((self.link(s, r), self.message(m)) for s, r, m in out)
        out.clear()
        silent = not sent and before == (client.told, client.waiting, client.ref)
        return Reaction(self.party(client, unsettled), sent, False, silent)

    # --- Numbers for everything

    def party(
        self, party: ServerMachine | ScriptedClient | None, unsettled: bool, first: bool = False
    ) -> int:
        """The number of a party's state; `first` is the one in which exploring begins."""
        ref = None
        own = []
        if isinstance(party, ScriptedClient):
            # While a surrender is not answered nothing is looked at; the answer is a message.
            unsettled = unsettled and not party.finished
            unsettled = unsettled and not study(party.agent).giving_up
            if not party.finished:
                ref = party.ref
                own = [SETTLE] if unsettled and (first or not self.fused) else []
                own += [STEP] if party.ready else []
                if isinstance(party, RemoteClient):
                    own += [SENT, UNSENT] if party.may_be_interrupted else []
                    own += [WITHDRAW] if party.undo else []
                own += [TIME_OUT] if party.waiting == "for a while" else []
                own += [DIE] if party.number in self.world.mortal else []
        frozen: Any
        if isinstance(party, ScriptedClient) and party.finished:
            check_done(party)
            frozen = (party.number, party.failed, len(party.reports), *sorted(party.tokens.items()))
        else:
            frozen = freeze(party, self.unordered, {})
        key = (frozen, tuple(own), unsettled)
        found = self.ids.get(key)
        if found is None:
            found = self.ids[key] = len(self.kept)
            self.kept.append(pickle.dumps(party, 5))
            seen = party.seen if isinstance(party, ScriptedClient) else party
            self.live.append(seen)
            self.inflated.append(found)
            self.unsettled.append(unsettled)
            self.forced.append(False)
            self.refs.append(ref)
            self.own.append(tuple(own))
            self.mentions.append(_mentions(party))
            if seen is not party:
                self.inflated[found] = self.party(seen, unsettled)
        return found

    def force(self, party: int) -> int:
        """The number of the same state with the condition that this party has the next event."""
        key = ("forced", party)
        found = self.ids.get(key)
        if found is None:
            found = self.ids[key] = len(self.kept)
            columns: list[list[Any]] = [self.kept, self.live, self.unsettled]
            for column in [*columns, self.refs, self.own, self.mentions]:
                column.append(column[party])
            self.forced.append(True)
            self.inflated.append(found)
        return found

    def message(self, message: Any) -> int:
        """The number of a message."""
        key = (type(message), message)  # named tuples of different types may be equal
        found = self.message_ids.get(key)
        if found is None:
            found = self.message_ids[key] = len(self.messages)
            self.messages.append(message)
            self.mentioned.append(frozenset(_agents_in(message)))
        return found

    def link(self, sender: Party, receiver: Party) -> int:
        """The number of a link."""
        found = self.link_ids.get((sender, receiver))
        if found is None:
            found = self.link_ids[sender, receiver] = len(self.links)
            self.links.append((sender, receiver))
            self.link_from.append(self._place(sender))
            self.link_to.append(self._place(receiver))
        return found

    def _place(self, party: Party) -> int:
        """A party's place in a state of the world."""
        if isinstance(party, str):
            return self.names.index(party)
        return self.servers + party.serial % SERIALS - 1


def _agents_in(value: Any) -> Iterator[AgentId]:
    """All agents that a value speaks of."""
    if isinstance(value, AgentId):
        yield value
    elif isinstance(value, tuple):
        for each in value:
            yield from _agents_in(each)


def _mentions(party: ServerMachine | ScriptedClient | None) -> frozenset[AgentId]:
    """The agents that a party knows, and may mention to others; not a client's own agent."""
    if isinstance(party, ServerMachine):
        return frozenset(subjects(party))
    if isinstance(party, ScriptedClient) and not party.finished:
        return frozenset(study(party.agent).acquaintances - {party.ref})
    return frozenset()
