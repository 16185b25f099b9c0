"""What a status of the C engine means in Python: one table, from enumerator to exception."""

from __future__ import annotations

from hitables.errors import DatabaseError, OutOfMemory

from ._engine import lib

# The families of statuses; 0 of each is success.
TREE, REDUNDANCY, INTERPRETER, DATABASE, FLOWS = "tree", "redundancy", "interpreter", "database", "flows"
EVOLVE, UPDATE_RUN, WALK, FILTERS = "evolve", "update run", "walk", "filters"

_WIDE = "a value of a header is wider than its field, so that algorithms may answer differently"
_TOO_MANY = "too many, or too interwoven, for {plan}; take another plan, such as best or tss"

# Text in braces is filled from the keywords of `check`.
_ERRORS: dict[str, dict[int, tuple[type[BaseException], str]]] = {
    TREE: {
        lib.TREE_NO_MEMORY: (MemoryError, "no memory is left for the tree"),
        lib.TREE_STOPPED: (KeyboardInterrupt, ""),
        lib.TREE_BAD_AXIS: (ValueError, "an axis is impossible: its width, or what it requires"),
        lib.TREE_BAD_BOX: (ValueError, "a box is empty, beyond its axes, or out of its rule's order"),
        lib.TREE_BAD_OPTION: (ValueError, "no such builder"),
    },
    REDUNDANCY: {
        lib.REDUNDANCY_NO_MEMORY: (MemoryError, "no memory is left for finding redundant rules"),
    },
    INTERPRETER: {
        lib.INTERP_NO_MEMORY: (MemoryError, "{what}"),
        lib.INTERP_BAD_CODE: (AssertionError, "{what}: the code is malformed"),
        lib.INTERP_TOO_DEEP: (AssertionError, "{what}: a chain nests deeper than the depth of its table"),
    },
    DATABASE: {
        lib.VFDB_WIDE_HEADER: (DatabaseError, "{where}{plan}: " + _WIDE),
        lib.VFDB_NO_MEMORY: (
            OutOfMemory,
            "{where}{plan}: the rules do not fit into the memory that there is, or that is allowed",
        ),
        lib.VFDB_TWICE: (DatabaseError, "{where}a rule of priority {priority} is there already"),
        lib.VFDB_ABSENT: (DatabaseError, "{where}no rule of priority {priority} is there"),
        lib.VFDB_BAD_BOX: (DatabaseError, "{where}a range is empty, or wider than its field"),
        lib.VFDB_TOO_LARGE: (DatabaseError, "{where}the rules are " + _TOO_MANY),
        lib.VFDB_DISAGREE: (
            DatabaseError,
            "{where}{plan}: the algorithm and linear search gave different answers",
        ),
        lib.VFDB_UNCOUNTED: (DatabaseError, "{plan} does not count the work of its searches"),
        lib.VFDB_NO_POSITION: (DatabaseError, "position {position} lies beyond the last rule"),
        lib.VFDB_STOPPED: (KeyboardInterrupt, ""),
    },
    WALK: {
        lib.VFDB_UNCOUNTED: (DatabaseError, "{plan} has no tries whose descent could be measured alone"),
    },
    FLOWS: {
        lib.VFDB_WIDE_HEADER: (DatabaseError, _WIDE),
        lib.VFDB_NO_MEMORY: (
            OutOfMemory,
            "a flow table of {buckets} buckets and its flows do not fit into the memory that there is, or "
            "that is allowed; take fewer buckets, or purge",
        ),
        lib.VFDB_DISAGREE: (DatabaseError, "the classifier and linear search gave different answers"),
        lib.VFDB_UNCOUNTED: (DatabaseError, "{plan} has no flow table"),
    },
    EVOLVE: {
        lib.VFDB_NO_MEMORY: (
            OutOfMemory,
            "the rules and their evolving rules do not fit into the memory that there is, or that is allowed",
        ),
        lib.VFDB_TOO_LARGE: (DatabaseError, "the rules are too many for a tree of HyperCuts"),
        lib.VFDB_BAD_BOX: (DatabaseError, "a range is empty, or wider than its field"),
        lib.VFDB_DISAGREE: (DatabaseError, "the classifier and linear search gave different answers"),
        lib.VFDB_UNCOUNTED: (DatabaseError, "{plan} has no rule cache"),
    },
    UPDATE_RUN: {
        lib.VFDB_WIDE_HEADER: (DatabaseError, "{plan}: " + _WIDE),
        lib.VFDB_NO_MEMORY: (
            OutOfMemory,
            "{plan}: the rules, or a build beside them, do not fit into memory",
        ),
        lib.VFDB_TWICE: (DatabaseError, "an update inserts a rule of a priority that is there already"),
        lib.VFDB_ABSENT: (DatabaseError, "an update removes a rule that is not there"),
        lib.VFDB_BAD_BOX: (DatabaseError, "a range of an update is empty, or wider than its field"),
        lib.VFDB_TOO_LARGE: (DatabaseError, "the rules are " + _TOO_MANY),
        lib.VFDB_DISAGREE: (DatabaseError, "{plan}: the algorithm and linear search gave different answers"),
        lib.UPDATE_RUN_NO_THREAD: (DatabaseError, "the system gives no thread for the run"),
        lib.UPDATE_RUN_STOPPED: (KeyboardInterrupt, ""),
        lib.VFDB_STOPPED: (KeyboardInterrupt, ""),
    },
    FILTERS: {
        lib.VFDB_WIDE_HEADER: (DatabaseError, "{plan}: " + _WIDE),
        lib.VFDB_NO_MEMORY: (
            OutOfMemory,
            "{plan}: the filters and their queue of events do not fit into the memory that there is, or that "
            "is allowed",
        ),
        lib.VFDB_TWICE: (DatabaseError, "a filter of priority {priority} is there already"),
        lib.VFDB_ABSENT: (DatabaseError, "no filter of priority {priority} is there"),
        lib.VFDB_BAD_BOX: (DatabaseError, "a range is empty, or wider than its field"),
        lib.VFDB_TOO_LARGE: (DatabaseError, "the filters are " + _TOO_MANY),
        lib.VFDB_DISAGREE: (
            DatabaseError,
            "{plan}: the algorithm and linear search gave different answers",
        ),
        lib.VFDB_STOPPED: (KeyboardInterrupt, ""),
    },
}


def check(family: str, status: int, **facts: object) -> None:
    """Raise the exception of *status*, unless it is success; *facts* fill the text."""
    if status == 0:
        return
    kind, text = _ERRORS[family][status]
    raise kind(text.format(**facts))
