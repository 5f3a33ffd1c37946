"""Sequences on which the original goes wrong: what our lock table makes of each.

One line of `original-breaks.jsonl` each: `[agent, mode, id]` asks, `["end", agent]`,
`["surrender", agent, id]` and `["watch", id]` are the rest; `original` says what goes wrong there.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.lockstep import Lockstep, agent

SCENARIOS: dict[str, dict[str, Any]] = {
    scenario["name"]: scenario
    for line in Path(__file__).with_name("original-breaks.jsonl").read_text().splitlines()
    for scenario in [json.loads(line)]
}


def drive(name: str) -> Lockstep:
    """Carry the sequence out.

    After each step `Lockstep` compares with the rule of the table, above all that no two granted
    requests conflict. Here it is seen to that nothing is lost silently.
    """
    both = Lockstep()
    for step in SCENARIOS[name]["sequence"]:
        before = both.held | set(both.waiting)
        held = both.held
        gives_up = ""
        if step[0] == "watch":
            version = both.table.version
            both.table.view(tuple(step[1]))
            assert both.table.version == version, "looking on changes nothing"
        elif step[0] == "end":
            gives_up = step[1]
            both.remove(agent(int(step[1][1:])))
        elif step[0] == "surrender":
            gives_up = step[1]
            both.surrender(agent(int(step[1][1:])), tuple(step[2]))
        else:
            both.request(agent(int(step[0][1:])), tuple(step[2]), step[1])
        after = both.held | set(both.waiting)
        lost = {r for r in held - both.held if f"a{r.split()[0]}" != gives_up}
        assert not lost, f"{lost} lost their grant at {step}"
        gone = {r for r in before - after if (step[0], f"a{r.split()[0]}") != ("end", gives_up)}
        assert not gone, f"{gone} vanished at {step}"
    return both


def in_a_cycle(both: Lockstep) -> set[int]:
    """The agents that wait, over whatever others, for themselves."""
    reach = {a: {b for x, b in both.waits if x == a} for a, _ in both.waits}
    for _ in reach:
        for reached in reach.values():
            reached |= {c for b in reached for c in reach.get(b, ())}
    return {a for a, reached in reach.items() if a in reached}


# --- Two that conflict are never both granted ---------------------------------------------------


def test_exclusion_writes_only() -> None:
    """The table is asked for by one who has a row, while another one has another row: it waits."""
    both = drive("exclusion-writes-only")
    assert both.held == {"1 write a/1", "2 write a/2"}
    assert both.waiting == ["1 write a"]
    assert both.waits == {(1, 2)}
    both.play("2 end")
    assert both.held == {"1 write a/1", "1 write a"}


def test_exclusion_read_then_parent() -> None:
    """A write of the table waits for another one's read of a row."""
    both = drive("exclusion-read-then-parent")
    assert both.held == {"2 write a/1", "1 read a/2"}
    assert both.waits == {(2, 1)}
    both.play("1 end")
    assert both.held == {"2 write a/1", "2 write a"}


def test_exclusion_read_then_parent_mirrored() -> None:
    """A read of the table waits for another one's write of a row."""
    both = drive("exclusion-read-then-parent-mirrored")
    assert both.held == {"2 read a/1", "1 write a/2"}
    assert both.waits == {(2, 1)}
    both.play("1 end")
    assert both.held == {"2 read a/1", "2 read a"}


def test_exclusion_deep() -> None:
    """A read between table and row is shared with other readers and with the own write below.

    It stands ahead of the reader of the table, who waits for the write below; these two, both
    reads, don't exclude each other.
    """
    both = drive("exclusion-deep")
    assert both.held == {"2 write a/2/3", "1 read a/2/x", "2 read a/2"}
    assert both.waits == {(4, 2)}
    both.release(agent(2), ("a", 2, 3))
    assert both.held == {"1 read a/2/x", "2 read a/2", "4 read a"}


def test_exclusion_upgrade_of_child() -> None:
    """From a read of a row to a write of the table: ahead of the one who waits for the row."""
    both = drive("exclusion-upgrade-of-child")
    assert both.held == {"2 read a/2", "2 write a"}
    assert both.waits == {(3, 2)}
    both.play("2 end")
    assert both.held == {"3 write a"}


def test_exclusion_watched_parent() -> None:
    """Looking at a table makes no lock of it: the table waits for its row."""
    both = drive("exclusion-watched-parent")
    assert both.held == {"1 write a/1"}
    assert both.waiting == ["2 write a"]


def test_exclusion_watched_child() -> None:
    """Looking at a row makes no lock of it: the row waits for its table."""
    both = drive("exclusion-watched-child")
    assert both.held == {"1 write a"}
    assert both.waiting == ["2 write a/1"]


def test_exclusion_five_elements() -> None:
    """Ids may have as many elements as one likes."""
    both = drive("exclusion-five-elements")
    assert both.held == {"1 write a/1/x/1"}
    assert both.waiting == ["2 write a/1/x/1/y"]


def test_exclusion_surrender_of_child() -> None:
    """Who surrenders a row gives up its table with it, and gets both back later."""
    both = drive("exclusion-surrender-of-child")
    assert both.held == {"2 write a/1"}
    assert both.waiting == ["1 write a", "1 write a/1"]
    both.play("2 end")
    assert both.held == {"1 write a", "1 write a/1"}


# --- Nothing is lost ----------------------------------------------------------------------------


