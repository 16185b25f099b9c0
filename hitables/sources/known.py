"""A compiled rule set whose source is known, by a source map or by the state of `hitables apply`.

Each rule of the compiled set has the key of the rule of the source that it is a copy of (apply/counts.py).

Invariant: the counts of the copies of a rule add up to its count, because each packet that matches the rule
in the source matches one copy of it in the compiled set.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from ..apply import texts
from ..apply.counts import Origins, keyed, of_source, origins_of, recognised, returned_by_policy, sums
from ..apply.drift import as_named, differences
from ..apply.in_force import InForce, in_force, number_in_force, places
from ..apply.records import Record
from ..apply.store import StateDirectory
from ..apply.texts import Count, Tables
from ..emit.text import rule_text, write
from ..errors import HitablesError, NotComparable
from ..ir.fields import Family
from ..ir.foreign import is_foreign
from ..ir.marker import marked_digest
from ..ir.meaning import Digests, meaning
from ..ir.program import Chain, Program, Table
from ..ir.rule import Rule
from ..reader import read
from .map_file import MapFile

_SHOWN = 5  # differences in a note


@dataclass(frozen=True, slots=True)
class SourceRule:
    """A rule of the source.  *count*: the sum of its copies; None: the compiled set has no copy of it."""

    table: str
    chain: str
    rule: Rule
    count: Count | None = None

    @property
    def text(self) -> str:
        """The rule as a line of iptables-save, without counters."""
        return rule_text(self.rule._replace(counters=None), self.chain)


@dataclass(frozen=True)
class Known:
    """A compiled rule set and its source.

    source  the rules that it was compiled from; *text*: as they were given
    tables  the compiled set, whose rules have keys and counts
    notes   what the user should know of rules that are not those of the source
    files   by table of the source: the file that has it, if that is not the name of *source*
    """

    source: Program
    text: str
    tables: Tables
    notes: tuple[str, ...] = ()
    files: Mapping[str, str] = field(default_factory=dict)
    _rules: dict[str, dict[str, SourceRule]] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        keys = of_source(self.source)
        rules: dict[str, dict[str, SourceRule]] = {}
        for table in self.source:
            of_table = rules[table.name] = {}
            for chain in table.chains:
                for rule, key in zip(chain.rules, keys[table.name][chain.name], strict=True):
                    of_table[key] = SourceRule(table.name, chain.name, rule)
        object.__setattr__(self, "_rules", rules)

    def origin(self, table: str, chain: str, at: int) -> SourceRule | None:
        """The rule of which rule *at* (from 0) of a compiled chain is a copy; None: it leads to others."""
        rules = self.tables.get(table, {}).get(chain, texts.TextChain()).rules
        return self._rules.get(table, {}).get(rules[at].key) if at < len(rules) else None

    def place(self, table: str, chain: str, at: int) -> str:
        """`origin` as text: FILE:LINE: RULE, or ""."""
        found = self.origin(table, chain, at)
        return f"{self.file(table)}:{found.rule.line}: {found.text}" if found else ""

    def file(self, table: str) -> str:
        """The file that has *table* of the source."""
        return self.files.get(table, self.source.name)

    def counted(self) -> list[SourceRule]:
        """The rules of the source, in its order, with their counts."""
        counted = []
        for table, of_table in self._rules.items():
            chains = self.tables.get(table, {})
            counts = sums(chains, list(chains))
            present = {rule.key for chain in chains.values() for rule in chain.rules}
            counted += [
                replace(rule, count=counts.get(key, texts.NO_COUNT) if key in present else None)
                for key, rule in of_table.items()
            ]
        return counted

    def policy_counts(self) -> dict[tuple[str, str], Count]:
        """By table and built-in chain of the source: what its policy counted, or would have counted there."""
        counts = {}
        for table in self.source:
            chains = self.tables.get(table.name, {})
            returned = returned_by_policy(chains, chains)
            for chain in table.chains:
                if chain.policy is not None and chain.name in chains:
                    packets, size = chains[chain.name].count
                    more = returned.get(chain.name, texts.NO_COUNT)
                    counts[table.name, chain.name] = packets + more[0], size + more[1]
        return counts


# ---- by a map ----


def by_map(mapped: MapFile, compiled: Program, partial: bool = False) -> Known:
    """*compiled*, known by its map; NotComparable if the map is of other rules, with the chain.

    *partial*: chains that have other rules have no origins, and are noted.
    """
    if compiled.family is not mapped.source.family:
        raise NotComparable(
            f"{compiled.name} is for IPv{int(compiled.family)}, {mapped.path} for "
            f"IPv{int(mapped.source.family)}"
        )
    origins: Origins = {}
    notes: list[str] | None = [] if partial else None
    keys = of_source(mapped.source)
    present = {table.name: table for table in compiled}
    for name in mapped.tables:
        if name not in present:
            raise NotComparable(f"{compiled.name} has no table {name}, which {mapped.path} is of")
        _check_marker(mapped, compiled, present[name])
        numbered = [
            (rule, key)
            for chain in mapped.source.table(name).chains
            for rule, key in zip(chain.rules, keys[name][chain.name], strict=True)
        ]
        origins[name] = _Matching(mapped, compiled, present[name], numbered, notes).origins()
    tables = {name: chains for name, chains in texts.of_program(compiled).items() if name in origins}
    for table in tables:
        for chain in compiled.table(table).chains:
            if chain.counters:
                tables[table][chain.name] = replace(tables[table][chain.name], count=chain.counters)
    return Known(mapped.source, mapped.text, keyed(tables, origins), tuple(notes or ()))


def _check_marker(mapped: MapFile, compiled: Program, table: Table) -> None:
    marked = marked_digest(table)
    if marked and marked != mapped.digest(table.name):
        raise NotComparable(
            f"{compiled.name}: table {table.name} is compiled from a source with digest {marked}; "
            f"{mapped.path} is of one with digest {mapped.digest(table.name)}"
        )


class _Matching:
    """The chains of a compiled table beside those of its map.

    Rules that enter chains of other programs may have come and gone; they are matched by their meaning.

    numbered  the rules of the source with their keys
    notes     receives the chains that have other rules; None: the first is an error
    """

    def __init__(
        self,
        mapped: MapFile,
        compiled: Program,
        table: Table,
        numbered: Sequence[tuple[Rule, str]],
        notes: list[str] | None,
    ) -> None:
        self.mapped, self.compiled, self.table = mapped, compiled, table
        self.numbered, self.notes = numbered, notes
        self.leave, self.digests = mapped.leave, Digests()

    def origins(self) -> dict[str, list[str]]:
        """By chain, the key of each rule; "" for one that is no copy."""
        keys: dict[str, list[str]] = {}
        for entry in self.mapped.tables[self.table.name]["chains"]:
            name = entry["name"]
            chain = self.table[name] if name in self.table else Chain(name, None)
            if is_foreign(name, self.leave):
                keys[name] = self._of_foreign(chain, range(len(self.numbered)))
            else:
                keys[name] = self._of_own(chain, entry["rules"], entry["digest"])
        for chain in self.table.chains:
            if chain.name not in keys:
                if (
                    chain.policy is None
                    and not is_foreign(chain.name, self.leave)
                    and self._is_entered(chain)
                ):
                    self._differ(chain.name, "which the map does not have")
                keys[chain.name] = [""] * len(chain.rules)
        return keys

    def _is_entered(self, chain: Chain) -> bool:
        return any(
            chain.name == rule.enters
            for each in self.table.chains
            for rule in each.rules
            if not is_foreign(each.name, self.leave)
        )

    def _of_own(self, chain: Chain, numbers: Sequence[int], digest: str) -> list[str]:
        foreign = [is_foreign(rule.enters or "", self.leave) for rule in chain.rules]
        own = [rule for rule, other in zip(chain.rules, foreign, strict=True) if not other]
        wanted = [each for each in numbers if not each or not self._enters_foreign(each)]
        if len(own) != len(wanted):
            return self._differ(chain.name, f"which has {len(own)} rules, and {len(wanted)} in the map")
        if self.digests.of_rules(own) != digest:
            return self._differ(chain.name, "which has other rules than the map")
        if not any(foreign):
            return [self._key(number) for number in wanted]
        rest = iter(wanted)
        theirs = iter(self._of_foreign(chain, [each - 1 for each in numbers if each]))
        found = list(zip(foreign, theirs, strict=True))
        return [key if other else self._key(next(rest)) for other, key in found]

    def _enters_foreign(self, number: int) -> bool:
        return is_foreign(self.numbered[number - 1][0].enters or "", self.leave)

    def _key(self, number: int) -> str:
        return self.numbered[number - 1][1] if number else ""

    def _of_foreign(self, chain: Chain, candidates: Sequence[int]) -> list[str]:
        """The keys of rules of *chain* that mean the same as rules of the source, each of these once."""
        known: dict[str, list[str]] = {}
        for at in reversed(candidates):
            rule, key = self.numbered[at]
            if key.startswith(f"{chain.name}\0"):
                known.setdefault(meaning(rule), []).append(key)
        return [keys.pop() if (keys := known.get(meaning(rule))) else "" for rule in chain.rules]

    def _differ(self, chain: str, why: str) -> list[str]:
        """Note that *chain* is not that of the map; it has no keys."""
        message = (
            f"{self.compiled.name}: {self.mapped.path} is not the map of table {self.table.name}, chain "
            f"{chain}, {why}.  Somebody has changed the rules, or they are of another compilation"
        )
        if self.notes is None:
            raise NotComparable(message)
        self.notes.append(message)
        return [""] * (len(self.table[chain].rules) if chain in self.table else 0)


# ---- by the state of apply ----


def by_state(folder: str, family: Family | None, tables: Tables | None = None) -> list[Known]:
    """The rule sets that are in force from state directory *folder*, by family.

    *tables*: what `iptables-save -c` printed of it; None: what the kernel holds.  HitablesError if nothing of
    *family* was applied, or if the source is not known.
    """
    from ..apply.kernel import Kernel
    from ..apply.prepare import find
    from ..ir.packet import Backend

    force = _in_force(folder, family)
    families = [each for each in Family if force.half(each) is not None]
    if tables is not None and len(families) > 1:
        raise HitablesError(
            f"{folder}: rule set {force.record.number} has two families; name one with --family"
        )
    found = []
    for each in families:
        present = tables
        if present is None:
            present = find(Kernel(each, Backend(force.record.backend)), force.leave()).tables
        found.append(_known(folder, force, each, present))
    return found


def program_by_state(folder: str, program: Program) -> Known:
    """*program*, which may be the rule set that is in force from state directory *folder*, with its source.

    The rules are compared as our own printer writes them, since *program* has not the words of the tool.
    """
    force = _in_force(folder, program.family)
    parts = tuple(_printed(part, program.family) for part in force.parts)
    return _known(folder, replace(force, parts=parts), program.family, texts.of_program(program))


def _printed(part: Record, family: Family) -> Record:
    """*part*, whose rules of *family* are as our own printer writes them."""
    half = part.halves[family]
    # Chains of others are not recorded, but jumps to them are.
    declared = {
        table: {
            **chains,
            **{
                rule.enters: texts.TextChain()
                for chain in chains.values()
                for rule in chain.rules
                if rule.enters and rule.enters not in chains and is_foreign(rule.enters, part.leave)
            },
        }
        for table, chains in half.tables.items()
    }
    recorded = read(texts.write(declared), family=family)
    printed = keyed(texts.of_program(recorded), origins_of(half.tables))
    return replace(part, halves={**part.halves, family: replace(half, tables=printed)})


def _in_force(folder: str, family: Family | None) -> InForce:
    """What is in force, of *family* or of both."""
    with StateDirectory.open(folder) as store:
        force = in_force(store, number_in_force(store, store.state()))
    force = force.only([place for place in places(force.record) if family in (None, place[0])])
    if not force.parts:
        raise HitablesError(f"{folder}: no rules of IPv{int(family or 0)} were applied")
    return force


def _known(folder: str, force: InForce, family: Family, present: Tables) -> Known:
    """*present* with its source."""
    parts = [part for part in force.parts if family in part.halves]
    sources: list[Program] = []
    files: dict[str, str] = {}
    texts_of: list[str] = []
    named: Tables = {}
    notes: list[str] = []
    for part in parts:
        of_part = part.halves[family]
        if not of_part.source:
            raise HitablesError(
                f"{folder}: rule set {part.number} was found in the kernel, so its source is not known"
            )
        source = read(of_part.source, family=family, name=of_part.file)
        tables = tuple(table for table in source if table.name in of_part.tables)
        files |= dict.fromkeys((table.name for table in tables), of_part.file)
        if len(tables) < len(source.tables):
            source = replace(source, tables=tables)
            texts_of.append(write(source))
        else:
            texts_of.append(of_part.source)
        sources.append(source)
        named |= _with_later_jumps(as_named(present, of_part, part.leave), source, part.leave)
        notes += [
            f"not as rule set {part.number}: {each}" for each in differences(present, of_part, part.leave)
        ]
    more = [f"… and {len(notes) - _SHOWN} more"] if len(notes) > _SHOWN else []
    return Known(
        replace(sources[0], tables=tuple(table for source in sources for table in source)),
        "".join(texts_of),
        recognised(present, named),
        tuple([*notes[:_SHOWN], *more]),
        files,
    )


def _with_later_jumps(loaded: Tables, source: Program, leave: Sequence[str]) -> Tables:
    """*loaded* with the jumps of *source* to chains of others that did not exist when it was loaded.

    Their programs may have made them since.  They stand last: the place of such a jump is not compared.
    """
    keys, spelled = of_source(source), texts.of_program(source)
    tables: Tables = {}
    for table, chains in loaded.items():
        tables[table] = dict(chains)
        present = {rule.key for chain in chains.values() for rule in chain.rules}
        for name in chains.keys() & spelled.get(table, {}).keys():
            jumps = zip(spelled[table][name].rules, keys[table][name], strict=True)
            more = tuple(
                rule.with_key(key)
                for rule, key in jumps
                if key not in present and is_foreign(rule.enters, leave)
            )
            tables[table][name] = replace(chains[name], rules=chains[name].rules + more)
    return tables


def occurrences(rules: Sequence[SourceRule]) -> list[int]:
    """For each rule its number, from 1, among the rules of its chain that mean the same."""
    seen: Counter[tuple[str, str, str]] = Counter()
    numbers = []
    for each in rules:
        key = each.table, each.chain, meaning(each.rule)
        seen[key] += 1
        numbers.append(seen[key])
    return numbers
