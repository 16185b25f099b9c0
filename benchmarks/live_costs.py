"""What the commands of a live host take with large rule sets: `python -m benchmarks.live_costs`.

Each rule set is applied in a network namespace of its own, and `status`, `persist`, an apply with one rule
more, `rollback` and a boot in a fresh namespace follow.  A command is a process; its CPU time counts the
tools that it runs, such as iptables-restore, and its memory is that of the largest process.  The figures are
in docs/evaluation/live-costs.json and, from there, in docs/operations.md.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import click

from hitables.errors import HitablesError
from hitables.files import read_text
from hitables.ir.packet import Backend
from hitables.kernel.machine import machine
from hitables.kernel.namespace import Namespace
from hitables.parse.classbench import parse, to_text

from . import command_line
from .compile_speed import REPOSITORY, SHARED, Spent, spend
from .doc_tables import DOCS, fill, markdown

FIGURES = DOCS / "evaluation" / "live-costs.json"
SETS = {
    "campus": REPOSITORY / "rulesets" / "campus.rules.gz",
    "acl1_10K": SHARED / "rulesets" / "wustl" / "acl1_10K.gz",
    "acl1_100k": SHARED / "rulesets" / "classbench" / "acl1_100k.gz",
}
COMMANDS = ("apply", "status", "persist", "one rule more", "rollback", "boot")
_HITABLES = str(Path(sys.executable).with_name("hitables"))
_ONE_MORE = "-A FORWARD -s 198.51.100.9/32 -j DROP\n"


def rules_of(name: str) -> str:
    """A set of SETS as iptables-save text."""
    text = read_text(str(SETS[name]))
    return text if SETS[name].is_relative_to(REPOSITORY) else to_text(parse(text, name))


def with_one_more(text: str) -> str:
    """*text* with one rule more at the end of its table filter."""
    end = text.index("COMMIT", text.index("*filter"))
    return text[:end] + _ONE_MORE + text[end:]


def command_of(words: str, backend: Backend, folder: Path) -> tuple[str, ...]:
    """The command of COMMANDS that *words* name; *folder* has the rule sets and gets the state."""
    state = folder / "state"
    apply_ = ("apply", "--backend", backend.value, "--confirm", "0")
    commands = {
        "apply": (_HITABLES, *apply_, str(folder / "rules")),
        "one rule more": (_HITABLES, *apply_, str(folder / "edited")),
        "persist": (_HITABLES, "persist", "--ssh", "22", "--unit-folder", str(folder)),
    }
    if words == "boot":
        # The script ends with status 101 if it has loaded the compiled rules, as it should.
        return "sh", "-c", 'sh "$1"; exit $(($? - 101))', "sh", str(state / "boot" / "load")
    return (*commands.get(words, (_HITABLES, words)), "--state", str(state))


def measured(text: str, backend: Backend) -> dict[str, Any]:
    """The seconds of each of COMMANDS, the MB of the largest process and of the state directory."""
    costs, largest = {}, 0.0
    with tempfile.TemporaryDirectory() as name, Namespace() as host, Namespace() as booted:
        folder = Path(name)
        (folder / "rules").write_text(text)
        (folder / "edited").write_text(with_one_more(text))
        for words in COMMANDS:
            place = booted if words == "boot" else host
            spent = place.call(_quietly, command_of(words, backend, folder), str(folder / "said"))
            costs[words] = {"cpu_s": round(spent.cpu, 2), "wall_s": round(spent.wall, 2)}
            largest = max(largest, spent.peak)
        state = sum(path.stat().st_size for path in (folder / "state").rglob("*") if path.is_file())
    return {"commands": costs, "largest_mb": round(largest), "state_mb": round(state / 1e6, 3)}


def _quietly(command: tuple[str, ...], said: str) -> Spent:
    """Run *command* in the namespace of the caller; what it says goes to a file."""
    try:
        return spend(["sh", "-c", f'exec "$@" > "{said}" 2>&1 < /dev/null', "sh", *command])
    except SystemExit as end:
        raise HitablesError(f"{end}: {Path(said).read_text().strip()}") from None


def cost_table(rows: list[dict[str, Any]]) -> str:
    """For the docs: the CPU seconds of each command, and the memory."""
    head = ("rule set, backend", "rules", *COMMANDS, "MB of memory", "MB of files")
    return markdown(
        head,
        [
            (
                f"{row['set']}, {row['backend']}",
                row["rules"],
                *(f"{row['commands'][words]['cpu_s']:.1f} s" for words in COMMANDS),
                row["largest_mb"],
                f"{row['state_mb']:.1f}",
            )
            for row in rows
        ],
    )


@click.command(help=__doc__)
@click.option("--only", default="", help="Sets whose name holds this.")
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Write the figures here.")
def main(only: str, output: Path | None) -> None:
    rows = []
    for name, path in SETS.items():
        if only not in name:
            continue
        if not path.exists():
            print(f"{name}: left out, the folder ../shared is missing", file=sys.stderr)
            continue
        text = rules_of(name)
        for backend in (Backend.NFT, Backend.LEGACY):
            row: dict[str, Any] = {"set": name, "backend": backend.value, "rules": text.count("\n-A ")}
            row |= measured(text, backend)
            costs = ", ".join(f"{words} {cost['cpu_s']:.1f} s" for words, cost in row["commands"].items())
            print(f"{name}, {backend.value}: {costs}; {row['largest_mb']} MB of memory", flush=True)
            rows.append(row)
    if output is None and len(rows) == 2 * len(SETS):
        output = FIGURES
        fill(DOCS / "operations.md", "live-costs", cost_table(rows))
    if output is not None:
        output.write_text(json.dumps({"machine": machine(), "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    command_line.run(main)
