"""A rule set equals its own save: python -m benchmarks.saves [--only WORD]

Each real rule set, and each spelling of each option of each extension (spellings.py), is loaded in a
scratch namespace, in both backends and its families; then the output of iptables-save must be proved equal
to the text, for that backend. If a save has another meaning (`OTHERWISE`) or a rule cannot be loaded
(`NOT_LOADED`), the reason is listed here, and everything else must be equal.

For the spellings, the bytes of the legacy kernel are compared, too (rule_bytes.py): spellings of one
meaning must have one key, and rules with different bytes must have different keys.

The exit status is 1 if anything differs.  The figures are in docs/evaluation/saves.json and, from there, in
docs/proof.md.
"""

from __future__ import annotations

import json
import multiprocessing
import random
import re
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import click

from benchmarks.rule_bytes import StoredRule, read_entries
from hitables.api import read
from hitables.errors import HitablesError, LiveError
from hitables.ir.choices import Malformed
from hitables.ir.fields import Family, top
from hitables.ir.packet import Backend
from hitables.ir.program import Program
from hitables.ir.rule import Role, Rule, Test
from hitables.kernel.load_save import load, make_ip_sets, save
from hitables.kernel.machine import machine
from hitables.kernel.namespace import Namespace
from hitables.verify.portfolio import check
from hitables.verify.question import Answer, Difference, Equal, Question

from . import command_line, public_sets
from .doc_tables import DOCS, fill, markdown
from .spellings import SECTIONS, Section

FIGURES = DOCS / "evaluation" / "saves.json"
TIMEOUT = 120.0

# Rules that do not load here, and why: (family or None for both, pattern of the rule, reason).
NOT_LOADED: tuple[tuple[Family | None, str, str], ...] = (
    (None, r"-m ipvs ", "this kernel has no ipvs"),
    (None, r"-j LED ", "this kernel has no LED triggers"),
    (None, r"-m nfacct ", "there is no tool here that makes an accounting object"),
    (None, r"-j CT --timeout ", "there is no tool here that makes a timeout policy"),
    (None, r"-j CLUSTERIP ", "kernels since 6.2 have no CLUSTERIP"),
    (None, r"-j QUEUE", "iptables-nft 1.8.9 has no QUEUE"),
    (None, r"-j SECMARK ", "this kernel has no SELinux"),
    (None, r"-m devgroup .*-group default", "names are those of /etc/iproute2/group, which may be missing"),
    (None, r"-m udp .*--dport 9:5", "iptables 1.8.11 takes no range from high to low"),
)

_ALL = r"(0x)?0*:(65535|4294967295|0x[fF]+|0?[13]?7+)?( |$)"

# Saves that mean something else than the text: (backend or None for both, pattern of the rule, reason).
OTHERWISE: tuple[tuple[Backend | None, str, str], ...] = (
    (None, rf"-m ipcomp .*--ipcompspi {_ALL}", "all numbers are saved as none, which means 0 alone"),
    (None, r"-m recent .*--(seconds|hitcount) (4294967295|0x[fF]{8})", "saved as -1, which is refused"),
    (None, rf"! --(sport|dport|source-port|destination-port|ahspi|espspi|fragid|rt-segsleft) {_ALL}",
     "a test that never holds is saved as none"),
    (None, r"-m tcp .*--tcp-flags (?i:none) (?!none\b)", "a test of no flags is saved as none"),
    (None, r"-m tcp .*! --tcp-flags (?i:none none)", "a test that never holds is saved as none"),
    (Backend.LEGACY, r"-j NFLOG .*--nflog-prefix .{65,}",
     "the legacy kernel keeps 63 bytes and nft more: they have two keys, as they mean two things in nft"),
    (None, r"(ct(orig|repl)(src|dst)|--to) \S+/(\d+\.0\.\d+\.0|[3-9]\d|\d{3,})( |$)",
     "a mask with gaps is loaded as all bits before 1.8.11"),
    (None, r"-j HMARK .*-prefix (3[3-9]|[4-9]\d|\d{3}) ", "1.8.11 saves more bits than an address has as -1"),
    (Backend.LEGACY, r"! -i \+( |$)", "a test that never holds is saved as none"),
    (Backend.LEGACY, r"-j DROP .*-p (all|0)( |$)",
     "in IPv6 it makes the kernel look for the protocol, and drop packets that hide it"),
    (Backend.NFT, r"-m limit .*--limit-burst 0", "nft has no burst of 0, and it is saved as none: 5"),
)  # fmt: skip

