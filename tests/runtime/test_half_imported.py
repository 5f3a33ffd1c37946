"""A module that another thread is importing is in `sys.modules` already, and has few of its names."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import PurePosixPath
from types import ModuleType
from typing import Any

import pytest

import locks
from locks.program import handed_down
from locks.program.several import one_of_several
from locks.runtime.bridge import foreign_loop, is_in_event_loop
from locks.runtime.first_use import loaded

LOOPS = ("asyncio.events", "trio", "twisted.internet.reactor", "curio.meta", "eventlet.hubs")
OTHERS = ("eventlet.patcher", "multiprocessing.process", "multiprocessing.context", "gunicorn.arbiter", "ray")  # fmt: skip
OF_VALUES = ("enum", "datetime", "uuid")


@pytest.fixture
def half(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """A module that was begun."""
    name: str = request.param
    module = ModuleType(name)
    spec: Any = importlib.util.spec_from_loader(name, None)
    spec._initializing = True  # as Python marks it
    module.__spec__ = spec
    monkeypatch.setitem(sys.modules, name, module)
    return name


@pytest.mark.parametrize("half", [*LOOPS, *OTHERS, *OF_VALUES], indirect=True)
def test_a_lock_while_another_thread_imports_a_module(half: str) -> None:
    """It is as if the module were not there."""
    with locks.Lock(("half", half)):
        assert foreign_loop() is None
        assert not is_in_event_loop()
    one_of_several(0)
    handed_down.hand_down(None)
    with pytest.raises(locks.errors.InvalidLockId, match="PurePosixPath"):
        locks.Lock(("half", PurePosixPath("a")))


def test_modules_of_python_are_marked_so_while_they_are_imported(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the fixture does is what Python does: a module that looks at itself while it is run is not loaded."""
    code = "from locks.runtime.first_use import loaded\nhalf = loaded(__name__)\n"
    (tmp_path / "looks_at_itself.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    made = importlib.import_module("looks_at_itself")
    assert made.half is None
    assert loaded("looks_at_itself") is made
