"""The shape of the project: imports point towards ir, starting is light, the file lists are true."""

from __future__ import annotations

import ast
import functools
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import networkx as nx
import pytest
from support import one_backend

ROOT = Path(__file__).parents[2]

TABLE = re.search(
    r"<!-- layers -->\n(.*?)<!-- end -->", (ROOT / "docs/architecture.md").read_text(), flags=re.DOTALL
)
assert TABLE
# What a folder of hitables may import from, besides itself and errors: the table of docs/architecture.md.
MAY_IMPORT = {
    folder: set(names.split())
    for folder, names in re.findall(r"^\| `(\w+)` \|.*\|([^|]*)\|$", TABLE[1], flags=re.MULTILINE)
}
MODULES = sorted(path for top in ("hitables", "sflgen") for path in (ROOT / top).rglob("*.py"))


@functools.cache
def parsed(module: Path) -> ast.Module:
    return ast.parse(module.read_text())


def statements(tree: ast.Module) -> Iterator[ast.AST]:
    """All statements; to walk through their expressions, too, takes ten times as long."""
    rest: list[ast.AST] = [tree]
    while rest:
        node = rest.pop()
        yield node
        for field in ("body", "orelse", "finalbody", "handlers", "cases"):
            rest += getattr(node, field, [])


@functools.cache
def imported(module: Path, *, late: bool = True) -> tuple[str, ...]:
    """The project's modules that *module* names, as dotted paths; *late*: in its functions, too."""
    return tuple(_imported(module, late))


