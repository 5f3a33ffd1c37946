"""The soak, for a short time, and its checks: what they find when something is wrong.

`python -m tests.cluster.soak --minutes 20` is the long form.
"""

from __future__ import annotations

import random
import socket
import threading
from contextlib import suppress
from types import SimpleNamespace

import pytest

from tests.cluster import soak
from tests.cluster.harness import Address, Proxy
from tests.cluster.soak import Calm, Hold, Job, Pause, overlaps, twice, violations
from tests.helpers import EXPLORE, SEED, eventually


def held(owner: str, token: int, begin: float, end: float, lock_id: int = 0) -> Hold:
    """A hold of some client of the node `owner`."""
    return Hold(lock_id, owner, owner, token, begin - 0.1, begin, end, end + 0.01)


def wrong(*holds: Hold, pauses: tuple[Pause, ...] = (), calms: tuple[Calm, ...] = ()) -> list[str]:  # fmt: skip
    """What is wrong with these."""
    mixed = list(holds)
    random.Random(1).shuffle(mixed)
    return list(violations(mixed, pauses, calms))


@pytest.mark.parametrize(
    ("holds", "words"),
    [
        ([held("a", 5, 1, 2), held("b", 9, 3, 4), held("a", 2, 1, 2, lock_id=1)], ""),
        ([held("a", 5, 1, 2), held("b", 9, 1.5, 3)], ""),  # a was cut off for a moment
        ([held("a", 5, 1, 2), held("b", 4, 3, 4)], "with token 4; a had released it"),
        ([held("a", 5, 1, 9), held("b", 5, 3, 4)], "had token 5"),
        ([held("a", 5, 1, 2), held("b", 9, 3, 4), held("c", 7, 5, 6)], "b had released it"),
        ([held("a", 5, 1, 20), held("b", 6, 3, 21)], "that it holds the lock 17.00 s after"),
    ],
    ids=["two ids", "right", "falls", "same at once", "third", "two holders"],
)
def test_what_is_wrong_is_found(holds: list[Hold], words: str) -> None:
    """Each promise that is broken, in whatever order the holds are put down."""
    found = wrong(*holds)
    assert any(words in each for each in found) if words else not found, found


def test_owners_and_their_successors() -> None:
    """The tasks of an ownership have the token of their owner; one who is cut off may begin some beside its successor."""

    def task(owner: str, token: int, begin: float) -> Hold:
        return held(owner, token, begin, begin + 0.1)._replace(lock_id="group 1")

    assert not wrong(task("a", 5, 1), task("a", 5, 3), task("b", 7, 4), task("a", 5, 8))
    assert wrong(task("a", 5, 1), task("b", 5, 3))
    late = task("a", 5, 1), task("b", 7, 4), task("b", 8, 5), task("a", 5, 14)
    assert wrong(*late)
    assert not wrong(*late, pauses=(Pause("a", 5, 14),))
    short = task("a", 5, 1), task("b", 7, 4), task("a", 5, 6)
    assert not wrong(*short, calms=(Calm(3, 5), Calm(7, 20)))
    assert wrong(*short, calms=(Calm(5, 7),))


@pytest.mark.parametrize(
    ("events", "words"),
    [
        ("5 begun, 5 done, 5 told, 5 told", ""),
        ("5 begun, 5 failed, 7 begun, 7 done", ""),
        ("5 begun, 7 begun, 7 done, 7 told", ""),  # the first one was killed
        ("5 begun, 5 told, 5 done", ""),  # the other one was faster
        ("5 begun, 5 done, 7 begun", "and then"),
        ("5 begun, 7 begun, 5 done, 7 done", "and then"),
        ("5 begun, 5 failed, 5 told", "that run has failed"),
        ("5 begun, 6 told", "no such run"),
        ("5 begun, 7 begun, 7 done, 5 told", "done with token 7"),
    ],
)
def test_what_was_not_done_once(events: str, words: str) -> None:
    """Each promise of `locks.once` that is broken."""
    made = [each.split() for each in events.split(", ")]
    jobs = [Job(1, int(token), what, at) for at, (token, what) in enumerate(made)]
    found = list(twice(jobs))
    assert any(words in each for each in found) if words else not found, found


def test_a_holder_that_was_paused() -> None:
    """It may take itself for the holder as long as it was stopped, and the ticktime longer."""
    two = held("a", 5, 1, 20), held("b", 6, 3, 21)
    assert not wrong(*two, pauses=(Pause("a", 2, 18),))
    assert wrong(*two, pauses=(Pause("b", 2, 18),))
    assert wrong(*two, pauses=(Pause("a", 2, 18),), calms=(Calm(19, 22),))
    assert [round(seconds, 2) for *_, seconds in overlaps(two)] == [17.0]


