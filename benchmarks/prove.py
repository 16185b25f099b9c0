"""Every rule set proved equal to its compiled form: python -m benchmarks.prove [--only WORD]

Each real set and each filter of WUSTL is read, compiled for both backends, printed, and read again; then
the exact engines compare the two, in turn (verify/portfolio.py).  The exit status is 1 if one is not proved
equal, or takes longer or more memory than its goal.  The figures are in docs/evaluation/prove.json and,
from there, in docs/proof.md.
"""

from __future__ import annotations

import json
import multiprocessing
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import click

from hitables.api import read
from hitables.compiler.compile import compile_rules
from hitables.compiler.options import Options
from hitables.emit.text import write
from hitables.errors import HitablesError
from hitables.ir.fields import Family
from hitables.kernel.machine import machine
from hitables.verify.portfolio import check
from hitables.verify.question import Difference, Equal, Question

from . import command_line, public_sets
from .doc_tables import DOCS, fill, markdown

FIGURES = DOCS / "evaluation" / "prove.json"
TOGETHER = 480.0  # seconds for all sets, two at a time, reading and compiling included
TIMEOUT = 300.0
LARGEST_IPV6 = "largest IPv6 set"
# Seconds that the check may take, and MB.
GOALS: Mapping[str, tuple[float, float | None]] = {
    "acl1_10K": (5, None),
    "ipc1_10K": (20, None),
    "fw1_10K": (60, 2000),
    LARGEST_IPV6: (30, None),
}
SHOWN = 12  # sets in the table of the docs: those that take longest


@dataclass
class Proof:
    """One set.  made: seconds for reading, compiling, reading again; seconds, cpu, peak (MB): of the check.

    answer  "equal", "refused: ...", or what went wrong
    """

    name: str
    family: int = 0
    rules: int = 0
    compiled: int = 0
    made: float = 0.0
    seconds: float = 0.0
    cpu: float = 0.0
    peak: float = 0.0
    regions: int = 0
    answer: str = ""

    def text(self) -> str:
        return (
            f"{self.name}: {self.rules} rules, {self.compiled} compiled; made in {self.made:.2f} s, "
            f"checked in {self.seconds:.2f} s ({self.cpu:.2f} s CPU), {self.peak:.0f} MB: {self.answer}"
        )


def prove(name: str, text: str) -> Proof:
    """Compile and check one set."""
    proof = Proof(name)
    began = time.perf_counter()
    try:
        before = read(text, name=name)
        proof.family, proof.rules = int(before.family), before.rule_count()
        printed = write(compile_rules(before, Options(backend="any")).program)
        after = read(printed, family=before.family, name="the compiled rule set")
    except HitablesError as error:
        proof.answer = f"refused: {str(error).splitlines()[0]}"
        return proof
    proof.compiled, proof.made = after.rule_count(), time.perf_counter() - began
    _forget_peak()
    began, cpu = time.perf_counter(), time.process_time()
    answer = check(before, after, Question(timeout=TIMEOUT))
    proof.seconds, proof.cpu = time.perf_counter() - began, time.process_time() - cpu
    proof.peak = _peak()
    if isinstance(answer, Equal):
        proof.regions = answer.looked_at
        proof.answer = "equal" if answer.proved else "not proved"
    else:
        proof.answer = answer.describe() if isinstance(answer, Difference) else f"undecided: {answer.reason}"
    return proof


def _forget_peak() -> None:
    """Let the kernel forget the most memory that this process had."""
    Path("/proc/self/clear_refs").write_text("5")


