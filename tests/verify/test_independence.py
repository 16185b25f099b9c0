"""The two proof engines are a second opinion on each other: what they share is listed in docs/proof.md."""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
VERIFY = ROOT / "hitables/verify"
DIAGRAMS = {VERIFY / name for name in ("bdd.py", "bdd_reader.py", "bdd_sets.py")}
QUESTION = VERIFY / "question.py"
COMMON = {QUESTION, VERIFY / "deadline.py"}  # neither engine's own


def module_file(*parts: str) -> Path | None:
    path = ROOT.joinpath(*parts).with_suffix(".py")
    return path if path.is_file() else None


def imports(path: Path) -> Iterator[tuple[Path, str]]:
    """The modules of this project that a module imports, each with a name that it takes from there."""
    package = path.relative_to(ROOT).parts[:-1]
    tree = ast.parse(path.read_text())
    for node in ast.walk(tree):
        if not isinstance(node, ast.ImportFrom):
            continue
        base = package[: len(package) - node.level + 1] if node.level else ()
        parts = (*base, *(node.module.split(".") if node.module else ()))
        whole = module_file(*parts)
        for alias in node.names:
            part = module_file(*parts, alias.name)
            if whole is not None:
                yield whole, alias.name
            elif part is not None:
                # A module imported whole: the names are its attributes that are used.
                for use in ast.walk(tree):
                    if isinstance(use, ast.Attribute) and getattr(use.value, "id", "") == alias.name:
                        yield part, use.attr


def closure(*starts: Path) -> set[Path]:
    """The modules that *starts* import, directly or through others, and *starts*."""
    reached, waiting = set(starts), list(starts)
    while waiting:
        new = {module for module, _ in imports(waiting.pop())} - reached
        reached |= new
        waiting += new
    return reached


@functools.cache
def exact() -> set[Path]:
    return {path for path in closure(VERIFY / "exact.py") if path.parent == VERIFY} - COMMON


def names_of(engine: set[Path]) -> set[tuple[str, str]]:
    """What an engine takes from modules that are not its own."""
    return {
        (str(module.relative_to(ROOT / "hitables")), name)
        for path in engine
        for module, name in imports(path)
        if module not in engine
    }


def listed() -> set[tuple[str, str]]:
    text = (ROOT / "docs/proof.md").read_text()
    table = re.search(r"<!-- imported by both -->\n(.*?)<!-- end -->", text, flags=re.DOTALL)
    assert table
    rows = re.findall(r"^\| `([\w/.]+)` \| (.*) \|$", table[1], flags=re.MULTILINE)
    return {(module, name) for module, names in rows for name in re.findall(r"`(\w+)`", names)}


def test_both_engines_are_found() -> None:
    assert all(path.is_file() for path in DIAGRAMS)
    assert {"encoding.py", "group_lists.py", "packet_classes.py", "witness.py"} <= {
        path.name for path in exact()
    }
    assert not DIAGRAMS & exact()


def test_the_diagrams_reach_nothing_of_the_exact_engine_or_of_c() -> None:
    reached = closure(*DIAGRAMS)
    assert not reached & exact()
    assert {path.relative_to(ROOT / "hitables").parts[0] for path in reached} == {"errors.py", "ir", "verify"}
    assert {path for path in reached if path.parent == VERIFY} == DIAGRAMS | COMMON


def test_the_documented_list_of_what_both_engines_import_is_exact() -> None:
    assert listed() == names_of(DIAGRAMS) & names_of(exact())


@pytest.mark.parametrize("path", sorted(VERIFY.glob("*.py")), ids=lambda path: path.name)
def test_only_core_calls_the_c_engine(path: Path) -> None:
    assert "core._engine" not in path.read_text()
