"""A list of lock servers that changes while programs run (`locks servers`), with real processes."""

from __future__ import annotations

import json
import random
import signal
from collections.abc import Iterator

import pytest

from locks.core.rosters import Roster
from locks.errors import InvalidOption
from locks.node.peers.rosters import Report, pack_report, servers_of, unpack_report
from locks.otp.bytes.fields import BadMessage
from locks.program.changing import added, removed, replaced
from tests.cluster.changing import FIRST, MORE, Candidates, Changing, Load, change_often
from tests.cluster.commands import locks, running
from tests.cluster.harness import World
from tests.cluster.servers import LIMIT, Servers
from tests.cluster.test_run import run
from tests.helpers import EXPLORE, SEED, eventually

A, B, C = FIRST
D, E = MORE


@pytest.fixture
def servers() -> Iterator[Changing]:
    """Three servers, and two that are not in their list."""
    with World() as world:
        yield Changing(world)


# --- Under load ---------------------------------------------------------------------------------


@pytest.mark.slow
def test_changes_under_load(servers: Changing) -> None:
    """The list is changed while programs work; some of those who change it are killed, and the next one goes on: no program gets an error, each lock has one holder, and the leader of an election leads all the time."""
    load, candidates = Load(servers), Candidates(servers)
    try:
        assert change_often(servers, 40 if EXPLORE else 4, random.Random(SEED), kills=False)
        led = candidates.end()
        done, errors, _ = load.end()
    finally:
        load.close()
        candidates.close()
    assert done
    assert not errors, errors
    assert len(led.terms) == 1, led  # the first one has led all the time
    assert not led.refused


@pytest.mark.explore
def test_changes_under_load_and_servers_that_die(servers: Changing) -> None:
    """The same, and servers are killed now and then: each lock has one holder by its token, and the work goes on."""
    load = Load(servers)
    try:
        assert change_often(servers, 100 if EXPLORE else 20, random.Random(SEED))
        done, _, _ = load.end()
    finally:
        load.close()
    assert done


@pytest.mark.slow
def test_copies_under_load() -> None:
    """With two copies of each id, ids move to other servers, and each lock has one holder."""
    with World() as world:
        servers = Changing(world, copies=2)
        load = Load(servers)
        try:
            for arguments in (("add", servers.places[D]), ("replace", A, servers.places[E])):
                assert servers.change(*arguments).status == 0
            done, errors, _ = load.end()
        finally:
            load.close()
        assert done
        assert not errors, errors
        assert sorted(servers.list) == [B, C, D, E]


# --- Holders ------------------------------------------------------------------------------------

HOLD = """
import sys, locks
with locks.transaction() as tx:
    token = tx.write_lock(("a",))
    print("ready", flush=True)
    sys.stdin.readline()
    tx.ensure_held()
    print(token, flush=True)
"""
TRY = """
import locks
try:
    with locks.transaction(timeout={timeout}) as tx:
        print(tx.write_lock(("a",)))
except locks.LockTimeout:
    print("held by another one")
"""


def test_a_holder_keeps_its_lock(servers: Changing) -> None:
    """The change waits for a lock that was taken before it, and nobody else gets that. When it is released, the change ends, and the next token is larger."""
    with running(servers, HOLD) as (holder,):
        changing = servers.begin_changing("replace", A, servers.places[D])
        eventually(lambda: servers.show()["changing"], limit=LIMIT)
        assert servers.run(TRY.format(timeout=0.5)) == "held by another one\n"
        shown = servers.show()
        assert len(shown["missing"]) == 1
        assert {row["server"].split(":")[0]: row["list"] for row in shown["servers"]} == {
            **{B: "both", C: "both"},
            **{A: "old", D: "new"},
        }
        print(file=holder.stdin, flush=True)
        token = int(holder.stdout.readline())
        out, error = changing.communicate(timeout=LIMIT)
        assert changing.returncode == 0, error
        assert "Start programs and servers with this list from now on" in out
    assert not servers.show()["changing"]
    assert int(servers.run(TRY.format(timeout=30))) > token
    assert f"{A} is in no list any more and can be stopped now" in out
    servers.processes[0].kill()
    assert int(servers.run(TRY.format(timeout=30))) > token


