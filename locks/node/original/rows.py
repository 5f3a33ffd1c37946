"""One agent's knowledge of the locks at the original's lock servers: queues as records.

A lock server of the original keeps a row for each lock id, with its own queue. A request on an id
is also, as an *indirect* entry, in the rows above and below. As a request record, an indirect entry
gets its own id just below that of its row, so that it blocks entries of this row and no others.
Likewise, a reader that waits behind readers only, which happens in the original, gets a second
record: it waits like a writer.

Requests of the original have no numbers. A hash of the row's id, agent and mode takes its place. It
is the same on every node, so our agents recognise the same request. Its version counts requests in
order, in all rows of a lock server, so it serves as the place of an entry.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from hashlib import blake2b
from typing import NamedTuple

from locks.core.messages import Surrender
from locks.model import COVERING, AgentId, LockId, Mode, RequestKey, RequestRecord, State, related
from locks.node.original.forms import OriginalGroup, OriginalInfo, unpack_request
from locks.otp.bytes import etf
from locks.otp.bytes.terms import Atom, Pid
from locks.ranges import replace
from locks.wire.forms import agent_of

__all__ = ["ELSEWHERE", "NOBODY", "Ours", "Pending", "Row", "Rows", "number_of", "row_id"]

NOBODY = AgentId(0, "", 0)
MANY = 2000  # from so many agents in a queue of ours, some may be left out
ELSEWHERE = "\N{HORIZONTAL ELLIPSIS}"  # the last element of the id of an indirect entry


def number_of(lock_id: LockId, agent: AgentId, mode: Mode) -> int:
    """The number of a request at a lock server of the original: 63 bits, the same on all nodes."""
    encoded = etf.encode((list(lock_id), Pid(agent.created, agent.node, 0), Atom(mode)))
    return int.from_bytes(blake2b(encoded, digest_size=8).digest(), "big") >> 1


def row_id(lock_id: LockId) -> LockId:
    """The id of the row that contains a request."""
    return lock_id[:-1] if len(lock_id) > 1 and lock_id[-1] == ELSEWHERE else lock_id


class Row(NamedTuple):
    """The knowledge of one lock id at one lock server.

    Attributes:
        version: The version of its queue.
        agents: The agents in the queue.
        records: The records, by their numbers.
        contended: Whether a request waits in it.
    """

    version: int
    agents: frozenset[AgentId]
    records: dict[int, RequestRecord]
    contended: bool


class Rows:
    """The rows of one lock server that one of our agents knows.

    Args:
        me: The agent.

    Attributes:
        asked: The ids that the agent has requested, with the modes.
        spare: The ids whose last request was spare.
    """

    def __init__(self, me: AgentId) -> None:
        self._me = me
        self._rows: dict[LockId, Row] = {}
        self.asked: dict[LockId, set[Mode]] = {}
        self.spare: set[LockId] = set()

    def get(self, lock_id: LockId) -> Row | None:
        """The knowledge of a lock id."""
        return self._rows.get(lock_id)

    def is_in(self, lock_id: LockId) -> bool:
        """Whether the agent is in the queue of a lock id."""
        row = self._rows.get(lock_id)
        return row is not None and self._me in row.agents

    def records(self, own: bool = True) -> Iterator[RequestRecord]:
        """All records of rows in which a request waits.

        Args:
            own: Whether to return the rows that contain the agent, or the others.
        """
        for row in self._rows.values():
            if row.contended and (self._me in row.agents) == own:
                yield from row.records.values()

    def record(self, number: int) -> RequestRecord | None:
        """A record by its number."""
        for row in self._rows.values():
            if number in row.records:
                return row.records[number]
        return None

    def own(self, lock_id: LockId) -> list[RequestRecord]:
        """The agent's own requests on exactly this id."""
        row = self._rows.get(lock_id)
        records = row.records.values() if row is not None else ()
        return [r for r in records if r.agent == self._me and r.lock_id == lock_id]

    @property
    def waits(self) -> bool:
        """Whether a request of the agent waits."""
        return any(r.state == "waiting" for lock_id in self.asked for r in self.own(lock_id))

    def learn(self, info: OriginalInfo) -> list[RequestRecord] | None:
        """Take in a report of a lock.

        Returns:
            The records of the row, first those of requests that are gone; `None` if the known
            report is as new or newer.
        """
        before = self._rows.get(info.lock_id)
        if before is not None and before.version >= info.version:
            return None
        records = {record.number: record for record in self._read(info)}
        agents = frozenset(entry.agent for group in info.queue for entry in group.entries)
        self._rows[info.lock_id] = Row(info.version, agents, records, len(info.queue) > 1)
        gone = []
        if before is not None:
            gone = [
                replace(known, state="gone", version=info.version)
                for number, known in before.records.items()
                if number not in records
            ]
        return [*gone, *records.values()]

    def forget(self, agents: Iterable[AgentId]) -> list[RequestRecord]:
        """Forget agents that have ended; return their records in rows for which no reports come."""
        gone = []
        lost = set(agents)
        for lock_id, row in list(self._rows.items()):
            if self._me in row.agents or not (lost & row.agents):
                continue
            left = {n: r for n, r in row.records.items() if r.agent not in lost}
            gone += [
                replace(r, state="gone", version=r.version + 1)
                for r in row.records.values()
                if r.agent in lost
            ]
            self._rows[lock_id] = row._replace(agents=row.agents - lost, records=left)
        return gone

    def missing(self, info: OriginalInfo) -> list[Mode]:
        """The modes in which the agent has requested an id, but whose requests are not in its queue."""
        there = {
            group.mode
            for group in info.queue
            for entry in group.entries
            if entry.agent == self._me and entry.direct
        }
        asked = self.asked.get(info.lock_id, set())
        return sorted(mode for mode in asked if there.isdisjoint(COVERING[mode]))

    def _read(self, info: OriginalInfo) -> Iterator[RequestRecord]:
        """The records of a queue."""
        place = 0
        own: dict[Mode, RequestRecord] = {}
        for index, group in enumerate(info.queue):
            if index:
                place = max(place + 1, *(entry.version for entry in group.entries))
            for record in self._read_group(info, group, place, head=not index):
                if record.agent == self._me and record.lock_id == info.lock_id:
                    own[record.mode] = record
                yield record
        for mode in sorted(self.asked.get(info.lock_id, ())):
            stronger = next((own[each] for each in COVERING[mode] if each in own), None)
            if mode not in own and stronger is not None:
                # The original may turn a read request into a write lock.
                number = number_of(info.lock_id, self._me, mode)
                yield replace(stronger, number=number, mode=mode)
        if info.surrender is not None and agent_of(info.surrender[0]) == self._me:
            for mode in self.missing(info):
                yield self._asked_again(info, mode, place + 1)

    def _read_group(
        self, info: OriginalInfo, group: OriginalGroup, place: int, head: bool
    ) -> Iterator[RequestRecord]:
        none_has_it = head and group.mode == "write" and len(group.entries) > 1
        only_readers = not head and all(
            each.mode == "read" for each in info.queue[: info.queue.index(group) + 1]
        )
        for entry in group.entries:
            if entry.agent == self._me and not entry.direct and not self._explains(info.lock_id):
                continue
            state: State = "granted" if head and not (none_has_it and entry.direct) else "waiting"
            record = RequestRecord(
                info.node,
                number_of(info.lock_id, entry.agent, group.mode),
                entry.agent,
                str(entry.client),
                info.lock_id if entry.direct else (*info.lock_id, ELSEWHERE),
                group.mode,
                state,
                place,
                entry.version,
                True,
                info.version,
            )
            yield record
            if only_readers:
                shadow = (*info.lock_id, ELSEWHERE)
                number = number_of(shadow, entry.agent, "write")
                yield replace(record, number=number, lock_id=shadow, mode="write")

    def _explains(self, lock_id: LockId) -> bool:
        """Whether a request of the agent explains its entry in this row.

        If not, the original has carried its entry over from another row. The agent can't give up
        such an entry, so it must not see it.
        """
        return any(related(lock_id, each) and each != lock_id for each in self.asked)

    def _asked_again(self, info: OriginalInfo, mode: Mode, place: int) -> RequestRecord:
        """The record of a request that is made again."""
        client = next((r.client for r in self.own(info.lock_id)), "")
        return RequestRecord(
            info.node,
            number_of(info.lock_id, self._me, mode),
            self._me,
            client,
            info.lock_id,
            mode,
            "waiting",
            place,
            info.version,
            True,
            info.version,
        )


