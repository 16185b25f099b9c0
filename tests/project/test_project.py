"""The shape of the project: imports point towards ir, starting is light, the file lists are true."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import networkx as nx
import pytest

ROOT = Path(__file__).parents[2]

# What a folder of hitables may import from, besides itself and errors.
MAY_IMPORT = {
    "ir": set(),
    "syntax": {"ir"},
    "parse": {"ir", "syntax", "engine"},  # engine: finding the shapes of lines
    "analyse": {"ir", "syntax", "build", "engine"},  # engine: which boxes of rules overlap
    "engine": {"ir"},
    "build": {"ir", "engine", "syntax"},
    "emit": {"ir", "syntax", "parse", "analyse", "build"},  # parse: quoting, both ways in one file
    "verify": {"ir", "engine"},  # of the engine the interpreter alone; the builders are what it checks
    "live": {"ir", "syntax", "parse", "emit", "verify", "engine"},  # the interpreter is held against the kernel
    # counted by the interpreter, measured in the kernel, told to the builders
    "costs": {"ir", "parse", "verify", "live", "files", "build"},
}
MODULES = sorted((ROOT / "hitables").rglob("*.py"))


def imported(module: Path, *, late: bool = True) -> Iterator[str]:
    """The project's modules that *module* names, as dotted paths; *late*: in its functions, too."""
    package = module.relative_to(ROOT).with_suffix("").parts[:-1]
    tree = ast.parse(module.read_text())
    below = (inner for node in tree.body if isinstance(node, ast.If) for inner in node.body)
    for node in ast.walk(tree) if late else (*tree.body, *below):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level:
            base = package[: len(package) - node.level + 1]
            stem = ".".join((*base, *(node.module or "").split("."))).strip(".")
            yield from (f"{stem}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


@pytest.mark.parametrize("module", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_point_towards_ir(module: Path) -> None:
    parts = module.relative_to(ROOT).parts
    if parts[1] not in MAY_IMPORT:
        return
    allowed = MAY_IMPORT[parts[1]] | {parts[1], "errors", "interrupts"}
    names = {name.split(".")[1] for name in imported(module) if name.startswith("hitables.")}
    assert names <= allowed, f"{parts[1]}/ may not import from {sorted(names - allowed)}"


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
    for module in (*MODULES, *(ROOT / "sflgen").rglob("*.py")):
        text = module.read_text()
        assert not text or ast.get_docstring(ast.parse(text)), f"{module} has no docstring"


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
