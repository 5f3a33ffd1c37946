"""The list of servers as a node knows it, and as it takes part in changes of it (`locks.core.rosters`).

A server takes part if it has a state file. The agreement is in a file beside it, written before each answer. All other nodes are
informed by the servers that they are connected with. The messages are `{'$locks', roster, Roster, Joined}`: as a call, a node reports
what it knows, and from which number on all its requests are; as a cast, a server informs a node, and so does the answer to a
report that is out of date. A node that never heard of a change sends and gets none of these.

A node keeps the servers of each lock that it has until the lock is released. An election moves: its leader takes the lock on servers
that come (`locks_leader.core.machine`). So a node has joined a roster when no request is left on the servers of an earlier one, and all of
its elections have joined it. All is for the node's turn.
"""

from __future__ import annotations

import json
import logging
import os
import zlib
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from locks.core.agent.machine import AgentMachine, Object
from locks.core.agent.requests import servable
from locks.core.facts import (
    AcceptRoster,
    AskRoster,
    LearnRoster,
    PrepareRoster,
    RosterQuestion,
)
from locks.core.rosters import Acceptor, Roster, RosterFact, name_of
from locks.errors import CannotServe, InvalidOption, TransactionEnded, assert_never
from locks.model import LockId, show
from locks.node.client.scope import take_servers
from locks.node.marks import Memory, memory_of
from locks.node.peers.local_node import Connections
from locks.node.ports import Servers
from locks.node.state import sync_folder
from locks.otp.bytes import etf
from locks.otp.bytes.etf_decode import constant
from locks.otp.bytes.fields import BadMessage
from locks.otp.bytes.terms import Atom
from locks.otp.links.link import Link
from locks.otp.names.addresses import UnixAddress
from locks.otp.options import Options, parse_peer
from locks.otp.process.processes import CAST
from locks.ranges import Number
from locks.runtime.logs import log_event
from locks.wire.forms import FORMS, LOCK_SERVER, OURS
from locks.words import ELECTIONS

if TYPE_CHECKING:
    from locks.otp.bytes.fields import Form

__all__ = ["ROSTER", "Report", "Rosters", "pack_report", "unpack_report"]

logger = logging.getLogger("locks.nodes")

ROSTER = constant("roster")
LOOK = 0.1  # seconds between two looks whether requests by earlier rosters are left
PATIENCE = 50  # such looks until servers are used that are not connected
GRACE = 1.0  # seconds until nodes that have not joined are disconnected
MOST_NAMED = 20  # programs that have not joined
SUFFIX = ".servers"  # of the file beside the state file


class Report(NamedTuple):
    """What a node knows of the list of servers.

    Attributes:
        roster: The roster.
        joined: From which number on all its requests are.
    """

    roster: Roster
    joined: Number


_FORM: Form = FORMS.message(Report, OURS, ROSTER)


def pack_report(report: Report) -> tuple[Any, ...]:
    """A report as a term."""
    term: tuple[Any, ...] = _FORM.pack(report)
    return term


def unpack_report(term: tuple[Any, ...]) -> Report:
    """A report from a term.

    Raises:
        BadMessage: It is not of this form.
    """
    report = Report(*_FORM.unpack(term))
    if not is_possible(report.roster):
        raise BadMessage(f"{report.roster} is no list of servers")
    return report


def is_possible(roster: Roster) -> bool:
    """Whether there can be such a roster with a change."""
    try:
        for place in (*roster.servers, *roster.wanted):
            parse_peer(place, epmd=False)
    except InvalidOption:
        return False
    return roster.is_valid and roster.number > 0


def servers_of(roster: Roster) -> Servers:
    """Where locks are taken by a roster."""
    copies = roster.copies if roster.copies < len(roster.servers) else 0
    if not roster.is_changing:
        return Servers(tuple(sorted(map(name_of, roster.servers))), "majority", copies)
    lists = tuple(tuple(map(name_of, each)) for each in (roster.servers, roster.wanted))
    return Servers(tuple(map(name_of, roster.places)), "majority", roster.copies, lists)


def first_roster(name: str, options: Options) -> Roster:
    """The roster of a configured list."""
    places = []
    for each in options.servers:
        address = options.listen if each == name else options.peers.get(each)
        port = 0 if address is None or isinstance(address, UnixAddress) else address[1]
        places.append(f"{each}:{port}" if port else each)
    return Roster(0, 0, 0, options.copies, tuple(places))