class Pending:
    """A surrender that was not answered.

    Attributes:
        version: The version of the queue for which it was made.
        message: The agent's message.
        age: The number of interviews since.
    """

    __slots__ = ("age", "message", "version")

    def __init__(self, version: int, message: Surrender) -> None:
        self.version = version
        self.message = message
        self.age = 0


class Ours:
    """One of our agents.

    Attributes:
        rows: Its knowledge of the original's lock servers, by node.
        carried: Records of our lock servers that it got from the original's agents.
        waits_elsewhere: The lock servers at which it has reported that it waits elsewhere.
        surrenders: Its unanswered surrenders, by node and row.
        often: How often surrenders were carried out since the last interview.
        held_back: Answers that it gets at the next interview.
        teller: The agent that is named as the sender of records from agents of the original.
        client: Its client's pid.
    """

    __slots__ = (
        "carried",
        "client",
        "held_back",
        "id",
        "often",
        "rows",
        "surrenders",
        "teller",
        "waits_elsewhere",
    )

    def __init__(self, agent: AgentId) -> None:
        self.id = agent
        self.rows: dict[str, Rows] = {}
        self.carried: dict[RequestKey, RequestRecord] = {}
        self.waits_elsewhere: set[str] = set()
        self.surrenders: dict[tuple[str, LockId], list[Pending]] = {}
        self.often: Counter[tuple[str, LockId]] = Counter()
        self.held_back: list[tuple[str, Surrender]] = []
        self.teller = NOBODY
        self.client: Pid | None = None

    def at(self, node: str) -> Rows:
        """Its knowledge of one lock server."""
        rows = self.rows.get(node)
        if rows is None:
            rows = self.rows[node] = Rows(self.id)
        return rows

    def carry(self, info: OriginalInfo) -> list[RequestRecord]:
        """Take in the report of a lock server of ours that an agent of the original passes on.

        Returns:
            The new records in it.
        """
        records = []
        there = set()
        for group in info.queue:
            for entry in group.entries:
                there.add(entry.agent)
                record = unpack_request(entry.version, entry.agent, info.node, info.version)
                if record is not None:
                    records.append(record)
        news = self.take_in(records)
        for key, known in list(self.carried.items()) if len(there) < MANY else ():
            # All requests on exactly the id are in the queue; those above or below may have been
            # left out.
            same = key[0] == info.node and known.lock_id == info.lock_id
            if same and known.agent not in there and known.version < info.version:
                del self.carried[key]
                news.append(replace(known, state="gone", version=info.version))
        return news

    def take_in(self, records: Iterable[RequestRecord]) -> list[RequestRecord]:
        """Take in records of lock servers of ours; return those that are newer than the known ones."""
        news = []
        for record in records:
            known = self.carried.get(record.key)
            if known is None or known.version < record.version:
                self.carried[record.key] = record
                news.append(record)
        return news
