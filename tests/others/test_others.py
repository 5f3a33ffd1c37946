"""Other people's test suites say what they said before: see `suites.py`, `accepted.py` and `docs/others.md`."""

from __future__ import annotations

import pytest

from tests.others.accepted import ACCEPTED, NEWER
from tests.others.record import Result, accepted, compared, recorded
from tests.others.running import Outcome, Unavailable, run
from tests.others.suites import SUITES, Archive, Suite


def group(suite: Suite) -> str:
    """Suites of one archive run one after the other: the first one downloads it."""
    return suite.source.package if isinstance(suite.source, Archive) else suite.name


@pytest.mark.explore
@pytest.mark.parametrize(
    "suite",
    [
        pytest.param(each, id=each.name, marks=pytest.mark.xdist_group(f"others: {group(each)}"))
        for each in SUITES
    ],
)
def test_suite(suite: Suite) -> None:
    """All of its tests pass but those that are accepted as differences, and these do not."""
    try:
        found = run(suite)
    except Unavailable as error:
        pytest.skip(str(error))
    wrong = compared(suite.name, suite.source.version(), found, recorded())
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("suite", SUITES, ids=lambda suite: suite.name)
def test_record_fits_the_list(suite: Suite) -> None:
    """What is recorded, and shown in the docs, are the tests of the list: no more of them fail."""
    was = recorded()[suite.name]
    assert was.ran - was.passed == len(accepted(suite.name) - NEWER)
    if isinstance(suite.source, Archive) and suite.source.pinned:
        assert was.version == suite.source.pinned


def test_all_have_a_list() -> None:
    """There is no list of a suite that is gone."""
    assert list(ACCEPTED) == [suite.name for suite in SUITES]


PASSED, FAILED = Outcome("passed", ""), Outcome("failed", "so it is")


@pytest.mark.parametrize(
    ("name", "outcome", "says"),
    [
        ("test_actor::test_new", FAILED, "test_new fails, which is not accepted: so it is"),
        ("test_actor::test_new", PASSED, "Result(version='1', ran=4, passed=2)"),
        (
            "test_logging::test_base_exception_is_logged[threading]",
            PASSED,
            "it is no difference any more",
        ),
        ("test_actor::test_known", Outcome("skipped", ""), "Result(version='1', ran=2, passed=0)"),
    ],
)
def test_changes_are_found(name: str, outcome: Outcome, says: str) -> None:
    """A difference that appears, one that disappears, and a test that is new or gone: each is said."""
    found = dict.fromkeys(accepted("pykka-gevent"), FAILED) | {"test_actor::test_known": PASSED}
    before = {"pykka-gevent": Result("1", 3, 1)}
    assert compared("pykka-gevent", "1", found, before) == []
    (said, *_) = compared("pykka-gevent", "1", found | {name: outcome}, before)
    assert says in said
    assert compared("pykka-gevent", "2", found | {"test_actor::test_new": PASSED}, before) == []
