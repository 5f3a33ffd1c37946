"""Elections of client programs: candidates on client nodes, over three lock servers."""

from __future__ import annotations

import threading
from typing import Any

import pytest

import locks
import locks_leader
from locks.net import relay
from tests.cluster.harness import Net, World
from tests.cluster.nodes import Nodes, peer
from tests.helpers import LIMIT, eventually
from tests.leader.harness import Member as Program
from tests.leader.members import Member, agreed, have, nobody_leads, start_member

SERVERS = [f"s{number}@127.0.0.1" for number in range(3)]


class Party:
    """Three servers and some client nodes, all of this process.

    Attributes:
        servers: The servers.
        members: A candidate on each client node.
        options: How each takes part.
    """

    def __init__(self, nodes: Nodes, number: int) -> None:
        self._nodes = nodes
        self.servers = nodes.meet(*SERVERS)
        self.options: dict[str, Any] = {"policy": "majority", "nodes": SERVERS}
        self.members = [self.join() for _ in range(number)]

    def join(self, **options: Any) -> Member:
        """One more."""
        return start_member(self._nodes.client(*self.servers), **self.options, **options)

    def passing(self) -> int:
        """How many links pass through the servers."""
        return sum(len(node.cluster.relays.switch) for node in self.servers if node.cluster)


def test_client_programs_elect_a_leader(nodes: Nodes) -> None:
    """All follow it, have its state, and call it through each other; two of them need one link."""
    party = Party(nodes, 4)
    leader, others = agreed(party.members)
    for number, member in enumerate(party.members):
        member.store(f"k{number}")
    have(party.members, k0=1, k1=1, k2=1, k3=1)
    assert len(leader.info.candidates) == 3
    eventually(lambda: party.passing() == 6)
    assert all(member.node.alive == {member.node.name, *SERVERS} for member in others)


def test_a_successor_goes_on_with_the_state(nodes: Nodes) -> None:
    """However the leader ends: its instance, its node; and who comes back or is new follows."""
    party = Party(nodes, 4)
    leader, others = agreed(party.members)
    others[0].store("a")
    leader.ref.stop()
    leader, others = agreed(others)
    leader.node.stop()
    leader, others = agreed(others)
    assert leader.content == {"a": 1}
    members = [leader, *others, party.join()]
    agreed(members)
    have(members, a=1)


def test_the_new_leader_asks_for_the_states_of_client_programs(nodes: Nodes) -> None:
    """Also of those whom nobody leads, and who alone have something."""
    party = Party(nodes, 2)
    leader, (other,) = agreed(party.members)
    # The leader dies before anybody else has what it has written last: the follower's is asked for by the next.
    other.store("a")
    third = party.join()
    agreed([*party.members, third])
    leader.node.stop()
    agreed([other, third])
    have([other, third], a=1)
    assert not other.journal.errors
    assert not third.journal.errors


@pytest.mark.parametrize("lost", [0, 2])
def test_the_loss_of_one_server_changes_nothing_in_the_end(nodes: Nodes, lost: int) -> None:
    """Links over it are made anew over the others; there is one leader, and the state is kept."""
    party = Party(nodes, 3)
    agreed(party.members)
    party.members[0].store("a")
    party.servers.pop(lost).stop()
    eventually(lambda: _written(party.members[1], "b"))
    agreed(party.members)
    have(party.members, a=1, b=1)
    eventually(lambda: party.passing() == 3)


def _written(member: Member, key: str) -> bool:
    """Write something; a leader that is cut off meanwhile may have done it or not, and to write twice does no harm."""
    try:
        member.store(key)
    except locks_leader.LeaderDied:
        return False
    return True


def test_without_a_majority_of_the_servers_nobody_leads(nodes: Nodes) -> None:
    """And when they are back, somebody does."""
    party = Party(nodes, 3)
    agreed(party.members)
    party.members[0].store("a")
    ports = [peer(server) for server in party.servers]
    for server in party.servers[:2]:
        server.stop()
    nobody_leads(party.members)
    for name, port in zip(SERVERS[:2], ports[:2], strict=True):
        nodes.start(name, listen=int(port.split(":")[1]), peers=ports[2:])
    agreed(party.members)
    have(party.members, a=1)


def test_a_worker_on_a_client_node_follows(nodes: Nodes) -> None:
    """It finds the candidates, who don't see it on the servers."""
    party = Party(nodes, 2)
    worker = party.join(role="worker")
    leader, _ = agreed([*party.members, worker])
    party.members[0].store("a")
    have([worker], a=1)
    leader.node.stop()
    left = [member for member in party.members if member is not leader]
    agreed([*left, worker])


def test_candidates_on_servers_and_on_client_nodes(nodes: Nodes) -> None:
    """They take part in the same election."""
    party = Party(nodes, 2)
    both = [start_member(server, **party.options) for server in party.servers[:2]]
    members = [*party.members, *both]
    _, others = agreed(members)
    others[0].store("a")
    have(members, a=1)
    while len(members) > 1:
        leader, members = agreed(members)
        leader.ref.stop()
    agreed(members)
    have(members, a=1)


