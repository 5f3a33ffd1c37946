"""Spans for OpenTelemetry: `install`, for programs that trace; needs `pip install 'pykka-locks[otel]'`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from locks.runtime.first_use import at_first_use

if TYPE_CHECKING:
    from locks.tracing.spans import install, uninstall

__all__ = ["install", "uninstall"]

_get, __dir__ = at_first_use(
    "locks.tracing",
    __all__,
    together=("locks.tracing.spans",),
)

if not TYPE_CHECKING:
    __getattr__ = _get
