"""Programs in which rules write what others read: python -m benchmarks.writes [-n PROGRAMS] [--seed SEED]

Each program is drawn from real options of iptables (readers, writers, matches that write, jumps) and
compared with itself after one edit, by the exact checker and by decision diagrams.  The two must agree;
ir.semantics must confirm a difference; and a sample of the differences is sent to the kernel, in the
backend of the witness.  Anything else is a failure: exit status 1.  Equal seeds give equal programs.  The
figures are in docs/evaluation/writes.json.
"""

from __future__ import annotations

import json
import multiprocessing
import random
import sys
import time
import traceback
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import click

from hitables.api import read
from hitables.errors import HitablesError
from hitables.ir import semantics
from hitables.ir.choices import Equivalence, Malformed
from hitables.ir.headers import is_malformed
from hitables.ir.packet import Backend
from hitables.kernel.machine import machine
from hitables.kernel.replay import ReplayResult, replay
from hitables.verify import bdd, exact
from hitables.verify.question import Answer, Difference, Equal, Question, differs

from . import command_line
from .doc_tables import DOCS

FIGURES = DOCS / "evaluation" / "writes.json"
PROGRAMS, SEED = 50_000, 1
REPLAYED = 0.01  # share of the differences that are sent to the kernel
CHUNK = 100
TELL_EVERY = 2_500
TIMEOUT = 120.0  # seconds for one comparison

_HEADERS: Sequence[str] = (
    "",
    "",
    "-s 10.0.0.0/8",
    "-d 10.1.0.0/16",
    "-p udp -m udp --dport 53",
    "-p tcp -m tcp --dport 80",
    "-p udp -m udp --sport 1024:65535",
    "-p icmp -m icmp --icmp-type 8",
    "-p tcp -m tcp --tcp-flags SYN,ACK SYN",
)
_READERS: Sequence[str] = (
    "-m u32 --u32 0>>16&0xFF=0x10",
    "-m length --length 0:100",
    "-m length --length 90:1500",
    "-m mark --mark 0x1",
    "-m mark --mark 0x2/0x3",
    "-m mark ! --mark 0x5",
    "-m connmark --mark 0x1",
    "-m connmark ! --mark 0x4/0x4",
    "-m dscp --dscp 0x04",
    "-m tos --tos 0x10/0xff",
    "-m tos ! --tos 0x08/0x18",
    "-m ttl --ttl-lt 17",
    "-m ttl --ttl-gt 15",
    "-m string --string a --algo bm",
    "-m conntrack --ctstate INVALID,UNTRACKED",
    "-m conntrack --ctstate NEW",
    "-m conntrack --ctstatus NONE",
    "-m connlabel --label 1",
    "-m addrtype --dst-type LOCAL",
    "-m addrtype ! --dst-type BROADCAST",
    "-m pkttype --pkt-type unicast",
    "-m recent --rcheck --name a --rsource",
    "-m limit --limit 5/sec",
    "-m statistic --mode random --probability 0.5",
    "-m owner --uid-owner 0",
    "-m connbytes --connbytes 1: --connbytes-mode packets --connbytes-dir both",
)
_TCP_READERS: Sequence[str] = (
    "-p tcp -m tcp --tcp-option 2",
    "-p tcp -m tcpmss --mss 100:1000",
)
_WRITERS: Sequence[str] = (
    "-j TOS --set-tos 0x10/0xff",
    "-j TOS --or-tos 0x08",
    "-j DSCP --set-dscp 0x04",
    "-j TTL --ttl-set 16",
    "-j MARK --set-mark 1",
    "-j MARK --set-xmark 0x0/0x1",
    "-j MARK --or-mark 0x4",
    "-j MARK --xor-mark 0x3",
    "-j CONNMARK --set-mark 1",
    "-j CONNMARK --or-mark 0x4",
    "-j CONNMARK --save-mark",
    "-j CONNMARK --restore-mark",
    "-m connlabel --label 1 --set",
    "-j CLASSIFY --set-class 1:1",
    "-j CHECKSUM --checksum-fill",
    "-m recent --set --name a --rsource",
    "-j LOG",
    "-j FANCY --strange 1",
    "-m strange --very",
)
_TCP_WRITERS: Sequence[str] = (
    "-p tcp -m tcp --tcp-flags SYN,RST SYN -j TCPMSS --set-mss 100",
    "-p tcp -j TCPOPTSTRIP --strip-options 2",
    "-p tcp -j ECN --ecn-tcp-remove",
)
_RAW_WRITERS: Sequence[str] = (
    "-j CT --notrack",
    "-j CT --zone 1",
    "-j NOTRACK",
)
_MANGLE_ALONE = ("-j TOS", "-j DSCP", "-j TTL", "-j CLASS", "-j CHECK")
_CHAINS = [(table, chain) for table in ("mangle", "raw") for chain in ("OUTPUT", "PREROUTING")]
_ENDS = ("-j ACCEPT", "-j DROP", "-j ACCEPT", "-j DROP", "-j RETURN", "")