def _log_change(node: str, names: Sequence[str], roster: Roster) -> None:
    text = "%s uses the servers %s now"
    text += ": the list is being changed" if roster.is_changing else ""
    about: dict[str, Any] = {"servers": list(names), "number": roster.number}
    about["changing"] = roster.is_changing
    log_event("servers_changed", text, node, ", ".join(names), node=node, **about)


def _moves(lock_id: LockId) -> bool:
    """Whether that is a lock of an election, which knows itself where it needs it."""
    return type(lock_id[0]) is Atom and lock_id[0].name == ELECTIONS


class Rosters:
    """The list of servers of one node.

    Args:
        cluster: The node's relations with others.
        options: The node's options.

    Attributes:
        acceptor: What it knows, and remembers of the agreement.
        joined: From which number on all requests of this node are.
        servers: The servers of the roster; the node's own are those before, for a moment, until these are connected.
        used: The number of the roster by which locks are taken.
        parties: What takes locks on servers that it names itself: called when those of the node have changed, with the number of the
            roster that it goes by; `None` if a change does not wait for it.
    """

    def __init__(self, cluster: Connections, options: Options) -> None:
        self._cluster = cluster
        self._node = node = cluster.node
        self._options = options
        self._path = None if options.state is None else Path(f"{options.state}{SUFFIX}")
        self._users: dict[str, int] = {}  # the nodes that it serves, and what they have joined
        self._earlier: list[Servers] = []
        self._looks = False
        self.servers = node.servers
        self.acceptor = Acceptor(first_roster(node.name, options))
        self.joined = 0
        self.parties: dict[Callable[[], object], int | None] = {}
        self.used = 0
        if self._path is not None and self._path.exists():
            self.acceptor = _loaded(self._path, node.name)
            roster = self.acceptor.roster
            self.joined = self.used = roster.number  # there are no requests yet
            if roster.number:
                self._note_difference(roster)
                self.servers = servers_of(roster)
                take_servers(node, self.servers)
                node.turn.run(node.server.raise_to, roster.floor)

    def _note_difference(self, roster: Roster) -> None:
        names = sorted(map(name_of, roster.then))
        if sorted(self._options.servers) != names:
            text = "%s was started with the servers %s, but they have changed to %s since; correct its configuration"
            configured = ", ".join(sorted(self._options.servers))
            self._node.executor.run_soon(
                logger.warning, text, self._node.name, configured, ", ".join(names)
            )

    @property
    def roster(self) -> Roster:
        """What it knows to be decided."""
        return self.acceptor.roster

    @property
    def can_change(self) -> bool:
        """Whether this node was started with what can change: a list, of which a majority is needed."""
        options = self._options
        is_list = bool(options.servers) and options.locator is None
        return is_list and options.require == "majority"

    def start(self) -> None:
        """Connect with the servers that are not configured."""
        if self.roster.number:
            self._connect()
        name = self._node.name
        if (
            self._path is not None
            and self.can_change
            and name not in map(name_of, self.roster.places)
        ):
            text = "%s is not one of the servers %s: it serves nobody until `locks servers add` or `replace` adds it"
            self._node.executor.run_soon(logger.warning, text, name, ", ".join(self._servers))

    def recover(self, memory: Memory) -> None:
        """Have this server, which is one of the list, know what is done."""
        if self.roster.number:
            assert self.servers is not None
            memory.moved(self._cluster, self.roster, self.servers)
        else:
            memory.recover(self._cluster)

    def _connect(self) -> None:
        distribution = self._cluster.distribution
        for place in self.roster.places:
            name, address = parse_peer(place, epmd=False)
            if name == self._node.name or name in distribution.links or address is None:
                continue
            try:
                self._options.check_address(address, "connects to")
            except InvalidOption as error:
                text = "%s does not connect to the server %s: %s"
                self._node.notices.warn("address", name, text, self._node.name, name, error)
                continue
            distribution.connect(name, address)

    # --- What other nodes know ------------------------------------------------------------------

    def report(self) -> tuple[Any, ...]:
        """What this node knows, as a term."""
        return pack_report(Report(self.roster, self.joined))

    def take_report(self, name: str, term: tuple[Any, ...]) -> bool:
        """Take in what another node knows.

        Args:
            name: The node.
            term: Its report.

        Returns:
            Whether it is served now; otherwise the answer is this node's report.

        Raises:
            BadMessage: The report is malformed.
        """
        roster, joined = unpack_report(term)
        self.learn(roster)
        if roster.number < self.roster.number or not self.may_serve(joined):
            return False
        self._users[name] = joined
        return True

    def take_news(self, link: Link, term: tuple[Any, ...]) -> None:
        """A server informs this node of the list; or a program does.

        Raises:
            BadMessage: It is malformed.
        """
        roster, _ = unpack_report(term)
        self.learn(roster)

    def may_serve(self, joined: int) -> bool:
        """Whether a node may be served that has joined the roster of this number."""
        return joined >= self.acceptor.serves_from

    def serves(self, name: str) -> None:
        """A node is served that has reported a list, and no roster."""
        self._users[name] = self.roster.number

    def lost(self, name: str) -> None:
        """A node is gone."""
        self._users.pop(name, None)

    def inform(self, name: str) -> None:
        """Inform a node of a roster that was not configured."""
        encoded = etf.encode((CAST, self.report()))
        self._cluster.processes.send_named(name, LOCK_SERVER, encoded)

    # --- Changes --------------------------------------------------------------------------------

    def learn(self, roster: Roster) -> str:
        """Something was decided.

        Returns:
            Why it could not be kept in the file; empty if it was.
        """
        before = self.roster
        if roster.number <= before.number or not self._agrees(roster):
            return ""
        node = self._node
        acceptor = self.acceptor.learn(roster)
        why = self._keep(acceptor)
        self.acceptor = acceptor
        self.servers = servers = servers_of(roster)
        node.server.raise_to(roster.floor)
        if node.name in servers.nodes:
            memory_of(node).moved(self._cluster, roster, servers)
        self._connect()
        if not roster.is_changing:  # reports of those that have joined may be on the way
            self._cluster.executor.run_later(GRACE, node.turn.run, self._cut, roster.base)
        for name in self._users.keys() & self._cluster.distribution.links.keys():
            self.inform(name)
        self._cluster.moved()
        self._use()
        return why

    def _use(self, tries: int = 0) -> None:
        """Take locks by the present roster from now on; soon, if its servers are not connected yet, and those before are."""
        node, roster, servers = self._node, self.roster, self.servers
        if self.used == roster.number or not node.running:
            return
        assert servers is not None
        before = node.servers
        is_behind = self.joined < roster.base
        if not is_behind and tries < PATIENCE and before is not None:
            there, then = (len(node.alive.intersection(e.nodes)) for e in (servers, before))
            if there < servers.enough and then >= before.enough:
                self._cluster.executor.run_later(LOOK, node.turn.run, self._use, tries + 1)
                return
        if before is not None and before not in self._earlier:
            self._earlier.append(before)
        take_servers(node, servers)
        node.moved = self
        self.used = roster.number
        if is_behind:
            self._end_those_behind()
        for notice in list(self.parties):
            node.executor.run_soon(notice)
        node.executor.run_soon(_log_change, node.name, servers.nodes, roster)
        if not self._looks:
            self._look()

    def _agrees(self, roster: Roster) -> bool:
        """Whether this node was started with a list of servers that can be such a later one."""
        options, copies = self._options, roster.copies
        same = options.copies == copies or (not options.copies and copies == len(options.servers))
        return self.can_change and same

    @property
    def _servers(self) -> Iterable[str]:
        return map(name_of, self.roster.places)

    def _cut(self, base: int) -> None:
        """Disconnect nodes that have requests by rosters which do not count any more; they connect again."""
        for name, joined in list(self._users.items()):
            link = self._cluster.distribution.links.get(name)
            if joined < base and link is not None:
                link.lose("it still had locks by an earlier list of servers")

    def _end_those_behind(self) -> None:
        """End transactions whose locks do not count any more: this node was cut off when the list changed."""
        for agent in self._behind():
            text = (
                f"transaction {agent.id} has ended: the list of servers has changed while this program was not connected with "
                f"a majority of them. They are {', '.join(self._servers)} now; begin a new transaction"
            )
            agent.event(agent.machine.end_transaction, TransactionEnded(text, agent=agent.id))

    def _end_those_stuck(self) -> None:
        """End transactions that wait for servers which are down, if the present ones are up."""
        node = self._node
        for agent in self._behind():
            for each in agent.machine.lock_info():
                if each.held or not self.is_behind(each.lock_id, each.nodes):
                    continue
                assert node.servers is not None
                present = node.servers.around(each.lock_id)
                if servable("majority", each.nodes, node.alive):
                    continue
                if servable("majority", present, node.alive):
                    text = f"transaction {agent.id} has ended: it waited for {show(each.lock_id)} on servers that are not in the list any more"
                    error = TransactionEnded(f"{text}; begin a new one", agent=agent.id)
                    agent.event(agent.machine.end_transaction, error)
                    break

    # --- Requests of this node ------------------------------------------------------------------

    def present(self, machine: AgentMachine, objects: Sequence[Object]) -> Sequence[Object]:
        """Requests as they are by the present roster; what a transaction has requested keeps its servers.

        A caller may have looked where a lock is taken before this node heard of a change.
        """
        return [self._present(machine, each) for each in objects]

    def _present(self, machine: AgentMachine, wanted: Object) -> Object:
        lock_id, mode, nodes, require = wanted
        servers = self._node.servers
        assert servers is not None
        if _moves(lock_id):
            return wanted
        names = {*nodes}
        if not any(names == {*each.around(lock_id)} for each in (servers, *self._earlier)):
            return wanted  # the caller has named the nodes
        nodes = machine.nodes_of(lock_id) or servers.around(lock_id)
        return (lock_id, mode, nodes, require)

    def is_behind(self, lock_id: LockId, nodes: Iterable[str]) -> bool:
        """Whether a request on these nodes is by an earlier roster."""
        assert self._node.servers is not None
        if _moves(lock_id):
            return False
        present, *earlier = (
            {*each.around(lock_id)} for each in (self._node.servers, *self._earlier)
        )
        names = {*nodes}
        return names != present and names in earlier

    def lists_of(self, lock_id: LockId, nodes: Sequence[str]) -> list[tuple[str, ...]]:
        """The servers of a lock by each list that was in force when it was taken."""
        for servers in (self._node.servers, *reversed(self._earlier)):
            if servers is not None and {*nodes} == {*servers.around(lock_id)}:
                return [each.around(lock_id) for each in servers.each]
        return [tuple(nodes)]

    def check_unit(self, lock_id: LockId, nodes: Sequence[str]) -> None:
        """Raise `CannotServe` if the number of a unit may not be unique, because the list was being changed."""
        if len({min(each) for each in self.lists_of(lock_id, nodes)}) > 1:
            raise CannotServe(
                f"the unit of {show(lock_id)} has no number: it was acquired while the list of servers was being changed; "
                "release it, and acquire it again",
                lock_id=lock_id,
            )

    def _behind(self) -> list[Any]:
        """The agents with requests by earlier rosters."""
        return [
            agent
            for agent in list(self._node.agents_by_id.values())
            if any(self.is_behind(each.lock_id, each.nodes) for each in agent.machine.lock_info())
        ]

    def _look(self) -> None:
        """Join when no request by an earlier roster is left."""
        is_over = self.joined == self.used or not self._node.running
        if not is_over:
            self._end_those_stuck()
        numbers = [number for number in list(self.parties.values()) if number is not None]
        is_late = any(number < self.used for number in numbers)
        self._looks = not is_over and (is_late or bool(self._behind()))
        if self._looks:
            self._cluster.executor.run_later(LOOK, self._node.turn.run, self._look)
        elif not is_over:
            self.joined = self.used
            self._cluster.moved()

    # --- Questions of whoever changes the list --------------------------------------------------

    def answer(self, question: RosterQuestion) -> RosterFact:
        """Answer one of them."""
        version = self._node.server.machine.version
        acceptor, why = self.acceptor, self._cannot()
        good, missing = not why, self._missing()
        if isinstance(question, AskRoster):
            pass
        elif isinstance(question, LearnRoster):
            why = self.learn(question.roster) if is_possible(question.roster) else "no list"
            is_present = self.roster == question.roster and self.roster.is_changing
            if question.collect and is_present and not why:
                why = self._cannot() or memory_of(self._node).collect(self._cluster)
            good = self.roster.number >= question.roster.number and not why
            acceptor = self.acceptor
        elif why:
            pass
        elif isinstance(question, PrepareRoster):
            number, ballot, seal = question
            if seal or not self.roster.is_changing:
                why = self._hindered()
            good = False
            if self.roster.is_changing or not why:
                acceptor, good = acceptor.prepare(number, ballot, seal, not (missing or why))
        elif isinstance(question, AcceptRoster):
            roster = question.roster
            good = is_possible(roster) and roster.follows(self.roster)
            if good:
                acceptor, good = acceptor.accept(question.ballot, roster)
        else:
            assert_never(question)
        if good and acceptor != self.acceptor:
            failed = self._keep(acceptor)
            if not failed:
                self.acceptor = acceptor
            good, why = not failed, why or failed
        fact = self.acceptor.fact(good, version)
        return fact._replace(missing=missing, why=why[:1000])

    def _missing(self) -> tuple[str, ...]:
        number = self.roster.number
        found = [name for name, joined in self._users.items() if joined < number]
        if self.joined < number:
            found.append(self._node.name)
        return tuple(sorted(found)[:MOST_NAMED])

    def _cannot(self) -> str:
        """Why it can't take part in a change; empty if it can."""
        options, name = self._options, self._node.name
        if options.locator is not None or not options.servers:
            return f"{name} was not started with a list of servers; only such a list can be changed"
        if options.require != "majority":
            return f'{name} was started with require="{options.require}"; a list can be changed only with "majority"'
        if self._path is None:
            return f"{name} has no state file; start it with --state FILE"
        if any(self._cluster.members.values()):
            return f"{name} is connected with a node that runs the Erlang original, which does not know of changes"
        return ""

    def _hindered(self) -> str:
        """Why the list can't be changed now; empty if it can."""
        name = self._node.name
        for agent in self._node.server.machine.table.owners:
            if agent.node != name and agent.node not in self._users:
                return f"{agent.node} has locks at {name}, and was started without the list of servers; end it first"
        return ""

    # --- The file -------------------------------------------------------------------------------

    def _keep(self, acceptor: Acceptor) -> str:
        """Write what it remembers; when this returns, it is durable.

        Returns:
            Why it failed; empty if it did not.
        """
        if self._path is None:
            return ""
        try:
            _save(self._path, self._node.name, acceptor)
        except OSError as error:
            why = f"{self._node.name} can't write {self._path}: {error.strerror or error}"
            self._node.executor.run_soon(logger.error, "%s", why)
            return why
        return ""


