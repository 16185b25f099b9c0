"""Summaries fit the terminal, and no number is cut."""

from __future__ import annotations

import os
import pty
import re
import shlex
import subprocess
import sys
from io import StringIO
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console
from support.hitables_command import run
from support.scale import examples

from hitables.report.columns import print_table

ROOT = Path(__file__).parents[2]
texts = st.text("abcdefgh ", max_size=40)
numbers = st.integers(0, 10**9).map(str)


@settings(max_examples=examples(60))
@given(data=st.data(), width=st.integers(50, 160), count=st.integers(1, 12))
def test_every_number_stands_in_a_line_that_fits(data: st.DataObject, width: int, count: int) -> None:
    columns = [("chain", False), *((f"n{at}", True) for at in range(count)), ("", False)]
    rows = data.draw(st.lists(st.tuples(texts, *[numbers] * count, texts), min_size=1, max_size=4))
    out = StringIO()
    print_table(Console(file=out, width=width), columns, rows)
    printed = out.getvalue()
    assert all(len(line) <= width for line in printed.splitlines()) and "…" not in printed
    words = re.findall(r"\d+", re.sub(r"n\d+", "", printed))
    assert sorted(words) == sorted(cell for row in rows for cell in row[1:-1])


def on_a_terminal(command: list[str], columns: int, folder: Path) -> str:
    """What *command* prints to standard error, which is a terminal of this width."""
    terminal, other = pty.openpty()
    environment = os.environ | {"COLUMNS": str(columns), "TERM": "dumb", "NO_COLOR": "1"}
    done = subprocess.Popen(command, stderr=other, stdout=subprocess.DEVNULL, cwd=folder, env=environment)
    os.close(other)
    data = b""
    while True:
        try:
            more = os.read(terminal, 4096)
        except OSError:  # the last process has closed it
            break
        if not more:
            break
        data += more
    os.close(terminal)
    assert done.wait() == 0, data
    return data.decode().replace("\r\n", "\n")


@pytest.mark.parametrize("columns", [80, 200])
def test_the_summary_of_compile_fits_the_terminal(columns: int, tmp_path: Path) -> None:
    rules = ROOT / "docs/example/office.rules"
    command = [str(Path(sys.executable).with_name("hitables")), "compile", str(rules), "--summary"]
    printed = on_a_terminal([*command, "--quiet"], columns, tmp_path)
    assert all(len(line) <= columns for line in printed.splitlines()), printed
    for word in ("printed", "longest", "nested", "legacy ns", "nft ns"):
        assert word in printed


def test_compile_says_in_one_line_what_it_did_and_how_to_load_it(tmp_path: Path) -> None:
    rules = ROOT / "docs/example/office.rules"
    command = [
        str(Path(sys.executable).with_name("hitables")),
        "compile",
        str(rules),
        "-o",
        "office.compiled",
    ]
    last = on_a_terminal(command, 80, tmp_path).rstrip().splitlines()[-1]
    assert re.search(
        r"1 chain compiled: 14 rules as \d+, \d+\.\d read per packet, now \d+\.\d; proved equal; ", last
    )
    assert last.endswith(f"load the rules with: hitables apply {rules}")


@pytest.mark.parametrize("piped", [False, True])
def test_the_command_that_loads_the_rules_can_be_pasted(piped: bool, tmp_path: Path) -> None:
    folder = tmp_path / "it's $HOME"
    folder.mkdir()
    rules, output = folder / "office.rules", folder / "out"
    compile = [str(Path(sys.executable).with_name("hitables")), "compile", "--family", "6"]
    words = [*compile, "-" if piped else str(rules), "-o", str(output)]
    rules.write_text(
        "*filter\n" + "".join(f"-A INPUT -s 2001:db8::{n} -j DROP\n" for n in range(40)) + "COMMIT\n"
    )
    command = ["sh", "-c", f"{shlex.join(words)} < {shlex.quote(str(rules))}"]
    last = on_a_terminal(command, 80, tmp_path).rstrip().splitlines()[-1]
    loader = shlex.split(last.partition("load the rules with: ")[2])
    assert loader == (["ip6tables-restore", str(output)] if piped else ["hitables", "apply", str(rules)])


def test_names_of_chains_and_files_are_no_markup(tmp_path: Path) -> None:
    names = ["[red]", "[/web]", ":bug:"]
    rules = "".join(
        f"-A {name} -s 10.0.{at}.{n} -j DROP\n" for at, name in enumerate(names) for n in range(9)
    )
    jumps = "".join(f"-A INPUT -j {name}\n" for name in names)
    file = tmp_path / "[bold].rules"
    declared = "".join(f":{name} - [0:0]\n" for name in names)
    file.write_text(f"*filter\n:INPUT ACCEPT [0:0]\n{declared}{jumps}{rules}COMMIT\n")
    stats = run("stats", file).stdout
    summary = run("compile", file, "--summary", "--quiet").stderr
    for name in names:
        assert f" {name} " in stats and f" {name} " in summary
    assert "[bold].rules" in stats