# Rules that iptables takes and hitables refuses: (pattern of the rule, reason).
NOT_READ: tuple[tuple[str, str], ...] = (
    (r"port .*\b(65536|4294967295)", "a port above 65535, of which iptables keeps the lowest bits"),
)

# Rules that the kernel treats alike though it holds other bytes of them: (pattern of the rule, reason).
ALIKE: tuple[tuple[str, str], ...] = (
    (r"-m comment ", "a comment does nothing"),
    (r"-m multiport ", "the order of the ports does not count"),
    (r"-m (connlimit|recent) |-j HMARK ", "of an IPv4 mask the kernel looks at the first 32 bits"),
    (r"-m conntrack .*--ct(orig|repl)(src|dst) ", "bits of an address beside its mask are not looked at"),
    (r"-m policy .*--tunnel-", "bits of an address beside its mask are not looked at"),
    (r"-m srh .*--srh-.sid ", "bits of an address beside its mask are not looked at"),
    (r"-m (frag|rt|dccp) ", "a flag that an option was given, which the kernel does not look at"),
    (r"-m sctp ", "the order of the chunk types with flags does not count"),
    (r"-j NFLOG .*--nflog-range", "the kernel does not look at the range"),
    (r"-j CONNMARK .*--(set|and|or|xor)-", "where a value is set, the packet's mask does not count"),
    (r"-j CT .*--(zone|notrack)", "of zone and notrack some say nothing beside others"),
    (r"-m iprange ", "a test that holds for every packet, or for none"),
    (r"-m (tcp|udp) ", "a test that holds for every packet, or for none"),
    (r"-j DROP .*-[isd] ", "a test that holds for every packet"),
)

# What must be there before a section's rules can be loaded.
IP_SETS = {"spelt": "hash:net", "spelt2": "hash:net,port"}
_ESTIMATOR = "-A OUTPUT -j RATEEST --rateest-interval 250ms --rateest-ewmalog 500ms --rateest-name"
BEFORE = f"*security\n{_ESTIMATOR} RE1\n{_ESTIMATOR} RE2\nCOMMIT\n"


@dataclass
class Saved:
    """One text in one backend.

    rules      that were loaded
    otherwise  differences between text and save, which must be none
    known      rules whose save means something else, each with the reason
    not_loaded rules that are refused here, each with the reason
    """

    name: str
    family: int
    backend: str
    rules: int = 0
    otherwise: list[str] = field(default_factory=list)
    known: list[str] = field(default_factory=list)
    not_loaded: list[str] = field(default_factory=list)
    seconds: float = 0.0

    def text(self) -> str:
        """One line, and one for each difference."""
        head = f"{self.name} (IPv{self.family}, {self.backend}): {self.rules} rules"
        head += f", {len(self.known)} saved otherwise as is known" if self.known else ""
        head += f", {len(self.not_loaded)} not loaded" if self.not_loaded else ""
        result = "FAIL" if self.otherwise else "ok  "
        return "\n".join([f"{result} {head}", *(f"     {each}" for each in self.otherwise)])


def compare(before: Program, after: Program, backend: Backend) -> Answer:
    """Whether two texts have the same meaning in *backend*, malformed packets included."""
    return check(before, after, Question(backends=(backend,), malformed=Malformed.EXACT, timeout=TIMEOUT))


def try_set(name: str, text: str, backend: Backend) -> Saved:
    """Load a whole rule set, save it, compare."""
    began = time.perf_counter()
    before = read(text, name=name)
    saved = Saved(name, int(before.family), backend.value, before.rule_count())
    with Namespace() as namespace:
        load(text, before.family, backend, namespace)
        printed = save(before.family, backend, namespace)
    after = read(printed, family=before.family, name="the save")
    answer = compare(before, after, backend)
    if not (isinstance(answer, Equal) and answer.proved):
        saved.otherwise.append(_said(answer))
    saved.seconds = time.perf_counter() - began
    return saved


def _said(answer: Answer) -> str:
    if isinstance(answer, Difference):
        return " ".join(answer.describe().split())[:400]
    return f"not proved: {answer}"


@dataclass(frozen=True)
class Loaded:
    """A section's rules in one family and backend.

    rules     (number of the meaning, text) of those that load, in order
    refused   the others
    saved     what iptables-save prints of each
    entries   what the legacy kernel holds of each; empty for nft
    """

    rules: tuple[tuple[int, str], ...]
    refused: tuple[str, ...]
    saved: tuple[str, ...]
    entries: tuple[StoredRule, ...]


@contextmanager
def furnished(family: Family, backend: Backend) -> Iterator[Namespace]:
    """A namespace with what must be there before rules can be loaded; for any number of sections in turn."""
    with Namespace() as namespace:
        make_ip_sets(IP_SETS, family, namespace)
        load(BEFORE, family, backend, namespace)
        yield namespace