def _save(path: Path, name: str, acceptor: Acceptor) -> None:
    text = json.dumps([name, *acceptor])
    draft = path.with_name(f"{path.name}.new")
    with open(draft, "w") as file:
        file.write(f"{zlib.crc32(text.encode())} {text}\n")
        file.flush()
        os.fsync(file.fileno())
    os.replace(draft, path)
    sync_folder(path.parent)


def _loaded(path: Path, name: str) -> Acceptor:
    """What a file remembers.

    Raises:
        InvalidOption: It is damaged, or another server's, or can't be read.
    """
    try:
        checksum, _, text = path.read_text().partition(" ")
        if int(checksum) != zlib.crc32(text.rstrip("\n").encode()):
            raise ValueError("its checksum is wrong")
        owner, roster, ballot, accepted_at, accepted, sealed = json.loads(text)
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise InvalidOption(
            f"can't read {path}, which has the list of servers: {why}. Without it, {name} might use an old list: "
            "replace this server by one with another name (locks servers replace)",
            path=str(path),
        ) from error
    if owner != name:
        raise InvalidOption(
            f"{path} belongs to {owner}: {name} needs a state file of its own", path=str(path)
        )
    known = None if accepted is None else _roster(accepted)
    return Acceptor(_roster(roster), ballot, accepted_at, known, sealed)


def _roster(fields: list[Any]) -> Roster:
    number, base, floor, copies, servers, wanted, listed = fields
    return Roster(number, base, floor, copies, tuple(servers), tuple(wanted), listed)