@pytest.mark.slow
def test_a_change_that_takes_too_long_is_undone(servers: Changing) -> None:
    """After its time limit the change is undone; the error names the program that still holds a lock."""
    with running(servers, HOLD) as (holder,):
        done = servers.change("add", servers.places[D], "--timeout", "1")
        assert done.status == 3
        assert "these programs still have locks or requests by the old list" in done.error
        assert str(holder.pid) in done.error
        assert "the change was undone" in done.error
        assert sorted(servers.list) == list(FIRST)
        print(file=holder.stdin, flush=True)
        assert int(holder.stdout.readline())
    assert servers.change("add", servers.places[D]).status == 0
    assert sorted(servers.list) == [A, B, C, D]


@pytest.mark.slow
def test_a_server_that_is_removed_may_still_be_needed(servers: Changing) -> None:
    """A server is removed while a program has a lock there, because that keeps others out by the servers that stay; the command says that it must not be stopped yet."""
    with running(servers, HOLD) as (holder,):
        done = servers.change("remove", A, "--timeout", "1")
        assert done.status == 0, done
        assert f"Keep {A} running while `locks servers` lists programs" in done.out
        assert str(holder.pid) in done.out
        assert len(servers.show()["missing"]) == 1
        assert servers.run(TRY.format(timeout=0.5)) == "held by another one\n"
        print(file=holder.stdin, flush=True)
        assert int(holder.stdout.readline())
    eventually(lambda: not servers.show()["missing"], limit=LIMIT)
    assert int(servers.run(TRY.format(timeout=30)))


@pytest.mark.slow
def test_the_next_one_goes_on(servers: Changing) -> None:
    """Whoever changes the list is killed while both lists are in force; the next one finishes that change before its own."""
    with running(servers, HOLD) as (holder,):
        changing = servers.begin_changing("add", servers.places[D])
        eventually(lambda: servers.show()["changing"], limit=LIMIT)
        changing.send_signal(signal.SIGKILL)
        changing.communicate()
        print(file=holder.stdin, flush=True)
        holder.stdout.readline()
    done = servers.change("replace", A, servers.places[E])
    assert done.status == 0, done
    assert "is under way: it is finished first" in done.out
    assert sorted(servers.list) == [B, C, D, E]


@pytest.mark.slow
def test_a_change_waits_for_locks_of_the_one_before(servers: Changing) -> None:
    """A lock that was taken while both lists were in force need not meet one that is taken in the next change; so that does not begin before it is released."""
    with running(servers, HOLD) as (first,):
        changing = servers.begin_changing("add", servers.places[D])
        eventually(lambda: servers.show()["changing"], limit=LIMIT)
        with running(servers, HOLD.replace('("a",)', '("b",)')) as (second,):
            print(file=first.stdin, flush=True)
            assert changing.wait(LIMIT) == 0
            done = servers.change("replace", A, servers.places[E], "--timeout", "1")
            assert done.status == 3
            assert str(second.pid) in done.error
            assert sorted(servers.list) == [A, B, C, D]
            print(file=second.stdin, flush=True)
            assert int(second.stdout.readline())
    assert servers.change("replace", A, servers.places[E]).status == 0


# --- What is done -----------------------------------------------------------------


def once(servers: Changing, name: str) -> int:
    """Run a command once; 0 if it ran, 122 if that was done."""
    status, out, error = run(servers, "--once", "--timeout", "20", name, "--", "echo", "ran")
    assert (status, out) in ((0, "ran\n"), (122, "")), (status, out, error)
    return status


@pytest.mark.slow
def test_what_is_done_stays_done(servers: Changing) -> None:
    """Whatever the list becomes, and however often servers restart then: what was done is done, and other work is done once."""
    done: list[str] = []
    for arguments in ((), ("replace", A, servers.places[D]), ("remove", B), ("remove", C)):
        if arguments:
            assert servers.change(*arguments).status == 0
        done.append(f"job {len(done)}")
        assert [once(servers, each) for each in done] == [122] * (len(done) - 1) + [0]
    for name in servers.list:
        servers.kill(name)
    assert [once(servers, each) for each in done] == [122] * len(done)


