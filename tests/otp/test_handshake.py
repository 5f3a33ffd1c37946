"""The handshake: two sides of it against each other, and each of them against nonsense."""

from __future__ import annotations

import struct
from collections.abc import Callable
from hashlib import md5
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from locks.errors import MisuseError
from locks.otp.admission.handshake import (
    FLAGS,
    MANDATORY,
    Challenges,
    Established,
    Event,
    Failed,
    Flag,
    Handshake,
    Named,
    Peer,
    Proven,
    Send,
    Status,
)
from locks.otp.admission.secret import Cookie

MANY = settings(max_examples=max(300, settings().max_examples))
COOKIE = "secret"
A = Peer("a@127.0.0.1", FLAGS, 0x11111111)
B = Peer("b@127.0.0.1", FLAGS, 0x22222222)


def dialler(**changes: Any) -> Handshake:
    """The side of node a, which connects to b."""
    usual = {"name": A.name, "creation": A.creation, "cookie": COOKIE}
    return Handshake(**{**usual, "challenge": 111, "peer": B.name, **changes})


def acceptor(**changes: Any) -> Handshake:
    """The side of node b, which accepts."""
    usual = {"name": B.name, "creation": B.creation, "cookie": COOKIE}
    return Handshake(**{**usual, "challenge": 222, "peer": None, **changes})


class Wire:
    """Carries bytes between two sides in pieces, and answers as a shell does.

    Args:
        one: The side that connects.
        two: The side that accepts.
        status: What the accepting side decides.
        go_on: What the connecting one answers to "alive".
        piece: How many bytes are carried at once.
        damage: Who has sent the byte that is changed on the way, its place, and how it is changed.

    Attributes:
        events: All that the two sides have told, without what they sent.
        sent: The bytes that each has sent.
    """

    def __init__(
        self,
        one: Handshake,
        two: Handshake,
        status: Any = "ok",
        go_on: bool = True,
        piece: int = 7,
        damage: tuple[int, int, int] = (0, -1, 0),
    ) -> None:
        self.sides = (one, two)
        self.status, self.go_on, self.piece, self.damage = status, go_on, piece, damage
        self.events: tuple[list[Event], list[Event]] = ([], [])
        self.sent = [b"", b""]
        self.waiting = [b"", b""]

    def take(self, side: int, events: list[Event]) -> None:
        """Note what a side tells, and do what it asks for."""
        for event in events:
            if isinstance(event, Send):
                who, place, change = self.damage
                data = bytearray(event.data)
                if who == side and 0 <= place - len(self.sent[side]) < len(data):
                    data[place - len(self.sent[side])] ^= change
                self.sent[side] += event.data
                self.waiting[side] += data
                continue
            self.events[side].append(event)
            if isinstance(event, Named):
                self.take(side, self.sides[side].decide(self.status))
            elif event == Status("alive"):
                self.take(side, self.sides[side].answer_alive(self.go_on))

    def run(self) -> tuple[list[Event], list[Event]]:
        """Carry everything until nothing is left."""
        self.take(0, self.sides[0].start())
        while any(self.waiting):
            for side in (0, 1):
                piece = self.waiting[side][: self.piece]
                self.waiting[side] = self.waiting[side][self.piece :]
                if piece:
                    self.take(1 - side, self.sides[1 - side].receive(piece))
        return self.events


# --- What comes of it ---------------------------------------------------------------------------


@pytest.mark.parametrize("piece", [1, 2, 3, 7, 1000])
@pytest.mark.parametrize("status", ["ok", "ok_simultaneous", "alive"])
def test_two_nodes_get_to_know_each_other(status: str, piece: int) -> None:
    """In pieces of any size, both sides end with the other's name, flags and creation."""
    one, two = Wire(dialler(), acceptor(), status, piece=piece).run()
    assert one == [Status(status), Established(B, b"")]
    assert two == [Named(A.name), Established(A, b"")]


@pytest.mark.parametrize("status", ["nok", "not_allowed"])
def test_the_accepting_side_says_no(status: str) -> None:
    """A connection that is not wanted ends on both sides, with the status as the reason."""
    one, two = Wire(dialler(), acceptor(), status).run()
    reason, cause = {
        "nok": ("its own connection to us is kept", "settled"),
        "not_allowed": ("it refused the connection", "not wanted"),
    }[status]
    assert one == [Status(status), Failed(reason, cause)]  # type: ignore[arg-type]
    said = f"we answered {A.name} with {status!r}"
    assert two == [Named(A.name), Failed(said, "not wanted")]


