"""The docs are true: their examples run, their links lead to files, their figures are the recorded ones.

In a ```console block a line that starts with `$ ` is run in a folder that holds the project's docs,
examples and rulesets; the lines below it are the expected output, in which `...` matches any text.
A ```python block is run as a script there.
"""

from __future__ import annotations

import doctest
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from support import command_clients, scale

import hitables
from benchmarks.before_after import gains
from hitables.cli.main import main
from hitables.compiler.compile import compile_rules
from hitables.files import read_text
from hitables.ir.packet import Backend
from hitables.ir.rule import Ends, Role
from hitables.syntax.extensions import MATCHES, TARGETS

ROOT = Path(__file__).parents[2]
PAGES = [
    ROOT / "README.md",
    *sorted((ROOT / "docs").rglob("*.md")),
    ROOT / "rulesets/README.md",
    *sorted((ROOT / "integrations").rglob("README.md")),
]
BLOCK = re.compile(r"^```(console|python)\n(.*?)^```$", flags=re.MULTILINE | re.DOTALL)
FOLDERS = "hitables|sflgen|tests|docs|rulesets|examples|tools|integrations"
WITH_EXAMPLES = [page for page in PAGES if BLOCK.search(page.read_text())]


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def run(command: list[str] | str, folder: Path, programs: str = "") -> subprocess.CompletedProcess[str]:
    """*programs*: a folder in front of the PATH."""
    path = [programs, str(Path(sys.executable).parent), os.environ["PATH"]]
    env = os.environ | {"PATH": ":".join(filter(None, path)), "COLUMNS": "110"}
    return subprocess.run(
        command,
        shell=isinstance(command, str),
        executable="/bin/bash" if isinstance(command, str) else None,
        cwd=folder,
        env=env,
        text=True,
        check=False,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )


def try_console(block: str, folder: Path) -> None:
    """Run the commands of a block; a later command sees the variables that an earlier one sets.

    They are forked from a process that has imported them, but where a block ends some itself.
    """
    variables, programs = "", "" if "kill " in block else command_clients.folder()
    for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
        command, _, expected = part.partition("\n")
        if re.fullmatch(r"\w+=.*", command):
            variables += command + "\n"
            continue
        done = run(variables + command, folder, programs)
        assert done.returncode == 0, f"$ {command}\n{done.stdout}"
        if expected.strip():
            equal = doctest.OutputChecker().check_output(expected, done.stdout, doctest.ELLIPSIS)
            assert equal, f"$ {command}\n--- on the page\n{expected}--- it printed\n{done.stdout}"


def make_links(folder: Path) -> Path:
    """*folder*, with links to the parts of the project that examples use."""
    for name in ("docs", "examples", "rulesets"):
        (folder / name).symlink_to(ROOT / name)
    return folder


@pytest.mark.parametrize("page", WITH_EXAMPLES, ids=name_of)
def test_the_examples_of_a_page_print_the_output_on_the_page(page: Path, tmp_path: Path) -> None:
    make_links(tmp_path)
    for kind, block in BLOCK.findall(page.read_text()):
        if kind == "console":
            try_console(block, tmp_path)
        else:
            done = run([sys.executable, "-c", block], tmp_path)
            assert done.returncode == 0, f"{block}\n{done.stdout}"


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_lead_to_files_of_the_project(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text()):
        if "://" not in target:
            assert (page.parent / target).exists(), target


def test_the_index_leads_to_every_page() -> None:
    index = (ROOT / "docs" / "README.md").read_text()
    pages = {page.name for page in (ROOT / "docs").glob("*.md")} - {"README.md"}
    assert {target for target in re.findall(r"\]\((\w[\w-]*\.md)", index)} == pages
    assert "(docs/README.md)" in (ROOT / "README.md").read_text()


def test_files_and_tests_that_the_docs_name_exist() -> None:
    for page in PAGES:
        for name in re.findall(rf"`((?:{FOLDERS})/[\w./-]*)`", page.read_text()):
            assert (ROOT / name).exists(), f"{name_of(page)} names {name}"


def test_make_targets_that_the_docs_name_exist() -> None:
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))
    for page in [*PAGES, ROOT / "CHANGELOG.md"]:
        named = set(re.findall(r"`make ([a-z][a-z0-9-]*)", page.read_text()))
        assert named <= targets, f"{name_of(page)} names {named - targets}"


def test_the_picture_is_what_the_example_compiles_to(tmp_path: Path) -> None:
    compiled = run(
        "hitables compile docs/example/office.rules -o office.rules && "
        f"python {ROOT}/tools/picture.py office.rules FORWARD office.svg",
        make_links(tmp_path),
    )
    assert compiled.returncode == 0, compiled.stdout
    picture = (ROOT / "docs/example/office.svg").read_text()
    assert (tmp_path / "office.svg").read_text() == picture, "run `make pictures`"