def test_a_grant_that_was_delayed() -> None:
    """It may come when others have had the lock since, if its holder finds that at its first look, and had asked before them."""
    late = held("a", 5, 4, 4)._replace(asked=1.0)
    others = held("b", 9, 2, 3)
    assert not wrong(late, others)
    assert wrong(late._replace(sure=4.5), others)
    assert wrong(late._replace(asked=2.5), others)


def test_the_faults_of_a_seed() -> None:
    """The same seed makes the same faults."""

    def drawn(seed: int) -> list[str]:
        made = soak.Soak.__new__(soak.Soak)
        made.servers, made.workers = ["s1", "s2"], ["w1"]
        links = {frozenset((server, "w1")): None for server in made.servers}
        made.net = SimpleNamespace(links=links)  # type: ignore[assignment]
        chance = random.Random(seed)
        return [chance.choice(soak.FAULTS)(made, chance)[1] for _ in range(50)]

    assert drawn(3) == drawn(3) != drawn(4)


@pytest.mark.slow
def test_a_short_soak(capsys: pytest.CaptureFixture[str]) -> None:
    """Some seconds of everything, with three servers and a mesh."""
    given = ["--minutes", "0.1", "--servers", "3", "--strangers", "20", "--seed", str(SEED)]
    assert soak.main(given) == 0
    assert capsys.readouterr().out.count(" 0 violations") == 1


@pytest.mark.explore
def test_a_longer_soak(capsys: pytest.CaptureFixture[str]) -> None:
    """Longer, also with five servers and client nodes."""
    minutes = "20" if EXPLORE else "0.5"
    assert soak.main(["--minutes", minutes, "--seed", str(SEED)]) == 0
    assert capsys.readouterr().out.count(" 0 violations") == 2


@pytest.mark.explore
def test_a_cheat_is_found(capsys: pytest.CaptureFixture[str]) -> None:
    """The soak can fail: one client that writes without a lock is found, with what was done when."""
    assert soak.main(["--minutes", "0.1", "--servers", "3", "--strangers", "5", "--cheat"]) == 1
    found = capsys.readouterr().out
    assert "/cheat" in found
    assert "what was done when" in found


# --- The links that it breaks -------------------------------------------------------------------


class Echo:
    """A server that says what it hears, and a connection with it through a proxy."""

    def __init__(self) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        address: Address = self.listener.getsockname()
        self.proxy = Proxy(address)
        self.heard = bytearray()
        self.answers = bytearray()
        self.socket = socket.create_connection(self.proxy.address)
        self.there, _ = self.listener.accept()

        def hear(sock: socket.socket, into: bytearray, back: bool) -> None:
            with suppress(OSError):  # the proxy closes with what was not passed on
                while data := sock.recv(100):
                    into += data
                    if back:
                        sock.sendall(data)

        for arguments in ((self.there, self.heard, True), (self.socket, self.answers, False)):
            threading.Thread(target=hear, args=arguments, daemon=True).start()

    def close(self) -> None:
        """Close everything."""
        self.proxy.close()
        self.listener.close()


def test_links_that_stall_one_way() -> None:
    """What is said still arrives in the other direction; when it heals, all arrives in its order."""
    echo = Echo()
    echo.proxy.stall("back")
    echo.socket.sendall(b"one")
    eventually(lambda: echo.heard == b"one")
    assert echo.answers == b""
    echo.proxy.stall("forth")
    eventually(lambda: echo.answers == b"one")
    echo.socket.sendall(b"two")
    echo.there.sendall(b"three")
    eventually(lambda: echo.answers == b"onethree")
    assert echo.heard == b"one"
    echo.proxy.heal()
    eventually(lambda: echo.answers == b"onethreetwo")
    echo.close()


def test_links_that_are_slow() -> None:
    """What was said before the link was slow, while it was, and after, arrives in this order."""
    echo = Echo()
    echo.socket.sendall(b"a")
    eventually(lambda: echo.heard == b"a")
    echo.proxy.delay(0.1)
    echo.socket.sendall(b"b")
    eventually(lambda: echo.heard == b"ab")
    echo.proxy.delay(60)
    echo.socket.sendall(b"c")
    assert echo.heard == b"ab"
    echo.proxy.heal()
    echo.socket.sendall(b"d")
    eventually(lambda: echo.heard == b"abcd")
    echo.close()
