"""Spans for OpenTelemetry: `install`, for programs that trace; needs `pip install locks[otel]`."""

from locks.tracing.spans import install, uninstall

__all__ = ["install", "uninstall"]