def names_in_item(text: str, head: str) -> set[str]:
    """The words in backquotes of the list item that starts with *head*."""
    item = re.search(rf"^- {re.escape(head)}:((?:.|\n  )*)", text, flags=re.MULTILINE)
    assert item, head
    return set(re.findall(r"`([\w-]+)`", item[1]))


def test_the_docs_list_every_match_and_target_of_the_table() -> None:
    text = (ROOT / "docs/rules.md").read_text()
    for role in Role:
        known = {match.name for match in MATCHES.values() if match.role is role}
        assert names_in_item(text, f"{role.name} matches") == known
    heads = {
        Ends.SURELY: "Targets that always end the packet's path",
        Ends.MAYBE: "Targets that sometimes end it",
        Ends.NEVER: "Targets that never end it",
    }
    for ends, head in heads.items():
        assert names_in_item(text, head) == {
            target.name for target in TARGETS.values() if target.ends is ends
        }


def test_the_docs_list_the_header_bytes_that_a_match_needs() -> None:
    rows = re.findall(
        r"^\| (`.*`.*) \| (\d+) \|$", (ROOT / "docs/semantics.md").read_text(), flags=re.MULTILINE
    )
    sizes = {name: int(size) for names, size in rows for name in re.findall(r"`(\w+)`", names)}
    assert sizes == {match.name: match.needs for match in MATCHES.values() if match.needs}


def test_the_docs_name_every_command_of_the_program() -> None:
    text = "".join(page.read_text() for page in PAGES)
    assert "compile" in main.commands
    for name in main.commands:
        assert re.search(rf"hitables {name}\b", text), name


def test_the_figures_of_the_readme_are_those_of_the_demo() -> None:
    """To within a tenth: they change a little whenever trees or packets do."""
    text = read_text(str(ROOT / "rulesets/campus.rules.gz"))
    before = hitables.read(text)
    after = compile_rules(before).program
    (line,) = (line for line in gains(before, after, 20_000, Backend.NFT) if line.chain == "filter FORWARD")
    figures = r" \| ".join([r"([\d,]+)"] * 3)
    rows = re.findall(
        rf"^\| (?:before|after) \| {figures} \|$", (ROOT / "README.md").read_text(), re.MULTILINE
    )
    printed = [[int(figure.replace(",", "")) for figure in row] for row in rows]
    measured = [*zip(line.mean, line.longest, (before.rule_count(), after.rule_count()), strict=True)]
    assert len(printed) == 2
    for row, measurement in zip(printed, measured, strict=True):
        assert row == pytest.approx(measurement, rel=0.1), f"make demo shows {measured}"


def test_the_kernel_figures_of_the_readme_are_the_recorded_ones() -> None:
    cases = json.loads((ROOT / "docs/evaluation/kernel.json").read_text())["cases"]
    with_64_flows = {(case["case"], case["backend"]): case for case in cases if case["flows"] == 64}
    decorated = "fw1_10K est+docker+logdrop"
    for name in ("acl1_10K", "ipc1_10K", "fw1_10K", decorated):
        row = f"| {'fw1_10K as on a host' if name == decorated else name} |"
        for backend in ("nft", "legacy"):
            case = with_64_flows[name, backend]
            row += f" {case['input_ns'] / 1000:.1f} µs | {case['compiled_ns'] / 1000:.2f} µs | {case['ratio']:.0f} |"
        assert row in (ROOT / "README.md").read_text()


def test_the_lines_of_the_pages_are_not_too_long() -> None:
    """Tables, titles, blocks of code and what benchmarks write apart."""
    block = re.compile(r"^ *```.*?^ *```$|^<!-- table: .*?^<!-- end -->$", re.MULTILINE | re.DOTALL)
    long = []
    for page in [*PAGES, ROOT / "CHANGELOG.md"]:
        lines = block.sub("", page.read_text()).splitlines()
        lines = [line for line in lines if not line.lstrip().startswith(("|", "#"))]
        long += [f"{name_of(page)}: {line}" for line in lines if len(line) > 122]
    assert long == []


def test_the_page_has_the_shares_of_examples_that_are_tried() -> None:
    few, of = scale.SHARE
    shares = f"`make test` tries {few} in {of} of the first and {scale.FEWER} of the second, "
    page = " ".join((ROOT / "docs/development.md").read_text().split())
    assert f"of others it is {scale.USUAL}. {shares}`make deep` {scale.DEEP} times the whole." in page
