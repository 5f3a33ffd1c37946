"""The questions about the drafts: the tale's claims, one by one, and what the search says of each.

A finding is a question about a setting: is it safe, is it live, is it free of locks that nobody holds?
`locks_lab.explorer.shortest` answers it for every schedule. If the answer is no, there is a shortest schedule
that shows it, and a story of it.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from functools import cache
from typing import Any, Literal, NamedTuple

from locks.errors import InvalidOption
from locks_lab.explorer.shortest import Found, shortest
from locks_lab.worlds.host import Violation

from .drafts import (
    DRAFTS,
    FIRST,
    FOURTH,
    FOURTH_BY_ID,
    REGISTER,
    SECOND,
    THIRD,
    Draft,
    Ended,
    next_action,
)
from .model import Move, Setting, State, Tale
from .several import Several, tell_several
from .stories import story, tell

__all__ = [
    "ANSWERS",
    "OTHERS",
    "QUORUMS",
    "RIGHT",
    "STORES",
    "TALES",
    "WITH_OUTAGES",
    "Answer",
    "Question",
    "actions",
    "answer",
    "follow",
    "quorums",
    "table",
]

Property = Literal["safe", "live", "free", "some"]


class Question(NamedTuple):
    """A question.

    Attributes:
        title: The question, as a title of its story.
        setting: What is explored.
        wanted: Safe: never two workers at once. Live: a worker processes the data set. Free: at the end
            there is no lock that nobody holds and that made another worker move on. Some: of several
            data sets, one is processed.
    """

    title: str
    setting: Setting
    wanted: Property


class Answer(NamedTuple):
    """The answer to a question.

    Attributes:
        question: The question.
        found: What the search found.
    """

    question: Question
    found: Found[Any, Any]

    @property
    def moves(self) -> int | None:
        """The number of moves of the shortest schedule that goes wrong; `None` if there is none."""
        return None if self.found.violation is None else len(self.found.schedule)

    def __str__(self) -> str:
        """The story, or that there is none."""
        found = self.found
        lines = [self.question.title, ""]
        if found.violation is None:
            lines += [f"No schedule goes wrong: {found.states:,} states, all of them visited."]
        else:
            conclusion = (
                f"So {found.violation}. It takes {len(found.schedule)} moves, and no schedule with fewer "
                f"goes wrong ({found.states:,} states)."
            )
            lines += [story(_told(self.question.setting, found.schedule)), ""]
            lines += textwrap.wrap(conclusion, 80)
        return "\n".join(lines)


@cache
def answer(question: Question, limit: int = 500_000, told: bool = True) -> Answer:
    """Search every schedule.

    Args:
        question: The question.
        limit: The most states.
        told: Whether the answer will be told: then the schedule is the one that reads best.

    Raises:
        InvalidOption: `wanted` is unknown, or the setting makes no sense.
        TooManyStates: There are more than `limit` states.
    """
    model: Tale | Several
    setting = question.setting
    model = Several(setting) if setting.data_sets != 1 else Tale(setting)
    checks: dict[str, Callable[[Any, Any], None]] = {
        "safe": model.check_safe,
        "live": model.check_live,
        "free": model.check_free,
    }
    if isinstance(model, Several):
        checks["some"] = model.check_some
    if question.wanted not in checks:
        raise InvalidOption(f"wanted={question.wanted!r}: give one of {', '.join(checks)}")
    check = checks[question.wanted]
    found: Found[Any, Any] = shortest(
        model, check, limit, model.key, _whose if told else None, model.price
    )
    return Answer(question, found)


def _told(setting: Setting, schedule: Sequence[Any]) -> Iterator[str]:
    if setting.data_sets != 1:
        return tell_several(Several(setting), schedule)
    return tell(Tale(setting), schedule)


def _whose(move: Sequence[Any]) -> Hashable:
    return move[1]  # type: ignore[no-any-return]


# --- The questions ------------------------------------------------------------------------------


def _drafts() -> Iterator[tuple[Draft, tuple[Question, ...]]]:
    titles: dict[Draft, dict[Property, str]] = {
        draft: {
            "safe": f"Draft {draft.name}: two workers on one data set",
            "live": f"Draft {draft.name}: does somebody process the data set?",
        }
        for draft in DRAFTS
    }
    titles[THIRD] = {
        "safe": "Draft 3: can two workers be at one data set?",
        "live": "Draft 3: both workers move on",
    }
    wanted: tuple[Property, ...] = ("safe", "live")
    for draft in DRAFTS:
        yield (
            draft,
            tuple(Question(titles[draft][each], Setting(draft), each) for each in wanted),
        )


# Of each draft: whether it is safe, and whether it is live, with two workers, and nothing fails.
ANSWERS = dict(_drafts())

IN_TURN = Setting(FIRST, in_turn=True)

# What the tale says at its end, and more of the kind.
OTHERS = {
    "left behind": Question(
        "Draft 4 leaves the lock of the worker that moved on, though nothing fails",
        Setting(FOURTH),
        "free",
    ),
    "unclean write": Question(
        "The unclean write: it fails for its worker, and is there all the same",
        IN_TURN._replace(outages=2, lossless=True),
        "live",
    ),
    "unclean write, shorter": Question(
        "A shorter one: writes are lost on the way, and no fallback is needed",
        IN_TURN._replace(outages=2),
        "live",
    ),
    "refused": Question(
        "Riak counts the primaries first: what is refused is not written",
        IN_TURN._replace(outages=2, lossless=True, refuses=True),
        "live",
    ),
    "refused, lost": Question(
        "But that is no help if servers become unreachable while the write is on its way",
        IN_TURN._replace(outages=2, refuses=True),
        "live",
    ),
    "resurrected lock": Question(
        "The resurrected lock: one server misses its deletion, and the others forget it",
        IN_TURN._replace(outages=1, forget="each"),
        "free",
    ),
    "resurrected by handoff": Question(
        "The same where tombstones stay until all primaries have one: by hinted handoff",
        IN_TURN._replace(outages=1, forget="all"),
        "free",
    ),
    "kept tombstones": Question(
        "Where tombstones are kept for ever: does the lock come back?",
        IN_TURN._replace(outages=1),
        "free",
    ),
}

# What stays wrong whatever the store is, and what a store can make wrong, or right.
STORES = {
    "no quorum": Question(
        "Draft 3 where one answer is enough: two workers on one data set",
        Setting(THIRD, pr=1, pw=1),
        "safe",
    ),
    "all of them": Question(
        "Where all primaries have to answer, one outage is enough for an unclean write",
        IN_TURN._replace(outages=1, lossless=True, pr=3, pw=3),
        "live",
    ),
    "right clocks": Question(
        "Draft 4 where clocks are right, and no write is late: two on one data set?",
        Setting(FOURTH, in_time=True),
        "safe",
    ),
    "wrong clocks": Question(
        "Draft 4 where clocks are wrong, and no write is late: two on one data set",
        Setting(FOURTH, in_time=True, wrong_clocks=True),
        "safe",
    ),
    "deleted too early": Question(
        "Draft 2 where clocks are wrong: the write that was lost comes back",
        Setting(SECOND, wrong_clocks=True),
        "free",
    ),
    "two data sets": Question(
        "Draft 3 with two data sets: both workers move on from each",
        Setting(THIRD, servers=1, data_sets=2),
        "some",
    ),
    "two data sets, spread": Question(
        "Draft 3 with two data sets, where workers begin apart: is one processed?",
        Setting(THIRD, servers=1, data_sets=2, spread=True),
        "some",
    ),
}

# What takes longer: the same with one outage, at any moment.
WITH_OUTAGES = {
    f"{draft.name}, {question.wanted}": question._replace(
        title=f"{question.title}, with one outage", setting=Setting(draft, outages=1)
    )
    for draft, questions in ANSWERS.items()
    for question in questions
    if (draft is THIRD) == (question.wanted == "safe")
}

# A store that can look and write in one step: no failure may be found in it.
RIGHT = {
    wanted: Question(
        f"A register, three workers: {wanted}", Setting(REGISTER, 3, servers=1), wanted
    )
    for wanted in ("safe", "live", "free")
}

# --- The tale's own schedules -------------------------------------------------------------------

Scene = tuple[int, int, str]

# Its failure scenarios: which worker does which step of its draft. "begins": its request is on its way.
TALES: dict[Draft, tuple[Scene, ...]] = {
    FIRST: ((1, 1, ""), (2, 1, ""), (2, 3, ""), (2, 4, ""), (1, 3, ""), (1, 4, "")),
    SECOND: (
        *((1, 1, ""), (2, 1, ""), (2, 3, ""), (2, 4, ""), (1, 3, ""), (1, 4, "")),
        *((2, 6, ""), (1, 6, "")),
    ),
    THIRD: ((1, 1, ""), (2, 1, ""), (2, 3, ""), (1, 3, ""), (1, 4, ""), (2, 4, "")),
    FOURTH: (
        *((1, 1, ""), (2, 1, ""), (1, 3, "begins"), (2, 3, ""), (2, 4, ""), (2, 6, "")),
        *((1, 3, ""), (1, 4, ""), (1, 6, "")),
    ),
    FOURTH_BY_ID: (
        *((1, 1, ""), (2, 1, ""), (2, 3, ""), (2, 4, ""), (2, 6, "")),
        *((1, 3, ""), (1, 4, ""), (1, 6, "")),
    ),
}


def follow(tale: Tale, scenes: Iterable[Scene]) -> tuple[list[Move], State]:
    """Act scenes, with requests answered by the first servers that can; the moves, and the end.

    Raises:
        Violation: The worker's next step is another one.
    """
    state, moves = tale.start(), []

    def do(move: Move) -> None:
        nonlocal state
        moves.append(move)
        state = tale.after(state, move)

    for number, step, how in scenes:
        w = number - 1
        if state.workers[w].doing != "waiting":
            do(("step", w, -1))
        action = next_action(tale.draft, number, state.workers[w].answers)
        if isinstance(action, Ended) or action.step != step:
            raise Violation(f"worker {number} does {action}, and not step {step}")
        servers = iter(range(len(state.servers)))
        while how != "begins" and state.workers[w].doing == "waiting":
            do(("arrive", w, next(servers)))
    return moves, state


def actions(tale: Tale, schedule: Iterable[Move]) -> list[tuple[int, int]]:
    """Which worker has done which step of its draft, in the order in which they were done."""
    state, found = tale.start(), []
    for move in schedule:
        w = move[1]
        before = state.workers[w]
        state = tale.after(state, move)
        after = state.workers[w]
        if w < 0 or after == before:
            continue
        done = len(after.answers) > len(before.answers) and before.doing == "waiting"
        if done or after.doing == "processing":
            action = next_action(tale.draft, w + 1, before.answers)
            if not isinstance(action, Ended):
                found.append((w + 1, action.step))
    return found


# --- The table ----------------------------------------------------------------------------------


def table(drafts: Iterable[Draft] = DRAFTS) -> str:
    """The findings on the drafts: a line for each."""
    lines = [f"{'draft':7}  {'safe':18}  {'live':18}  shortest failure", "-" * 79]
    for draft in drafts:
        safe, live = map(answer, ANSWERS[draft])
        failure = (
            f"{safe.moves} moves: two at once" if safe.moves else f"{live.moves} moves: nobody"
        )
        lines.append(f"{draft.name:7}  {_verdict(safe):18}  {_verdict(live):18}  {failure}")
    return "\n".join(lines)


# The stores of the table: how many primaries there are, and how many have to answer.
QUORUMS = ((1, 1, 1), (3, 1, 1), (3, 1, 3), (3, 3, 1), (3, 2, 2), (3, 3, 3), (5, 3, 3))


def quorums() -> str:
    """How each draft fares in some stores: a line for each store."""
    drafts = DRAFTS[:4]
    names = "".join(f"{draft.name:>9}" for draft in drafts)
    lines = [
        f"{'':27}two at once, in draft{'':13}nobody, in",
        f"n_val  pr       pw       {names}    draft 3",
        "-" * 72,
    ]
    for servers, pr, pw in QUORUMS:
        settings = [Setting(draft, servers=servers, pr=pr, pw=pw) for draft in drafts]
        questions = [Question("", setting, "safe") for setting in settings]
        questions.append(questions[2]._replace(wanted="live"))
        cells = [str(answer(question, told=False).moves or "never") for question in questions]
        store = f"{servers:<5}  {called(pr, servers):7}  {called(pw, servers):7}  "
        lines.append(f"{store}{''.join(f'{cell:>9}' for cell in cells[:-1])}    {cells[-1]:>7}")
    return "\n".join(lines)


def called(number: int, servers: int) -> str:
    """How a number of primaries is called."""
    return {servers // 2 + 1: "quorum", 1: "one", servers: "all"}.get(number, str(number))


def _verdict(found: Answer) -> str:
    return f"{'no' if found.moves else 'yes'} ({found.found.states:,} states)"
