"""Lines of a stream that are no updates, or part of one: each is answered, and none is performed by mistake."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path

import pytest

import hitables
from sflgen.planner import start_unproved
from sflgen.server import over_lines
from sflgen.session import Session
from sflgen.settings import Settings
from sflgen.store import Store

RULES = "*filter\n:INPUT ACCEPT [0:0]\n-A INPUT -s 10.0.0.1/32 -j DROP\n:own - [0:0]\nCOMMIT\n"


@pytest.fixture
def answers(tmp_path: Path) -> Callable[[str], list[str]]:
    store = Store.create(tmp_path / "st", start_unproved(hitables.read(RULES), Settings(backend="nft")).after)

    def of(lines: str) -> list[str]:
        session = Session(store, None)
        said: list[str] = []
        over_lines(session, io.StringIO(lines), said.append)
        session.close()
        return [line for text in said for line in text.splitlines() if line.startswith(("ok", "error"))]

    of.store = store  # type: ignore[attr-defined]
    return of


def listed(answers: Callable[[str], list[str]]) -> str:
    return hitables.write(answers.store.state.master)  # type: ignore[attr-defined]


def test_a_batch_within_a_batch_performs_nothing(answers: Callable[[str], list[str]]) -> None:
    said = answers("begin\n-A INPUT -s 10.0.0.2 -j DROP\nbegin\n-A INPUT -s 10.0.0.3 -j DROP\ncommit\n")
    (error,) = said
    assert "begin within a batch" in error
    assert "10.0.0.2" not in listed(answers) and "10.0.0.3" not in listed(answers)
    assert answers("begin\n-A INPUT -s 10.0.0.4 -j DROP\ncommit\n") == ["ok 2"]


def test_a_batch_has_one_answer_and_quit_has_none(answers: Callable[[str], list[str]]) -> None:
    batch = "begin\n-A INPUT -s 10.0.0.2 -j DROP\n\n-A INPUT -s 10.0.0.3 -j DROP\ncommit\n"
    assert answers(f"{batch}quit\n") == ["ok 2"]
    assert answers("\n# a comment\nstatus\nquit\n") == ["ok 2"] * 3


def test_a_table_is_named_within_a_batch_alone(answers: Callable[[str], list[str]]) -> None:
    (error,) = answers("*mangle\n")
    assert "*mangle is for the lines of a batch" in error and "-t mangle" in error
    assert answers("begin\n*mangle\n-A INPUT -s 10.0.0.9 -j ACCEPT\nCOMMIT\ncommit\n") == ["ok 2"]
    assert answers.store.state.master.table("mangle")["INPUT"].rules  # type: ignore[attr-defined]


def test_a_last_line_without_its_end_is_not_performed(answers: Callable[[str], list[str]]) -> None:
    """Whoever wrote it may have died at `-D INPUT 1` of `-D INPUT 12`."""
    said = answers("-A INPUT -s 10.0.0.5 -j DROP\n-D INPUT 1")
    assert said[0].startswith("ok") and "the last line has no end" in said[1] and len(said) == 2
    assert "10.0.0.1" in listed(answers) and "10.0.0.5" in listed(answers)


def test_chains_that_would_jump_in_a_circle_are_refused_before_a_packet_can_reach_them(
    answers: Callable[[str], list[str]],
) -> None:
    (error,) = answers("-A own -s 10.0.0.1 -j own\n")
    assert "jump in a circle" in error
