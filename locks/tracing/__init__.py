"""Spans for OpenTelemetry: `install`, for programs that trace; needs `pip install 'pykka-locks[otel]'`."""

from locks.tracing.spans import install, uninstall

__all__ = ["install", "uninstall"]