@pytest.mark.slow
def test_work_that_is_done_meanwhile(servers: Changing) -> None:
    """While both lists are in force, work is done once. Work that began before ends with its mark set."""
    job = "import locks, sys\nwith locks.once(('early',)):\n    print('ready', flush=True)\n    sys.stdin.readline()\n"
    with running(servers, job) as (early,):
        changing = servers.begin_changing("replace", A, servers.places[D])
        eventually(lambda: servers.show()["changing"], limit=LIMIT)
        assert [once(servers, "job") for _ in range(2)] == [0, 122]
        assert early.communicate("\n", timeout=LIMIT) == ("", "")
        assert changing.wait(LIMIT) == 0
    servers.processes[0].kill()
    assert [once(servers, each) for each in ("early", "job", "late")] == [122, 122, 0]


@pytest.mark.slow
def test_copies_of_what_is_done() -> None:
    """With copies, ids move between servers that stay, and what is done is known where they are then."""
    with World() as world:
        servers = Changing(world, copies=2)
        jobs = [f"job {number}/x" for number in range(6)]
        assert [once(servers, each) for each in jobs] == [0] * 6
        for arguments in (("add", servers.places[D]), ("remove", A)):
            assert servers.change(*arguments).status == 0
            assert [once(servers, each) for each in jobs] == [122] * 6


# --- Restarts -----------------------------------------------------------------------------------


@pytest.mark.slow
def test_servers_and_programs_that_start_with_the_old_list(servers: Changing) -> None:
    """A server that restarts has the list in its file, and a program that starts with the old list learns the new one; all use the new one."""
    assert servers.change("replace", A, servers.places[D]).status == 0
    for name in (A, B, C, D):
        servers.kill(name)
    said = servers.processes[1].errors
    eventually(
        lambda: (
            f"was started with the servers {A}, {B}, {C}, but they have changed to {B}, {C}, {D}"
            in said()
        )
    )
    with running(servers, HOLD) as (holder,):
        status = json.loads(locks(servers, "status", "--json").out)
        assert sorted(each["node"] for each in status["nodes"]) == [B, C, D]
        assert status["enough"]
        assert servers.run(TRY.format(timeout=0.5)) == "held by another one\n"
        known = [servers.places[name] for name in (B, C, D)]
        assert servers.run(TRY.format(timeout=0.5), known) == "held by another one\n"
        print(file=holder.stdin, flush=True)
        holder.stdout.readline()
    assert servers.change("add", servers.places[A]).status == 0


def test_a_server_that_was_down_for_the_change(servers: Changing) -> None:
    """A dead server is replaced, and forgotten; when it comes back with its old file, it learns that it is not one any more."""
    servers.processes[0].kill()
    assert servers.change("replace", A, servers.places[D]).status == 0
    assert int(servers.run(TRY.format(timeout=30)))
    servers.processes[0] = servers._start(servers.places[A])
    assert servers.processes[0].address
    file = servers.world.folder / f"{A}.state.servers"
    eventually(lambda: file.exists() and D in file.read_text(), limit=LIMIT)
    assert sorted(servers.list) == [B, C, D]


def test_a_file_that_is_damaged_or_of_another_server(servers: Changing) -> None:
    """A server does not start without knowing which list it has promised."""
    assert servers.change("add", servers.places[D]).status == 0
    path = servers.world.folder / f"{A}.state.servers"
    good = path.read_text()
    for text, said in (
        (good.replace("1", "2"), "its checksum is wrong"),
        ("", "which has the list of servers"),
        ((servers.world.folder / f"{B}.state.servers").read_text(), f"belongs to {B}"),
    ):
        servers.processes[0].kill()
        path.write_text(text)
        servers.processes[0] = servers._start(servers.places[A])
        assert servers.processes[0].process.wait(LIMIT) == 2
        assert said in servers.processes[0].errors()


# --- Elections ----------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_leader_stays(servers: Changing) -> None:
    """A leader goes on while servers are added, removed and replaced, the one where candidates wait first, too; its function isn't interrupted. It needs no server that is gone."""
    candidates = Candidates(servers)
    try:
        for arguments in (
            ("add", servers.places[D]),
            ("remove", A),
            ("replace", B, servers.places[E]),
        ):
            assert servers.change(*arguments).status == 0
        for index in (0, 1):
            servers.processes[index].kill()
        shown = json.loads(locks(servers, "leaders", "boss", "--json").out)
        led = candidates.end()
    finally:
        candidates.close()
    assert shown["elections"][0]["leader"]["pid"] == candidates.programs[0].pid
    assert led.terms == [shown["elections"][0]["leader"]["term"]]
    assert not led.refused


