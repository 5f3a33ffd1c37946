"""The scripts of simulated clients, their steps, and their notation.

A script is a list of steps. As text, steps are separated by semicolons:

    write a; read b/1; unlock a
    write a on n1,n2 majority; token a; try write b; await

`a*2` is a counted lock with two units. A step may be given as a plain tuple, too: `("lock", ("a",),
"write")`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Literal, NamedTuple, get_args

from locks.errors import InvalidOption
from locks.lock_ids import counted
from locks.model import MODES, REQUIREMENTS, LockId, Mode, Require, show

__all__ = ["Script", "Step", "StepKind", "parse_lock_id", "parse_script", "script", "write_script"]

StepKind = Literal["lock", "try", "ask", "await", "token", "unlock", "surrender", "again"]


class Step(NamedTuple):
    """A step of a client.

    Attributes:
        kind: `"lock"` requests a lock, and waits until the client holds everything that it has
            requested. `"try"` does the same, but may give up waiting at any moment. `"ask"`
            requests and continues. `"await"` waits until the client holds everything that it has
            requested. `"token"` waits for the fencing token of a lock, if the client holds it.
            `"unlock"` releases, or cancels. `"surrender"` gives up a lock without a deadlock, if
            the client holds it, and waits to get it again. `"again"` ends the transaction and
            begins another one. At the end of its script, a client releases all its locks.
        lock_id: The lock; empty for `"await"` and `"again"`.
        mode: The requested mode.
        nodes: The requested nodes; if empty, the client's own node.
        require: How many of these nodes are needed.
    """

    kind: StepKind
    lock_id: LockId = ()
    mode: Mode = "write"
    nodes: tuple[str, ...] = ()
    require: Require = "all"

    @property
    def asks(self) -> bool:
        """Whether it requests a lock."""
        return self.kind in ("lock", "try", "ask")

    def __str__(self) -> str:
        if not self.lock_id:
            return self.kind
        if not self.asks:
            return f"{self.kind} {show(self.lock_id)}"
        words = ([] if self.kind == "lock" else [self.kind]) + [self.mode, show(self.lock_id)]
        if self.nodes:
            words += ["on", ",".join(self.nodes), self.require]
        return " ".join(words)


Script = tuple[Step, ...]

_ASKING = re.compile(rf"(?:(try|ask|lock) )?({'|'.join(MODES)}) (\S+)(?: on (\S+)(?: (\S+))?)?")
_OTHER = re.compile(r"(token|unlock|surrender) (\S+)|(await|again)")


def script(steps: str | Iterable[Step | tuple[Any, ...]]) -> Script:
    """A script from its text, or from steps or plain tuples."""
    if isinstance(steps, str):
        return parse_script(steps)
    found = tuple(Step(*step) for step in steps)
    for step in found:
        if step.kind not in get_args(StepKind):
            raise InvalidOption(
                f"step {step!r} is unknown; use one of {', '.join(get_args(StepKind))}", step=step
            )
    return found


def parse_script(text: str) -> Script:
    """A script from its text.

    Raises:
        InvalidOption: There is a step that can't be read.
    """
    return tuple(_parse_step(" ".join(each.split())) for each in text.split(";") if each.strip())


def write_script(steps: Iterable[Step]) -> str:
    """A script as text; `parse_script` reads it."""
    return "; ".join(map(str, steps))


def parse_lock_id(text: str) -> LockId:
    """A lock id as `show` writes it; elements that are digits are numbers."""
    plain, _, units = text.partition("*")
    found = tuple(int(part) if part.isdigit() else part for part in plain.split("/") if part)
    return counted(found, int(units)) if found and units.isdigit() and int(units) else found


def _parse_step(text: str) -> Step:
    if found := _ASKING.fullmatch(text):
        kind, mode, lock_id, nodes, require = found.groups()
        if parse_lock_id(lock_id) and (require is None or require in REQUIREMENTS):
            return Step(
                kind or "lock",  # type: ignore[arg-type]
                parse_lock_id(lock_id),
                mode,  # type: ignore[arg-type]
                tuple(nodes.split(",")) if nodes else (),
                require or "all",
            )
    elif found := _OTHER.fullmatch(text):
        kind, lock_id, alone = found.groups()
        if alone or parse_lock_id(lock_id):
            return Step(alone or kind, parse_lock_id(lock_id or ""))  # type: ignore[arg-type]
    raise InvalidOption(
        f'step {text!r} can\'t be read; steps are "write a", "read a/1", "try write a", '
        '"ask write a on n1,n2 majority", "token a", "unlock a", "surrender a", "await" and "again"',
        step=text,
    )