def test_who_has_proven_itself_is_let_in_or_not() -> None:
    """A shell may decide when the other side has proven itself: only then, and before we do."""
    for admits in (True, False):
        one, two = dialler(), acceptor(asks=True)
        assert two.receive(_sent(one.start())) == [Named(A.name)]
        answer = one.receive(_sent(two.decide("ok")))
        assert two.receive(_sent(answer)) == [Proven(A)]
        if admits:
            sent, established = two.admit()
            assert established == Established(A, b"")
            assert one.receive(_sent([sent])) == [Established(B, b"")]
        else:
            sent, failed = two.refuse("it is\nfull", "taken")
            assert failed == Failed("it is\nfull", "taken")
            assert one.receive(_sent([sent])) == [
                Status("not_allowed"),
                Failed("it refused the connection: it is\\nfull", "not wanted"),
            ]
        assert two.admit() == two.refuse("", "taken") == []
    with pytest.raises(MisuseError, match="not at 'admit'"):
        acceptor().admit()
    with pytest.raises(MisuseError, match="not at 'decide'"):
        acceptor().refuse("", "taken")


def test_both_connect_at_the_same_time() -> None:
    """Two crossing handshakes: decided by the names, exactly one of them is established."""
    # The larger name, b, is given way to by a, which says so; b says no to a.
    there = Wire(dialler(), acceptor(), "nok").run()
    back = Wire(dialler(name=B.name, peer=A.name), acceptor(name=A.name), "ok_simultaneous").run()
    assert [type(events[-1]) for events in there] == [Failed, Failed]
    assert [type(events[-1]) for events in back] == [Established, Established]


def test_what_comes_after_the_handshake_is_handed_over() -> None:
    """Bytes behind the last frame belong to the connection; later ones are not taken any more."""
    wire = Wire(dialler(), acceptor())
    wire.run()
    one = dialler()
    one.start()
    events = one.receive(wire.sent[1] + b"\x00\x00\x00\x00more")
    assert events[-1] == Established(B, b"\x00\x00\x00\x00more")
    assert one.receive(b"later") == []
    two = acceptor()
    (named,) = two.receive(wire.sent[0][: 2 + wire.sent[0][1]])
    assert named == Named(A.name)
    two.decide("ok")
    assert two.receive(wire.sent[0][2 + wire.sent[0][1] :] + b"x")[-1] == Established(A, b"x")


def test_the_frames_are_as_documented() -> None:
    """Each frame, byte by byte, with the flags and numbers at their places."""
    wire = Wire(dialler(), acceptor(), "alive")
    wire.run()
    flags = struct.pack(">Q", FLAGS)
    name, other = A.name.encode(), B.name.encode()
    answers = [md5(f"{COOKIE}{number}".encode()).digest() for number in (222, 111)]
    assert wire.sent[0] == b"".join(
        [
            *(b"\x00\x1aN", flags, b"\x11" * 4, b"\x00\x0b", name),
            b"\x00\x05strue",
            *(b"\x00\x15r", struct.pack(">I", 111), answers[0]),
        ]
    )
    assert wire.sent[1] == b"".join(
        [
            b"\x00\x06salive",
            *(b"\x00\x1eN", flags, struct.pack(">I", 222), b"\x22" * 4, b"\x00\x0b", other),
            *(b"\x00\x11a", answers[1]),
        ]
    )


# --- What must fail -----------------------------------------------------------------------------


def test_another_cookie() -> None:
    """The side that is asked first shows that it does not know the cookie, and gets no proof."""
    wire = Wire(dialler(cookie="wrong"), acceptor(), piece=1000)
    one, two = wire.run()
    said = "has another cookie; all nodes need the same one"
    assert two == [Named(A.name), Failed(f"{A.name} {said}", "cookie")]
    assert one[:2] == [Status("ok"), Status("not_allowed")]
    assert one[2] == Failed(f"it refused the connection: {B.name} {said}", "cookie")
    assert md5(f"{COOKIE}111".encode()).digest() not in wire.sent[1]


def test_more_cookies_are_accepted() -> None:
    """The accepting side takes each cookie that it knows, and proves itself by the same one."""
    for cookie in ("new", "old"):
        wire = Wire(dialler(cookie=cookie), acceptor(cookie="new", accepts=[Cookie("old")]))
        one, two = wire.run()
        assert isinstance(one[-1], Established)
        assert isinstance(two[-1], Established)
    assert isinstance(
        Wire(dialler(cookie="x"), acceptor(accepts=[Cookie("y")])).run()[1][-1], Failed
    )


