"""Nodes, servers, actors elsewhere, process groups."""

from __future__ import annotations

from typing import Any

import pykka
from typing_extensions import assert_type

import locks
from locks import groups

node = locks.start(servers=["a@10.0.0.1:9100"], cookie="x" * 16, require="all")
assert_type(node, locks.node.Node)
locks.start("a@10.0.0.1", listen="10.0.0.1:9100", tls=locks.TLS("cert", "key", "ca"), peers=[])
locks.start(server=["a@10.0.0.1:9100"])  # E
locks.start(servers=17)  # E
locks.start(servers=locks.HERE)
assert_type(node.nodes(hidden=True), list[str])
assert_type(node.await_nodes(["a@10.0.0.1"], timeout=3), bool)
assert_type(node.connect("b@10.0.0.2:9100"), bool)
node.connect(17)  # E
assert_type(node.refusals, dict[str, str])
assert_type(node.address, tuple[str, int] | None)


def told(news: locks.node.NodeUp | locks.node.NodeDown) -> None:
    match news:
        case locks.node.NodeUp(name):
            assert_type(name, str)
        case locks.node.NodeDown(name, reason):
            print(name, reason)


node.monitor_nodes(told)


class Greeter(pykka.ThreadingActor):
    pass


node.register("greeter", Greeter.start())
node.register("greeter", Greeter)  # E
ref = node.remote("greeter", "b@10.0.0.2")
assert_type(ref, locks.node.RemoteRef)
ref.tell(("hello", "world"))
node.link(Greeter.start(), ref)
groups.join("workers", Greeter.start())
assert_type(groups.members("workers"), list[pykka.ActorRef[Any]])
assert_type(locks.stop(), None)
