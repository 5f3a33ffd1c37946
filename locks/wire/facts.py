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
    AskMembers,
    AskNode,
    AskRequests,
    Break,
    Broken,
    ClientPage,
    DeadlockPage,
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


def _forms(*kinds: type[Any]) -> dict[type[Any], tuple[str, Form]]:
    tags = {kind: tag_of(kind) for kind in kinds}
    return {kind: (tag, FORMS.message(kind, OURS, constant(tag))) for kind, tag in tags.items()}


_QUESTIONS = _forms(AskRequests, AskDeadlocks, AskNode, AskClients, AskMembers, Break)
_ANSWERS = _forms(RequestPage, DeadlockPage, NodeFact, ClientPage, MemberPage, Broken, Untold)
_UNPACK_QUESTION = {tag: form.unpack for tag, form in _QUESTIONS.values()}
_UNPACK_ANSWER = {tag: form.unpack for tag, form in _ANSWERS.values()}


def is_question(term: Any) -> bool:
    """Whether a term claims to be one."""
    return is_ours(term) and type(term[1]) is Atom and term[1].name in _UNPACK_QUESTION


def pack_question(question: Question) -> Any:
    """The term of a question; raises `EncodeError` when it is encoded if it has none."""
    return _QUESTIONS[type(question)][1].pack(question)


def unpack_question(term: Any) -> Question:
    """The question that a term stands for, which `is_question`.

    Raises:
        BadMessage: A field of it is wrong.
    """
    question: Question = _UNPACK_QUESTION[term[1].name](term)
    return question


def pack_answer(answer: Answer) -> Any:
    """The term of an answer."""
    return _ANSWERS[type(answer)][1].pack(answer)


def unpack_answer(term: Any) -> Answer:
    """The answer that a term stands for.

    Raises:
        BadMessage: It stands for none.
    """
    if not (is_ours(term) and type(term[1]) is Atom and term[1].name in _UNPACK_ANSWER):
        raise BadMessage(f"{brief(term)} should be what a lock server tells")
    answer: Answer = _UNPACK_ANSWER[term[1].name](term)
    return answer
