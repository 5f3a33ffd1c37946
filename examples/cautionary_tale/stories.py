"""Schedules of the model as stories: numbered sentences, as the tale tells its failure scenarios.

A request is one sentence, as long as nothing else happens in between. A message that arrives after its
worker has gone on is told when it arrives.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Sequence
from functools import reduce
from typing import Any

from .drafts import (
    FOURTH,
    FOURTH_BY_ID,
    Create,
    Draft,
    Ended,
    Lock,
    Read,
    Remove,
    Value,
    Write,
    first_by_id,
    first_by_time,
    next_action,
)
from .model import TOMBSTONES, Message, Move, State, Tale

__all__ = ["Teller", "story", "tell"]

NAMES = "ABCDEFGH"


def story(sentences: Iterable[str], width: int = 80) -> str:
    """Sentences as numbered lines."""
    told = list(sentences)
    digits = max(2, len(str(len(told))))
    lines = [
        textwrap.fill(
            sentence,
            width,
            initial_indent=f"{number:{digits}}. ",
            subsequent_indent=" " * (digits + 2),
        )
        for number, sentence in enumerate(told, 1)
    ]
    return "\n".join(lines)


def tell(tale: Tale, schedule: Sequence[Move]) -> Iterator[str]:
    """What happens under a schedule, as sentences."""
    formatter = Teller(tale, schedule)
    for move in schedule:
        yield from formatter.move(move)
    yield from formatter.rest()


class Teller:
    """Follows the states, and keeps what is not told yet: the servers that a request has reached."""

    def __init__(self, tale: Tale, schedule: Sequence[Move]) -> None:
        self.tale = tale
        self.state = tale.start()
        end = reduce(tale.after, schedule, self.state)
        self.timestamps = {number: place for place, number in enumerate(end.order, 1)}
        self.whose = -1  # the worker whose request is being told
        self.begun = False  # whether it has begun in this sentence
        self.reached: list[str] = []

    def move(self, move: Move) -> Iterator[str]:
        """A move happens."""
        kind, w, s = move
        before, self.state = self.state, self.tale.after(self.state, move)
        if w != self.whose or w < 0:
            yield from self.rest(before)
        if w < 0:
            yield self._of_servers(kind, s, before)
            return
        old, new = before.workers[w], self.state.workers[w]
        if kind == "step":
            yield from self.rest(before)
            yield from self._step(w, before)
            return
        message = before.servers[s].mail[w][0]
        if old.doing != "waiting" or message.request != len(old.answers):
            yield from self.rest(before)
            where = _server(s, message.fallback)
            yield f"The {_what(message)} of worker #{w + 1} arrives at {where}, too."
            return
        self.whose = w
        self.reached.append(_server(s, message.fallback))
        if new.doing == "failed":
            yield self._failed(w)
        elif new.doing != "waiting":
            yield self._succeeded(w, len(old.answers))

    def rest(self, state: State | None = None) -> Iterator[str]:
        """What is not told yet; called when something else happens."""
        if self.whose < 0:
            return
        w, reached = self.whose, self.reached
        action = self._action(w, state or self.state)
        start, begun = f"Worker #{w + 1}", self.begun
        self._forget()
        if not begun and not reached:
            return
        if isinstance(action, Read):
            yield f"{start} {'begins' if begun else 'goes on'} to read{_have(reached, 'answered by')}."
        elif isinstance(action, (Write, Create, Remove)):
            what = self._begins(w, action) if begun else "goes on"
            yield f"{start} {what}{_have(reached, 'reaches')}."

    def _forget(self) -> None:
        self.whose, self.begun, self.reached = -1, False, []

    def _action(self, w: int, state: State) -> Any:
        return next_action(self.tale.draft, w + 1, state.workers[w].answers)

    def _begins(self, w: int, action: Any) -> str:
        if isinstance(action, Remove):
            return "begins to remove the lock"
        time = self._timestamp(w, action)
        return f"begins to write its ID{f', with timestamp {time}' * bool(time)}"

    def _timestamp(self, w: int, action: Any) -> int:
        """The timestamp of a write, if it is worth telling; else 0."""
        told = isinstance(action, Write) and action.with_timestamp
        if not told and not self.tale.setting.wrong_clocks:
            return 0
        return self.timestamps.get(2 * w + isinstance(action, Remove), 0)

    def _step(self, w: int, before: State) -> Iterator[str]:
        worker = self.state.workers[w]
        if worker.doing == "processing":
            yield f"Worker #{w + 1} starts processing the data set."
        elif worker.doing == "gave up":
            yield f"Worker #{w + 1} gives up."
        elif worker.doing in ("waiting", "failed"):
            if before.workers[w].doing == "processing":
                yield f"Worker #{w + 1} has processed the data set."
            self.whose, self.begun = w, True
            if worker.doing == "failed":
                yield f"Worker #{w + 1}'s request is refused: too few primaries can be reached."
                self._forget()

    def _failed(self, w: int) -> str:
        action = self._action(w, self.state)
        primaries = sum(name in NAMES for name in self.reached)
        reached = _all(self.reached)
        self._forget()
        needed = self.tale.setting.needed(action)
        too_few = f"{primaries or 'none'} of the {needed} primaries that it takes"
        if isinstance(action, Read):
            return f"Worker #{w + 1} reads, and {too_few} answer: the read fails."
        what = "deletes the lock on" if isinstance(action, Remove) else "writes its ID to"
        return (
            f"Worker #{w + 1} {what} {reached}. That is {too_few}, so it learns that the write has "
            "failed."
        )

    def _succeeded(self, w: int, number: int) -> str:
        worker = self.state.workers[w]
        action = next_action(self.tale.draft, w + 1, worker.answers[:number])
        following = self._action(w, self.state)
        where, begun = _all(self.reached), self.begun
        self._forget()
        who = f"Worker #{w + 1}"
        end = ""
        if isinstance(following, Ended) and following.step is not None:
            end = f", and moves on to another data set (step {following.step})"
        if isinstance(action, Read):
            seen = _seen(worker.answers[number], w + 1, self.tale.draft)
            if not begun:
                return f"{who} is answered by {where} and {seen}{end}."
            return f"{who} reads the lock{' again' if number else ''} from {where} and {seen}{end}."
        if isinstance(action, Create):
            if worker.answers[number]:
                return f"{who} writes its ID, for there is no lock."
            return f"{who} finds a lock{end}."
        if isinstance(action, Remove):
            time = self._timestamp(w, action)
            return f"{who} removes the lock{f', with timestamp {time},' * bool(time)} from {where}."
        time = self._timestamp(w, action)
        if not begun:
            return f"Worker #{w + 1}'s ID{f', with timestamp {time},' * bool(time)} arrives at {where}."
        return f"{who} writes its ID{f' and timestamp {time}' * bool(time)} to the lock on {where}."

    def _of_servers(self, kind: str, s: int, before: State) -> str:
        name = _server(s)
        if kind == "down":
            lost = [_what(m) for queue in before.servers[s].mail for m in queue if not m.fallback]
            more = f"; the {' and the '.join(lost)} on the way to it is lost" if lost else ""
            return f"Server {name} becomes unreachable{more}."
        if kind == "up":
            return f"Server {name} is back."
        if kind == "hand over":
            return f"The fallback of {name} hands over to {name} what it has kept."
        if s < 0:
            return "All primaries have the tombstone; they forget it."
        return f"Server {name} forgets the tombstone."


def _what(message: Message) -> str:
    if message.kind == "read":
        return "request"
    return "deletion" if message.copy.live & TOMBSTONES else "write"


def _server(s: int, fallback: bool = False) -> str:
    return f"the fallback of {NAMES[s]}" if fallback else NAMES[s]


def _all(names: Sequence[str]) -> str:
    """Servers, in the order of their names, with fallbacks last."""
    found = sorted(names, key=lambda name: (len(name), name))
    return found[0] if len(found) == 1 else f"{', '.join(found[:-1])} and {found[-1]}"


def _have(reached: Sequence[str], verb: str) -> str:
    if not reached:
        return "; the request is on its way"
    return (
        f" and is {verb} {_all(reached)}" if verb.endswith("by") else f"; it {verb} {_all(reached)}"
    )


def _seen(lock: Lock, me: int, draft: Draft) -> str:
    """What a worker sees."""
    if not lock.exists:
        return "sees none"
    if not lock.siblings:
        return "sees its own ID" if lock.values[0].worker == me else "sees another worker's ID"
    found = f"sees a conflict of {len(lock.values)}"
    if draft is FOURTH:
        return f"{found}, {_own(first_by_time(lock), me)} timestamp being the earliest"
    if draft is FOURTH_BY_ID:
        return f"{found}, {_own(first_by_id(lock), me)} ID being the lowest"
    return found


def _own(value: Value, me: int) -> str:
    return "its own" if value.worker == me else "the other"
