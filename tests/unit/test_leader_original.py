"""What the original's candidates say, as values and back; and what stands between them and one of ours."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from locks.otp.bytes.etf import decode, encode
from locks.otp.bytes.terms import Atom, Pid, Reference
from locks_leader.core import messages as ours
from locks_leader.original.bridge import (
    MOST_KEPT,
    Command,
    Hear,
    Holder,
    Originals,
    TellOriginal,
)
from locks_leader.original.messages import (
    AffirmLeader,
    AmLeader,
    AmWorker,
    BadOriginalMessage,
    ElectionRef,
    EnsureSync,
    LeaderGone,
    LeaderReply,
    LeaderUncertain,
    OriginalFromLeader,
    Vector,
    pack,
    parse,
)

E, F, P = "e@h", "f@h", "p@h"
ME, MY_AGENT = Pid(1 << 60, P, 3), Pid((1 << 60) + 1, P, 3)
HER, HER_AGENT = Pid(99, E, 7), Pid(100, E, 7)
HIM, HIS_AGENT = Pid(97, F, 7), Pid(98, F, 7)
TAG = Reference(E, 7, (1, 2, 3))
NEVER_SEEN = Vector(None, ())

# --- As really received ---------------------------------------------------------------------------


LEADER = Atom("locks_leader")
SEEN = {Atom("leader"): HER_AGENT, Atom("vector"): [(Atom(E), 8), (Atom(P), 1795263643729306)]}
REF_TERM = (HER, -576460750317629, SEEN)
REF = ElectionRef(HER, -576460750317629, Vector(HER_AGENT, ((E, 8), (P, 1795263643729306))))
SYNC = (Atom("sync"), {})

RECEIVED = [
    ((LEADER, Atom("am_leader"), HER, REF_TERM, SYNC), AmLeader(HER, REF, SYNC)),
    ((LEADER, Atom("from_leader"), HER, REF_TERM, SYNC), OriginalFromLeader(HER, REF, SYNC)),
    ((LEADER, Atom("affirm_leader"), HER, REF_TERM), AffirmLeader(HER, REF)),
    ((LEADER, Atom("leader_uncertain"), HIM, [], []), LeaderUncertain(HIM)),
    ((LEADER, Atom("leader_uncertain"), HER, [HIM], []), LeaderUncertain(HER, (HIM,))),
    (
        (LEADER, Atom("ensure_sync"), HIM, Atom("candidate"), REF_TERM),
        EnsureSync(HIM, "candidate", REF),
    ),
    ((LEADER, Atom("am_worker"), HIM), AmWorker(HIM)),
    ((TAG, (Atom("$locks_leader_reply"), Atom("ok"))), LeaderReply(TAG, Atom("ok"))),
    ((TAG, Atom("$leader_died")), LeaderGone(TAG)),
]


@pytest.mark.parametrize(("term", "message"), RECEIVED)
def test_terms_as_they_were_received(term: Any, message: Any) -> None:
    """Each is parsed; what candidates say is packed to the very same bytes."""
    arrived = decode(encode(term))
    assert parse(arrived) == message
    assert type(parse(arrived)) is type(message)
    if not isinstance(message, (LeaderReply, LeaderGone)):
        assert encode(pack(message)) == encode(term)


# --- Round trip, and garbage

processes = st.sampled_from([ME, HER, HIM, HER_AGENT])
payloads = st.recursive(
    st.integers() | st.text(max_size=5) | st.sampled_from([Atom("ok"), None, True, HER, TAG]),
    lambda inner: st.lists(inner, max_size=3) | st.tuples(inner, inner),
    max_leaves=6,
)
versions = st.dictionaries(st.sampled_from([E, F, P]), st.integers(0, 2**70))
vectors = st.builds(
    Vector, st.none() | processes, versions.map(lambda found: tuple(sorted(found.items())))
)
refs = st.builds(ElectionRef, processes, st.integers(-(2**62), 2**62), vectors)
some = st.lists(processes, max_size=3).map(tuple)
messages = st.one_of(
    st.builds(AmLeader, processes, refs, payloads),
    st.builds(OriginalFromLeader, processes, refs, payloads),
    st.builds(AffirmLeader, processes, refs),
    st.builds(EnsureSync, processes, st.sampled_from(["candidate", "worker"]), refs),
    st.builds(LeaderUncertain, processes, some, some),
    st.builds(AmWorker, processes),
)


@given(messages)
def test_what_is_packed_is_parsed(message: Any) -> None:
    """Over the wire and back, every message of a candidate is the same."""
    assert parse(decode(encode(pack(message)))) == message


WORDS = [term[1].name for term, _ in RECEIVED if type(term) is tuple and type(term[1]) is Atom]
words = st.sampled_from([LEADER, *map(Atom, WORDS), Atom("$gen_call"), Atom("candidate")])


@given(
    st.lists(words | payloads, max_size=5).map(lambda parts: (LEADER, *parts))
    | st.tuples(words, payloads, payloads)
    | payloads
)
def test_garbage_is_refused(term: Any) -> None:
    """Whatever comes is no message, a message, or a `BadOriginalMessage`; what candidates say is packed to what it was."""
    try:
        message = parse(term)
    except BadOriginalMessage:
        return
    if message is not None and not isinstance(message, (LeaderReply, LeaderGone)):
        assert encode(pack(message)) == encode(term)


# --- Between one of ours and theirs: ours leads


def told(commands: list[Command]) -> list[tuple[Any, Any]]:
    """What is said to whom; nothing else is to be done."""
    assert all(isinstance(each, TellOriginal) for each in commands)
    return [(each.member, parse(each.term)) for each in commands if isinstance(each, TellOriginal)]


@pytest.fixture
def originals() -> Originals:
    """A fresh one, of a candidate."""
    return Originals(ME, "candidate")


def affirmed(originals: Originals, member: Pid = HER, payload: Any = "state") -> ElectionRef:
    """Announce to a follower; returns under which reference."""
    ((to, message),) = told(originals.send(member, ours.Announce(5, payload)))
    assert to == member
    assert isinstance(message, AffirmLeader)
    assert message.ref == ElectionRef(ME, message.ref.time, NEVER_SEEN)
    return message.ref


def test_a_new_follower_is_affirmed_and_announced_to_when_it_asks(originals: Originals) -> None:
    """Broadcasts wait until then, and have the same reference; later ones go out at once."""
    ref = affirmed(originals)
    assert originals.send(HER, ours.FromLeader(5, "early")) == []
    assert told(originals.receive(EnsureSync(HER, "candidate", ref))) == [
        (HER, AmLeader(ME, ref, "state")),
        (HER, OriginalFromLeader(ME, ref, "early")),
    ]
    assert originals.send(HER, ours.Affirm(6)) == []  # a follower would forget us for another one
    assert told(originals.send(HER, ours.FromLeader(6, "late"))) == [
        (HER, OriginalFromLeader(ME, ref, "late"))
    ]


# --- One of theirs leads


def test_a_leader_of_the_original_is_followed_once_it_has_the_lock_here(
    originals: Originals,
) -> None:
    """The version of its grant on this node is its term; what it said before comes in its order."""
    assert originals.receive(AmLeader(HER, REF, "state")) == []
    assert originals.receive(OriginalFromLeader(HER, REF, "one")) == []
    assert originals.granted(Holder(str(HIM), 70)) == []
    assert originals.granted(None) == []
    assert originals.granted(Holder(str(HER), 77)) == [
        Hear(HER, ours.Announce(77, "state")),
        Hear(HER, ours.FromLeader(77, "one")),
    ]
    assert originals.granted(Holder(str(HER), 77)) == []
    assert originals.receive(OriginalFromLeader(HER, REF, "two")) == [
        Hear(HER, ours.FromLeader(77, "two"))
    ]


def test_a_leader_that_is_unsure_is_not_followed(originals: Originals) -> None:
    """What it said before it got the lock here is void, and what it broadcasts is not taken in."""
    originals.receive(AmLeader(HER, REF, "state"))
    assert originals.receive(LeaderUncertain(HER)) == [Hear(HER, ours.Resign(0))]
    assert originals.granted(Holder(str(HER), 77)) == []
    originals.receive(AmLeader(HER, REF, "state"))
    originals.receive(LeaderUncertain(HER))
    ((_, message),) = told(originals.receive(OriginalFromLeader(HER, REF, "x")))
    assert isinstance(message, EnsureSync)


def test_what_is_kept_is_bounded(originals: Originals) -> None:
    """A leader that says much before it has the lock here is asked to begin anew."""
    originals.receive(AmLeader(HER, REF, "state"))
    for number in range(MOST_KEPT):
        assert originals.receive(OriginalFromLeader(HER, REF, number)) == []
    ((_, message),) = told(originals.receive(OriginalFromLeader(HER, REF, "x")))
    assert isinstance(message, EnsureSync)
    assert originals.granted(Holder(str(HER), 77)) == []


# --- Calls


# --- Who has the lock on this node
