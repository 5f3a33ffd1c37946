"""The lists of the original's exports, against its compiled modules."""

from __future__ import annotations

import subprocess

import pytest

from tests.api.test_exports import EXPORTS, MACHINERY
from tests.erlang.erlang import FOLDER


@pytest.mark.parametrize("module", EXPORTS)
def test_the_lists_are_complete(module: str) -> None:
    """Nothing is exported that is not in them, and nothing is in them that is not."""
    show = f"[io:format('~w/~w ', [F, A]) || {{F, A}} <- {module}:module_info(exports), F =/= module_info], halt()."
    command = ["erl", "-noshell", "-pa", FOLDER, "-eval", show]
    out = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout
    listed = set()
    for each in (*EXPORTS[module], *MACHINERY[module]):
        name, _, arities = each.partition("/")
        listed |= {f"{name}/{arity}" for arity in arities.split(",")}
    assert set(out.split()) - {"behaviour_info/1"} == listed