def load_section(
    section: Section,
    family: Family,
    backend: Backend,
    rules: Sequence[tuple[int, str]] | None = None,
    within: Namespace | None = None,
) -> Loaded:
    """Load those *rules* that load, the spellings of *section* by default, and see what becomes of them.

    *within* is a namespace furnished for *family* and *backend*; by default a new one.
    """
    wanted = tuple(section.rules() if rules is None else rules)
    with furnished(family, backend) if within is None else nullcontext(within) as namespace:

        def loadable(some: tuple[tuple[int, str], ...]) -> tuple[tuple[int, str], ...]:
            """Those of *some* that load: all at once where they do, else without the one that is refused.

            Where the kernel does not say which one that is, either half by itself.
            """
            text = section.text([rule for _, rule in some])
            try:
                load(text, family, backend, namespace)
            except LiveError as error:
                at = _refused_line(str(error)) - text[: text.index("-A " + section.chain)].count("\n") - 1
                if 0 <= at < len(some):
                    return loadable(some[:at] + some[at + 1 :]) if len(some) > 1 else ()
                half = len(some) // 2
                return loadable(some[:half]) + loadable(some[half:]) if half else ()
            return some

        accepted = loadable(wanted)
        refused = tuple(rule for number, rule in wanted if (number, rule) not in accepted)
        if not accepted:
            return Loaded((), refused, (), ())
        if refused:
            load(section.text([rule for _, rule in accepted]), family, backend, namespace)
        printed = save(family, backend, namespace)
        entries = namespace.call(read_entries, section.table, family) if backend is Backend.LEGACY else []
        if within is not None:
            load(f"*{section.table}\nCOMMIT\n", family, backend, namespace)
    own = printed[printed.index(f"*{section.table}\n") :]
    own = own[: own.index("COMMIT\n")]
    saved = [line for line in own.splitlines() if line.startswith(f"-A {section.chain}")]
    assert len(saved) == len(accepted), f"{len(accepted)} rules of {section.name} saved as {len(saved)}"
    return Loaded(accepted, refused, tuple(saved), tuple(_of_chain(section, entries, len(accepted))))


def _refused_line(message: str) -> int:
    """The line that a message of iptables-restore names, or 0; COMMIT if the kernel refuses a rule."""
    found = re.search(r"Error occurred at line: (\d+)|^line (\d+): RULE_APPEND failed", message, re.MULTILINE)
    return int(found[1] or found[2]) if found else 0


def _of_chain(section: Section, entries: Sequence[StoredRule], count: int) -> Iterator[StoredRule]:
    """The section's entries, without the target of a rule that has none: that field is an offset."""
    before = _CHAINS[section.table].index(section.chain)  # each empty chain in front is one entry, its policy
    for entry in entries[before : before + count]:
        yield replace(entry, target=("", 0, b"")) if not entry.target[0] else entry


_CHAINS = {
    "filter": ("INPUT", "FORWARD", "OUTPUT"),
    "nat": ("PREROUTING", "INPUT", "OUTPUT", "POSTROUTING"),
    "mangle": ("PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING"),
    "raw": ("PREROUTING", "OUTPUT"),
}


def try_section(section: Section, family: Family, backend: Backend, within: Namespace | None = None) -> Saved:
    """Every spelling of an extension against its save, and against each other; *within*: see load_section."""
    began = time.perf_counter()
    loaded = load_section(section, family, backend, within=within)
    result, programs = _against_saves(section, family, backend, loaded)
    result.otherwise += _spelt_alike(loaded, programs, section)
    for rule in loaded.refused:
        reason = next((r for f, p, r in NOT_LOADED if f in (None, family) and re.search(p, rule)), None)
        if reason is None:
            result.otherwise.append(f"does not load: {rule}")
        else:
            result.not_loaded.append(f"{rule}: {reason}")
    result.seconds = time.perf_counter() - began
    return result


def try_drawn(
    section: Section,
    family: Family,
    backend: Backend,
    count: int,
    seed: int,
    within: Namespace | None = None,
) -> Saved:
    """Rules drawn near the spellings of an extension, as many of them as load, each a meaning of its own."""
    began = time.perf_counter()
    rules = section.drawn(random.Random(f"{seed} {section.begin} {family} {section.chain}"), count)
    result = try_rules(section, rules, family, backend, within)
    result.name += ", drawn"
    result.seconds = time.perf_counter() - began
    return result


