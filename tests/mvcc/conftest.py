"""Tests with the fixture `crew` run with clients that are threads, and with greenlets."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.api.clients import PATCHED, Run, play


class Crew(Run):
    """Clients of one kind, without a node: a lock table needs none."""

    def _play(self, script: Callable[[], object]) -> None:
        try:
            script()
            while self.clients:
                self.clients.pop().stop()
        finally:
            for client in self.clients:
                client.stop()


@pytest.fixture(params=["threads", "greenlets"])
def crew(request: pytest.FixtureRequest) -> Crew:
    """The context that the test runs in, once for each kind of client."""
    return Crew(request.param, PATCHED)


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """A test with the fixture `crew` is played in its context."""
    return play(pyfuncitem, "crew")
