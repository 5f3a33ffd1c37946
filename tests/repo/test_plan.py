"""The model of `docs/scale.md` agrees with closed forms, and the page shows what it says."""

from __future__ import annotations

import json
import xml.etree.ElementTree as xml

import pytest

from benchmarks.plan import (  # fmt: skip
    FAR,
    FILE,
    IMAGES,
    NEAR,
    PAGE,
    Costs,
    Shape,
    capacity,
    pictures,
    plan,
    tables,
)

COSTS = Costs(message=50e-6, fixed=20e-6, each=90e-6)
REWRITE = "write the page anew: python -m benchmarks.plan --write"


@pytest.mark.slow
def test_page_shows_what_the_model_says() -> None:
    """Each table and plot of the page is the one that the model makes of the measured costs."""
    measured = json.loads(FILE.read_text(encoding="utf-8"))
    page = PAGE.read_text(encoding="utf-8")
    for name, table in tables(measured).items():
        assert f"<!-- table: {name} -->\n\n{table}\n" in page, REWRITE
    for name, picture in pictures(measured).items():
        assert (IMAGES / name).read_text(encoding="utf-8") == picture, REWRITE
        assert f"](img/{name})" in page
        assert xml.fromstring(picture).tag.endswith("svg")


def test_one_program_without_contention() -> None:
    """A transaction takes its work, a message and its answer, without any wait; links of other regions decide for a majority."""
    one = plan(Shape(rate=10.0), COSTS)
    alone = COSTS.fixed + COSTS.each + COSTS.message + 2 * NEAR
    assert one.median == pytest.approx(alone)
    assert one.p99 == pytest.approx(alone)
    assert one.link == pytest.approx(2 * NEAR / alone)
    without_pause = plan(Shape(), COSTS)  # its request may wait for the release ahead of it
    assert alone - 1e-9 <= without_pause.median <= alone + COSTS.message
    assert without_pause.throughput == pytest.approx(1 / without_pause.median, rel=0.01)
    assert without_pause.server == pytest.approx(2 * COSTS.message * without_pause.throughput)
    far = plan(Shape(1, 3, 3, regions=3), COSTS)
    assert 2 * FAR < far.median < 2 * FAR + 1e-3
    assert far.bottleneck == "links"


@pytest.mark.parametrize(("servers", "copies"), [(1, 1), (3, 3), (6, 3)])
def test_saturation_is_one_over_the_cost(servers: int, copies: int) -> None:
    """Enough programs without a pause get what the servers can do: their number over the cost of a transaction at all of them."""
    shape = Shape(200, servers, copies)
    most = servers / (2 * COSTS.message * copies)
    assert capacity(shape, COSTS) == pytest.approx(most)
    said = plan(shape, COSTS)
    assert said.throughput == pytest.approx(most, rel=0.1)
    assert said.bottleneck == "servers"
    crowd = plan(shape._replace(clients=100_000), COSTS)
    assert crowd.throughput == pytest.approx(most)
    assert crowd.median == pytest.approx(100_000 / most)  # Little's law


def test_who_is_idle_wakes_up() -> None:
    """One program wakes its server for each message, and many never: there is always another message."""
    costs = COSTS._replace(wake=70e-6)
    one = plan(Shape(rate=10.0), costs)
    assert one.median == pytest.approx(plan(Shape(rate=10.0), COSTS).median + costs.wake)
    assert one.server == pytest.approx(2 * (costs.message + costs.wake) * one.throughput, rel=0.01)
    crowd, without = plan(Shape(200), costs), plan(Shape(200), COSTS)
    assert crowd.throughput == pytest.approx(without.throughput, rel=0.01)


def test_programs_get_what_they_ask_for_below_saturation() -> None:
    """Many programs as one stream: throughput is what they begin, and the wait for a server is that of a queue with fixed service times."""
    shape = Shape(5_000, 1, 1, rate=1.0)
    said = plan(shape, COSTS)
    assert said.throughput == pytest.approx(5_000, rel=0.1)
    assert said.server == pytest.approx(0.5, rel=0.1)
    alone = plan(Shape(rate=10.0), COSTS).median
    assert alone - 1e-9 <= said.median < alone + 4 * COSTS.message
    assert said == plan(shape, COSTS)
