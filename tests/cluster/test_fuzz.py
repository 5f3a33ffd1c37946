"""Every kind of message with one field out of its type, range or size: it changes nothing, and ends its connection."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from tests.cluster.fuzz import KINDS, Maker, Rig, wrong
from tests.cluster.nodes import Nodes
from tests.helpers import EXPLORE, SEED

TIMES = 1_000_000 // len(KINDS) if EXPLORE else 120


@pytest.fixture
def rig(nodes: Nodes) -> Iterator[Rig]:
    """A node with something of everything in it."""
    logging.getLogger("locks").setLevel(logging.CRITICAL)
    made = Rig(nodes)
    yield made
    made.close()
    logging.getLogger("locks").setLevel(logging.NOTSET)


@pytest.mark.parametrize("kind", KINDS)
def test_a_wrong_field_changes_nothing(rig: Rig, kind: str) -> None:
    """The node lives, all is as before, and the connection is closed with a short reason."""
    before = rig.state()
    for seed in range(SEED, SEED + TIMES):
        frame = wrong(rig, kind, seed)
        if frame is None:
            continue
        rig.begin()
        rig.take(frame)
        assert rig.state() == before, seed
        assert rig.link.closed is not None, seed
        assert "failed to carry out" not in rig.link.closed, seed
        assert len(rig.link.closed) <= 300, seed


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_right_is_taken_in(rig: Rig, kind: str) -> None:
    """Messages that are made in the same way, with nothing wrong in them, do not end the connection."""
    for seed in range(20):
        rig.take(KINDS[kind](Maker(seed, None, rig.made.id), rig))
        assert rig.link.closed is None, seed
        if rig.made.machine.ended:
            break
