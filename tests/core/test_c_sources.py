"""Rules of the C sources that a compiler does not check."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest
from hitables.core._engine import lib

from hitables.ir.fields import Field, Fragment

ROOT = Path(__file__).parents[2]
CORE = ROOT / "hitables/core"
SOURCES = sorted([*CORE.rglob("*.[ch]"), *ROOT.glob("tools/**/*.c")])
COLUMNS = 110

# Files outside c/memory that call the system's allocator, which a comment there explains.
ALLOCATE = {"c/classify/vfdb.c", "c/prove/prover.c"}


def code(source: Path) -> str:
    """The source without comments, strings and preprocessor lines."""
    text = re.sub(r"/\*.*?\*/", "", source.read_text(), flags=re.DOTALL)
    return re.sub(r'"(?:\\.|[^"\\\n])*"|^ *#.*$', "", text, flags=re.MULTILINE)


def test_fields_have_the_same_numbers_in_c() -> None:
    for field in Field:
        assert getattr(lib, f"FIELD_{field.name}") == field
    for fragment in Fragment:
        assert getattr(lib, f"FRAGMENT_{fragment.name}") == fragment
    assert len(Field) == lib.FIELDS


def test_no_structure_is_defined_twice() -> None:
    sources = [path for path in SOURCES if CORE in path.parents]
    tags = Counter(tag for path in sources for tag in re.findall(r"\bstruct (\w+)\s*\{", code(path)))
    assert [tag for tag, count in tags.items() if count > 1] == []


def test_memory_comes_from_the_counted_allocators() -> None:
    allocate = {
        str(path.relative_to(CORE))
        for path in CORE.rglob("*.c")
        if path.parent.name != "memory"
        and re.search(r"(?<![\w.>])(malloc|calloc|realloc|posix_memalign|free)\(", code(path))
    }
    assert allocate == ALLOCATE


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_c_lines_fit_the_page(source: Path) -> None:
    long = [number for number, line in enumerate(source.read_text().splitlines(), 1) if len(line) > COLUMNS]
    assert not long, f"{source}: lines {long} are longer than {COLUMNS} columns"


@pytest.mark.parametrize("source", sorted(CORE.rglob("*.c")), ids=lambda path: path.name)
def test_c_files_open_with_cost_invariant_and_threading(source: Path) -> None:
    head = source.read_text().partition("*/")[0]
    for word in ("Cost", "Invariant", "Threading"):
        assert re.search(rf"^ \* {word}", head, flags=re.MULTILINE), (
            f"{source}: its head comment names no {word}"
        )