def _peak() -> float:
    """MB that this process has had since then."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024


def goals(proofs: Sequence[Proof]) -> list[dict[str, Any]]:
    """What was promised of single sets, beside what was measured."""
    by_name = {proof.name: proof for proof in proofs}
    ipv6 = [proof for proof in proofs if proof.family == Family.IPV6 and proof.name not in public_sets.WUSTL]
    by_name |= {LARGEST_IPV6: max(ipv6, key=lambda proof: proof.rules)} if ipv6 else {}
    return [
        {
            "goal": goal,
            "set": by_name[goal].name,
            "seconds": round(by_name[goal].seconds, 2),
            "cpu": round(by_name[goal].cpu, 2),
            "seconds_allowed": seconds,
            "peak_mb": round(by_name[goal].peak),
            "mb_allowed": megabytes,
            # CPU seconds: what else runs on the machine is not the check's.
            "met": by_name[goal].cpu <= seconds and (megabytes is None or by_name[goal].peak <= megabytes),
        }
        for goal, (seconds, megabytes) in GOALS.items()
        if goal in by_name
    ]


def table(figures: Mapping[str, Any]) -> str:
    """For the docs: the goals, and the sets that take longest."""
    promised = markdown(
        ("goal", "seconds allowed", "seconds (CPU)", "MB"),
        [
            (
                f"{each['goal']} ({each['set']})" if each["goal"] != each["set"] else each["goal"],
                each["seconds_allowed"],
                each["cpu"],
                each["peak_mb"],
            )
            for each in figures["goals"]
        ],
    )
    longest = sorted(figures["sets"], key=lambda each: -each["seconds"])[:SHOWN]
    rows = [
        (
            each["name"],
            each["rules"],
            each["compiled"],
            f"{each['made']:.1f}",
            f"{each['seconds']:.1f}",
            round(each["peak"]),
        )
        for each in longest
    ]
    head = ("set", "rules", "compiled", "read and compiled, s", "checked, s", "MB")
    return f"{promised}\n{markdown(head, rows)}"


def _job(task: tuple[str, str]) -> Proof:
    return prove(*task)


@click.command()
@click.option("--only", default="", help="Only sets whose name holds this.")
@click.option("-j", "--jobs", default=2, show_default=True)
@click.option("--json", "output", type=click.Path(path_type=Path), help="Write the figures there.")
def main(only: str, jobs: int, output: Path | None) -> None:
    """Prove every rule set equal to its compiled form."""
    rule_sets = [each for each in (*public_sets.dumps(), *public_sets.filters()) if only in each[0]]
    to_refuse = [each for each in public_sets.refused() if only in each[0]]
    rule_sets.sort(key=lambda each: -len(each[1]))
    began = time.monotonic()
    proofs = []
    # A process for each set: what one held in memory does not count for the next.
    with multiprocessing.get_context("spawn").Pool(jobs, maxtasksperchild=1) as pool:
        for proof in pool.imap_unordered(_job, rule_sets, chunksize=1):
            proofs.append(proof)
            click.echo(proof.text())
        seconds = time.monotonic() - began
        refusals = pool.map(_job, to_refuse)
    proofs.sort(key=lambda proof: proof.name)
    promised = goals(proofs)
    failed = [proof for proof in proofs if proof.answer != "equal"]
    accepted = [proof for proof in refusals if not proof.answer.startswith("refused")]
    for each in promised:
        allowed = f"{each['seconds_allowed']} s"
        allowed += f", {each['mb_allowed']} MB" if each["mb_allowed"] else ""
        click.echo(
            f"{'ok  ' if each['met'] else 'FAIL'} {each['goal']} ({each['set']}): {each['cpu']} s CPU, "
            f"{each['seconds']} s, {each['peak_mb']} MB; {allowed} allowed"
        )
    for proof in [*failed, *accepted]:
        click.echo(f"FAIL {proof.text()}")
    click.echo(
        f"{len(proofs)} sets, {len(proofs) - len(failed)} proved equal, {len(refusals) - len(accepted)} of "
        f"{len(refusals)} refused as they must be; {seconds:.0f} s of {TOGETHER:.0f} allowed"
    )
    figures = {
        "machine": machine(), "jobs": jobs, "seconds": round(seconds, 1), "goals": promised,
        "sets": [asdict(proof) for proof in proofs], "refused": [proof.name for proof in refusals],
    }  # fmt: skip
    if output is None and not only:
        output = FIGURES
    if output is not None:
        output.write_text(json.dumps(figures, indent=1) + "\n")
    if output == FIGURES:
        fill(DOCS / "proof.md", "prove", table(figures))
    sys.exit(
        1 if failed or accepted or seconds > TOGETHER or not all(each["met"] for each in promised) else 0
    )


if __name__ == "__main__":
    command_line.run(main)
