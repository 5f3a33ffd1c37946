"""Messages as sentences.

A `Formatter` turns the messages between agents and lock servers into plain sentences, in stories of
simulated worlds (`locks_lab.stories.story`). It remembers the messages to each party, so that it
can mention only what is new. It also follows the lock tables, as far as messages
show them, so that it can name the requests that block another.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby

from locks.core.messages import (
    Inquire,
    Knowledge,
    RaiseVersion,
    Refused,
    Release,
    Released,
    Remove,
    Request,
    RequestStates,
    Resolved,
    StandingElsewhere,
    Surrender,
    Surrendered,
    Unwatch,
    VersionRaised,
    Watch,
)
from locks.errors import assert_never
from locks.model import (
    MODES,
    AgentId,
    Deadlock,
    Edge,
    LockId,
    Mode,
    RequestKey,
    RequestRecord,
    blocks,
    show,
)
from locks.ranges import replace
from locks_lab.stories.words import capital, listed, ordinal, verb_for
from locks_lab.worlds.client import SERIALS
from locks_lab.worlds.host import Mail, Message
from locks_lab.worlds.network import Party, home_of

__all__ = ["Formatter", "News", "name_of"]

News = tuple[RequestRecord, RequestRecord | None]


class Formatter:
    """Turns messages into sentences.

    Args:
        name: Returns the name of an agent.
        several: There are several nodes, so name them.
        reads: There are read locks, so mention modes.
        at_once: Lock servers handle messages at once, so `take_in` need not be called.

    Attributes:
        reasons: Why an agent is about to release everything, for agents whose reason is known.
        waits: The agents that had to wait; the caller may clear it.
        gone: The agents that have released everything.
    """

    def __init__(
        self,
        name: Callable[[AgentId], str] | None = None,
        several: bool = False,
        reads: bool = False,
        at_once: bool = False,
    ) -> None:
        self.name = name or name_of
        self.several = several
        self.reads = reads
        self.at_once = at_once
        self.reasons: dict[AgentId, str] = {}
        self.waits: set[AgentId] = set()
        self._table: dict[RequestKey, RequestRecord] = {}
        self._told: dict[tuple[Party, Party], dict[RequestKey, RequestRecord]] = {}
        self._standings: dict[AgentId, StandingElsewhere] = {}
        self.gone: set[AgentId] = set()

    # --- Messages, sent and received

    def lines(self, mails: Iterable[Mail]) -> Iterator[str]:
        """Describe actions of parties by their messages; related messages share one line."""
        for _, group in groupby(mails, _kind):
            same = list(group)
            sender, receiver, message = same[0]
            for line in self._lines(sender, receiver, message, same):
                yield capital(line)
            if self.at_once and isinstance(receiver, str):
                self.take_in(receiver, message)

    def take_in(self, node: str, message: Message) -> None:
        """A lock server handles a message: requests that it removes from its table block nobody any more.

        The requests that a surrender removes are known when it is answered.
        """
        if isinstance(message, Remove):
            self.forget(lambda r: r.node == node and r.agent == message.agent)
        elif isinstance(message, Release):
            self.forget(lambda r: r.node == node and _is_of(r, message))

    def forget(self, what: Callable[[RequestRecord], bool]) -> bool:
        """Forget requests that are no longer in their lock tables; return whether there were any."""
        left = {key: record for key, record in self._table.items() if not what(record)}
        some, self._table = len(left) < len(self._table), left
        return some

    def news(self, sender: Party, receiver: Party, records: Iterable[RequestRecord]) -> list[News]:
        """The records of a message that are worth mentioning.

        Returns:
            Records, each with the record that the sender had sent to the receiver before. The
            receiver's own requests are included only if they are in a new state, because it knows
            what it holds.
        """
        known = self._told.setdefault((sender, receiver), {})
        found = []
        for record in records:
            before = known.get(record.key)
            now = (record.state, record.since)
            if record.agent != receiver or before is None or (before.state, before.since) != now:
                found.append((record, before))
            known[record.key] = record
        return found

    # --- Words

    def server(self, node: str) -> str:
        """A lock server's name."""
        return f"the lock server of {node}" if self.several else "the lock server"

    def at(self, *nodes: str) -> str:
        """Where something is."""
        return f" on {listed(nodes)}" if self.several and nodes else ""

    def has(self, record: RequestRecord) -> str:
        """The verb for an agent whose request is granted."""
        return f"{record.mode}s" if self.reads else "has"

    def wish(self, mode: Mode, lock_id: LockId) -> str:
        """The object of a request or a wait."""
        return f"to {mode} {show(lock_id)}" if self.reads else f"for {show(lock_id)}"

    def fact(
        self,
        record: RequestRecord,
        before: RequestRecord | None = None,
        subject: str = "",
        here: Party = "",
    ) -> str:
        """Describe a record, given what was known before.

        Args:
            record: The record.
            before: The record of the request that was known before.
            subject: The name of its agent in the sentence; may be `"I"` or `"you"`.
            here: The node that need not be named.
        """
        who = subject or self.name(record.agent)
        waits = verb_for("waits", who in ("I", "you"))
        where = "" if record.node == here else self.at(record.node)
        if record.state == "waiting":
            return f"{who} {waits} {self.wish(record.mode, record.lock_id)}{where}"
        if record.state == "granted":
            had = before is not None and before.state == "granted" and before.blocked
            more = f" and {waits}" if record.blocked else f" and no longer {waits}" if had else ""
            has = verb_for(self.has(record), who in ("I", "you"))
            return f"{who} {has} {show(record.lock_id)}{where}{more}"
        if record.state == "spare":
            stands = verb_for("stands", who in ("I", "you"))
            return f"{who} {stands} in line for {show(record.lock_id)}{where}, and needs it no more"
        if before is not None and before.state == "waiting":
            return f"{who} no longer {waits} {self.wish(record.mode, record.lock_id)}{where}"
        return (
            f"{who} {verb_for('has', who in ('I', 'you'))} let go of {show(record.lock_id)}{where}"
        )

    def arrow(self, edge: Edge) -> str:
        """An edge of the wait-for graph."""
        waiter, holder = edge
        waits, name = self.fact(waiter), self.name(holder.agent)
        if holder.state != "granted":
            return f"{waits} behind {name}"
        if holder.lock_id == waiter.lock_id:
            return f"{waits}, which {name} {self.has(holder)}"
        return f"{waits}, and {name} {self.has(holder)} {show(holder.lock_id)}"

    def in_the_way(self, record: RequestRecord) -> str:
        """The agents that block a waiting request; empty if they are not known."""
        there = [other for other in self._table.values() if blocks(other, record)]
        what: dict[AgentId, tuple[str, str]] = {}
        # Of one agent's requests, the one in the strongest mode counts.
        for other in sorted(there, key=lambda each: MODES.index(each.mode), reverse=True):
            if other.state == "granted":
                lock = "it" if other.lock_id == record.lock_id else show(other.lock_id)
                what[other.agent] = (self.has(other), lock)
        if not what:
            what = {other.agent: ("stands", "ahead") for other in there}
        clauses: dict[tuple[str, str], list[str]] = {}
        for agent, clause in what.items():
            clauses.setdefault(clause, []).append(self.name(agent))
        return listed(
            f"{listed(names)} {verb_for(verb, len(names) > 1)} {lock}"
            for (verb, lock), names in clauses.items()
        )

    def overtaken(self, record: RequestRecord) -> str:
        """The agents that wait behind a new request; empty if there are none."""
        table = self._table.values()
        behind = [other for other in table if blocks(record, other)]
        own = [other for other in table if other.agent == record.agent and other is not record]
        names = listed(dict.fromkeys(self.name(other.agent) for other in behind))
        if not names:
            return ""
        if all(any(blocks(mine, other) for mine in own) for other in behind):
            waits = verb_for("waits", len({other.agent for other in behind}) > 1)
            names += f", who {waits} for {self.name(record.agent)} anyway"
        return f"{self.name(record.agent)} stands ahead of {names}"

    # --- Messages

    def label(self, sender: Party, receiver: Party, message: Message) -> str:
        """A label for a message, as short as possible; empty if the message has no news."""
        match message:
            case Request():
                to = f"to {message.mode} " if self.reads else ""
                wish = f"wants {to}{show(message.lock_id)}"
                if message.waits_elsewhere:
                    return f"{wish}, waits elsewhere"
                return f"{wish}, has requests elsewhere" if message.requests_elsewhere else wish
            case Release():
                return f"releases {show(message.lock_id)}"
            case Remove():
                return "lets go of everything"
            case RaiseVersion():
                return f"token {message.version} of {show(message.lock_id)}?"
            case VersionRaised():
                answer = "yes" if message.done else "no"
                return f"token {message.version} of {show(message.lock_id)}: {answer}"
            case Refused():
                return f"no, there are {message.units} units of {show(message.lock_id[:-1])}"
            case StandingElsewhere():
                if message.waits_elsewhere:
                    return "waits elsewhere"
                return "has requests elsewhere" if message.requests_elsewhere else "is here alone"
            case Surrender():
                return "aborts" if message.aborts else f"surrenders {show(message.lock_id)}"
            case Surrendered():
                result = "done" if message.done else "refused"
                return self._facts(sender, receiver, message.records, result)
            case Resolved():
                what = "the deadlock is resolved"
                return self._facts(sender, receiver, message.records, what)
            case RequestStates() | Knowledge():
                return self._facts(sender, receiver, message.records)
            case Released() | Inquire() | Watch() | Unwatch():
                return ""
            case _:
                assert_never(message)

    def _facts(
        self, sender: Party, receiver: Party, records: Sequence[RequestRecord], *before: str
    ) -> str:
        """Describe requests, after something else."""
        subjects = {sender: "I", receiver: "you"}
        facts = [
            self.fact(record, known, subjects.get(record.agent, ""), sender)
            for record, known in self.news(sender, receiver, records)
        ]
        return ", ".join([*before, *facts])

    def _lines(
        self, sender: Party, receiver: Party, message: Message, same: Sequence[Mail]
    ) -> Iterator[str]:
        who = self._name(sender)
        where = self.at(*dict.fromkeys(str(each[1]) for each in same))
        match message:
            case Request():
                wish = self.wish(message.mode, message.lock_id)
                besides = self._besides(message, len(same))
                more = ", and does not wait for it" if message.spare else ""
                yield f"{who} asks {wish}{where}{more}{besides}."
            case Knowledge() if isinstance(sender, str):
                yield f"{who} passes it on to {self._name(receiver)}."
            case Knowledge() if message.records:
                facts = [self.fact(*news) for news in self.news(sender, receiver, message.records)]
                yield f"{who} tells {self._name(receiver)} what it knows: {', '.join(facts)}."
            case Knowledge() | Inquire():
                yield self._forgets(who, same)
            case Surrender():
                yield from self._surrenders(who, message, where)
            case Release():
                yield self._releases(who, message, where)
            case RaiseVersion():
                yield (
                    f"{who} asks {self._names(same)} to confirm the fencing token "
                    f"{message.version} of {show(message.lock_id)}."
                )
            case Remove():
                if message.agent not in self.gone:
                    self.gone.add(message.agent)
                    reason = self.reasons.get(message.agent)
                    yield f"{who} {reason + ' and ' if reason else ''}lets go of everything."
            case StandingElsewhere():
                what = self._elsewhere(message.agent, message)
                yield f"{who} lets {self._names(same)} know that {what}."
            case RequestStates():
                yield from self._tell_all(same)
            case Resolved():
                yield self._resolves(message.report)
                names = listed([self.name(agent) for agent in message.report.agents])
                yield (
                    f"{names} are told how the deadlock is resolved, and forget what they knew of "
                    "others."
                )
                yield from self._tell_all(same)
            case Surrendered() if message.message.report and not message.done:
                self._learn(message.records)
                yield f"{who} refuses: {self._refusal(message)}"
            case Surrendered():
                yield from self._tell_all(same)
            case Released():
                self._learn(message.records)
            case VersionRaised():
                confirms = "confirms" if message.done else "does not confirm"
                yield (
                    f"{who} {confirms} the fencing token {message.version} of "
                    f"{show(message.lock_id)}."
                )
            case Refused():
                yield (
                    f"{who} refuses {show(message.lock_id)}: there are {message.units} units of "
                    f"{show(message.lock_id[:-1])}."
                )
            case Watch() | Unwatch():
                pass  # it makes no difference to other parties
            case _:
                assert_never(message)

    def _tell_all(self, same: Sequence[Mail]) -> Iterator[str]:
        """A lock server informs agents of the current state of requests."""
        for node, agent, message in same:
            if isinstance(message, (RequestStates, Resolved, Surrendered)):
                yield from self._tells(home_of(node), agent, message.records)

    def _tells(self, node: str, agent: Party, records: Sequence[RequestRecord]) -> Iterator[str]:
        """A lock server informs an agent of the current state of requests."""
        self._learn(records)
        server, who = self.server(node), self._name(agent)
        facts = []
        for record, before in self.news(node, agent, records):
            wish = self.wish(record.mode, record.lock_id)
            if record.agent != agent:
                facts.append(self.fact(record, before, here=node))
            elif record.state == "waiting":
                self.waits.add(record.agent)
                once_more = " again" if before else ""
                remarks = (self.in_the_way(record), "" if before else self.overtaken(record))
                more = "".join(f" {capital(remark)}." for remark in remarks if remark)
                yield f"{server} lets {who} wait {wish}{once_more}.{more}"
            elif record.state == "granted" and self.reads:
                yield f"{server} lets {who} {record.mode} {show(record.lock_id)}."
            elif record.state == "granted":
                yield f"{server} grants {show(record.lock_id)} to {who}."
        if facts:
            yield f"{server} tells {who}: {', '.join(facts)}."

    def _resolves(self, report: Deadlock) -> str:
        node = report.node
        who, lock = self.name(report.agent), show(report.lock_id)
        finds = f"{self.server(node)} finds it as it was: {self.arrow(report.cycle[0])}."
        if report.action == "aborted":
            self.forget(lambda r: r.node == node and r.agent == report.agent)
            return f"{finds} It takes out all that {who} has and asks for."
        return f"{finds} It takes {lock} from {who}, who stands last for {lock} now."

    def _refusal(self, answer: Surrendered) -> str:
        """Why a lock server did not carry out a surrender."""
        message = answer.message
        assert message.report is not None
        edge = message.report.cycle[0]
        now = {(r.number, r.since) for r in answer.records}
        if message.waiter in now:
            return f"{self.name(edge.holder.agent)} does not stand in the way any more."
        waits = self.wish(edge.waiter.mode, edge.waiter.lock_id)
        return f"{self.name(edge.waiter.agent)} does not wait {waits} as it did then."

    def _releases(self, who: str, message: Release, where: str) -> str:
        has = any(r.state == "granted" and _is_of(r, message) for r in self._table.values())
        if has and message.mode is None:
            return f"{who} releases {show(message.lock_id)}{where}."
        if message.mode is None:
            return f"{who} withdraws its request for {show(message.lock_id)}{where}."
        return f"{who} withdraws its request {self.wish(message.mode, message.lock_id)}{where}."

    def _surrenders(self, who: str, message: Surrender, where: str) -> Iterator[str]:
        lock, report = show(message.lock_id), message.report
        if report is None and message.waiter is not None:
            yield f"{who} lets who holds {lock} elsewhere go ahead{where}."
            return
        if report is None:
            yield f"{who} gives up {lock}{where} on its own wish, and stands last for it."
            return
        waiter = self.name(report.cycle[0].waiter.agent)
        yield f"{who} sees the whole circle: {'; '.join(map(self.arrow, report.cycle))}."
        what = f": it surrenders {lock}{where}, because {waiter} waits for it"
        yield f"{who} yields, because {report.rule}{what if report.action != 'aborted' else ''}."

    def _forgets(self, who: str, same: Sequence[Mail]) -> str:
        told = [mail for mail in same if isinstance(mail[2], Knowledge)]
        asked = [mail for mail in same if isinstance(mail[2], Inquire)]
        parts = []
        if told:
            parts.append(f"lets {self._names(told)} know that it has forgotten what it was told")
        if asked:
            parts.append(f"asks {self._names(asked)} what still matters to it")
        return f"{who} {', and '.join(parts)}."

    def _besides(self, message: Request, nodes: int) -> str:
        """The part of a request about other nodes."""
        now = StandingElsewhere(message.agent, message.requests_elsewhere, message.waits_elsewhere)
        if now.waits_elsewhere or (now.requests_elsewhere and nodes == 1):
            return f", and says that {self._elsewhere(message.agent, now)}"
        return ""

    def _elsewhere(self, agent: AgentId, now: StandingElsewhere) -> str:
        before = self._standings.get(agent)
        self._standings[agent] = now
        if now.waits_elsewhere:
            return "it waits elsewhere, too"
        if before is not None and before.waits_elsewhere:
            return "it no longer waits elsewhere"
        return (
            "it has requests elsewhere, too"
            if now.requests_elsewhere
            else "it has no requests elsewhere"
        )

    def _names(self, mails: Sequence[Mail]) -> str:
        """The receivers of these messages."""
        names = [self._name(mail[1]) for mail in mails]
        nodes = [mail[1] for mail in mails if isinstance(mail[1], str)]
        if len(nodes) == len(names) > 1:
            return f"the lock servers of {listed(nodes)}"
        return listed(names)

    def _name(self, party: Party) -> str:
        return self.server(party) if isinstance(party, str) else self.name(party)

    def _learn(self, records: Iterable[RequestRecord]) -> None:
        for record in records:
            known = self._table.get(record.key)
            if record.state == "gone":
                self._table.pop(record.key, None)
            elif known is None or known.version < record.version:
                self._table[record.key] = record


def name_of(agent: AgentId) -> str:
    """The name of a simulated client's agent."""
    generation, number = divmod(agent.serial, SERIALS)
    return f"client {number}" + (f" ({ordinal(generation + 1)} try)" if generation else "")


def _kind(mail: Mail) -> tuple[object, ...]:
    """A key that is equal for messages that share one sentence."""
    sender, receiver, message = mail
    if isinstance(message, Request):
        return ("asks", sender, message.lock_id, message.mode)
    if isinstance(message, Inquire) or (isinstance(message, Knowledge) and not message.records):
        return ("forgets", sender)
    if isinstance(message, Surrender) and message.report is None:
        return ("gives up", message)
    if isinstance(message, Resolved):
        return ("resolved", message.report)
    if isinstance(message, RaiseVersion):
        return (RaiseVersion, replace(message, since=0))
    if isinstance(message, (Release, Remove, StandingElsewhere)):
        return (type(message), message)
    return (sender, receiver, id(message))


def _is_of(record: RequestRecord, message: Release) -> bool:
    """Whether a message releases a request."""
    return (record.agent, record.lock_id) == (message.agent, message.lock_id) and (
        message.mode in (None, record.mode)
    )
