"""Classifiers in memory, behind one interface: `hitables.engine.open("sfl(rfc, delta=20)", rules)`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..core.classifiers import Algorithm
    from .algorithms import ALGORITHMS, AlgorithmSpec
    from .cache_statistics import CacheStatistics, EvolvingStatistics
    from .database import Database, Rules
    from .database import open as open
    from .evolving import Conflict, EvolvingRule, EvolvingRules
    from .filters import (
        Action,
        Event,
        Filter,
        Filters,
        FilterStatistics,
        Monitor,
        MonitorStatistics,
        Verdicts,
    )
    from .flow_statistics import FlowChains, FlowStatistics
    from .flows import FlowTable
    from .layout import FIVE_TUPLE, Layout
    from .storm import Partition, Storm, StormRun

# Without `open`: an import of all names must not replace the builtin.
__all__ = [
    "ALGORITHMS", "FIVE_TUPLE", "Action", "Algorithm", "AlgorithmSpec", "CacheStatistics", "Conflict",
    "Database", "Event", "EvolvingRule", "EvolvingRules", "EvolvingStatistics", "Filter", "FilterStatistics",
    "Filters", "FlowChains", "FlowStatistics", "FlowTable", "Layout", "Monitor", "MonitorStatistics",
    "Partition", "Rules", "Storm", "StormRun", "Verdicts",
]  # fmt: skip

_HOME = {
    "ALGORITHMS": "algorithms", "Algorithm": "algorithms", "AlgorithmSpec": "algorithms",
    "FIVE_TUPLE": "layout", "Layout": "layout",
    "FlowChains": "flow_statistics", "FlowStatistics": "flow_statistics", "FlowTable": "flows",
    "CacheStatistics": "cache_statistics", "Conflict": "evolving", "EvolvingRule": "evolving",
    "EvolvingRules": "evolving", "EvolvingStatistics": "cache_statistics",
    "Action": "filters", "Event": "filters", "Filter": "filters", "FilterStatistics": "filters",
    "Filters": "filters", "Monitor": "filters", "MonitorStatistics": "filters", "Verdicts": "filters",
    "Partition": "storm", "Storm": "storm", "StormRun": "storm",
    "Database": "database", "Rules": "database", "open": "database",
}  # fmt: skip


def __getattr__(name: str) -> Any:
    """The public names, loaded when first used: numpy is not needed to start."""
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f".{_HOME[name]}", __name__), name)
