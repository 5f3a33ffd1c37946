"""What runs a program says which servers it has: `locks.program.default.preset`, which the engines use."""

from __future__ import annotations

import pytest

from tests.helpers import run_script

PRESET = """
    import os
    import locks
    from locks.program import default as program

    os.environ["LOCKS_SERVERS"] = "nonsense"
    calls = []

    def say():
        calls.append(1)
        return {"servers": locks.HERE}
"""


@pytest.mark.parametrize(
    ("then", "printed"),
    [
        ("program.preset(say); node = locks.start(); print(node.scope.nodes, len(calls))", "1"),
        ("program.preset(say); print(len(calls))", "0"),
        (
            "program.preset(say); locks.start(); locks.stop(); locks.start(); print(len(calls))",
            "2",
        ),
        ("program.preset(say); locks.start(servers=locks.HERE); print(len(calls))", "0"),
    ],
    ids=["before the environment", "on first use", "for each node", "after what start is given"],
)
def test_what_is_preset(then: str, printed: str) -> None:
    """It counts for less than the arguments of `start`, and for more than the environment; it is asked for when a node starts."""
    assert run_script(PRESET + f"\n    {then}\n").split()[-1] == printed


def test_nothing_is_preset_any_more() -> None:
    """Then it is as before: the environment counts, which is wrong here."""
    script = "    program.preset(say); program.preset(None)\n    try:\n        locks.start()\n"
    script += "    except locks.errors.InvalidOption as error:\n        print(error)\n"
    assert "lock server 'nonsense' is not of the form" in run_script(PRESET + script)


def test_a_node_that_runs_has_other_servers() -> None:
    """What is preset is refused then: nobody would notice that the locks are others."""
    script = (
        "    locks.start(servers=locks.HERE)\n    from locks.program.local import LocalServer\n"
    )
    script += "    try:\n        program.preset(say, LocalServer())\n"
    script += "    except locks.MisuseError as error:\n        print(error)\n"
    assert "is running with other servers than local:" in run_script(PRESET + script)