def test_a_candidate_whose_connections_are_missing_does_no_harm(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lock alone decides who leads: one, and in rising terms. When there is a way, the others follow."""

    with monkeypatch.context() as patched:
        patched.setattr(relay, "TRIED", 0)  # there is no way to any node
        party = Party(nodes, 3)
        terms = []
        members = party.members[:]
        while len(members) > 1:
            (leader,) = eventually(lambda: [m for m in members if m.info.role == "leader"])
            assert all(m.info.leader is None for m in members if m is not leader)
            terms.append(leader.info.term)
            leader.ref.stop()
            members.remove(leader)
        assert terms == sorted(set(terms))
        members.append(party.join())
    agreed(members)


def test_the_simple_face(nodes: Nodes) -> None:
    """`Election` runs a function in one client program after the other, never in two."""
    servers = nodes.meet(*SERVERS)
    running: list[str] = []
    ran: list[tuple[str, int]] = []
    wrong: list[Any] = []

    def work(leadership: locks_leader.Leadership, name: str) -> None:
        running.append(name)
        leadership.ensure_leading()
        if len(running) > 1:
            wrong.append(running[:])
        ran.append((name, leadership.term))
        running.remove(name)

    def program(node: locks.node.Node) -> None:
        for _ in range(3):
            election = locks_leader.Election("job", policy="majority", nodes=SERVERS, node=node)
            election.run(work, node.name, timeout=LIMIT)

    threads = [threading.Thread(target=program, args=(nodes.client(*servers),)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LIMIT)
    assert not wrong
    assert len(ran) == 12
    assert [term for _, term in ran] == sorted({term for _, term in ran})


def test_when_the_election_is_over_its_connections_are_closed(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a while; client nodes are connected with servers alone again."""
    monkeypatch.setattr(relay, "LINGER", 0.05)
    monkeypatch.setattr(relay, "PERIOD", 0.05)
    party = Party(nodes, 3)
    agreed(party.members)
    for member in party.members:
        member.ref.stop()
    eventually(lambda: all(not member.node.nodes(hidden=True) for member in party.members))
    eventually(lambda: party.passing() == 0)


@pytest.mark.parametrize(
    "options",
    [{}, {"policy": locks_leader.quorum(1)}, {"policy": "majority", "nodes": ["me@127.0.0.1"]}],
)
def test_a_client_program_must_name_servers(nodes: Nodes, options: dict[str, Any]) -> None:
    """An election on its own node alone would make it a leader of nobody, beside others."""
    client = nodes.client(nodes.start(SERVERS[0]), name="me@127.0.0.1")
    with pytest.raises(locks.errors.InvalidOption, match="client node"):
        start_member(client, **options)


def test_workers_on_client_nodes_share_groups_out(nodes: Nodes) -> None:
    """Ownership needs no more than an election does."""
    servers = nodes.meet(*SERVERS)
    made = [nodes.client(*servers) for _ in range(3)]
    hands = [
        locks_leader.Ownership("jobs", 12, policy="majority", nodes=SERVERS, node=node)
        for node in made
    ]
    stop = threading.Event()

    def work(hand: locks_leader.Ownership) -> None:
        with hand:
            stop.wait(LIMIT)

    threads = [threading.Thread(target=work, args=(hand,)) for hand in hands]
    for thread in threads:
        thread.start()
    eventually(lambda: sorted(len(hand.owned()) for hand in hands) == [4, 4, 4])
    assert sorted(group for hand in hands for group in hand.owned()) == list(range(12))
    made[0].stop()
    eventually(lambda: sorted(len(hand.owned()) for hand in hands[1:]) == [6, 6])
    stop.set()
    for thread in threads:
        thread.join(LIMIT)


# --- Processes --------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_stopped_program_delays_nobody(world: World) -> None:
    """SIGSTOP of a candidate that stands last, and of a program that only looks on: leaders that are killed are replaced at once.

    For `net_ticktime`, longer here than anybody waits, everybody still believes that they are there.
    """
    names = [f"c{number}@127.0.0.1" for number in range(5)]
    net = Net(world, SERVERS, names, net_ticktime=600, meshed=False, kind=Program)
    *members, last, looks_on = (net.there[name] for name in names)

    def leads() -> list[Program]:
        return [each for each in members if (led := each.do("led")) and led[-1]]

    for count, member in enumerate((*members, last), 1):  # each stands behind those before it
        member.do("run_for", name="job", nodes=SERVERS)
        eventually(
            lambda count=count: members[0].do("standing", name="job", nodes=SERVERS) == count  # type: ignore[misc]
        )
    looks_on.stop()
    last.stop()
    while len(members) > 1:
        (leader,) = eventually(leads)
        members.remove(leader)
        leader.kill()
        eventually(leads)
    last.go_on()
    members.pop().kill()
    members.append(last)
    eventually(leads)
