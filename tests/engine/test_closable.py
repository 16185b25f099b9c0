"""What is opened in the engine: closed by `close` or by a `with` block, once, and unusable afterwards."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from hitables.engine import FIVE_TUPLE, Database, EvolvingRules, Filters, FlowTable, Rules, Storm
from hitables.errors import DatabaseError

pytestmark = pytest.mark.engine

RULES = Rules.of_ranges([[(0, 9), (0, 9), (0, 9), (0, 9), (6, 6)]], FIVE_TUPLE)
HEADERS = np.array([[1, 1, 1, 1, 6]], np.uint32)
Opened = Database | Filters | FlowTable | EvolvingRules | Storm
# How it is opened, what it is used for, and what errors call it.
KINDS: dict[str, tuple[Callable[[], Opened], Callable[[Any], object], str]] = {
    "database": (lambda: Database("linear", RULES), lambda each: each.search(HEADERS), "the database is"),
    "filters": (lambda: Filters("linear"), lambda each: each.classify(HEADERS), "the filters are"),
    "flow table": (FlowTable, lambda each: each.replay(HEADERS), "the flow table is"),
    "evolving rules": (lambda: EvolvingRules(RULES), lambda each: each.rules(), "the evolving rules are"),
    "pipeline": (lambda: Storm("linear", RULES), lambda each: each.run(HEADERS), "the pipeline is"),
}


@pytest.mark.parametrize("kind", KINDS)
def test_after_close_every_use_is_refused_by_name_and_a_second_close_does_nothing(kind: str) -> None:
    make, use, name = KINDS[kind]
    opened = make()
    use(opened)
    opened.close()
    opened.close()
    with pytest.raises(DatabaseError, match=f"^{name} closed$"):
        use(opened)


@pytest.mark.parametrize("kind", KINDS)
def test_a_with_block_closes_when_it_ends_by_an_error_and_the_error_passes(kind: str) -> None:
    make, use, name = KINDS[kind]
    with pytest.raises(ZeroDivisionError), make() as opened:
        use(opened)
        raise ZeroDivisionError
    with pytest.raises(DatabaseError, match=f"^{name} closed$"):
        use(opened)


# What takes long enough to be closed in its midst; one for each way to hold memory of the engine.
MANY = np.tile(HEADERS, (200_000, 1))
LONG: dict[str, tuple[Callable[[], Opened], Callable[[Any], object]]] = {
    "linear": (lambda: Database("linear", RULES), lambda each: each.search(MANY)),
    "sfl": (lambda: Database("sfl(hypersplit)", RULES), lambda each: each.search(MANY)),
    "classic": (lambda: Database("classic(hypersplit)", RULES), lambda each: each.search(MANY)),
    "filters": (lambda: Filters("linear"), lambda each: each.classify(MANY)),
    "flow table": (FlowTable, lambda each: each.replay(MANY)),
    "evolving rules": (lambda: EvolvingRules(RULES), lambda each: each.replay(MANY)),
    "pipeline": (lambda: Storm("linear", RULES), lambda each: each.run(MANY[:2000])),
}


@pytest.mark.parametrize("kind", LONG)
def test_a_call_inside_which_another_thread_closes_runs_to_its_end(kind: str) -> None:
    make, use = LONG[kind]
    for _ in range(5):
        opened, ends = make(), []

        def call_until_closed(opened: Opened = opened, ends: list[Exception] = ends) -> None:
            try:
                while True:
                    use(opened)
            except Exception as error:
                ends.append(error)

        thread = threading.Thread(target=call_until_closed)
        thread.start()
        time.sleep(0.003)
        opened.close()
        thread.join()
        assert [(type(end), str(end)) for end in ends] == [(DatabaseError, opened.CLOSED)]