def try_rules(
    section: Section, rules: Sequence[str], family: Family, backend: Backend, within: Namespace | None = None
) -> Saved:
    """These *rules* of an extension, as many as load: each against its save and the bytes of the kernel."""
    loaded = load_section(section, family, backend, list(enumerate(rules)), within)
    result, _ = _against_saves(section, family, backend, loaded)
    return result


def _against_saves(
    section: Section, family: Family, backend: Backend, loaded: Loaded
) -> tuple[Saved, list[Program | None]]:
    result = Saved(section.begin, int(family), backend.value, len(loaded.rules))
    programs: list[Program | None] = []
    for (_, rule), line in zip(loaded.rules, loaded.saved, strict=True):
        try:
            before = read(section.text([rule]), family=family)
            after = before if line == rule else read(section.text([line]), family=family)
        except HitablesError as error:
            programs.append(None)
            problem = f"not read: {rule} or its save {line}: {error}".splitlines()[0]
            reason = next((r for p, r in NOT_READ if re.search(p, rule)), _otherwise(rule, backend))
            (result.otherwise if reason is None else result.known).append(problem)
            continue
        programs.append(before)
        if after is before:  # one text; the other spellings of its meaning are compared with it
            continue
        answer = compare(before, after, backend)
        if isinstance(answer, Equal) and answer.proved:
            continue
        reason = _otherwise(rule, backend)
        if reason is None:
            result.otherwise.append(f"{rule}  is saved as  {line}: {_said(answer)[:160]}")
        else:
            result.known.append(f"{rule}  is saved as  {line}: {reason}")
    result.otherwise += _by_bytes(loaded, programs, section) if loaded.entries else ()
    return result, programs


def keys(program: Program, section: Section) -> tuple[str, ...]:
    """The keys of the section's one rule; for a match of header fields alone, what it tests."""
    (rule,) = program.table(section.table)[section.chain].rules
    return tuple(_keys(rule, program.family))


def _keys(rule: Rule, family: Family) -> Iterator[str]:
    for match in rule.matches:
        if match.role is not Role.SPACE:
            yield match.key
        elif match.tests or match.needs or (match.is_protocol and family is Family.IPV6):
            tests = sorted(test for test in match.tests if not _is_any(test, family))
            yield f"{match.name} {tests} {match.either} {match.native} {match.needs} {match.is_protocol}"
    yield rule.target.key if rule.target is not None else ""


def _is_any(test: Test, family: Family) -> bool:
    """Whether the test holds for every packet that has the field."""
    return test.values.pairs == ((0, top(test.field, family)),)


def _spelt_alike(loaded: Loaded, programs: Sequence[Program | None], section: Section) -> Iterator[str]:
    """Where spellings of one meaning have different keys, or spellings of different ones the same."""
    first: dict[int, int] = {}
    by_key: dict[tuple[str, ...], int] = {}
    for at, program in enumerate(programs):
        if program is None:
            continue
        (number, rule), key = loaded.rules[at], keys(program, section)
        began, same = first.setdefault(number, at), by_key.setdefault(key, at)
        other = programs[began]
        assert other is not None
        if key != keys(other, section):
            yield f"two keys for one meaning: {loaded.rules[began][1]}  and  {rule}"
        if loaded.rules[same][0] != number:
            yield f"one key for two meanings: {loaded.rules[same][1]}  and  {rule}"


def _by_bytes(loaded: Loaded, programs: Sequence[Program | None], section: Section) -> Iterator[str]:
    """Where the legacy kernel holds other bytes of rules with one key, or the same of rules with two."""
    by_key: dict[tuple[str, ...], int] = {}
    by_entry: dict[StoredRule, int] = {}
    for at, program in enumerate(programs):
        if program is None:
            continue
        rule, entry, key = loaded.rules[at][1], loaded.entries[at], keys(program, section)
        same = by_key.setdefault(key, at)
        if loaded.entries[same] != entry and not _alike(rule) and not _alike(loaded.rules[same][1]):
            yield f"one key, though the kernel holds other bytes: {loaded.rules[same][1]}  and  {rule}"
        same = by_entry.setdefault(entry, at)
        other = programs[same]
        assert other is not None
        known = any(_otherwise(each, Backend.LEGACY) for each in (rule, loaded.rules[same][1]))
        if key != keys(other, section) and not known:
            yield f"two keys, though the kernel holds the same bytes: {loaded.rules[same][1]}  and  {rule}"


def _otherwise(rule: str, backend: Backend) -> str | None:
    """Why the save of this rule means something else, as far as is known."""
    return next((r for b, p, r in OTHERWISE if b in (None, backend) and re.search(p, rule)), None)


