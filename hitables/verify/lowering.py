"""Two tables in the words of engine/c/prove.h: values as coordinates, what is spelt alike by one number.

Invariant: two values of a field have one coordinate only if no test of either table tells
them apart; equal tests, matches and keys have equal numbers in both tables.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from typing import Any

from hitables.engine._engine import ffi, lib
from hitables.errors import Unsupported
from hitables.ir.fields import PORT_PROTOCOLS, Family, Field, top
from hitables.ir.geometry import Values
from hitables.ir.headers import HEADER_BYTES
from hitables.ir.packet import Backend
from hitables.ir.program import Chain, Table
from hitables.ir.rule import Ends, Kind, Match, Role, Rule, State, Target
from hitables.ir.semantics import DROP, FIELDS_WRITTEN, RETURNS

from .classes import Need, PacketClass, needs_of

NOTHING = 0xFFFFFFFF
MOST_TESTS, MOST_EVENTS = 60, 30  # of one rule; the engine holds them as bits

# Values that packet classes tell apart, whatever the rules test.
_FIXED = {
    Field.PROTO: sorted({p + step for p in {*PORT_PROTOCOLS, *HEADER_BYTES} for step in (0, 1)}),
    Field.FRAG: [1, 2], Field.IIF: [1], Field.OIF: [1],
}  # fmt: skip


class Coordinates:
    """The values of one field, cut where tests begin and end.  A packet may lack a mac: the last."""

    def __init__(self, field: Field, family: Family) -> None:
        self.field, self.top = field, top(field, family)
        self._starts = {0, *_FIXED.get(field, ())}
        self.starts: list[int] = []
        self._index: dict[int, int] = {}

    def add(self, values: Values) -> None:
        for low, high in values.pairs:
            self._starts.add(low)
            self._starts.add(high + 1)

    def settle(self) -> None:
        self._starts.discard(self.top + 1)
        self.starts = sorted(self._starts)
        self._index = {start: at for at, start in enumerate(self.starts)}
        self._index[self.top + 1] = len(self.starts)

    @property
    def size(self) -> int:
        return len(self.starts) + (self.field is Field.MAC)

    def ends(self, values: Values) -> list[int]:
        """low, high, low, high, ... as coordinates; of values whose ends are starts of some."""
        index = self._index
        out: list[int] = []
        for low, high in values.pairs:
            out += (index[low], index[high + 1] - 1)
        return out

    def covering(self, values: Values) -> list[int]:
        """As `ends`, for any values: the coordinates that lie in them wholly."""
        out: list[int] = []
        for low, high in values.pairs:
            first = bisect_right(self.starts, low) - 1
            first += self.starts[first] != low
            last = bisect_right(self.starts, high + 1) - 1 if high < self.top else len(self.starts)
            if first < last:
                out += (first, last - 1)
        return out

    def values(self, low: int, high: int) -> tuple[Values, bool]:
        """The values of the coordinates from *low* to *high*; and whether "none" is among them."""
        none = high == len(self.starts)
        last = min(high, len(self.starts) - 1)
        if low > last:
            return Values(()), none
        end = self.starts[last + 1] - 1 if last + 1 < len(self.starts) else self.top
        return Values(((self.starts[low], end),)), none


class _Numbers:
    """Numbers from 0 for keys, in the order in which they are met."""

    def __init__(self) -> None:
        self.of: dict[Any, int] = {}

    def __call__(self, key: Any) -> int:
        return self.of.setdefault(key, len(self.of))


@dataclass(frozen=True)
class Place:
    """A rule: its chain and its index there, from 0."""

    chain: str
    index: int
    rule: Rule


class Lowering:
    """Two tables of one name and family, as *backend* reads them.

    facts  keys of the CONSTANT matches, in the order of their dimensions (from 12)
    keys   of the matches with memory or chance, by number
    """

    def __init__(
        self, tables: tuple[Table, Table], family: Family, backend: Backend, verdict_only: bool = False
    ) -> None:
        self.tables, self.family, self.backend, self.verdict_only = tables, family, backend, verdict_only
        self.coordinates = {field: Coordinates(field, family) for field in Field}
        self.needs: set[Need] = set()
        self.tested: set[Field] = set()
        self._facts: dict[str, int] = {}
        self._fact_reads: list[frozenset[State]] = []
        self._verdicts, self._effects, self._keys = _Numbers(), _Numbers(), _Numbers()
        self.drop = self._verdicts(DROP)
        self._chains = [{chain.name: at for at, chain in enumerate(table.chains)} for table in tables]
        self.chains_before = len(tables[0].chains)
        self._lower()

    @property
    def facts(self) -> list[str]:
        return list(self._facts)

    @property
    def keys(self) -> list[str]:
        return list(self._keys.of)

    def chain(self, side: int, name: str) -> int:
        return self._chains[side][name] + side * self.chains_before

    def end(self, side: int, name: str) -> int:
        """The number of the verdict of whoever falls off the chain."""
        return self._verdicts(self.tables[side][name].policy or RETURNS)

    def place(self, number: int) -> Place | None:
        """The rule that has this number; None: the end of a chain."""
        if number == NOTHING:
            return None
        at = bisect_right(self._chain_start, number) - 1
        while self._chain_start[at + 1] == self._chain_start[at]:
            at -= 1
        chain: Chain = [*self.tables[0].chains, *self.tables[1].chains][at]
        index = number - self._chain_start[at]
        return Place(chain.name, index, chain.rules[index])

    # ---- matches ----

    def _lower(self) -> None:
        matches: dict[int, Match] = {}
        shapes: set[tuple[int, ...]] = set()
        for table in self.tables:
            for chain in table.chains:
                for rule in chain.rules:
                    shape = tuple(map(id, rule.matches))
                    if shape not in shapes:
                        shapes.add(shape)
                        matches.update(zip(shape, rule.matches, strict=True))
                        self._look_at(rule.matches)
        tests = self._number_tests(matches.values())
        self._lower_matches(matches, tests)
        self._lower_rules()
        self._lower_chains()

    def _look_at(self, matches: tuple[Match, ...]) -> None:
        asked = [match for match in matches if match.needs or match.option]
        if asked:
            self.needs.update(needs_of(matches, self.backend))
        if sum(len(match.tests) + 1 for match in matches) > MOST_TESTS or len(matches) > MOST_EVENTS:
            raise Unsupported(f"a rule of {len(matches)} matches is too long to be proved")

    def _number_tests(self, matches: Iterable[Match]) -> dict[tuple[Field, Values], int]:
        found: dict[tuple[Field, Values], None] = {}
        facts: dict[str, frozenset[State]] = {}
        for match in matches:
            for test in match.tests:
                found[test] = None
            if match.role is Role.CONSTANT:
                facts.setdefault(match.key, match.reads)
        for field, values in found:
            self.coordinates[field].add(values)
        self.tested = {field for field, _ in found}
        for each in self.coordinates.values():
            each.settle()
        # A rule's tests are looked at in the order of their numbers: by field, then facts.
        numbers = {test: at for at, test in enumerate(sorted(found, key=lambda test: test[0]))}
        self._test_dim = array("I", (field for field, _ in numbers))
        self._test_start, self._set_ends = array("I", [0]), array("I")
        for field, values in numbers:
            self._set_ends.extend(self.coordinates[field].ends(values))
            self._test_start.append(len(self._set_ends) // 2)
        for key, reads in facts.items():
            self._facts[key] = len(self._test_dim)
            self._test_dim.append(len(Field) + len(self._fact_reads))
            self._fact_reads.append(reads)
            self._set_ends.extend((1, 1))
            self._test_start.append(len(self._set_ends) // 2)
        return numbers

    def _lower_matches(self, matches: dict[int, Match], tests: dict[tuple[Field, Values], int]) -> None:
        self._match_number: dict[int, int] = {}
        self._code, self._match_start = array("I"), array("I", [0])
        known: dict[tuple[int, ...], int] = {}
        for identity, match in matches.items():
            words = tuple(self._words(match, tests))
            number = known.setdefault(words, len(known))
            if number == len(self._match_start) - 1:
                self._code.extend(words)
                self._match_start.append(len(self._code) // 2)
            self._match_number[identity] = number

    def _words(self, match: Match, tests: dict[tuple[Field, Values], int]) -> Iterator[int]:
        native = match.native and self.backend is Backend.NFT
        op = lib.PROVE_NATIVE if native else lib.PROVE_TEST
        if match.is_protocol:
            yield from (lib.PROVE_CUT, 0)
        if match.needs and not native:
            yield from (lib.PROVE_NEED, match.needs | match.strict << 16)
        if match.either:
            yield from (lib.PROVE_EITHER, len(match.tests)) if match.tests else (lib.PROVE_NEVER, 0)
        for test in match.tests:
            yield from (op, tests[test])
        if match.option:
            yield from (lib.PROVE_OPTION, 0)
        if match.role is Role.CONSTANT:
            yield from (lib.PROVE_TEST, self._facts[match.key])
        elif match.role is not Role.SPACE:
            yield from (lib.PROVE_EVENT, self._keys(match.key) << 1 | (match.role is Role.ONCE))

    # ---- rules and chains ----

    def _lower_rules(self) -> None:
        self._rule_start, self._rule_match = array("I", [0]), array("I")
        self._rule_action, self._chain_start = array("I"), array("I", [0])
        numbers, rule_match, rule_start = self._match_number, self._rule_match, self._rule_start
        rule_action = self._rule_action
        for side, table in enumerate(self.tables):
            targets: dict[int, tuple[int, int, int]] = {}
            for chain in table.chains:
                for rule in chain.rules:
                    rule_match.extend([numbers[id(match)] for match in rule.matches])
                    rule_start.append(len(rule_match))
                    action = targets.get(id(rule.target))
                    if action is None:
                        action = targets[id(rule.target)] = self._action(side, chain, rule)
                    rule_action.extend(action)
                self._chain_start.append(len(rule_start) - 1)

    def _action(self, side: int, chain: Chain, rule: Rule) -> tuple[int, int, int]:
        target = rule.target
        if target is None:
            return self._effect("counts", frozenset(), True)
        if target.kind in (Kind.JUMP, Kind.GOTO):
            if target.name not in self._chains[side]:
                place = f"table {self.tables[side].name}, chain {chain.name}, line {rule.line}"
                raise Unsupported(f"{place}: there is no chain {target.name}")
            op = lib.PROVE_JUMP if target.kind is Kind.JUMP else lib.PROVE_GOTO
            return op, self.chain(side, target.name), 0
        if target.kind is Kind.RETURN:
            return lib.PROVE_RETURN, 0, 0
        if target.ends is Ends.SURELY:
            return lib.PROVE_VERDICT, self._verdicts(target.key), 0
        silent = target.ends is Ends.NEVER and not target.writes
        return self._effect(f"fires {target.key}", target.writes, silent)

    def _effect(self, effect: str, writes: frozenset[State], silent: bool) -> tuple[int, int, int]:
        if self.verdict_only and silent:
            return lib.PROVE_SILENT, 0, 0
        return lib.PROVE_EFFECT, self._effects(effect), _mask(writes)

    def _lower_chains(self) -> None:
        self._chain_writes, self._chain_partner = array("I"), array("I")
        for side, table in enumerate(self.tables):
            written: dict[str, int] = {}
            for name in callees_first(table):
                written[name] = _written(table[name].rules, written)
            other = self.tables[1 - side]
            for chain in table.chains:
                self._chain_writes.append(written[chain.name])
                twin = chain.policy is None and chain.name in other and other[chain.name].policy is None
                self._chain_partner.append(self.chain(1 - side, chain.name) if twin else NOTHING)

    # ---- for C ----

    def input(self) -> tuple[Any, list[Any]]:
        """A struct prove_input, and what must live as long as it does."""
        dims = len(Field) + len(self._fact_reads)
        sizes = array("I", (self.coordinates[field].size for field in Field))
        states = array("I", map(_writers, Field))
        for reads in self._fact_reads:
            sizes.append(2)
            states.append(_mask(reads | {State.ANYTHING}))
        arrays = {
            "dim_size": sizes, "dim_states": states, "test_dim": self._test_dim,
            "test_start": self._test_start, "set_ends": self._set_ends, "match_start": self._match_start,
            "code": self._code, "rule_start": self._rule_start, "rule_match": self._rule_match,
            "rule_action": self._rule_action, "chain_start": self._chain_start,
            "chain_writes": self._chain_writes, "chain_partner": self._chain_partner,
        }  # fmt: skip
        held = {name: ffi.from_buffer("uint32_t[]", words) for name, words in arrays.items()}
        made = ffi.new("struct prove_input *", {
            "dims": dims, "tests": len(self._test_dim), "matches": len(self._match_start) - 1,
            "rules": len(self._rule_start) - 1, "chains": len(self._chain_start) - 1,
            "chains_before": self.chains_before, "drop": self.drop, **held,
        })  # fmt: skip
        return made, [held, arrays]

    def class_words(self, each: PacketClass) -> tuple[Any, array[int]]:
        """A struct prove_class, and the sets that its packets lie in."""
        native_later = each.later and self.backend is Backend.NFT
        frozen = {Field.SPORT, Field.DPORT, Field.FLAGS} if native_later else set()
        made = ffi.new("struct prove_class *", {
            "present": _mask(each.present), "present_native": _mask(each.native), "bytes": each.bytes,
            "frozen": _mask(frozen), "later": each.later, "bad_offset": each.bad_offset,
            "offset_one": each.offset_one, "cut_short": each.cut_short,
            "may_drop": each.malformed, "legacy": self.backend is Backend.LEGACY,
        })  # fmt: skip
        sets = {Field.FRAG: Values(((2, 2),)) if each.later else Values(((0, 1),))}
        if each.protocols is not None:
            sets[Field.PROTO] = each.protocols
        return made, self.set_words(sets)

    def set_words(self, sets: dict[Field, Values]) -> array[int]:
        """dim, count, low, high, ... of each."""
        words = array("I")
        for field, values in sets.items():
            ends = self.coordinates[field].covering(values)
            words.extend((field, len(ends) // 2, *ends))
        return words


def callees_first(table: Table) -> list[str]:
    """The chains of *table*, each behind those that it enters; Unsupported when one reaches itself."""
    graph = {
        chain.name: {
            rule.target.name
            for rule in chain.rules
            if rule.target is not None and rule.target.kind in (Kind.JUMP, Kind.GOTO)
        }
        for chain in table.chains
    }
    try:
        return list(TopologicalSorter(graph).static_order())
    except CycleError as error:
        raise Unsupported(f"table {table.name}: a loop of jumps: {' -> '.join(error.args[1])}") from None


def _written(rules: Iterable[Rule], written: dict[str, int]) -> int:
    found = 0
    for target in {id(rule.target): rule.target for rule in rules}.values():
        found |= _target_writes(target, written)
    return found


def _target_writes(target: Target | None, written: dict[str, int]) -> int:
    if target is None:
        return 0
    return written[target.name] if target.kind in (Kind.JUMP, Kind.GOTO) else _mask(target.writes)


def _writers(field: Field) -> int:
    return _mask(state for state, fields in FIELDS_WRITTEN.items() if field in fields)


def _mask(bits: Iterable[int]) -> int:
    return sum(1 << bit for bit in bits)