@dataclass(frozen=True, slots=True)
class Drawn:
    """A program and the same with one edit, as text."""

    before: str
    after: str


@dataclass(slots=True)
class Tally:
    """The results of the programs of a chunk: counts by name, and a text for each fault."""

    counts: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)

    def add(self, other: Tally) -> None:
        self.counts.update(other.counts)
        self.failures += other.failures


def draw(rng: random.Random) -> Drawn:
    """Equal states of *rng* give equal programs."""
    table, chain = rng.choice(_CHAINS)
    users = [f"user{number}" for number in range(rng.randint(0, 2))]
    chains = [chain, *users]
    rules: list[tuple[str, str]] = []
    for at, name in enumerate(chains):
        rules += [(name, _rule(rng, table, chain, chains[at + 1 :])) for _ in range(rng.randint(2, 6))]
    after = _edited(rng, rules, table, chain)
    policy = rng.choice(("ACCEPT", "DROP"))
    head = f"*{table}\n:{chain} {policy} [0:0]\n" + "".join(f":{user} - [0:0]\n" for user in users)
    before, changed = ("".join(f"-A {name} {rule}\n" for name, rule in each) for each in (rules, after))
    return Drawn(f"{head}{before}COMMIT\n", f"{head}{changed}COMMIT\n")


def _rule(rng: random.Random, table: str, chain: str, below: Sequence[str]) -> str:
    raw = table == "raw"
    readers = [each for each in _READERS if chain == "OUTPUT" or "owner" not in each]
    writers: Sequence[str] = _WRITERS
    if chain == "PREROUTING":
        writers = [each for each in _WRITERS if "CLASSIFY" not in each]
    if raw:
        others = [each for each in _WRITERS if not each.startswith(_MANGLE_ALONE)]
        writers = [*others, *_RAW_WRITERS, *_RAW_WRITERS, *_RAW_WRITERS]
    kind = rng.random()
    if kind < 0.12:
        return rng.choice(_TCP_READERS) + " " + rng.choice(_ENDS)
    if kind < 0.2 and not raw:
        return rng.choice(_TCP_WRITERS)
    header = rng.choice(_HEADERS)
    if kind < 0.45:
        return f"{header} {rng.choice(writers)}".strip()
    matches = " ".join(rng.sample(readers, rng.choice((0, 1, 1, 1, 2))))
    end = rng.choice(_ENDS)
    if below and rng.random() < 0.25:
        end = f"{rng.choice(('-j', '-j', '-g'))} {rng.choice(below)}"
    return " ".join(filter(None, (header, matches, end))) or "-j LOG"


def _edited(
    rng: random.Random, rules: Sequence[tuple[str, str]], table: str, chain: str
) -> list[tuple[str, str]]:
    """Rules one edit away: one removed, doubled, moved within its chain, or another in its place."""
    after, at = list(rules), rng.randrange(len(rules))
    name, rule = after[at]
    kind = rng.choice(("removed", "removed", "doubled", "moved", "other"))
    if kind == "removed":
        del after[at]
    elif kind == "doubled":
        after.insert(at, after[at])
    elif kind == "moved":
        del after[at]
        own = [place for place, (other, _) in enumerate(after) if other == name]
        after.insert(rng.choice(own) if own else at, (name, rule))
    else:
        after[at] = name, _rule(rng, table, chain, [])
    return after


