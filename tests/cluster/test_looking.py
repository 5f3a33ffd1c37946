"""What can be asked of nodes that are not connected with who asks: leaders, groups, statistics; by commands and programs."""

from __future__ import annotations

import json
import re
import signal
from typing import Any

from tests.cluster.servers import LIMIT, NAMES, Servers, locks, running
from tests.helpers import eventually, run_script

CANDIDATE = """
import sys, locks_leader
sys.argv[0] = "chief.py"
election = locks_leader.Election("chief", label={label!r})
election.start()
{until_it_leads}
print("ready", flush=True)
sys.stdin.readline()
"""
WORKER = """
import sys, locks_leader
sys.argv[0] = "worker.py"
class Worker(locks_leader.Behaviour):
    def elected(self, election, newcomer): return None
    def surrendered(self, state, election): pass
worker = locks_leader.start(Worker, resource="chief", role="worker")
print("ready", flush=True)
sys.stdin.readline()
"""
PRINTERS = """
import sys, locks
from locks import groups
sys.argv[0] = "printers.py"
class Printer(locks.actors.GeventActor): pass
printers = [Printer.start() for _ in range(2)]
locks.start()
groups.join("printers", *printers)
groups.join(("floor", 1), printers[0], scope="house")
print("ready", flush=True)
sys.stdin.readline()
"""
LEADS = "while election.leadership is None: __import__('time').sleep(0.01)"


def told(servers: Servers, *arguments: str, silent: int = 0) -> dict[str, Any]:
    """What a command tells."""
    done = locks(servers, *arguments, "--json")
    assert done.status == 0, done
    data: dict[str, Any] = json.loads(done.out)
    assert len(data["silent"]) == silent, data
    return data


def test_who_leads_and_who_follows(processes: Servers) -> None:
    """The leader with its term, candidates and workers; a leader that is stopped is shown, too, without its term."""
    first = CANDIDATE.format(label="the first", until_it_leads=LEADS)
    second = CANDIDATE.format(label="the second", until_it_leads="")
    with running(processes, first, second, WORKER) as programs:
        pids = [program.pid for program in programs]
        (election,) = told(processes, "leaders")["elections"]
        leader = election["leader"]
        assert (leader["label"], leader["program"], leader["pid"]) == (
            "the first",
            "chief.py",
            pids[0],
        )
        assert len(leader["servers"]) >= 2
        assert leader["term"] > 1
        followers = [[each["pid"] for each in election[role]] for role in ("candidates", "workers")]
        assert followers == [[pids[1]], [pids[2]]]
        names = [[each["member"] for each in election[role]] for role in ("candidates", "workers")]
        assert names == [["the second"], ["Worker"]]
        listed = locks(processes, "ps", "election chief").out
        assert listed.count('election "chief"') == 2
        assert "locks_leader" not in listed + locks(processes, "groups").out
        rows = [line.split() for line in locks(processes, "leaders", "chief").out.splitlines()]
        assert [row[1] for row in rows] == ["ROLE", "leads", "candidate", "worker"]
        assert rows[1][2] == str(leader["term"])
        assert locks(processes, "leaders", "nothing").status == 1
        heads, *servers = [
            re.split(r" {2,}", line)
            for line in locks(processes, "status").out.splitlines()
            if line.partition(" ")[0] in ("SERVER", *NAMES)  # sentences name servers, too
        ]
        assert [row[heads.index("WAITING")] for row in servers] == ["0"] * 3  # nobody waits
        assert sum(node["candidates"] for node in told(processes, "status")["nodes"]) >= 1

        programs[0].send_signal(signal.SIGSTOP)
        try:
            data = told(
                processes, "leaders", "--timeout", str(10 * LIMIT), silent=1
            )  # nobody waits
            (election,) = data["elections"]
            assert (election["leader"]["label"], election["leader"]["term"]) == ("the first", None)
        finally:
            programs[0].send_signal(signal.SIGCONT)