@pytest.mark.slow
def test_a_follower_takes_over_meanwhile(servers: Changing) -> None:
    """The leader is killed while both lists are in force: a follower leads with a larger term, and after the change, too."""
    candidates = Candidates(servers)
    first, second = candidates.programs
    try:
        with running(servers, HOLD) as (holder,):
            changing = servers.begin_changing("replace", A, servers.places[D])
            eventually(lambda: servers.show()["changing"], limit=LIMIT)
            first.kill()
            assert second.stdout.readline() == "leads\n"
            assert servers.show()["changing"]
            print(file=holder.stdin, flush=True)
            assert changing.wait(LIMIT) == 0, changing.communicate()
        servers.processes[0].kill()
        first.communicate()
        candidates.programs = [second]
        led = candidates.end()
    finally:
        candidates.close()
    assert len(led.terms) == 1
    assert not led.refused


NAMED = """
import sys, locks_leader
def lead(leadership):
    print("ready", flush=True)
    sys.stdin.readline()
locks_leader.Election("boss", nodes={names!r}).run(lead)
"""


@pytest.mark.slow
def test_an_election_on_named_servers_hinders(servers: Changing) -> None:
    """An election whose user has named exactly the servers keeps them, so the change is undone; the error names the program."""
    with running(servers, NAMED.format(names=list(FIRST))) as (program,):
        done = servers.change("add", servers.places[D], "--timeout", "1")
        assert done.status == 3
        assert "or elections with nodes=[...]" in done.error
        assert str(program.pid) in done.error
        print(file=program.stdin, flush=True)
    assert servers.change("add", servers.places[D]).status == 0


# --- Refused ------------------------------------------------------------------------------------

STRANGER = """
import os, pathlib, sys
del os.environ["LOCKS_SERVERS"], os.environ["LOCKS_COPIES"]
import locks
servers, cookie = {places!r}, pathlib.Path({cookie!r})
locks.start("x@127.0.0.1", cookie=cookie, peers=servers, listen=False, mesh=False)
names = [each.split(":")[0] for each in servers]
with locks.transaction(timeout=50, await_nodes=True) as tx:
    tx.write_lock(("a",), nodes=names, require="majority")
    print("ready", flush=True)
    sys.stdin.readline()
"""


def test_a_program_without_the_list_hinders(servers: Changing) -> None:
    """A program that names the servers for each lock would not learn the new list, so the list can't be changed while it has a lock."""
    code = STRANGER.format(places=servers.addresses, cookie=str(servers.world.cookie_file))
    with running(servers, code) as (program,):
        done = servers.change("remove", A)
        assert done.status == 3
        assert "x@127.0.0.1 has locks at" in done.error
        assert "was started without the list of servers" in done.error
        print(file=program.stdin, flush=True)
    eventually(lambda: servers.change("remove", A).status == 0, limit=LIMIT)


MEANWHILE = """
import locks, locks_leader
def tried(begin):
    try:
        begin()
    except locks.CannotServe as error:
        print(str(error).split(":")[0])
    except locks.LockTimeout:
        pass
tried(lambda: locks_leader.Election("boss").run(lambda _: print("led"), timeout=30))
names = ["a@127.0.0.1", "c@127.0.0.1", "d@127.0.0.1"]
tried(lambda: locks_leader.Election("chief", nodes=names).run(lambda _: print("led"), timeout=30))
semaphore = locks.Semaphore(("s",), 2)
with semaphore:
    tried(semaphore.unit)
"""


@pytest.mark.slow
def test_what_can_not_begin_meanwhile(servers: Changing) -> None:
    """While both lists are in force, what would keep its servers does not begin; an election does. A semaphore works; its units have no numbers if they might be given twice."""
    assert servers.change("replace", B, servers.places[D]).status == 0
    with running(servers, HOLD) as (holder,):
        changing = servers.begin_changing("replace", A, servers.places[E])
        eventually(lambda: servers.show()["changing"], limit=LIMIT)
        assert servers.run(MEANWHILE).splitlines() == [
            "led",
            "can't begin an election with nodes=[...], chief now",
            "the unit of s*2 has no number",
        ]
        print(file=holder.stdin, flush=True)
        holder.stdout.readline()
        changing.communicate(timeout=LIMIT)
    assert servers.run(MEANWHILE) == "led\nled\n"