def judge(drawn: Drawn, rng: random.Random, tally: Tally, kernel: bool) -> None:
    """Hold both engines against each other on one pair of programs."""
    before, after = read(drawn.before, name="before"), read(drawn.after, name="after")
    question = Question(
        malformed=rng.choice(list(Malformed)),
        equivalence=Equivalence.VERDICT if rng.random() < 0.4 else Equivalence.FULL,
        timeout=TIMEOUT,
    )
    texts = drawn.before + drawn.after
    answers = [engine.check(before, after, question) for engine in (exact, bdd)]
    answer_texts = [_said(answer) for answer in answers]
    tally.counts["programs"] += 1
    if answer_texts[0] != answer_texts[1]:
        tally.failures.append(f"exact: {answer_texts[0]}; diagrams: {answer_texts[1]} ({question})\n{texts}")
        return
    tally.counts[answer_texts[0]] += 1
    for answer in answers:
        if isinstance(answer, Difference) and answer.packet is not None and answer.backend is not None:
            walks = [
                semantics.run(each.table(answer.table), answer.chain, answer.packet, answer.backend)
                for each in (before, after)
            ]
            may_drop = is_malformed(answer.packet) and question.malformed == "stricter"
            if differs(walks[0], walks[1], may_drop, question.verdict_only) is None:
                tally.failures.append(f"semantics does not show it: {answer.describe()}\n{texts}")
    difference = answers[0]
    loads = all(name not in text for name in ("FANCY", "strange") for text in (drawn.before, drawn.after))
    if kernel and loads and isinstance(difference, Difference):
        replayed = replay(before, after, difference)
        tally.counts[f"kernel: {replayed.finding.value}"] += 1
        if replayed.finding is ReplayResult.CONTRADICTED:
            tally.failures.append(f"the kernel contradicts: {replayed.describe()}\n{texts}")


def _said(answer: Answer) -> str:
    if isinstance(answer, Equal) and answer.proved:
        return "equal"
    return "differ" if isinstance(answer, Difference) else f"undecided: {answer}"


def try_seeds(task: tuple[Sequence[str], float]) -> Tally:
    """Draw and judge a program for each seed."""
    seeds, share = task
    tally = Tally()
    for seed in seeds:
        rng = random.Random(seed)
        drawn = draw(rng)
        try:
            judge(drawn, rng, tally, rng.random() < share)
        except HitablesError as error:
            tally.failures.append(f"{seed}: {error}\n{drawn.before}{drawn.after}")
        except Exception:  # a program that ends in a fault is a failure as any other
            tally.failures.append(f"{seed}: {traceback.format_exc()}\n{drawn.before}{drawn.after}")
    return tally


def _chunks(count: int, seed: int, share: float) -> Iterable[tuple[list[str], float]]:
    seeds = [f"{seed}/{number}" for number in range(count)]
    return ((seeds[at : at + CHUNK], share) for at in range(0, count, CHUNK))


@click.command()
@click.option("-n", "--programs", default=PROGRAMS, show_default=True)
@click.option("--seed", default=SEED, show_default=True)
@click.option(
    "--replayed", default=REPLAYED, show_default=True, help="Share of differences to send to the kernel."
)
@click.option("-j", "--jobs", default=2, show_default=True)
@click.option("--json", "output", type=click.Path(path_type=Path), help="Write the figures there.")
def main(programs: int, seed: int, replayed: float, jobs: int, output: Path | None) -> None:
    """Draw programs that write what they read, and check that both engines agree on them."""
    began, total, reported = time.monotonic(), Tally(), 0
    with multiprocessing.get_context("spawn").Pool(jobs) as pool:
        for tally in pool.imap(try_seeds, _chunks(programs, seed, replayed), chunksize=1):
            for failure in tally.failures:
                click.echo(f"FAIL {failure}")
            total.add(tally)
            if total.counts["programs"] >= reported + TELL_EVERY:
                reported = total.counts["programs"]
                click.echo(f"{reported} of {programs} programs, {time.monotonic() - began:.0f} s")
    seconds = time.monotonic() - began
    figures = {
        "machine": machine(), "seed": seed, "seconds": round(seconds, 1), "failures": len(total.failures),
        "backends": [backend.value for backend in Backend], "counts": dict(sorted(total.counts.items())),
    }  # fmt: skip
    click.echo("\n".join(f"{count:>8,} {name}" for name, count in sorted(total.counts.items())))
    click.echo(f"{len(total.failures)} failures, {seconds:.0f} s")
    if output is None and programs == PROGRAMS and not total.failures:
        output = FIGURES
    if output is not None:
        output.write_text(json.dumps(figures, indent=1) + "\n")
    sys.exit(1 if total.failures or total.counts["programs"] < programs else 0)


if __name__ == "__main__":
    command_line.run(main)