def _alike(rule: str) -> bool:
    """Whether the kernel may do the same for this rule and another that it holds other bytes of."""
    return any(re.search(pattern, rule) for pattern, _ in ALIKE)


def total(results: Sequence[Saved]) -> dict[str, Any]:
    """The sums of some lines."""
    return {
        "texts": len(results),
        "rules": sum(each.rules for each in results),
        "otherwise": sum(len(each.otherwise) for each in results),
        "known": sum(len(each.known) for each in results),
        "not_loaded": sum(len(each.not_loaded) for each in results),
    }


def table(figures: Mapping[str, Any]) -> str:
    """For the docs: what was tried, and the saves that mean something else."""
    rows = [
        (name, *(figures[kind][what] for what in ("texts", "rules", "otherwise", "known", "not_loaded")))
        for kind, name in (
            ("extensions", "spellings of every extension"),
            ("drawn", "rules drawn near them"),
            ("sets", "real rule sets"),
        )
    ]
    head = ("tried", "texts", "rules", "not equal", "the save means something else", "cannot be loaded here")
    return markdown(head, rows)


@dataclass(frozen=True)
class Job:
    """A rule set to try (its name and text), a section (with its family), or *drawn* rules near a section."""

    name: str
    backend: Backend
    text: str = ""
    section: Section | None = None
    family: Family = Family.IPV4
    drawn: int = 0
    seed: int = 0

    @property
    def kind(self) -> str:
        return "sets" if self.section is None else "drawn" if self.drawn else "extensions"

    def run(self) -> Saved:
        """Try the section; failures are in the result."""
        try:
            if self.section is None:
                return try_set(self.name, self.text, self.backend)
            if self.drawn:
                return try_drawn(self.section, self.family, self.backend, self.drawn, self.seed)
            return try_section(self.section, self.family, self.backend)
        except HitablesError as error:
            return Saved(self.name, int(self.family), self.backend.value, otherwise=[str(error)])


def jobs_of(only: str, drawn: int, seed: int) -> Iterator[Job]:
    """All that is to be tried."""
    for section in SECTIONS:
        for family in section.families:
            for backend in Backend:
                if only in section.begin:
                    yield Job(section.begin, backend, "", section, family)
                    # All namespaces share the timers of IDLETIMER, and two kinds may not have one label.
                    if drawn and section.name != "IDLETIMER":
                        yield Job(section.begin, backend, "", section, family, drawn, seed)
    for name, text in public_sets.dumps():
        for backend in Backend:
            if only in name:
                yield Job(name, backend, text)


@click.command()
@click.option("--only", default="", help="Only rule sets and extensions whose name holds this.")
@click.option("-n", "--drawn", default=60, show_default=True, help="Rules drawn near each section.")
@click.option("--seed", default=1, show_default=True, help="Of the rules drawn.")
@click.option("-j", "--jobs", default=2, show_default=True)
@click.option("--json", "output", type=click.Path(path_type=Path), help="Write the figures there.")
def main(only: str, drawn: int, seed: int, jobs: int, output: Path | None) -> None:
    """Prove every rule set and every spelling equal to its own save."""
    jobs_ = list(jobs_of(only, drawn, seed))
    began = time.monotonic()
    results = []
    with multiprocessing.get_context("spawn").Pool(jobs, maxtasksperchild=50) as pool:
        for saved in pool.imap(Job.run, jobs_, chunksize=1):
            results.append(saved)
            click.echo(saved.text())
    kinds = ("extensions", "drawn", "sets")
    pairs = list(zip(results, jobs_, strict=True))
    figures: dict[str, Any] = {
        "machine": machine(), "seed": seed, "seconds": round(time.monotonic() - began, 1),
        **{kind: total([each for each, job in pairs if job.kind == kind]) for kind in kinds},
        "saved otherwise": sorted({line for each in results for line in each.known}),
        "not loaded": sorted({line for each in results for line in each.not_loaded}),
        "all": [
            {"name": each.name, "family": each.family, "backend": each.backend, "rules": each.rules,
             "otherwise": each.otherwise, "seconds": round(each.seconds, 2)} for each in results
        ],
    }  # fmt: skip
    for kind in kinds:
        click.echo(f"{kind}: {figures[kind]}")
    if output is None and not only:
        output = FIGURES
    if output is not None:
        output.write_text(json.dumps(figures, indent=1) + "\n")
    if output == FIGURES:
        fill(DOCS / "proof.md", "saves", table(figures))
    sys.exit(1 if any(each.otherwise for each in results) else 0)


if __name__ == "__main__":
    command_line.run(main)