def test_a_stopped_program_that_is_to_end_its_transaction(processes: Servers) -> None:
    """All servers are asked at once; that it is not known is said, and that it ends when the program goes on."""
    holder = """
import locks, sys
locks.start()
with locks.transaction(label="stopped") as tx:
    tx.write_lock(("a",))
    print("ready", flush=True)
    tx.lost.wait()
    print("told", flush=True)
    sys.stdin.readline()
"""
    with running(processes, holder) as (program,):
        (row,) = told(processes, "ps", "a")["locks"]
        program.send_signal(signal.SIGSTOP)
        try:
            done = locks(
                processes, "break", row["agent"], "--reason", "stopped", "--timeout", "0.5"
            )
        finally:
            program.send_signal(signal.SIGCONT)
        assert done.status == 3
        assert f"it is unknown whether transaction {row['agent']} was ended" in done.error
        assert (
            f"{row['node']} was asked through {', '.join(NAMES)} and did not confirm it"
            in done.error
        )
        assert "timed out after 0.5 s" in done.error
        assert program.stdout is not None
        assert program.stdout.readline() == "told\n"
        assert told(processes, "ps", "a")["locks"] == []


def test_groups_and_their_members(processes: Servers) -> None:
    """Of programs that are not connected with the one that asks, in all scopes."""
    with running(processes, PRINTERS) as (program,):
        groups = {
            (each["scope"], str(each["group"])): each["members"]
            for each in told(processes, "groups")["groups"]
            if "locks_leader" not in str(each["group"])
        }
        assert {key: len(members) for key, members in groups.items()} == {
            ("house", "['floor', 1]"): 1,
            ("locks_pg", "printers"): 2,
        }
        members = groups["locks_pg", "printers"]
        assert {(each["program"], each["pid"]) for each in members} == {
            ("printers.py", program.pid)
        }
        assert all(each["member"].startswith("Printer-") for each in members)
        text = locks(processes, "groups").out
        assert text.count(members[0]["member"]) == 2

    eventually(lambda: "printers" not in locks(processes, "groups").out)


def test_statistics_of_other_nodes(processes: Servers) -> None:
    """Of a lock server, of a client of the same servers, and of nobody."""
    worker = """
import locks, sys
locks.start()
for number in range(7):
    with locks.transaction() as tx: tx.write_lock(("a",))
print("ready", flush=True)
sys.stdin.readline()
"""
    asker = f"""
import locks
request, *_ = [each for each in locks.facts.waits().requests if each.label == "here"]
node = request.request.agent.node
print(node, locks.statistics(node=node).transactions)
print(locks.statistics(node={NAMES[1]!r}).table.requests >= 1)
print(locks.statistics() == locks.statistics(node=locks.statistics().name))
for name in ("nobody@nowhere", "no name"):
    try:
        locks.statistics(node=name)
    except locks.LocksError as error:
        print(type(error).__name__, error)
"""
    hold = worker.replace(
        'print("ready"',
        'tx = locks.transaction(label="here"); tx.__enter__().read_lock(("b",))\nprint("ready"',
    )
    with running(processes, hold) as (program,):
        lines = processes.run(asker).splitlines()
    assert lines[0].startswith(f"client-{program.pid}-")
    assert lines[0].endswith(" 8")
    assert lines[1:3] == ["True", "True"]
    assert lines[3].startswith("NodeNotRunning can't get the statistics of nobody@nowhere: ")
    assert "is not connected with" in lines[3]
    assert lines[4].startswith("InvalidOption ")
    assert len(lines) == 5, lines


def test_a_lock_server_asks_its_own_clients() -> None:
    """As its own page does (`locks node --web`): directly, for there is no other way to them."""
    out = run_script("""
        import subprocess, sys, locks
        from locks.facts import gather
        node = locks.start("s@127.0.0.1", cookie="x" * 20, listen=0, servers=locks.HERE)
        client = "; ".join([
            "import locks, sys",
            "from locks import groups",
            f"locks.start(cookie={'x' * 20!r}, servers=['s@127.0.0.1:{node.address[1]}'])",
            "groups.join('printers', locks.actors.GeventActor.start())",
            "print('ready', flush=True)",
            "sys.stdin.readline()",
        ])
        options = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        program = subprocess.Popen([sys.executable, "-c", client], **options)
        program.stdout.readline()
        seen = gather.look_around()
        print([each.group for each in seen.members], len(seen.nodes), seen.silent)
        program.communicate("end")
    """)
    assert out == "['printers'] 2 ()\n"


def test_nobody_is_there(processes: Servers) -> None:
    """Without members or elections that is said; without servers the exit status is 3."""
    eventually(lambda: locks(processes, "leaders").out == "There is no election.\n", LIMIT / 2)
    for command in ("leaders", "groups"):
        done = locks(processes, command, "--servers", "x@127.0.0.1:1", "--timeout", "0.5")
        assert done.status == 3, done