def _imported(module: Path, late: bool) -> Iterator[str]:
    package = module.relative_to(ROOT).with_suffix("").parts[:-1]
    tree = parsed(module)
    below = (inner for node in tree.body if isinstance(node, ast.If) for inner in node.body)
    for node in statements(tree) if late else (*tree.body, *below):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level:
            base = package[: len(package) - node.level + 1]
            stem = ".".join((*base, *(node.module or "").split("."))).strip(".")
            yield from (f"{stem}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def folder_of(name: str) -> str:
    """The row of the table for a dotted name: a folder or module of hitables, hitables itself, or sflgen."""
    parts = name.split(".")
    return parts[1] if parts[0] == "hitables" and parts[1:] and parts[1] in MAY_IMPORT else parts[0]


def row_of(module: Path) -> str:
    parts = module.relative_to(ROOT).with_suffix("").parts
    return parts[0] if parts[0] == "sflgen" or parts[1] == "__init__" else parts[1]


@pytest.mark.parametrize("module", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_follow_the_table_of_layers(module: Path) -> None:
    row = row_of(module)
    assert row in MAY_IMPORT, f"{row} is in no row of docs/architecture.md"
    needs = {folder_of(name) for name in imported(module) if name.startswith(("hitables", "sflgen"))}
    extra = needs - MAY_IMPORT[row] - {row, "errors"}
    assert not extra, f"{row} may not import from {sorted(extra)}"


def test_no_row_of_layers_allows_more_than_is_imported() -> None:
    unused = {}
    for row, allowed in MAY_IMPORT.items():
        modules = [path for path in MODULES if row_of(path) == row]
        assert modules, f"docs/architecture.md: there is no {row}"
        unused[row] = allowed - {folder_of(name) for path in modules for name in imported(path)}
    assert not any(unused.values()), {row: names for row, names in unused.items() if names}


def test_only_modules_of_core_import_the_c_engine() -> None:
    modules = [
        path for top in ("hitables", "sflgen", "benchmarks", "tests") for path in (ROOT / top).rglob("*.py")
    ]
    users = {
        str(module.relative_to(ROOT))
        for module in modules
        if "_engine" in module.read_text()  # few do; to parse all takes seconds
        and any(name.startswith("hitables.core._engine") for name in imported(module))
    }
    assert users
    assert not {name for name in users if not name.startswith(("hitables/core/", "tests/core/"))}


def test_sflgen_uses_the_public_names_of_hitables_only() -> None:
    for module in (ROOT / "sflgen").rglob("*.py"):
        for name in imported(module):
            if name.startswith("hitables"):
                assert not any(part.startswith("_") for part in name.split(".")), f"{module}: {name}"


def test_no_modules_need_each_other() -> None:
    """Nor for types alone: what two of them know of each other is one idea, or a third one."""
    modules = {dotted(path): path for top in ("hitables", "sflgen") for path in (ROOT / top).rglob("*.py")}
    needs = nx.DiGraph()
    for name, path in modules.items():
        for found in imported(path, late=False):
            needs.add_edge(name, found if found in modules else found.rpartition(".")[0])
    assert not list(nx.simple_cycles(needs))


def dotted(module: Path) -> str:
    return ".".join(module.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def test_every_c_file_is_listed_for_the_build() -> None:
    listed = set(re.findall(r"'(c/\w+/\w+\.c)'", (ROOT / "hitables/core/meson.build").read_text()))
    core = ROOT / "hitables/core"
    assert {str(path.relative_to(core)) for path in core.rglob("*.c")} == listed


def test_importing_the_package_loads_nothing_heavy() -> None:
    code = "import sys, hitables, sflgen; print(*{'numpy', 'networkx', 'matplotlib'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


def test_every_module_opens_with_its_promise() -> None:
    for module in MODULES:
        tree = parsed(module)
        assert not tree.body or ast.get_docstring(tree), f"{module} has no docstring"


def test_what_the_makefile_runs_exists() -> None:
    text = (ROOT / "Makefile").read_text()
    for name in re.findall(r"python -m ((?:hitables|benchmarks)[\w.]*)", text):
        place = ROOT / name.replace(".", "/")
        assert place.with_suffix(".py").exists() or (place / "__main__.py").exists(), name
    for path in re.findall(r"python ([\w/]+\.py)|\b(tools/\w+)$", text, flags=re.MULTILINE):
        assert (ROOT / "".join(path)).exists(), path
    made = ["make", "--no-print-directory", "--print-data-base", "--question", "help"]
    database = subprocess.run(made, cwd=ROOT, capture_output=True, text=True, check=False).stdout
    (phony,) = [line.split()[1:] for line in database.splitlines() if line.startswith(".PHONY:")]
    assert {"help", "setup", "demo", "test", "check"} <= set(phony)
    for target in phony:
        assert re.search(rf"^{target}:", text, flags=re.MULTILINE), f"make {target} does nothing"


def test_make_help_lists_every_target_that_has_a_description() -> None:
    described = re.findall(r"^([\w-]+):.* ## ", (ROOT / "Makefile").read_text(), flags=re.MULTILINE)
    listed = subprocess.run(["make", "help"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert "papers-layer4" in described
    assert [line.split()[1] for line in listed.splitlines() if line.startswith("  make ")] == described


def test_the_walk_of_a_rule_names_functions_that_exist() -> None:
    page = (ROOT / "docs/architecture.md").read_text()
    steps = re.findall(r"`([\w/]+\.(?:py|c))` `(\w+)`", page)
    assert len(steps) > 15
    for path, name in steps:
        text = (ROOT / "hitables" / path).read_text()
        definition = rf"^(?:def|class) {name}\b" if path.endswith(".py") else rf"^[\w* ]*\b{name}\("
        assert re.search(definition, text, flags=re.MULTILINE), f"{path} defines no {name}"


def test_no_test_file_imports_another() -> None:
    """Helpers of several test files are in tests/support."""
    tests = {path.stem for path in (ROOT / "tests").rglob("test_*.py")}
    for path in (ROOT / "tests").rglob("*.py"):
        names = set(imported(path))
        assert not (names | {name.rpartition(".")[0] for name in names}) & tests, (
            f"{path} imports a test file"
        )


def test_a_test_of_either_backend_runs_with_one_of_the_two() -> None:
    both = [f"{name}[{backend}-1]" for name in range(100) for backend in ("legacy", "nft")]
    spared = one_backend.spared_of([*both, "only[legacy]", "neither"])
    assert {name.split("[")[0] for name in spared} == {str(name) for name in range(100)}
    assert len(spared) == 100 and 30 < sum("nft" in name for name in spared) < 70
