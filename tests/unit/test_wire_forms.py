"""The forms of messages are a contract: their bytes are written down in `wire_forms.txt`.

The bytes of one message of each kind are kept, and the names of the fields of each record in it, so that no form changes by
mistake. `python -m tests.unit.test_wire_forms` writes the file anew; with a changed form, give `locks.node.peers.greeting.PROTOCOL`
another number, so that nodes of different versions refuse each other. The messages of elections and of
process groups are written down in `test_leader_wire.py` and `test_groups_wire.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

from locks.core import messages
from locks.model import AgentId, Deadlock, LockId, Place, RequestRecord, View
from locks.net.book import News
from locks.net.budgets import Limits
from locks.node.peers import agreement, greeting
from locks.node.ports import Servers
from locks.otp.bytes import etf
from locks.otp.bytes.terms import Pid
from locks.ranges import Size
from locks.wire import facts as questions
from locks.wire import forms, pages, values
from locks.wire.messages import pack

FILE = Path(__file__).with_name("wire_forms.txt")
THERE, HERE = "there@127.0.0.1", "here@127.0.0.1"
SENDER, RECEIVER = AgentId(7 << 12, THERE, 0), AgentId(9 << 12, HERE, 0)
VERSION = 1_700_000_000_000_000
FIXED: dict[Any, Any] = {
    AgentId: SENDER,
    LockId: ("db", 17, b"\xff", ("nested", 1.5)),
    Place: 3,
    bool: True,
    Any: "anything",
}
RECORDS: dict[str, Any] = {}  # the named tuples of which samples were made


def sample(kind: Any) -> Any:
    """A value of a type, the same each time: every optional field is there, every tuple has an element."""
    args = get_args(kind)
    if kind in FIXED:
        return FIXED[kind]
    if get_origin(kind) is Annotated:
        base, bound = args[:2]
        if base is int:
            return min(max(bound.least, VERSION), bound.most)
        if base is str:
            return THERE
        if isinstance(bound, Size):
            return (sample(get_args(base)[0]),)
        return sample(base)
    if hasattr(kind, "_fields"):
        RECORDS[f"fields of {kind.__name__}"] = kind
        hints = get_type_hints(kind, include_extras=True)
        return kind(*[sample(hints[name]) for name in kind._fields])
    if get_origin(kind) is Literal:
        return args[0]
    if get_origin(kind) is tuple:
        return tuple(sample(each) for each in args)
    if args:
        return sample(next(each for each in args if each is not type(None)))
    raise TypeError(f"say what a {kind} is")


def made() -> Iterator[tuple[str, Any]]:
    """Each form, by name, with the term of a sample."""
    watcher = Pid(5, THERE, 1)
    for kind in get_args(messages.ServerMessage):
        if kind in (messages.Watch, messages.Unwatch):
            yield f"to server: {kind.__name__}", pack(kind(watcher, FIXED[LockId]))
        else:
            yield f"to server: {kind.__name__}", pack(sample(kind))
    for kind in get_args(messages.AgentMessage):
        message = sample(kind)
        if kind is messages.Surrendered:
            message = message._replace(message=message.message._replace(agent=RECEIVER))
        yield f"to agent: {kind.__name__}", pack(message, RECEIVER)
    record = sample(RequestRecord)._replace(node=THERE, agent=RECEIVER, state="granted")
    granted = record._replace(since=VERSION, version=VERSION, blocked=False)
    yield "to agent: granted", pack(messages.RequestStates(THERE, (granted,)), RECEIVER)
    for question in questions._QUESTIONS.values():
        yield f"question: {question.__name__}", questions.pack_question(sample(question))
    for answer in questions._ANSWERS.values():
        yield f"answer: {answer.__name__}", questions.pack_answer(sample(answer))
    yield "report", forms.FORMS.of(Deadlock).pack(sample(Deadlock))
    yield "view", values.pack_view(sample(View))
    yield "page of a view", pages._PAGE.pack(sample(pages.ViewPage))
    yield (
        "greeting",
        greeting.pack_greeting(VERSION, [News(THERE, ("127.0.0.1", 9100), 0.0)], Limits()),
    )
    yield "servers", agreement.pack_servers(Servers((HERE, THERE), "majority", 1))


TERMS = dict(made())


def written() -> dict[str, str]:
    """What is written down: by name of a form, its bytes."""
    lines = FILE.read_text(encoding="utf-8").splitlines()
    return dict(line.rsplit(" = ", 1) for line in lines if " = " in line)


def test_forms_do_not_change() -> None:
    """The bytes are those that were written down. Samples have equal values in many fields, so the fields' names are, too."""
    now = {name: etf.encode(term).hex() for name, term in TERMS.items()}
    now |= {name: " ".join(kind._fields) for name, kind in RECORDS.items()}
    assert {name: form for name, form in now.items() if form != written().get(name)} == {}, (
        "the form of a message has changed. If it must, change PROTOCOL, and write the file anew: "
        "python -m tests.unit.test_wire_forms"
    )


def test_no_form_is_dropped() -> None:
    """Nothing is written down that no longer exists."""
    assert sorted(written().keys() - TERMS.keys() - RECORDS.keys() - {"protocol"}) == []
    assert written()["protocol"] == str(greeting.PROTOCOL)


def main() -> None:
    """Write the file anew."""
    lines = ["The bytes of messages between nodes; see test_wire_forms.py.", ""]
    lines += [f"protocol = {greeting.PROTOCOL}"]
    lines += [f"{name} = {' '.join(kind._fields)}" for name, kind in sorted(RECORDS.items())]
    lines += [f"{name} = {etf.encode(term).hex()}" for name, term in TERMS.items()]
    FILE.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
