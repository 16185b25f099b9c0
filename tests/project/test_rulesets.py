"""The rule sets that the project ships: made by the script beside them, taken by every kernel tool."""

from __future__ import annotations

import re
import runpy
import subprocess
from pathlib import Path

import pytest
from support.first_matches import first_matches

from hitables.files import read_text
from hitables.parse import classbench, trace
from hitables.syntax.values import PROTOCOLS

FOLDER = Path(__file__).parents[2] / "rulesets"
SETS = {"campus.rules.gz": "iptables", "containers.rules": "iptables", "campus6.rules": "ip6tables"}


def test_the_script_makes_what_is_shipped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(FOLDER))
    texts = runpy.run_path(str(FOLDER / "make.py"))["contents"]()
    shipped = {path for path in FOLDER.rglob("*") if path.suffix in (".gz", ".rules", ".seed")}
    assert {FOLDER / name for name in texts} == shipped
    for name, text in texts.items():
        assert read_text(str(FOLDER / name)) == text, f"{name}: run `make rulesets`"


def test_the_campus_has_five_thousand_rules_in_sixty_chains() -> None:
    lines = read_text(str(FOLDER / "campus.rules.gz")).splitlines()
    assert sum(line.startswith("-A") for line in lines) == 5000
    assert sum(line.startswith(":") for line in lines) == 60


def chains(text: str) -> dict[str, list[str]]:
    """Rules by table and chain, policies by table."""
    result: dict[str, list[str]] = {}
    table = ""
    for line in text.splitlines():
        if line.startswith("*"):
            table = line
        elif line.startswith(":"):
            result.setdefault(table, []).append(re.sub(r" \[.*", "", line))
        elif line.startswith("-A"):
            # iptables 1.8.11 prints the numbers of most protocols, and those before it names.
            line = re.sub(r"(?<= -p )\S+", lambda name: str(PROTOCOLS.get(name[0], name[0])), line)
            result.setdefault(f"{table} {line.split()[1]}", []).append(line)
    return {name: sorted(lines) if " " not in name else lines for name, lines in result.items()}


@pytest.mark.needs_kernel
@pytest.mark.parametrize("backend", ["legacy", "nft"])
@pytest.mark.parametrize(("name", "tool"), SETS.items())
def test_a_set_loads_and_is_saved_as_it_stands(name: str, tool: str, backend: str) -> None:
    text = read_text(str(FOLDER / name))
    script = f"{tool}-{backend}-restore && {tool}-{backend}-save"
    done = subprocess.run(
        ["unshare", "-n", "sh", "-c", script], input=text, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert chains(done.stdout) == chains(text)


@pytest.mark.parametrize("name", ["acl_100", "acl_1k", "fw_100", "fw_1k"])
def test_a_trace_names_the_first_rule_that_matches_each_header(name: str) -> None:
    filters = classbench.parse(read_text(str(FOLDER / f"classbench/{name}.gz")))
    packets = trace.parse(read_text(str(FOLDER / f"classbench/{name}_trace.gz")))
    assert len(packets) == 10 * len(filters)
    assert packets.expected is not None
    assert (first_matches(filters, packets.headers) == packets.expected).all()
