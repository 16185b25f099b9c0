"""Real rule sets against real kernels: python -m hitables.bench.corpus [FOLDER] [-n PACKETS] [--only WORD]

For every rule set of FOLDER (dumps/, extensions/; one line each, none left out):

a  what is printed, once loaded, gives the same iptables-save output as the original, in both backends;
b  the compiled set loads in both;
c  packets at the edges of its boxes, through each built-in chain that has rules: the kernel, with the
   set before and after, and the C interpreter agree on every packet that the interpreter can know, and
   on the counter of every rule; some go through ir.semantics too.

Everything in refused/ must get a message and exit status 2.  Exit status 1 if anything fails.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import subprocess
import sys
import time
import traceback
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import click
import numpy as np
import numpy.typing as npt

from ..compile import Options, compile_rules
from ..emit.text import rule_text, write
from ..errors import HitablesError
from ..ir import semantics
from ..ir.fields import STATES, Family, Field
from ..ir.packet import Backend
from ..ir.program import BUILT_IN, Program, Table
from ..ir.spelling import show_packet
from ..library import read
from ..live.compare import (
    alone,
    consulted,
    counted,
    facts_of,
    follows_connections,
    guesses,
    predict,
)
from ..live.experiment import Fate, Trial, fire, furnish, prepare
from ..live.facts import Traits, truth, wish
from ..live.lab import local_address
from ..live.namespace import Namespace
from ..live.realise import interfaces_of, misread, realise
from ..live.tables import clear, ip_sets_named, load, make_ip_sets, save
from ..live.wire import Trim
from ..verify.edges import Edges
from ..verify.machine import Interner, Machine
from ..verify.packets import PacketBatch, drawn_facts

SEED = 1
PACKETS, SLOWLY = 20_000, 1_000
# Some of the packets drawn do not come to the rules: nat is asked about new connections alone.
DRAWN = 1.5
LEAST = 1_000  # packets for a chain, however few rules it has
ENOUGH_REACHED, MOST_OPEN = 0.9, 0.02
SHARED = Path(__file__).parents[2].parent / "shared" / "corpus"
SHOWN = 3  # differences told of each set


@dataclass
class Line:
    """What came out for one rule set.  *failures*: what is wrong, in words; none: all is well."""

    name: str
    rules: int = 0
    compiled: int = 0
    chains: int = 0
    packets: int = 0  # that came to the rules, by backend and by program: their least number
    open: int = 0
    equal: int = 0
    slow: int = 0
    reachable: int = 0
    reached: int = 0  # of these
    states: int = 0
    seconds: float = 0.0
    failures: list[str] = field(default_factory=list)

    def forget_packets(self) -> None:
        """Forget what packets showed, but no failure."""
        self.packets = self.open = self.equal = self.slow = self.reachable = self.reached = self.states = 0

    def text(self) -> str:
        share = self.open / self.packets if self.packets else 0.0
        reach = self.reached / self.reachable if self.reachable else 1.0
        said = (
            f"{'FAIL' if self.failures else 'ok  '} {self.name}: {self.rules} rules, "
            f"{self.compiled} compiled; "
            f"{self.packets} packets in {self.chains} chains, {self.states} states, {share:.1%} open; "
            f"rules reached {self.reached}/{self.reachable} ({reach:.0%}); {self.slow} slowly; "
            f"{self.seconds:.1f} s"
        )
        return "\n".join([said, *(f"     {failure}" for failure in self.failures)])


@dataclass
class _Chain:
    """One chain to try, and the packets for it."""

    table: str
    name: str
    batch: PacketBatch
    traits: Traits | None = None
    trials: list[Trial] = field(default_factory=list)
    reachable: set[int] = field(default_factory=set)  # lines of the text
    reached: set[int] = field(default_factory=set)


def try_set(path: Path, packets: int) -> Line:
    """All of (a), (b) and (c) for the rule set in *path*."""
    began = time.monotonic()
    line = Line(path.name)
    try:
        text = path.read_text("utf-8", "surrogateescape")
        program = read(text, name=path.name)
        printed = write(program)
        made = compile_rules(program, Options()).program
        compiled_text = write(made)
        compiled = _with_origins(read(compiled_text, family=program.family, name="compiled"), made)
        line.rules, line.compiled = program.rule_count(), compiled.rule_count()
        _same_when_loaded(program, text, printed, line)
        _loads(compiled, compiled_text, line)
        _packets(program, compiled, packets, DRAWN, line)
        compared = line.packets - line.open
        if 0 < compared < packets:  # too many were open: draw as many more as it takes
            line.forget_packets()
            _packets(program, compiled, packets, 1.1 * DRAWN * packets / compared, line)
            compared = line.packets - line.open
        if compared < packets:
            line.failures.append(f"(c) only {compared} packets could be compared")
    except HitablesError as error:
        line.failures.append(f"{type(error).__name__}: {error}")
    except Exception:  # a set that ends in a fault still gets its line
        line.failures.append(traceback.format_exc())
    line.seconds = time.monotonic() - began
    return line


def _same_when_loaded(program: Program, text: str, printed: str, line: Line) -> None:
    for backend in Backend:
        said = []
        for each in (text, printed):
            with Namespace() as namespace:
                load(each, program.family, backend, namespace)
                said.append(save(program.family, backend, namespace, counters=True))
        if said[0] != said[1]:
            pairs = zip(said[0].splitlines(), said[1].splitlines(), strict=False)
            where = next((f"{a!r} became {b!r}" for a, b in pairs if a != b), "one is longer")
            line.failures.append(f"(a) {backend.value}: printed, it saves otherwise: {where}")


def _loads(compiled: Program, text: str, line: Line) -> None:
    for backend in Backend:
        try:
            with Namespace() as namespace:
                load(text, compiled.family, backend, namespace)
        except HitablesError as error:
            line.failures.append(f"(b) {backend.value}: the compiled set does not load: {error}")


def _with_origins(program: Program, made: Program) -> Program:
    """*program*, its rules with the lines that *made*, from which it was printed, gives them."""
    tables = []
    for table in program:
        chains = []
        for chain in table.chains:
            origins = made.table(table.name)[chain.name].rules
            rules = (rule._replace(line=o.line) for rule, o in zip(chain.rules, origins, strict=True))
            chains.append(chain.with_rules(tuple(rules)))
        tables.append(replace(table, chains=tuple(chains)))
    return replace(program, tables=tuple(tables))


def _packets(program: Program, compiled: Program, count: int, drawn: float, line: Line) -> None:
    chains = _drawn(program, int(count * drawn))
    line.chains = len(chains)
    if not chains:
        line.failures.append("(c) there is no built-in chain")
        return
    names = interfaces_of(chain.batch for chain in chains)
    interfaces = sorted(set(names.values()))
    own = frozenset(local_address(program.family, at) for at in range(len(interfaces)))
    seen_states: set[int] = set()
    with Namespace() as namespace:
        furnish(namespace, program.family, interfaces)
        for chain in chains:
            _realised(chain, program, names, own)
            follows = follows_connections(program.table(chain.table))
            prepare(namespace, chain.table, chain.name, chain.trials, follows)
            slow = SLOWLY * len(chain.trials) // sum(len(each.batch) for each in chains) + 2
            _try_chain(namespace, chain, (program, compiled), slow, seen_states, line)
    line.states = len(seen_states)
    for table in {chain.table for chain in chains}:
        mine = [chain for chain in chains if chain.table == table]
        reached = set[int]().union(*(chain.reached for chain in mine))
        line.reached += len(reached)
        line.reachable += len(reached.union(*(chain.reachable for chain in mine)))


def _drawn(program: Program, count: int) -> list[_Chain]:
    """Packets for each built-in chain that has rules: more where more rules are.

    Where none has any, packets for all of them: there are still the policies.
    """
    machine = Machine(program, Backend.LEGACY)
    places = [(table, name) for table in program for name in BUILT_IN[table.name] if name in table]
    ruled = [(table, name) for table, name in places if table[name].rules]
    chosen = [
        (table.name, name, Edges(machine, table.name, name, SEED)) for table, name in ruled or places
    ]
    weights = [len(edges.numbers) + 1 for *_, edges in chosen]
    shares = [max(LEAST, count * weight // max(sum(weights), 1)) for weight in weights]
    return [
        _Chain(table, name, edges.draw(min(share, 60_000)))
        for (table, name, edges), share in zip(chosen, shares, strict=True)
    ]


def _realised(chain: _Chain, program: Program, names: dict[int, str], own: frozenset[int]) -> None:
    """Make the packets such that they can be sent, and the facts of them as wished."""
    table = program.table(chain.table)
    nat = chain.table == "nat"
    batch = realise(chain.batch, chain.name, names, fragments=not nat)
    if nat:
        # Only the first packet of a connection comes to it, and only whole headers are rewritten.
        batch.rows["low"][:, Field.STATE] = STATES.index("NEW")
        batch = batch.pick(batch.rows["l4_bytes"] >= 20)
        _opening(batch)
    traits = Traits(batch, chain.name, own)
    asked = facts_of(table)
    for key, match in asked.items():
        wish(traits, match, drawn_facts(batch.rows["seed"], key))
    misread(batch, traits.tos)
    chain.batch, chain.traits = batch, traits
    columns = (
        traits.mark, traits.connection_mark, traits.uid, traits.gid, traits.tos, traits.ttl
    )  # fmt: skip
    chain.trials = [
        Trial(packet, mark, ctmark, (uid, gid), Trim(tos=tos, ttl=ttl))
        for packet, mark, ctmark, uid, gid, tos, ttl
        in zip(batch, *(column.tolist() for column in columns), strict=True)
    ]  # fmt: skip
    # Reachable is what any of these packets comes to, whatever else is true of it.
    machine = Machine(alone(program, chain.table, chain.name), Backend.LEGACY)
    wide = [batch]
    rng = np.random.default_rng(SEED)
    for _ in range(3):
        rows = batch.rows.copy()
        rows["seed"] = rng.integers(1 << 64, size=len(rows), dtype=np.uint64)
        wide.append(replace(batch, rows=rows))
    for one in wide:
        result = machine.run(chain.table, chain.name, one, hits=True)
        assert result.hits is not None
        chain.reachable |= _lines_hit(machine.program.table(chain.table), result.hits)


def _opening(batch: PacketBatch) -> None:
    """Make packets such that each can be the first of a connection."""
    low, has = batch.rows["low"], batch.rows["present"]
    middle = (has >> Field.FLAGS & 1 != 0) & ~np.isin(low[:, Field.FLAGS] & 0x17, (0x02, 0x10))
    low[middle, Field.FLAGS] = 0x02
    batch.rows["classes"][:] = 0
    new = (8, 13, 15, 17) if batch.family is Family.IPV4 else (128,)
    late = (has >> Field.ICMP & 1 != 0) & ~np.isin(low[:, Field.ICMP] >> 8, new)
    low[late, Field.ICMP] = new[0] << 8


def _lines_hit(table: Table, hits: npt.NDArray[Any]) -> set[int]:
    rules = [rule for chain in table.chains for rule in chain.rules]
    return {rule.line for rule, count in zip(rules, hits.tolist(), strict=True) if count}


def _try_chain(
    namespace: Namespace, chain: _Chain, programs: tuple[Program, Program], slow: int,
    seen_states: set[int], line: Line,
) -> None:  # fmt: skip
    assert chain.traits is not None
    family = programs[0].family
    counts = []
    for backend in Backend:
        interner = Interner()
        verdicts, sums = [], []
        for which, program in zip(("before", "after"), programs, strict=True):
            tried = alone(program, chain.table, chain.name)
            text = write(tried)
            types = ip_sets_named(text)
            make_ip_sets(types, family, namespace, _members(chain.traits, types, family))
            load(text, family, backend, namespace)
            fates = fire(namespace)
            saved = save(family, backend, namespace, counters=True)
            clear(family, backend, namespace)
            asked = consulted(chain.table, fates)
            seen_states.update(fate.state for fate in fates if fate.arrived)
            batch = _as_seen(chain.batch, fates).pick(asked)
            facts = _facts(chain, tried, asked, fates)
            machine = Machine(tried, backend, interner)
            told = predict(machine, chain.table, chain.name, batch, facts)
            passed = np.array([fate.passed for fate in fates], bool)[asked]
            place = f"(c) {chain.table} {chain.name}, {backend.value}, {which}"
            _compare_verdicts(place, batch, passed, told.passes, told.closed, asked, line)
            kernel = counted(saved, tried.table(chain.table))
            _compare_counters(place, tried, chain, kernel, told.hits, told.hits_closed, line)
            counts.append((int(asked.sum()), int((~told.closed).sum())))
            verdicts.append((passed, told.closed, asked))
            sums.append(_by_line(tried, chain, kernel, told.hits_closed, machine, batch))
            if which == "before":
                chain.reached |= _lines_hit(tried.table(chain.table), kernel)
            _slowly(place, tried, chain, batch, facts, machine, backend, slow, line)
        place = f"(c) {chain.table} {chain.name}, {backend.value}"
        _compare_programs(place, chain.batch, verdicts, line)
        if (verdicts[0][2] == verdicts[1][2]).all():
            _compare_sums(place, sums[0], sums[1], line)
    line.packets += min(arrived for arrived, _ in counts)
    line.open += max(unknown for _, unknown in counts)


def _members(traits: Traits, types: dict[str, str], family: object) -> dict[str, list[str]]:
    import ipaddress

    kind = ipaddress.IPv4Address if family == 4 else ipaddress.IPv6Address
    return {
        name: [str(kind(address)) for address in sorted(members)]
        for name, members in traits.members.items()
        if types.get(name) == "hash:net"
    }


def _as_seen(batch: PacketBatch, fates: Sequence[Fate]) -> PacketBatch:
    """The packets with the connection states that they had in the kernel."""
    rows = batch.rows.copy()
    rows["low"][:, Field.STATE] = [fate.state for fate in fates]
    return replace(batch, rows=rows, seeded=False)


def _facts(
    chain: _Chain, program: Program, asked: npt.NDArray[np.bool_], fates: Sequence[Fate]
) -> dict[str, npt.NDArray[np.uint8]]:
    assert chain.traits is not None
    seen = replace_batch(chain.traits, _as_seen(chain.batch, fates))
    return {key: truth(seen, match)[asked] for key, match in facts_of(program.table(chain.table)).items()}


def replace_batch(traits: Traits, batch: PacketBatch) -> Traits:
    """*traits* of the same packets, as *batch* has them."""
    import copy

    same = copy.copy(traits)
    same.batch = batch
    return same


def _compare_verdicts(
    place: str, batch: PacketBatch, passed: npt.NDArray[np.bool_], predicted: npt.NDArray[np.bool_],
    closed: npt.NDArray[np.bool_], asked: npt.NDArray[np.bool_], line: Line,
) -> None:  # fmt: skip
    differs = np.flatnonzero((passed != predicted) & closed)
    line.equal += int((closed & (passed == predicted)).sum())
    if len(differs):
        line.failures.append(f"{place}: {len(differs)} of {len(passed)} verdicts differ")
        for at in differs[:SHOWN]:
            outcome = "passed" if passed[at] else "did not pass"
            number = int(np.flatnonzero(asked)[at]) + 1
            line.failures.append(f"     packet {number} {outcome} in the kernel: {describe(batch, int(at))}")


def _compare_counters(
    place: str, program: Program, chain: _Chain, kernel: npt.NDArray[np.int64],
    predicted: npt.NDArray[np.int64], closed: npt.NDArray[np.bool_], line: Line,
) -> None:  # fmt: skip
    differs = np.flatnonzero((kernel != predicted) & closed)
    if len(differs):
        line.failures.append(f"{place}: the counters of {len(differs)} of {len(kernel)} rules differ")
        for at in differs[:SHOWN]:
            name, _, rule = Machine(program, Backend.LEGACY).rule(chain.table, int(at))
            line.failures.append(
                f"     {kernel[at]} in the kernel, {predicted[at]} predicted: line {rule.line}: "
                + rule_text(rule, name)
            )


def _compare_programs(place: str, batch: PacketBatch, verdicts: list, line: Line) -> None:  # type: ignore[type-arg]
    """The kernel before against the kernel after, on packets that came to both."""
    (before, closed, asked), (after, closed_after, asked_after) = verdicts
    both = asked & asked_after
    full = np.zeros((2, len(asked)), bool)
    known = np.zeros(len(asked), bool)
    full[0, asked], full[1, asked_after] = before, after
    known[asked] = closed
    sure = np.zeros(len(asked), bool)
    sure[asked_after] = closed_after
    stricter = batch.malformed() & ~full[1]
    differs = np.flatnonzero(both & known & sure & (full[0] != full[1]) & ~stricter)
    if len(differs):
        line.failures.append(f"{place}: {len(differs)} packets changed their verdict in the kernel")
        line.failures += [f"     {describe(batch, int(at))}" for at in differs[:SHOWN]]


def _by_line(
    program: Program, chain: _Chain, kernel: npt.NDArray[np.int64], closed: npt.NDArray[np.bool_],
    machine: Machine, batch: PacketBatch,
) -> dict[int, int | None]:  # fmt: skip
    """What the kernel counted for each line of the source, copies added up, malformed packets apart.

    None where it depends on what nobody knows.
    """
    lost = machine.run(chain.table, chain.name, batch.pick(batch.malformed()), hits=True).hits
    assert lost is not None
    sums: dict[int, int | None] = {}
    rules = [rule for each in program.table(chain.table).chains for rule in each.rules]
    counts = (kernel - lost.astype(np.int64)).tolist()
    for rule, count, known in zip(rules, counts, closed.tolist(), strict=True):
        before = sums.get(rule.line, 0)
        sums[rule.line] = before + count if known and before is not None else None
    sums.pop(0, None)  # made to find the way
    return sums


def _compare_sums(
    place: str, before: dict[int, int | None], after: dict[int, int | None], line: Line
) -> None:
    for source, count in before.items():
        copies = after.get(source, 0)
        if count is not None and copies is not None and count != copies:
            line.failures.append(f"{place}: the rule of line {source} counted {count}, its copies {copies}")


def _slowly(
    place: str, program: Program, chain: _Chain, batch: PacketBatch,
    facts: dict[str, npt.NDArray[np.uint8]], machine: Machine, backend: Backend, count: int, line: Line,
) -> None:  # fmt: skip
    """Some of the packets through ir.semantics too."""
    table = program.table(chain.table)
    guess = guesses(table, batch, facts)[0]
    count = min(count, len(batch))
    picked = guess.pick(np.arange(count) * len(batch) // max(count, 1))
    result = machine.run(chain.table, chain.name, picked)
    for at in range(len(picked)):
        walk = semantics.run(table, chain.name, picked.packet(at), backend)
        if walk.verdict != result.verdict_text(at) or len(walk.steps) != result.reads[at]:
            line.failures.append(
                f"{place}: ir.semantics says {walk.verdict} after {len(walk.steps)} rules, the interpreter "
                f"{result.verdict_text(at)} after {result.reads[at]}: {describe(picked, at)}"
            )
            break
    if place.endswith("legacy, before"):
        line.slow += len(picked)


def describe(batch: PacketBatch, at: int) -> str:
    """A packet in words."""
    return show_packet(batch.packet(at))


def refuse(path: Path) -> Line:
    """A file that iptables-restore refuses: ours must, with a message and exit status 2."""
    line = Line(path.name)
    script = "from hitables.cli import main; main()"
    command = [sys.executable, "-c", script, "compile", "-o", os.devnull, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    said = done.stderr.strip().splitlines()
    if done.returncode != 2 or not said or "fault of hitables" in done.stderr:
        line.failures.append(f"exit status {done.returncode}, not 2: {said[:1]}")
    return line


def _files(folder: Path, only: str) -> list[Path]:
    """The rule sets of *folder* whose names hold *only*."""
    return [path for path in sorted(folder.iterdir()) if path.suffix != ".tsv" and only in path.name]


def _job(given: tuple[Path, int]) -> Line:
    return try_set(*given)


@click.command()
@click.argument("folder", type=click.Path(path_type=Path), default=SHARED)
@click.option("-n", "--packets", default=PACKETS, show_default=True, help="Packets per set.")
@click.option("--only", default="", help="Only sets whose name holds this.")
@click.option("-j", "--jobs", default=2, show_default=True)
@click.option("--json", "output", type=click.Path(path_type=Path), help="Write the figures there.")
def main(folder: Path, packets: int, only: str, jobs: int, output: Path | None) -> None:
    """Try every rule set of FOLDER in the kernel."""
    if not folder.is_dir():
        click.echo(f"corpus: {folder}: no such folder", err=True)
        sys.exit(2)
    paths = [path for part in ("dumps", "extensions") for path in _files(folder / part, only)]
    paths.sort(key=lambda path: -path.stat().st_size)
    began = time.monotonic()
    lines = []
    with multiprocessing.get_context("spawn").Pool(jobs, maxtasksperchild=10) as pool:
        for line in pool.imap_unordered(_job, [(path, packets) for path in paths], chunksize=1):
            lines.append(line)
            click.echo(line.text())
        refused = pool.map(refuse, _files(folder / "refused", only))
    for line in refused:
        click.echo(f"{'FAIL' if line.failures else 'ok  '} {line.name}: refused {'; '.join(line.failures)}")
    total = {
        "sets": len(lines), "failed": sum(bool(line.failures) for line in lines),
        "refused": len(refused), "not refused": sum(bool(line.failures) for line in refused),
        "fewest packets": min((line.packets for line in lines), default=0),
        "packets": sum(line.packets for line in lines), "open": sum(line.open for line in lines),
        "slowly": sum(line.slow for line in lines),
        "reachable": sum(line.reachable for line in lines), "reached": sum(line.reached for line in lines),
        "seconds": round(time.monotonic() - began, 1),
    }  # fmt: skip
    click.echo(
        "{sets} sets, {failed} failed; {refused} to refuse, {not refused} taken; {packets} packets "
        "({fewest packets} at least), {open_share:.2%} open; {slowly} slowly; rules reached {reached} of "
        "{reachable} ({reach:.1%}); {seconds} s".format(
            **total, open_share=total["open"] / max(total["packets"], 1),
            reach=total["reached"] / max(total["reachable"], 1),
        )
    )
    if output is not None:
        output.write_text(json.dumps({"total": total, "sets": [asdict(line) for line in lines]}, indent=1))
    failed = bool(total["failed"] or total["not refused"])
    if only:  # some sets are harder than others; the shares are promised for all of them
        sys.exit(failed)
    if total["reached"] < ENOUGH_REACHED * total["reachable"]:
        click.echo(f"fewer than {ENOUGH_REACHED:.0%} of the reachable rules were reached")
        failed = True
    if total["open"] > MOST_OPEN * total["packets"]:
        click.echo(f"more than {MOST_OPEN:.0%} of the packets are open")
        failed = True
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
