"""What the original's candidates say, as values and back; and what stands between them and one of ours."""

from __future__ import annotations

from typing import Any

import pykka
import pytest
from hypothesis import given
from hypothesis import strategies as st

from locks.errors import LocksError
from locks.otp.bytes.etf import decode, encode
from locks.otp.bytes.terms import Atom, Pid, Reference
from locks.values import AgentId, Contender, View
from locks_leader.core import messages as ours
from locks_leader.core.events import Resync
from locks_leader.errors import LeaderDied
from locks_leader.original.bridge import (
    MOST_KEPT,
    Command,
    Hear,
    Holder,
    Meet,
    Originals,
    TellOriginal,
    holder_in,
)
from locks_leader.original.messages import (
    AffirmLeader,
    AmLeader,
    AmWorker,
    BadOriginalMessage,
    ElectionRef,
    EnsureSync,
    LeaderCall,
    LeaderGone,
    LeaderReply,
    LeaderUncertain,
    OriginalFromLeader,
    OriginalLeaderCast,
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


SENT = [
    (
        LeaderCall(HER, TAG, "hello"),
        (Atom("$gen_call"), (HER, TAG), (Atom("$locks_leader_call"), "hello")),
    ),
    (OriginalLeaderCast("hello"), (Atom("$gen_cast"), (Atom("$locks_leader_cast"), "hello"))),
]


@pytest.mark.parametrize(("message", "term"), SENT)
def test_calls_and_casts_for_a_leader_of_the_original(message: Any, term: Any) -> None:
    """They are packed as a client of the original writes them."""
    assert encode(pack(message)) == encode(term)


@pytest.mark.parametrize(
    "term",
    [
        *(term for _, term in SENT),
        (Atom("$gen_call"), (HER, (LEADER, TAG)), Atom("merge")),
        (Atom("$gen_call"), ("her", TAG), "what"),
        (TAG, "an answer"),
        Atom("timeout"),
        (),
        "",
    ],
)
def test_what_candidates_do_not_say(term: Any) -> None:
    """Calls, casts and anything else are for others to understand (`locks_leader.wire.messages`)."""
    assert parse(decode(encode(term))) is None


def test_actors_stand_for_pids() -> None:
    """In what actors are told, references have taken the place of pids; that is understood as well."""

    class Nobody(pykka.ThreadingActor):
        """Does nothing."""

    ref = Nobody.start()
    try:
        term = (LEADER, Atom("leader_uncertain"), ref, [ref], [])
        message = LeaderUncertain(ref, (ref,))
        assert parse(term) == message
        assert pack(message) == term
    finally:
        ref.stop()


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


@pytest.mark.parametrize(
    "term",
    [
        (LEADER,),
        (LEADER, Atom("sync_lock_ok"), HER),
        (LEADER, Atom("am_leader"), HER, REF_TERM),
        (LEADER, Atom("am_leader"), "her", REF_TERM, SYNC),
        (LEADER, Atom("am_leader"), TAG, REF_TERM, SYNC),
        (LEADER, Atom("affirm_leader"), HER, (HER, 1.5, SEEN)),
        (LEADER, Atom("affirm_leader"), HER, (HER, 1, [])),
        (LEADER, Atom("affirm_leader"), HER, (HER, 1, {Atom("leader"): HER})),
        (LEADER, Atom("affirm_leader"), HER, (HER, 1, {**SEEN, Atom("vector"): [(E, 1)]})),
        (LEADER, Atom("affirm_leader"), HER, (HER, 1, {**SEEN, Atom("leader"): Atom("no")})),
        (LEADER, Atom("ensure_sync"), HER, Atom("boss"), REF_TERM),
        (LEADER, Atom("leader_uncertain"), HER, HIM, []),
        (LEADER, Atom("leader_uncertain"), HER, [1], []),
    ],
)
def test_what_is_refused(term: Any) -> None:
    """What looks like a candidate's message, and is none, is said to be so."""
    with pytest.raises(LocksError, match=r"should be|nothing that") as caught:
        parse(term)
    assert caught.type is BadOriginalMessage


def test_a_vector_without_a_leader() -> None:
    """It is the atom `none`."""
    encoded = pack(AffirmLeader(ME, ElectionRef(ME, 1, NEVER_SEEN)))
    assert encoded[3][2][Atom("leader")] == Atom("none")


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


def lead(originals: Originals, member: Pid = HER) -> ElectionRef:
    """Announce to a follower that then asks for it."""
    ref = affirmed(originals, member)
    asked = told(originals.receive(EnsureSync(member, "candidate", ref)))
    assert asked == [(member, AmLeader(ME, ref, "state"))]
    return ref


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


def test_each_announcement_has_a_reference_of_its_own(originals: Originals) -> None:
    """An answer to an earlier one is none to the later one."""
    first = affirmed(originals)
    second = affirmed(originals, payload="newer")
    assert first != second
    assert originals.receive(EnsureSync(HER, "candidate", first)) == []
    ((_, message),) = told(originals.receive(EnsureSync(HER, "candidate", second)))
    assert message == AmLeader(ME, second, "newer")


def test_a_follower_that_asks_again_is_announced_to_again(originals: Originals) -> None:
    """The machine has to say anew what it is to be told; until then it is told nothing."""
    ref = lead(originals)
    assert originals.receive(EnsureSync(HER, "candidate", ref)) == [Resync(HER)]
    assert originals.send(HER, ours.FromLeader(5, "x")) == []
    assert lead(originals) != ref


def test_who_is_unsure_is_announced_to_again(originals: Originals) -> None:
    """And those that it has led, unless they are just being announced to."""
    lead(originals, HER)
    lead(originals, HIM)
    (resigned, *again) = originals.receive(LeaderUncertain(HER, (HIM,)))
    assert resigned == Hear(HER, ours.Resign(0))
    assert again == [Resync(HER), Resync(HIM)]
    affirmed(originals, HIM)
    assert originals.receive(LeaderUncertain(HER, (HIM,))) == [resigned]
    assert originals.receive(LeaderUncertain(HIM))[1:] == [Resync(HIM)]


def test_who_is_not_led_is_told_nothing(originals: Originals) -> None:
    """Neither on request, nor what is broadcast."""
    assert originals.receive(EnsureSync(HER, "candidate", REF)) == []
    assert originals.receive(LeaderUncertain(HER)) == [Hear(HER, ours.Resign(0))]
    assert originals.send(HER, ours.FromLeader(5, "x")) == []


def test_who_resigns_is_uncertain(originals: Originals) -> None:
    """Then the original's own candidates look whether they have won."""
    lead(originals)
    assert told(originals.send(HER, ours.Resign(5))) == [(HER, LeaderUncertain(ME))]
    assert originals.send(HER, ours.FromLeader(5, "x")) == []


def test_what_has_no_meaning_to_the_original_is_not_said(originals: Originals) -> None:
    """Terms, heirs, and answers in our form."""
    for message in (
        ours.Affirm(1),
        ours.YieldTo(1, HIM),
        ours.ForwardAnswer(1, 2),
        ours.NotTheLeader(1),
    ):
        assert originals.send(HER, message) == []


def test_a_worker_of_the_original_is_met(originals: Originals) -> None:
    """By its own word."""
    assert originals.receive(AmWorker(HIM)) == [Meet(HIM, "worker")]


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


def test_a_leader_that_has_the_lock_here_is_followed_at_once(originals: Originals) -> None:
    """Also when it announces itself again."""
    assert originals.granted(Holder(str(HER), 77)) == []
    for state in ("one", "two"):
        announced = originals.receive(AmLeader(HER, REF, state))
        assert announced == [Hear(HER, ours.Announce(77, state))]


def test_who_was_not_announced_is_asked_to_do_so(originals: Originals) -> None:
    """By its broadcast or its word that it still leads, unless that is what is known."""
    asked = [(HER, EnsureSync(ME, "candidate", REF))]
    assert told(originals.receive(OriginalFromLeader(HER, REF, "x"))) == asked
    assert told(originals.receive(AffirmLeader(HER, REF))) == asked
    originals.receive(AmLeader(HER, REF, "state"))
    assert originals.receive(AffirmLeader(HER, REF)) == []
    originals.granted(Holder(str(HER), 77))
    assert originals.receive(AffirmLeader(HER, REF)) == []
    newer = REF._replace(time=REF.time + 1)
    assert told(originals.receive(AffirmLeader(HER, newer))) == [
        (HER, EnsureSync(ME, "candidate", newer))
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


@pytest.mark.parametrize("how", ["lock", "death"])
def test_a_leader_that_loses_the_lock_or_dies_is_not_followed(
    originals: Originals, how: str
) -> None:
    """The next thing that it says is a reason to ask it."""
    originals.granted(Holder(str(HER), 77))
    originals.receive(AmLeader(HER, REF, "state"))
    if how == "lock":
        originals.granted(Holder(str(HIM), 78))
    else:
        originals.down(HER)
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


def test_a_worker_of_ours_says_that_it_is_one() -> None:
    """To each candidate that it meets; a candidate of ours is known by its group."""
    assert told(Originals(ME, "worker").met(HER)) == [(HER, AmWorker(ME))]
    assert Originals(ME, "candidate").met(HER) == []


# --- Calls


def test_a_call_that_is_passed_on_to_a_leader_of_the_original(originals: Originals) -> None:
    """Its answer comes back as that of the leader that was asked."""
    (sent,) = originals.send(HER, ours.Forward(7, "what"))
    assert isinstance(sent, TellOriginal)
    tag = sent.term[1][1]
    assert sent == TellOriginal(HER, pack(LeaderCall(ME, tag, "what")))
    arrived = parse(decode(encode((tag, (Atom("$locks_leader_reply"), "that")))))
    assert arrived is not None
    assert originals.receive(arrived) == [Hear(HER, ours.ForwardAnswer(7, "that"))]
    (gone,) = originals.receive(LeaderGone(tag))
    assert isinstance(gone, Hear)
    assert isinstance(gone.message, ours.ForwardAnswer)
    assert isinstance(gone.message.value, LeaderDied)


@pytest.mark.parametrize("tag", [TAG, 7, (1, 2, 3), (Atom("$locks_leader"), "7", HER)])
def test_other_answers_are_none_of_ours(originals: Originals, tag: Any) -> None:
    """They have another tag."""
    assert originals.receive(LeaderReply(tag, "that")) == []


def test_a_cast_for_a_leader_of_the_original(originals: Originals) -> None:
    """It is cast as the original does."""
    assert originals.send(HER, ours.LeaderCast("what")) == [
        TellOriginal(HER, pack(OriginalLeaderCast("what")))
    ]


# --- Who has the lock on this node


def contender(client: str, *, granted: bool, mode: Any = "write", below: bool = False) -> Contender:
    """A request for the election's lock, or below it."""
    lock_id = (LEADER, "r", "below") if below else (LEADER, "r")
    return Contender(AgentId(1, E, 1), client, lock_id, mode, granted, 77)


def test_who_has_the_lock() -> None:
    """The one with a grant on exactly the id, to write."""
    waits = contender(str(HIM), granted=False)
    others = [contender("x", granted=True, below=True), contender("x", granted=True, mode="read")]
    view = View((LEADER, "r"), P, (*others, contender(str(HER), granted=True), waits), 80)
    assert holder_in(view) == Holder(str(HER), 77)
    assert holder_in(view._replace(requests=(*others, waits))) is None