@pytest.mark.parametrize("flag", [flag for flag in Flag if flag & MANDATORY])
def test_a_node_that_lacks_what_is_needed(flag: Flag) -> None:
    """Each flag that OTP 26 demands is demanded, and the reason names it."""
    lacking = FLAGS & ~flag & ~Flag.MANDATORY_25_DIGEST
    for tell in (told_name, told_challenge):
        (_, failed) = tell(flags=lacking)
        assert isinstance(failed, Failed)
        assert f"lacks {flag.name};" in failed.reason


def _sent(events: list[Event]) -> bytes:
    """What a side sends."""
    return b"".join(event.data for event in events if isinstance(event, Send))


def told_name(name: bytes = b"a@127.0.0.1", flags: int = FLAGS, more: bytes = b"") -> list[Event]:
    """What the accepting side makes of a name."""
    frame = struct.pack(">cQIH", b"N", flags, 1, len(name)) + name + more
    return acceptor().receive(framed(frame))


def told_challenge(
    name: bytes = b"b@127.0.0.1", flags: int = FLAGS, more: bytes = b"", challenge: int = 5
) -> list[Event]:
    """What the connecting side makes of a challenge."""
    one = dialler(issued=lambda number: number == 77)
    one.start()
    assert one.receive(framed(b"sok")) == [Status("ok")]
    frame = struct.pack(">cQIIH", b"N", flags, challenge, 1, len(name)) + name + more
    return one.receive(framed(frame))


def framed(body: bytes) -> bytes:
    """A frame of the handshake."""
    return struct.pack(">H", len(body)) + body


@pytest.mark.parametrize("tell", [told_name, told_challenge])
@pytest.mark.parametrize(
    ("name", "reason"),
    [
        (b"", "not of the form name@host"),
        (b"x", "not of the form name@host"),
        (b"@h", "not of the form name@host"),
        (b"a@", "not of the form name@host"),
        (b"a@b@c", "not of the form name@host"),
        (b"a b@h", "a character that names can't have"),
        (b"a\n@h", "a character that names can't have"),
        (b"a\x00@h", "a character that names can't have"),
        (b"\xff@h", "not UTF-8"),
        (b"x" * 254 + b"@h", "more than 255 bytes"),
    ],
)
def test_names_that_are_none(tell: Callable[..., list[Event]], name: bytes, reason: str) -> None:
    """What is no name of a node is refused, on both sides, before anything is decided."""
    (failed,) = tell(name=name)
    assert isinstance(failed, Failed)
    assert reason in failed.reason
    assert len(failed.reason) < 500


def test_a_challenge_of_our_own_is_not_answered() -> None:
    """Who passes our challenges on to ourselves gets no answer to them."""
    for challenge in (111, 77):
        (failed,) = told_challenge(challenge=challenge)
        assert isinstance(failed, Failed)
        assert "one of ours" in failed.reason


def test_frames_that_nobody_waits_for() -> None:
    """Who goes on talking while the other side decides is cut off."""
    two = acceptor()
    name = dialler().start()[0]
    assert isinstance(name, Send)
    named, failed = two.receive(name.data + framed(b"r"))
    assert named == Named(A.name)
    assert failed == Failed("an unexpected frame: b'r'")
    assert two.decide("ok") == []
    one = dialler()
    assert one.receive(framed(b"sok")) == [Failed("an unexpected frame: b'sok'")]
    one = dialler()
    one.start()
    status, failed = one.receive(framed(b"salive") + framed(b"x"))
    assert (status, failed) == (Status("alive"), Failed("an unexpected frame: b'x'"))
    assert one.answer_alive(True) == []


def test_frames_that_are_too_long() -> None:
    """A frame of more than 1,024 bytes ends it, as soon as its length is known."""
    (failed,) = acceptor().receive(b"\x04\x01")
    assert failed == Failed("that is not a node's handshake: b'\\x04\\x01'")
    assert acceptor().receive(b"\x04\x00" + bytes(1023)) == []