@pytest.mark.slow
def test_what_is_refused(servers: Changing) -> None:
    """A change that is not possible is refused before anything is begun, with the reason."""
    for arguments, said in [
        (("add", servers.places[A]), f"{A} is already one of the servers"),
        (("add", "x@127.0.0.1"), 'use "name@host:port"'),
        (("remove", "x@127.0.0.1"), "is not one of the servers"),
        (("remove", A, B), "wrong number of servers; use: locks servers remove NAME"),
        (("add", "x@127.0.0.1:1"), "the new server x@127.0.0.1 does not answer"),
    ]:
        done = servers.change(*arguments)
        assert done.status in (2, 3)
        assert said in done.error, done
    assert servers.show()["number"] == 0


def test_servers_without_a_file_refuse() -> None:
    """A server that would forget what it promises takes part in no change."""
    with World() as world:
        servers = Servers(world)
        done = locks(servers, "servers", "remove", A)
        assert done.status == 3
        assert "can't change the list of servers: " in done.error
        assert "has no state file; start it with --state FILE" in done.error
        assert json.loads(locks(servers, "servers", "--json").out)["number"] == 0


# --- Parts --------------------------------------------------------------------------------------

ROSTER = Roster(0, 0, 0, 0, tuple(f"{name}:{port}" for port, name in enumerate(FIRST, 9100)))


def test_wishes() -> None:
    """One server is added, removed, or replaced; a server is named with or without its port."""
    place = "d@127.0.0.1:9200"
    assert added(place)(ROSTER) == (*ROSTER.servers, place)
    for name in (A, ROSTER.servers[0]):
        assert removed(name)(ROSTER) == ROSTER.servers[1:]
        assert replaced(name, place)(ROSTER) == (*ROSTER.servers[1:], place)
    with pytest.raises(InvalidOption, match="2 servers would be left, and each lock id is on 3"):
        removed(A)(ROSTER._replace(copies=3))


def test_reports_are_checked() -> None:
    """A roster that can't be is refused when it arrives."""
    changing = ROSTER.begin(ROSTER.servers[1:])
    assert unpack_report(pack_report(Report(changing, 0))) == (changing, 0)
    for wrong in (ROSTER, changing._replace(servers=("x",)), changing._replace(base=9)):
        with pytest.raises(BadMessage):
            unpack_report(pack_report(Report(wrong, 0)))


def test_what_follows() -> None:
    """Both lists follow the configured one, with or without ports; then one of the two."""
    places = (*ROSTER.servers[1:], "d@127.0.0.1:9200")
    bare = ROSTER._replace(servers=FIRST)
    changing = ROSTER.begin(places)
    assert changing.follows(ROSTER)
    assert changing.follows(bare)
    assert changing.finish(7).follows(changing)
    assert changing.undo().follows(changing)
    for wrong, before in [
        (changing, changing),
        (changing._replace(copies=1), ROSTER),
        (changing, ROSTER._replace(servers=places)),
        (changing.finish(7)._replace(servers=places[1:]), changing),
        (ROSTER.begin(("x@127.0.0.1:1",)), ROSTER),
    ]:
        assert not wrong.follows(before)


def test_where_locks_are_meanwhile() -> None:
    """While the list is being changed, an id is on the servers of both lists; those that stay are asked first."""
    changing = ROSTER.begin((*ROSTER.servers[1:], "d@127.0.0.1:9200"))
    servers = servers_of(changing)
    assert servers.at(("x",)) == ((B, C, A, "d@127.0.0.1"), "majority")
    assert [each.nodes for each in servers.each] == [FIRST, (B, C, "d@127.0.0.1")]
    placed = servers_of(changing._replace(copies=2))
    for number in range(50):
        groups = [{*each.around((f"{number}",))} for each in placed.each]
        assert {*placed.at((f"{number}",)).nodes} == groups[0] | groups[1]
