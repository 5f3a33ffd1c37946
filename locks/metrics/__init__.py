"""Metrics for Prometheus: `collector`, for programs that have a registry; needs `pip install 'pykka-locks[metrics]'`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from locks.runtime.first_use import at_first_use

if TYPE_CHECKING:
    from locks.metrics.collecting import Metrics, collector

__all__ = ["Metrics", "collector"]

_get, __dir__ = at_first_use(
    "locks.metrics",
    __all__,
    together=("locks.metrics.collecting",),
)

if not TYPE_CHECKING:
    __getattr__ = _get
