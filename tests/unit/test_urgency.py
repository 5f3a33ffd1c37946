"""Which frames overtake others: told from their bytes, and what is told must be true."""

from __future__ import annotations

import random
from typing import Any

import pytest

from locks.core.messages import (
    Inquire,
    RaiseVersion,
    Release,
    Remove,
    Request,
    StandingElsewhere,
    Surrender,
    Watch,
)
from locks.model import AgentId
from locks.otp.bytes import control, etf
from locks.otp.bytes.behaviours import CALL, CAST
from locks.otp.bytes.frames import pack_reg_send, pack_send
from locks.otp.bytes.terms import Atom, Pid, Reference
from locks.otp.links.backlog import NOBODY
from locks.wire.messages import pack
from locks.wire.urgency import kind_of

NODE = "p@h"
ME = Pid(1, NODE, 7)
SERVER = Atom("locks_server")


def agent(number: int) -> AgentId:
    """One of many agents of a node."""
    return AgentId(number, NODE, number & 0xFFF)


def cast(message: Any) -> bytes:
    """The frame of a message to a lock server."""
    return pack_reg_send(ME, SERVER, etf.encode((CAST, pack(message))))


def said_by(who: AgentId) -> dict[bytes, bool]:
    """What an agent may say to a lock server, and whether that is urgent."""
    usual: list[Any] = [
        Request(who, "c", ("a", 1), "write"),
        Surrender(who, ("a",)),
        Inquire(who),
    ]
    usual.append(RaiseVersion(who, ("a",), 1, 2))
    urgent: list[Any] = [Remove(who), Release(who, ("a", "b")), Release(who, (1,), "read")]
    urgent.append(StandingElsewhere(who, True, False))
    return dict.fromkeys(map(cast, usual), False) | dict.fromkeys(map(cast, urgent), True)


NUMBERS = [1, 7, 255, 256, 70_000, 1 << 31, 1 << 40, 1_700_000_000_000_000 << 12, 2**63 + 5]


@pytest.mark.parametrize("number", NUMBERS)
def test_an_agent_is_told_from_its_messages(number: int) -> None:
    """All of them have the same sender, whatever they say and however its number is written; another agent's have another one."""
    kinds = {frame: kind_of(frame) for frame in said_by(agent(number))}
    senders = {kind[0] for kind in kinds.values() if kind is not None}
    assert None not in kinds.values()
    assert len(senders) == 1
    for other in (*NUMBERS, number + 1):
        for frame in said_by(agent(other)) if other != number else ():
            kind = kind_of(frame)
            assert kind is not None
            assert kind[0] not in senders
    for frame, urgent in said_by(agent(number)).items():
        assert kinds[frame] == (*senders, urgent)


def test_what_is_not_an_agents_message_is_overtaken_by_nothing() -> None:
    """Calls, monitors, links, exits, messages to other names; what is for a process has to do with no lock server."""
    pid, reference = Pid(5, "s@h", 7), Reference(NODE, 7, (1, 0, 0))
    call = (CALL, (ME, reference), (Atom("$locks"), Atom("remove"), 1))
    for frame in (
        pack_reg_send(ME, SERVER, etf.encode(call)),
        pack_reg_send(ME, Atom("pg"), etf.encode((CAST, pack(Remove(agent(1)))))),
        control.MonitorP(ME, SERVER, reference).pack(),
        control.Link(ME, pid).pack(),
        control.Exit(ME, pid, Atom("normal")).pack(),
        control.UnlinkId(1, ME, pid).pack(),
        pack_reg_send(ME, SERVER, etf.encode((CAST, (Atom("$locks"), Atom("remove"), "x")))),
    ):
        assert kind_of(frame) is None
    assert kind_of(pack_send(pid, etf.encode((CAST, pack(Remove(agent(1))))))) == (NOBODY, False)


def test_a_watcher_is_no_agent_that_is_urgent() -> None:
    """What a process watches is overtaken by what agents say, and overtakes nothing."""
    kind = kind_of(cast(Watch(Pid(9, NODE, 7), ("a",))))
    assert kind is not None
    assert not kind[1]


@pytest.mark.parametrize("seed", range(5))
def test_any_bytes_have_a_kind_or_none(seed: int) -> None:
    """Frames that are cut off or changed anywhere: nothing is raised."""
    draw = random.Random(seed)
    for frame in said_by(agent(1 << 50)):
        for _ in range(200):
            changed = bytearray(frame[: draw.randrange(len(frame) + 1)])
            for _ in range(draw.randrange(3)):
                if changed:
                    changed[draw.randrange(len(changed))] = draw.randrange(256)
            kind_of(bytes(changed))
