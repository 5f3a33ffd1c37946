"""Metrics for Prometheus: `collector`, for programs that have a registry; needs `pip install 'pykka-locks[metrics]'`."""

from locks.metrics.collecting import Metrics, collector

__all__ = ["Metrics", "collector"]