@pytest.mark.parametrize(
    ("data", "reason", "cause"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", "another protocol, b'GET /", "bad words"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "another protocol, b'HTTP/1.1", "bad words"),
        (b"SSH-2.0-OpenSSH_9\r\n", "another protocol, b'SSH", "bad words"),
        (b"\x16\x03\x01\x02\x00" + bytes(512), "it uses TLS", "tls"),
        (b"\x15\x03\x03\x00\x02\x02\x46", "it uses TLS", "tls"),
    ],
)
def test_those_who_speak_something_else(data: bytes, reason: str, cause: str) -> None:
    """What was reached by mistake is told apart, in few words, on both sides."""
    one = dialler()
    one.start()
    for side in (one, acceptor()):
        failed = side.receive(data)[-1]
        assert isinstance(failed, Failed)
        assert reason in failed.reason
        assert failed.cause == cause
        assert len(failed.reason) < 200


STAGES = ["name", "decide", "confirm", "reply", "status", "alive", "challenge", "ack"]


def at_stage(stage: str) -> Handshake:
    """One side of a good handshake that has come to this stage."""
    one, two = dialler(), acceptor()
    (sent,) = one.start()
    assert isinstance(sent, Send)
    if stage in ("name", "decide", "confirm", "reply"):
        if stage != "name":
            two.receive(sent.data)
        if stage in ("confirm", "reply"):
            two.decide("alive" if stage == "confirm" else "ok")
        return two
    if stage != "status":
        one.receive(framed(b"salive" if stage == "alive" else b"sok"))
    if stage == "ack":
        frame = struct.pack(">cQIIH", b"N", FLAGS, 5, 1, len(B.name)) + B.name.encode()
        one.receive(framed(frame))
    return one


@MANY
@given(st.sampled_from(STAGES), st.lists(st.binary(max_size=40), max_size=5), st.booleans())
def test_garbage_at_each_stage(stage: str, pieces: list[bytes], frames: bool) -> None:
    """Nonsense leads to `Failed` or to waiting for more, at any stage; never to an agreement."""
    side = at_stage(stage)
    events: list[Event] = []
    for piece in pieces:
        events += side.receive(framed(piece) if frames else piece)
    assert not any(isinstance(event, Established) for event in events)
    failed = [event for event in events if isinstance(event, Failed)]
    assert failed == events[-1:] if failed else True
    assert COOKIE not in repr(events)
    if frames and any(pieces) and stage != "alive":
        assert failed
    if failed:
        assert side.receive(framed(b"sok")) == []


# Where in what each side sends the bytes are that no digest protects: flags, creation and name,
# and how long these are.
UNPROTECTED = (set(range(28)), set(range(5, 16)) | set(range(20, 37)))


@MANY
@given(st.integers(0, 1), st.integers(0, 100), st.integers(1, 255))
def test_one_damaged_byte_on_the_way(side: int, place: int, change: int) -> None:
    """Unless it is in what the handshake does not protect, no damage leads to an agreement."""
    good = Wire(dialler(), acceptor())
    good.run()
    place %= len(good.sent[side])
    wire = Wire(dialler(), acceptor(), damage=(side, place, change))
    ends = [events[-1] for events in wire.run() if events]
    if place not in UNPROTECTED[side]:
        assert not all(isinstance(end, Established) for end in ends) or len(ends) < 2
    assert COOKIE not in repr(ends)


# --- Misuse -------------------------------------------------------------------------------------


# --- Challenges ---------------------------------------------------------------------------------


def test_challenges_do_not_repeat() -> None:
    """20,000 challenges are all different, and spread over all 32 bits."""
    challenges = Challenges(bytes(range(32)))
    given_out = [challenges.next() for _ in range(20_000)]
    assert len(set(given_out)) == len(given_out)
    assert all(0 <= challenge < 1 << 32 for challenge in given_out)
    for bit in range(32):
        assert 9_600 < sum(challenge >> bit & 1 for challenge in given_out) < 10_400


@pytest.mark.slow
def test_recent_challenges_are_recognised() -> None:
    """What was given out lately is known; what was not yet, or long ago, is not."""
    challenges, ahead = Challenges(b"k" * 16), Challenges(b"k" * 16)
    numbers = [ahead.next() for _ in range(70_000)]
    assert not any(map(challenges.issued, numbers[:100]))
    for number in numbers[:100]:
        assert challenges.next() == number
    assert all(map(challenges.issued, numbers[:100]))
    assert not any(map(challenges.issued, numbers[100:1000]))
    assert not any(map(ahead.issued, numbers[:1000]))
    assert all(map(ahead.issued, numbers[-1000:]))
