"""Elections while the list of their servers changes: random orders of events, with the product's machines.

    world = run_changing(17)

The nodes and instances are those of `locks_lab.leader`, the list is decided as in `locks.core.rosters`. Candidates are on client nodes.
Whoever changes the list asks one server at a time, and may die at any point; then another one comes, who undoes the change, or finishes it.
A server connects only with client nodes that may be served by what they have joined.

**Checks**, besides those of `locks_lab.leader.checks`:

* *One leader*: of no two leaders do all grants stand on the servers.
* *Terms rise*: a leader whose grants stand has a larger term than all leaders before, on whatever servers.
* *Kept*: without a fault, the first leader leads for ever.
* *In the end*, no change is under way, all have joined the last list, and somebody leads by it.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, NamedTuple

from locks.core.rosters import Acceptor, Changer, Roster
from locks_lab.leader.checks import check_quiet, has_lock
from locks_lab.leader.node import EAGER, SimulatedNode
from locks_lab.leader.parties import MemberId
from locks_lab.leader.schedule import ORDERS, run
from locks_lab.leader.world import ElectionPlan, ElectionWorld
from locks_lab.schedules.schedule import AnyChoice as Choice
from locks_lab.worlds.host import Violation
from locks_leader.core.events import Grants
from locks_leader.core.machine import Machine
from locks_leader.policy import Policy, by_servers

__all__ = ["OURS", "ChangingElections", "ElectionRules", "policy_by", "run_changing"]

SERVERS = ("a", "b", "c", "d", "e")


def policy_by(roster: Roster) -> Policy:
    """The policy of an election by a roster."""
    return by_servers([roster.servers, *([roster.wanted] if roster.wanted else [])], roster.number)


def _joined(machine: Machine) -> int:
    number = machine.policy.roster
    assert number is not None
    return number


class ElectionRules(NamedTuple):
    """The machines; each can be replaced by a wrong one.

    Attributes:
        elections: The name of the rule for elections (`locks_lab.leader.rules`).
        policy: The policy by a roster.
        joined: Which roster an instance has joined.
        acceptor: A server's part in the agreement.
        changer: Whoever changes the list.
        roster: What is decided.
    """

    elections: str = "ours"
    policy: Callable[[Roster], Policy] = policy_by
    joined: Callable[[Machine], int] = _joined
    acceptor: type[Acceptor] = Acceptor
    changer: type[Changer] = Changer
    roster: type[Roster] = Roster


OURS = ElectionRules()


class ChangingElections(ElectionWorld):
    """Nodes with instances of one election, on servers whose list changes.

    Args:
        plan: The world before it runs.
        old: The old list.
        changes: How often somebody may begin to change it.
        deaths: How often one of those may die.
        rules: The machines.

    Attributes:
        acceptors: What the servers have on their disks.
        known: What the client nodes know to be decided.
    """

    def __init__(
        self,
        plan: ElectionPlan,
        old: tuple[str, ...],
        changes: int,
        deaths: int = 0,
        rules: ElectionRules = OURS,
    ) -> None:
        self.first = rules.roster(0, 0, 0, 0, old)
        self.rules, self.changes, self.deaths = rules, changes, deaths
        self.acceptors = {at: rules.acceptor(self.first) for at in SERVERS}
        self.users: dict[str, dict[str, int]] = {at: {} for at in SERVERS}
        self.known: dict[str, Roster] = {}
        self.changer: Changer | None = None
        self.leader: Any = None
        self.is_faultless = not (plan.cuts or plan.crashes or plan.kills)
        super().__init__(plan._replace(policy=policy_by(self.first), rule=rules.elections))
        for users in self.users.values():
            users.update(dict.fromkeys(self.known, 0))
        for at in old:  # larger than those of servers that come, so that a floor is needed
            self.nodes[at].server.raise_to(100)

    def _new_node(self, name: str) -> SimulatedNode:
        node = super()._new_node(name)
        if name in self.acceptors:
            self.users[name] = {}
            node.server.raise_to(self.acceptors[name].roster.floor)
        else:
            self.known[name] = self.first
        return node

    @property
    def best(self) -> Roster:
        """The newest roster that a server knows."""
        return max((each.roster for each in self.acceptors.values()), key=lambda r: r.number)

    # --- What can happen

    def choices(self, free: bool = True) -> list[Choice]:
        """All events that are possible next."""
        found = [
            each
            for each in super().choices(False)
            if each[0] != "connect" or self._meets(*each[1]) or self._differ(*each[1])
        ]
        found += self._of_the_list()
        changer, best = self.changer, self.best
        unfinished = best.is_changing or (changer is not None and changer.phase != "over")
        if not found and unfinished and not (changer is not None and changer.gives_up):
            found.append(("comes", None))
        return found + self.free_choices() if free else found

    def _of_the_list(self) -> list[Choice]:
        found: list[Choice] = []
        changer, seen = self.changer, self.network.seen
        if changer is not None:
            for at in changer.asked:
                if at in self.nodes and self._asked(changer, at) != (self.acceptors[at], changer):
                    found.append(("ask", at))
        for pair, sight in seen.items():
            client, server = pair
            if server in self.acceptors and sight == seen[pair[::-1]] == "up":
                is_new = client in self.known and (
                    self.users[server].get(client) != self._number(client)
                )
                if is_new or self._differ(client, server):
                    found.append(("report", pair))
        return found

    def free_choices(self) -> list[Choice]:
        """What may happen next, and never needs to."""
        found = super().free_choices()
        busy = self.changer is not None and self.changer.phase != "over"
        if busy and self.deaths:
            found.append(("dies", None))
        if self.changes and not busy:
            now = {*self.best.then}
            wishes = [
                tuple(sorted(now - {goes} | {comes}))
                for goes in ("", *sorted(now))
                for comes in ("", *SERVERS)
            ]
            wishes = [tuple(filter(None, each)) for each in wishes]
            found += [("wish", each) for each in dict.fromkeys(wishes) if each and {*each} != now]
        return found

    def do(self, choice: Choice) -> None:
        """Make one of the choices happen, and check all that must be true."""
        kind, what = choice
        if kind == "connect":
            self._learn_both(*what)
            if self._meets(*what):
                super().do(choice)
                for client, server in (what, what[::-1]):
                    if client in self.known and server in self.acceptors:
                        self.users[server][client] = self._number(client)
        elif kind == "ask":
            assert self.changer is not None
            acceptor, self.changer = self._asked(self.changer, what)
            if acceptor.roster != self.acceptors[what].roster:
                self._server_learns(what, acceptor.roster)
            else:
                self.acceptors[what] = acceptor
        elif kind == "report":
            client, server = what
            self._learn_both(client, server)
            joined = self._number(client) if client in self.known else 0
            if client in self.known and joined >= self.acceptors[server].serves_from:
                self.users[server][client] = joined
        elif kind == "wish":
            self.changes -= 1
            best = self.best
            wants = best.wanted if best.is_changing else what
            self.changer = self.rules.changer(wants, best)
        elif kind == "dies":
            self.deaths -= 1
            self.changer = None
        elif kind == "comes":
            self.changer = self.rules.changer((), self.best, gives_up=True)
        else:
            super().do(choice)
            if kind == "notice":
                me, other = what
                if me in self.users and self.network.seen[what] == "down":
                    self.users[me].pop(other, None)
        self._check_leaders()

    # --- The list

    def _asked(self, changer: Changer, at: str) -> tuple[Acceptor, Changer]:
        """Whoever changes the list asks a server; what both know then."""
        acceptor, roster = self.acceptors[at], changer.roster
        if changer.phase == "tell":
            acceptor = acceptor.learn(roster)
            fact = acceptor.fact(acceptor.roster.number >= roster.number)
        else:
            if changer.phase == "prepare":
                ready = all(n == acceptor.roster.number for n in self.users[at].values())
                asked = roster.number, changer.ballot, changer.seals, ready
                acceptor, good = acceptor.prepare(*asked)
            else:
                assert changer.best is not None
                good = changer.best.follows(acceptor.roster)
                if good:
                    acceptor, good = acceptor.accept(changer.ballot, changer.best)
            fact = acceptor.fact(good, self.nodes[at].server.version)
        return acceptor, changer.heard(at, fact)

    def _server_learns(self, at: str, roster: Roster) -> None:
        if roster.number <= self.acceptors[at].roster.number:
            return
        self.acceptors[at] = self.acceptors[at].learn(roster)
        if at in self.nodes:
            self.nodes[at].server.raise_to(roster.floor)
        for client in self.users[at]:
            pair = (min(at, client), max(at, client))
            # What it has joined, not what it has reported: its report may be on the way.
            is_behind = self._number(client) < self.acceptors[at].serves_from
            if is_behind and self.network.seen[pair] == "up":
                self.lossless = False
                self.network.cut(pair)
                self.network.mend(pair)

    def _number(self, client: str) -> int:
        """Which roster a client node has joined."""
        node = self.nodes.get(client)
        instances = () if node is None else node.instances.values()
        joined = [self.rules.joined(each.machine) for each in instances]
        return min([self.known[client].number, *joined])

    def _roster(self, node: str) -> Roster:
        return self.acceptors[node].roster if node in self.acceptors else self.known[node]

    def _differ(self, one: str, other: str) -> bool:
        is_server = one in self.acceptors or other in self.acceptors
        return is_server and self._roster(one).number != self._roster(other).number

    def _learn_both(self, one: str, other: str) -> None:
        if not self._differ(one, other):
            return
        roster = max(self._roster(one), self._roster(other), key=lambda each: each.number)
        for name in (one, other):
            if name in self.acceptors:
                self._server_learns(name, roster)
            elif self.known[name] != roster:
                self.known[name] = roster
                self.nodes[name].take(self.rules.policy(roster))
                self._after(self.nodes[name])

    def _meets(self, one: str, other: str) -> bool:
        """Whether two nodes may be connected: a server and a client only if it may be served."""
        for client, server in ((one, other), (other, one)):
            if client in self.known and server in self.acceptors:
                acceptor = self.acceptors[server]
                if self._number(client) < acceptor.serves_from:
                    return False
        return True

    # --- Checks

    def _after(self, node: SimulatedNode) -> None:
        for ref, term, ground, _ in node.elections:
            if self._stands(ref, ground):
                for old in self.history.elections:
                    if old.ref != ref and old.term >= term:
                        raise Violation(f"terms fall: {ref} is elected with {term} after {old}")
        super()._after(node)

    def _stands(self, ref: MemberId, ground: Grants) -> bool:
        """Whether a leader has all of its grants."""
        return all(has_lock(self.nodes.get(at), ref, since) for at, since in ground)

    def _check_leaders(self) -> None:
        leaders = [each for each in self.instances if each.machine.role == "leader"]
        if len(leaders) > 1:
            real = [each.ref for each in leaders if self._stands(each.ref, each.machine.ground)]
            if len(real) > 1:
                raise Violation(f"two leaders: {real}")
        if self.is_faultless:
            refs = [each.ref for each in leaders]
            self.leader = self.leader or (refs[0] if refs else None)
            if self.leader is not None and refs != [self.leader]:
                raise Violation(f"{self.leader} has lost its leadership without a fault")

    def check_quiet(self) -> None:
        """Make the checks when nothing needs to happen any more, and all faults are repaired."""
        if self.network.crashed or self.network.apart:
            return
        best = self.best
        if best.is_changing:
            raise Violation("a change is left")
        for client in self.known:
            if (self.known[client], self._number(client)) != (best, best.number):
                raise Violation(f"{client} has not joined {best}")
        check_quiet(self.nodes, self.network.seen, policy_by(best))


def run_changing(
    seed: int,
    old: int | None = None,
    changes: int | None = None,
    faults: bool | None = None,
    rules: ElectionRules = OURS,
) -> ChangingElections:
    """Run a random world to its end.

    Args:
        seed: Decides everything.
        old: How many servers there are at first; drawn by default.
        changes: How often their list may be changed; likewise.
        faults: Whether there are faults; likewise.
        rules: The machines.

    Raises:
        Violation: A check failed; the message names the seed.
    """
    rng = random.Random(seed)
    drawn = rng.choice((1, 2, 3, 3, 4)), rng.choice((1, 2, 3, 5)), rng.random() < 0.7
    first = SERVERS[: old or drawn[0]]
    has_faults = drawn[2] if faults is None else faults
    clients = ("x", "y", "z")[: rng.choice((2, 3))]
    plan = ElectionPlan(
        SERVERS + clients,
        instances=((),) * len(SERVERS) + ((("candidate",),) * len(clients)),
        eager=EAGER,
        downs_first=rng.random() < 0.5,
        cuts=rng.choice((0, 2, 6)) if has_faults else 0,
        crashes=rng.choice((0, 1, 2)) if has_faults else 0,
        kills=rng.choice((0, 0, 1)) if has_faults else 0,
    )
    try:
        world = ChangingElections(plan, first, changes or drawn[1], rng.choice((0, 2)), rules)
        run(world, rng, rng.choice(ORDERS), fault_rate=rng.choice((0.01, 0.03, 0.1)))
    except Violation as error:
        raise Violation(f"run_changing({seed}): {error}") from error
    return world
