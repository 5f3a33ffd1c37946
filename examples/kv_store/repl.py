"""The store by hand: several sessions in one terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TextIO

from locks.errors import LocksError

from .keys import END
from .sessions import Session, settle
from .store import Store, Transaction

__all__ = ["Repl"]

HELP = """\
begin             begin a transaction             commit            make its writes visible
begin at T        begin a snapshot at T           abort             undo its writes
get KEY           show a value                    put KEY VALUE     write a value
delete KEY        take the value away             scan [FROM [TO]]  show all from FROM up to TO
locks             show the lock table             vacuum T          drop what only older reads see
help              show this                       quit              abort what is open, and leave
Without `begin`, each command is a transaction of its own.
NAME: COMMAND     run it in the session NAME, and make it the current one. A session whose command
                  waits goes on as soon as it can; others can be used meanwhile.
"""


class Repl:
    """Reads commands and says what happened.

    Args:
        store: The store.
        out: Where to print.
        echo: Whether to repeat each command, because it was not typed in a terminal.
    """

    def __init__(self, store: Store, out: TextIO, *, echo: bool = False) -> None:
        self._store = store
        self._out = out
        self._echo = echo
        self._sessions: dict[str, Session] = {}
        self._waiting: dict[str, tuple[Any, Any]] = {}  # what was said last
        self._current = "main"

    def run(self, lines: Iterable[str]) -> None:
        """Run commands until there are none, or one is `quit`."""
        self._prompt()
        for line in lines:
            if self._echo:
                self._say(line.rstrip("\n"))
            words = [] if line.lstrip().startswith("#") else line.split()
            if words == ["quit"]:
                break
            if words:
                self.command(words)
            self._prompt()
        else:
            self._say("")  # the line of the last prompt
        self.close()

    def command(self, words: list[str]) -> None:
        """Run one command and say what has happened until nothing moves any more."""
        name, colon, rest = words[0].partition(":")
        if colon and name:
            self._current = name
            words = [rest, *words[1:]] if rest else words[1:]
            if not words:
                return
        try:
            job = self._job(words[0], words[1:])
            if job is not None:
                session = self._sessions.get(self._current)
                if session is None:
                    session = self._sessions[self._current] = Session(self._store, self._current)
                if session.busy:
                    self._say(f"{session.name}: still waiting; use another session meanwhile")
                else:
                    session.start(lambda: job(session))
        except LocksError as error:
            self._say(f"error: {error}")
        self._report()

    def close(self) -> None:
        """Abort what is open and end the sessions."""
        # A session that another one waits for is free, or waits for a third one: there is no cycle.
        while any(session.busy for session in self._sessions.values()):
            for session in self._sessions.values():
                if not session.busy and session.tx is not None:
                    session.tx.abort()
            settle(self._sessions.values())
            self._report()
        for session in self._sessions.values():
            if session.tx is not None:
                session.tx.abort()
            session.stop()

    # --- Commands

    def _job(self, name: str, arguments: list[str]) -> Callable[[Session], str] | None:
        """Return a session's job; `None` if it is done already."""
        if name == "put" and len(arguments) > 2:
            arguments = [arguments[0], " ".join(arguments[1:])]
        if name in ("help", "locks") and not arguments:
            self._say(HELP.rstrip() if name == "help" else self._locks())
        elif name == "vacuum" and len(arguments) == 1 and is_timestamp(arguments[0]):
            self._say(f"{self._store.vacuum(int(arguments[0]))} versions removed")
        elif name == "begin" and arguments == []:
            return lambda session: begin(session, None)
        elif name == "begin" and arguments[:1] == ["at"] and is_timestamp(*arguments[1:]):
            return lambda session: begin(session, int(arguments[1]))
        elif name in ("commit", "abort") and not arguments:
            return lambda session: end(session, name)
        elif name in OPERATIONS and len(arguments) in OPERATIONS[name][0]:
            operation = OPERATIONS[name][1]
            return lambda session: in_transaction(session, lambda tx: operation(tx, *arguments))
        else:
            self._say(f"no such command: {' '.join([name, *arguments])}; try help")
        return None

    def _locks(self) -> str:
        lines = []
        for state in self._store.table.states():
            parts = [state.key + ":"]
            if state.holder is not None:
                parts.append(f"held by {state.holder.id} at {state.holder.timestamp};")
            if state.reservation is not None:
                parts.append(f"reserved for {state.reservation.txn.id};")
            for what, places in (
                ("readers", state.waiting_readers),
                ("writers", state.queued_writers),
            ):
                if places:
                    parts.append(f"{what}: {', '.join(str(place.txn.id) for place in places)};")
            lines.append(" ".join(parts).rstrip(";"))
        return "\n".join(lines) or "no locks"

    # --- Output

    def _report(self) -> None:
        settle(self._sessions.values())
        for name, session in self._sessions.items():
            result = session.take_result()
            if result is not None:
                self._waiting.pop(name, None)
                wrong = isinstance(result, LocksError)
                self._say(
                    "\n".join(f"{name}: {'error: ' * wrong}{x}" for x in str(result).split("\n"))
                )
            elif (wait := session.waits_for) is not None and self._waiting.get(name) != wait:
                self._waiting[name] = wait
                self._say(f"{name}: waiting for transaction {wait[0]} at {wait[1]} ...")

    def _say(self, what: str) -> None:
        print(what, file=self._out)

    def _prompt(self) -> None:
        print("> ", end="", file=self._out, flush=True)


def is_timestamp(*words: str) -> bool:
    return len(words) == 1 and words[0].isdecimal() and len(words[0]) < 20


def begin(session: Session, at: int | None) -> str:
    if session.tx is not None and session.tx.state == "open":
        return f"transaction {session.tx.id} is open; commit or abort it first"
    session.tx = session.store.begin(at=at)
    kind = "transaction" if at is None else "snapshot"
    return f"{kind} {session.tx.id} at {session.tx.timestamp}"


def end(session: Session, how: str) -> str:
    tx, session.tx = session.tx, None
    if tx is None:
        return "no transaction; begin one"
    if how == "commit":
        tx.commit()
        return f"transaction {tx.id} committed at {tx.timestamp}"
    tx.abort()
    return f"transaction {tx.id} aborted"


def in_transaction(session: Session, operation: Callable[[Transaction], str]) -> str:
    tx = session.tx
    if tx is None:
        try:
            with session.store.begin() as session.tx:
                return operation(session.tx)
        finally:
            session.tx = None
    before = tx.timestamp
    try:
        result = operation(tx)
    finally:
        if tx.state != "open":
            session.tx = None
    return result + (f" (moved up to {tx.timestamp})" if tx.timestamp != before else "")


def get(tx: Transaction, key: str) -> str:
    value = tx.get(key)
    return "nothing" if value is None else value


def put(tx: Transaction, key: str, value: str) -> str:
    tx.put(key, value)
    return "ok"


def delete(tx: Transaction, key: str) -> str:
    tx.delete(key)
    return "ok"


def scan(tx: Transaction, start: str = "", end: str = END) -> str:
    return "\n".join(f"{key} = {value}" for key, value in tx.scan(start, end)) or "nothing"


OPERATIONS: dict[str, tuple[tuple[int, ...], Callable[..., str]]] = {
    "get": ((1,), get),
    "put": ((2,), put),
    "delete": ((1,), delete),
    "scan": ((0, 1, 2), scan),
}
