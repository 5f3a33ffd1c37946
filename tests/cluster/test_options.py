"""What `locks.start` and `connect` refuse, and that nothing is left of what was refused."""

from __future__ import annotations

import threading
import traceback
from typing import Any

import pytest

import locks
import locks_leader
from tests.cluster.harness import COOKIE
from tests.cluster.nodes import A, B, Nodes
from tests.helpers import eventually

WRONG: list[tuple[dict[str, Any], str]] = [
    ({"cookie": None, "listen": 9100}, "needs a cookie"),
    ({"cookie": None, "peers": ["b@127.0.0.1:9100"]}, "needs a cookie"),
    ({"cookie": ""}, "1 to 255"),
    ({"cookie": b"bytes"}, "1 to 255"),
    ({"cookie": 256 * "x"}, "1 to 255"),
    ({"cookie": "5 €"}, "white space"),
    ({"cookie": "fifteen-letters"}, "15 characters"),
    ({"cookie": "a-cookie-of-a-file\n"}, "strip"),
    ({"cookie": "a cookie with spaces"}, "white space"),
    ({"peers": "b@127.0.0.1:9100"}, "write a list"),
    ({"peers": ["b@127.0.0.1"]}, "such as a@10.0.0.1:9100"),
    ({"peers": ["b@127.0.0.1:0"]}, "peer 'b@127.0.0.1:0'"),
    ({"peers": ["b@127.0.0.1:70000"]}, "70000"),
    ({"peers": ["b:9100"]}, "name@host:port"),
    ({"peers": [17]}, "peer 17"),
    ({"peers": ["a@127.0.0.1:9100"]}, "the node itself"),
    ({"peers": ["b@192.0.2.1:9100"]}, "allow_plaintext"),
    (
        {"peers": ["b@127.0.0.1:1", "b@127.0.0.1:2"]},
        "has two addresses, 127.0.0.1:1 and 127.0.0.1:2",
    ),
    ({"servers": ["b@127.0.0.1:1"], "peers": ["b@127.0.0.1:2"]}, "has two addresses"),
    ({"servers": []}, "servers=.. is empty"),
    ({"servers": ()}, "locks.HERE"),
    ({"copies": 1}, "needs as many servers, and servers=.* has 0"),
    ({"servers": ["b@127.0.0.1:1"], "copies": 2}, "has 1; list more servers, or use fewer copies"),
    ({"servers": ["b@127.0.0.1:1"], "copies": 0}, "copies=0 is not a whole number from 1 on"),
    ({"servers": ["b@127.0.0.1:1"], "copies": True}, "copies=True is not a whole number"),
    ({"servers": "dns://h:1"}, "is not a list of servers; write one"),
    ({"listen": "0.0.0.0:0"}, "open to the network"),
    ({"listen": "192.0.2.1:9100"}, "allow_plaintext"),
    ({"listen": "127.0.0.1:port"}, "not an address"),
    ({"listen": 70000}, "not an address"),
    ({"listen": ("127.0.0.1",)}, "not an address"),
    ({"listen": 1.5}, "not an address"),
    ({"net_ticktime": 0}, "net_ticktime"),
    ({"net_ticktime": "15"}, "net_ticktime"),
    ({"net_ticktime": float("nan")}, "net_ticktime"),
    ({"tls": ("cert", "key", "ca")}, "locks.TLS"),
    ({"tls": locks.TLS("/nowhere/cert", "/nowhere/key", "/nowhere/ca")}, "PEM"),
]


@pytest.mark.parametrize(("options", "why"), WRONG)
def test_options_that_are_refused(options: dict[str, Any], why: str) -> None:
    """What is wrong is said, and no node and no thread is left of it."""
    before = threading.active_count()
    with pytest.raises(locks.errors.InvalidOption, match=why):
        locks.start(A, **{"cookie": COOKIE, **options})
    eventually(lambda: threading.active_count() == before)
    node = locks.start("other@localhost")  # nothing runs
    assert node.name == "other@localhost"
    locks.stop()


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"peers": ["b"]},
        {"net_ticktime": 0},
        {"listen": 70000},
        {"listen": "0.0.0.0:0"},
        {"mesh": 1 / 2},
    ],
    ids=str,
)
@pytest.mark.parametrize("cookie", [COOKIE, f"{COOKIE}\n", COOKIE[:9]])
def test_a_cookie_is_not_shown(options: dict[str, Any], cookie: str) -> None:
    """Whatever is refused: the cookie is in no message, and in no variable of our frames in the traceback."""
    try:
        node = locks.start(A, **{"cookie": cookie, **options})
    except locks.errors.InvalidOption as error:
        shown = traceback.TracebackException.from_exception(error, capture_locals=True)
        frames = [frame for frame in shown.stack if frame.filename != __file__]
        assert frames
        text = "".join(
            [str(error), repr(error), *traceback.StackSummary.from_list(frames).format()]
        )
        text += "".join(repr(value) for frame in frames for value in (frame.locals or {}).values())
    else:
        assert node.cluster is not None
        text = repr(node.cluster.options) + repr(vars(node.cluster.network))
        locks.stop()
    assert COOKIE[:9] not in text


@pytest.mark.parametrize(
    "name", ["a", "@", "a@", "@b", "a@b@c", "a b@c", "a@b\n", "", 17, "a" * 255 + "@b"]
)
def test_names_that_are_refused(name: Any) -> None:
    """A node's name has the form name@host, and at most 255 bytes."""
    with pytest.raises(locks.errors.InvalidOption, match="name@host"):
        locks.start(name, cookie=COOKIE)


def test_a_port_that_is_taken(nodes: Nodes) -> None:
    """A node that can't listen says so, and nothing is left of it."""
    a = nodes.start(A)
    before = threading.active_count()
    with pytest.raises(locks.errors.InvalidOption, match="port 0"):
        nodes.start(B, listen=a.address)
    eventually(lambda: threading.active_count() == before)


def test_start_again_with_options(nodes: Nodes) -> None:
    """A node that runs is returned, unless options are given that it may not have."""
    node = locks.start(A, cookie=COOKIE)
    try:
        assert locks.start() is node
        assert locks.start(A) is node
        with pytest.raises(locks.MisuseError, match="already"):
            locks.start(A, cookie=COOKIE)
        with pytest.raises(locks.MisuseError, match="already"):
            locks.start(B)
    finally:
        locks.stop()


def test_names_of_nodes_are_checked(nodes: Nodes) -> None:
    """A text in the place of a list, or a name with its port, is no node that will come some day."""
    a = nodes.start(A)
    for wrong in (B, [f"{B}:9100"], [None], b"b"):
        with pytest.raises(locks.errors.InvalidOption, match=r"^nodes"):
            a.await_nodes(wrong, timeout=0)  # type: ignore[arg-type]
    with pytest.raises(locks.errors.InvalidOption, match="has a port"):
        a.disconnect(f"{B}:9100")
    assert a.await_nodes(name for name in [A])
    assert a.await_nodes([])
    assert not a.disconnect(B)
    for servers in ([f"{A}:9100", B], [f"{A}:9100"]):
        with pytest.raises(locks.errors.InvalidOption, match="has a port"):
            locks_leader.Election("x", policy="majority", nodes=servers).start()