def test_lost_upgrade_after_surrender() -> None:
    """The upgrade is still there after a surrender, and is granted when the other reader ends."""
    both = drive("lost-upgrade-after-surrender")
    assert both.held == {"1 read a", "2 read a"}
    assert both.waiting == ["1 write a"]
    both.play("2 end")
    assert both.held == {"1 read a", "1 write a"}


def test_lost_request_after_surrender() -> None:
    """The request for the table is still there after a surrender of it; the row is held again."""
    both = drive("lost-request-after-surrender")
    assert both.held == {"1 write a/2", "2 write a/1"}
    assert both.waiting == ["2 write a"]
    both.play("1 end")
    assert both.held == {"2 write a/1", "2 write a"}


def test_silent_loss_on_upgrade() -> None:
    """The upgrade goes ahead of the writer that waits for its read, and the read stays."""
    both = drive("silent-loss-on-upgrade")
    assert both.held == {"1 read a", "1 write a"}
    assert both.waiting == ["2 write a"]


# --- Nobody waits without need ------------------------------------------------------------------


def test_stale_parent_entry() -> None:
    """A row that nobody else has asked for is free, before and after the surrender."""
    both = drive("stale-parent-entry")
    assert both.held == {"2 read a", "3 read a/k"}
    assert both.waiting == ["1 write a/2"]
    assert both.waits == {(1, 2)}


def test_order_differs_parent_child() -> None:
    """There is one order: the views of table and row show the requests in the same one."""
    both = drive("order-differs-parent-child")
    assert both.table.view(("a",)) == both.table.view(("a", 1))
    assert both.waiting == ["2 write a/1", "3 read a/1", "4 write a"]
    for number, next_ in ((1, "2 write a/1"), (2, "3 read a/1"), (3, "4 write a")):
        both.play(f"{number} end")
        assert both.held == {next_}


def test_siblings_wait_for_each_other() -> None:
    """After a request for the table has come and gone, rows have nothing to do with each other."""
    both = drive("siblings-wait-for-each-other")
    assert both.held == {"1 write a/1", "3 write a/2"}
    assert both.waiting == []


def test_readers_do_not_join() -> None:
    """A reader joins the one ahead of it as soon as the writer between them has gone."""
    both = drive("readers-do-not-join")
    assert both.held == {"1 read a", "3 read a"}
    assert both.waiting == []


# --- Deadlocks can be seen and resolved ---------------------------------------------------------


def test_deadlock_kept_by_surrender() -> None:
    """A surrender of the table gives up both rows at once: no deadlock is left."""
    both = drive("deadlock-kept-by-surrender")
    assert both.held == {"2 write a"}
    assert both.waiting == ["1 write a/1", "1 write a/2"]
    assert both.run_out() == []


def test_deadlock_inherited_entry() -> None:
    """There is no deadlock: a new row of one for whose row another waits is granted at once.

    Each request stands for itself, so whatever is waited for can be surrendered.
    """
    both = drive("deadlock-inherited-entry")
    assert both.held == {"2 write a/1", "1 write a/2", "1 write a/3"}
    assert both.waits == {(2, 1)}
    both.surrender(agent(1), ("a",), both.edge("2 write a", "1 write a/2"))
    assert both.held == {"2 write a/1", "2 write a"}
    assert both.run_out() == []


def test_flat_deadlock_writes() -> None:
    """The records show the cycles of 1, 3 and 4; when the largest has yielded, 3 does.

    The largest yields whatever 1 waits for: its place in one queue, and the other lock.
    """
    both = drive("flat-deadlock-writes")
    assert both.waits == {(1, 3), (1, 4), (3, 1), (4, 3)}
    assert in_a_cycle(both) == {1, 3, 4}
    both.surrender(agent(4), ("a",), both.edge("1 write a", "4 write a"))
    both.surrender(agent(4), (2,), both.edge("1 write 2", "4 write 2"))
    assert both.held == {"3 write a", "1 write ab", "1 write 2"}
    assert in_a_cycle(both) == {1, 3}
    assert both.run_out() == ["3 surrender a"]


def test_flat_deadlock_read_write() -> None:
    """1 waits for 3 and 2, 3 for 2, and 2 for 1: first the largest yields, then 2."""
    both = drive("flat-deadlock-read-write")
    assert in_a_cycle(both) == {1, 2, 3}
    assert both.run_out() == ["3 surrender b", "2 surrender b"]


def test_flat_deadlock_five_agents() -> None:
    """The records show the cycle, and 2, who waits for nothing, is no part of it."""
    both = drive("flat-deadlock-five-agents")
    assert in_a_cycle(both) == {1, 3, 4, 5}
    surrenders = both.run_out()
    assert surrenders
    assert not any(line.startswith(("1 ", "2 ")) for line in surrenders)


def test_tree_deadlock_three_agents() -> None:
    """There is no deadlock: the new row of 1 goes ahead of the table that waits for its row."""
    both = drive("tree-deadlock-three-agents")
    assert both.held == {"1 write b", "1 write a/2/x", "1 write a/k/x"}
    assert both.waits == {(2, 1), (3, 1)}
    assert both.run_out() == []


# --- Checks of the tests ------------------------------------------------------------------------


def test_each_line_has_its_test() -> None:
    """A sequence without a test, or a test without its sequence, is noticed."""
    tests = {name.removeprefix("test_") for name in globals() if name.startswith("test_")}
    assert {name.replace("-", "_") for name in SCENARIOS} == tests - {"each_line_has_its_test"}
