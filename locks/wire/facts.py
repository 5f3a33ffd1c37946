"""What lock servers are asked by observers, and what they tell them, as terms.

Each question is a call of the lock server; a node that does not know it answers that it does not, as it does to whatever
it does not know.
"""

from __future__ import annotations

from typing import Any

from locks.core.facts import (
    Answer,
    AskClients,
    AskDeadlocks,
    AskMark,
    AskMarks,
    AskMembers,
    AskNode,
    AskRequests,
    Break,
    Broken,
    ClientPage,
    DeadlockPage,
    MarkFact,
    MarkPage,
    MemberPage,
    NodeFact,
    Question,
    RequestPage,
    Untold,
)
from locks.otp.bytes.etf_decode import constant
from locks.otp.bytes.fields import BadMessage, Form, brief, tag_of
from locks.otp.bytes.terms import Atom
from locks.wire.forms import FORMS, OURS, is_ours

__all__ = ["is_question", "pack_answer", "pack_question", "unpack_answer", "unpack_question"]


def _by_tag(*kinds: type[Any]) -> dict[str, type[Any]]:
    return {tag_of(kind): kind for kind in kinds}


_QUESTIONS = _by_tag(
    *(AskRequests, AskDeadlocks, AskNode, AskClients, AskMembers, Break, AskMark, AskMarks),
)
_ANSWERS = _by_tag(
    *(RequestPage, DeadlockPage, NodeFact, ClientPage, MemberPage, Broken, Untold),
    *(MarkFact, MarkPage),
)


_forms: dict[type[Any], Form] = {}


def _form(kind: type[Any]) -> Form:
    """How values of a class become terms, and back. Made when it is first needed: few nodes are asked, and that takes time."""
    form = _forms.get(kind)
    if form is None:
        form = _forms[kind] = FORMS.message(kind, OURS, constant(tag_of(kind)))
    return form


def is_question(term: Any) -> bool:
    """Whether a term claims to be one."""
    return is_ours(term) and type(term[1]) is Atom and term[1].name in _QUESTIONS


def pack_question(question: Question) -> Any:
    """The term of a question; raises `EncodeError` when it is encoded if it has none."""
    return _form(type(question)).pack(question)


def unpack_question(term: Any) -> Question:
    """The question that a term stands for, which `is_question`.

    Raises:
        BadMessage: A field of it is wrong.
    """
    question: Question = _form(_QUESTIONS[term[1].name]).unpack(term)
    return question


def pack_answer(answer: Answer) -> Any:
    """The term of an answer."""
    return _form(type(answer)).pack(answer)


def unpack_answer(term: Any) -> Answer:
    """The answer that a term stands for.

    Raises:
        BadMessage: It stands for none.
    """
    if not (is_ours(term) and type(term[1]) is Atom and term[1].name in _ANSWERS):
        raise BadMessage(f"{brief(term)} should be what a lock server tells")
    answer: Answer = _form(_ANSWERS[term[1].name]).unpack(term)
    return answer
