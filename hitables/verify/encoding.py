"""Two tables in the words of core/include/prove.h: values as coordinates, what is spelt alike by one number.

Invariant: two values of a field have one coordinate only if no test of either table tells
them apart; equal tests, matches and keys have equal numbers in both tables.
"""

from __future__ import annotations

import copy
from array import array
from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from itertools import chain as row
from operator import attrgetter, itemgetter
from typing import Any

import numpy as np
import numpy.typing as npt

from hitables.core._engine import ffi, lib
from hitables.errors import Unsupported
from hitables.ir.fields import PORT_PROTOCOLS, Family, Field, top
from hitables.ir.headers import HEADER_BYTES
from hitables.ir.intervals import Values
from hitables.ir.packet import Backend
from hitables.ir.program import Chain, Table, without_circles
from hitables.ir.rule import Ends, Kind, Match, Role, Rule, State, Target
from hitables.ir.semantics import DROP, FIELDS_WRITTEN, RETURNS

from .packet_classes import Need, PacketClass, classes, needs_of

NOTHING = 0xFFFFFFFF

Words = npt.NDArray[np.uint32]
Pairs = tuple[tuple[int, int], ...]
_PROTO = int(Field.PROTO)
MOST_TESTS, MOST_EVENTS = 60, 30  # of one rule; the engine holds them as bits

# Values that packet classes tell apart, whatever the rules test.
_FIXED = {
    Field.PROTO: sorted({p + step for p in {*PORT_PROTOCOLS, *HEADER_BYTES} for step in (0, 1)}),
    Field.FRAG: [1, 2],
    Field.IIF: [1],
    Field.OIF: [1],
}


class Coordinates:
    """The values of one field, cut where tests begin and end.  A packet may lack a mac: the last."""

    def __init__(self, field: Field, family: Family) -> None:
        self.field, self.top = field, top(field, family)
        self._starts = {0, *_FIXED.get(field, ())}
        self.starts: list[int] = []
        self._index: dict[int, int] = {}

    def add(self, pairs: Pairs) -> None:
        for low, high in pairs:
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

    def ends(self, pairs: Pairs) -> list[int]:
        """low, high, low, high, ... as coordinates; of values whose ends are starts of some."""
        index = self._index
        out: list[int] = []
        for low, high in pairs:
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
        tables = without_circles(tables[0]), without_circles(tables[1])
        self.tables, self.family, self.backend, self.verdict_only = tables, family, backend, verdict_only
        self.coordinates = {field: Coordinates(field, family) for field in Field}
        self._facts: dict[str, int] = {}
        self._fact_reads: list[frozenset[State]] = []
        self._verdicts, self._effects, self._keys = _Numbers(), _Numbers(), _Numbers()
        self.drop = self._verdicts(DROP)
        self._chains = [{chain.name: at for at, chain in enumerate(table.chains)} for table in tables]
        self.chains_before = len(tables[0].chains)
        self._lower_rules()
        self._lower_chains()

    def read_by(self, backend: Backend) -> Lowering:
        """The same tables, with the same numbers, as *backend* reads them."""
        made = copy.copy(self)
        made.backend = backend
        return made

    def classes(self) -> list[PacketClass]:
        """The classes of packets that its rules can tell apart."""
        return list(classes(self.needs, frozenset(self.tested), self.family))

    @property
    def needs(self) -> frozenset[Need]:
        return frozenset(need for matches in self._needing for need in needs_of(matches, self.backend))

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
        at = int(np.searchsorted(self.chain_start, number, "right")) - 1
        chain: Chain = [*self.tables[0].chains, *self.tables[1].chains][at]
        index = number - int(self.chain_start[at])
        return Place(chain.name, index, chain.rules[index])

    # ---- rules and chains ----

    def _lower_rules(self) -> None:
        chains = [chain for table in self.tables for chain in table.chains]
        rules = list(row.from_iterable(chain.rules for chain in chains))
        of_rules = list(map(attrgetter("matches"), rules))
        counts = np.fromiter(map(len, of_rules), np.int64, len(rules))
        matches = list(row.from_iterable(of_rules))
        distinct, which = _distinct(matches)
        numbers = self._lower_matches(distinct)
        self.chain_start = _starts(np.fromiter((len(chain.rules) for chain in chains), np.int64, len(chains)))
        self.rule_start = _starts(counts)
        self.rule_match = numbers[which]
        self._look_at_needs(distinct, which, rules)
        _refuse_long(distinct, which, counts, self.rule_start)
        self.rule_action = self._actions(rules)

    def _look_at_needs(self, distinct: list[Match], which: npt.NDArray[np.int64], rules: list[Rule]) -> None:
        """Keep the matches of a rule of each kind that asks for bytes, be they as they may otherwise."""
        kinds = _Numbers()
        kind = np.fromiter((kinds(_asks(match)) for match in distinct), np.uint32, len(distinct))
        asks = np.fromiter((bool(match.needs or match.option) for match in distinct), np.bool_, len(distinct))
        some = np.add.reduceat(np.append(asks[which], False), self.rule_start[:-1], dtype=np.int64)
        some[self.rule_start[:-1] == self.rule_start[1:]] = 0
        data = kind[which].tobytes()
        starts = self.rule_start.tolist()
        found = {data[4 * starts[at] : 4 * starts[at + 1]]: at for at in np.flatnonzero(some).tolist()}
        self._needing = [rules[at].matches for at in found.values()]

    def _actions(self, rules: list[Rule]) -> Words:
        """Three words of each rule: what it does, with which number, and what it writes."""
        split = int(self.chain_start[self.chains_before])
        out = []
        for side, part in enumerate((rules[:split], rules[split:])):
            distinct, which = _distinct([rule.target for rule in part])
            first = np.full(len(distinct), len(part), np.int64)
            np.minimum.at(first, which, np.arange(len(part)))
            actions = [
                self._action(side, target, side * split + at)
                for target, at in zip(distinct, first.tolist(), strict=True)
            ]
            out.append(np.array(actions, np.uint32).reshape(-1, 3)[which])
        return np.concatenate(out)

    # ---- matches ----

    def _number_tests(self, matches: list[Match]) -> dict[tuple[Field, Pairs], int]:
        found: dict[tuple[Field, Pairs], None] = {}
        facts: dict[str, frozenset[State]] = {}
        for match in matches:
            for test_field, values in match.tests:
                found[test_field, values.pairs] = None
            if match.role is Role.CONSTANT:
                facts.setdefault(match.key, match.reads)
        for test_field, pairs in found:
            self.coordinates[test_field].add(pairs)
        self.tested = {test_field for test_field, _ in found}
        for each in self.coordinates.values():
            each.settle()
        # A rule's tests are looked at in the order of their numbers: by field, then facts.
        numbers = {test: at for at, test in enumerate(sorted(found, key=itemgetter(0)))}
        self._test_dim = array("I", map(itemgetter(0), numbers))
        self._test_start, self._set_ends = array("I", [0]), array("I")
        for test_field, pairs in numbers:
            self._set_ends.extend(self.coordinates[test_field].ends(pairs))
            self._test_start.append(len(self._set_ends) // 2)
        for key, reads in facts.items():
            self._facts[key] = len(self._test_dim)
            self._test_dim.append(len(Field) + len(self._fact_reads))
            self._fact_reads.append(reads)
            self._set_ends.extend((1, 1))
            self._test_start.append(len(self._set_ends) // 2)
        return numbers

    def _lower_matches(self, matches: list[Match]) -> Words:
        """Number the matches: one number for those that are read alike.  The numbers, in order."""
        tests = self._number_tests(matches)
        known: dict[tuple[Any, ...], int] = {}
        numbers = []
        distinct: list[Match] = []
        of_match: list[list[int]] = []
        for match in matches:
            own = [tests[test_field, values.pairs] for test_field, values in match.tests]
            role = match.role
            key = (
                *own, role, match.native, match.needs, match.strict, match.option, match.either,
                match.is_protocol, None if role is Role.SPACE else match.key, match.writes,
            )  # fmt: skip
            number = known.setdefault(key, len(known))
            if number == len(distinct):
                distinct.append(match)
                of_match.append(own)
            numbers.append(number)
        self._codes = {backend: self._code(distinct, of_match, backend) for backend in Backend}
        self._settle_matches(distinct, of_match)
        return np.array(numbers, np.uint32)

    def _code(
        self, matches: list[Match], tests: list[list[int]], backend: Backend
    ) -> tuple[array[int], array[int]]:
        """The words of the matches, and where those of each start."""
        code, starts = array("I"), array("I", [0])
        for match, own in zip(matches, tests, strict=True):
            native = match.native and backend is Backend.NFT
            op = lib.PROVE_NATIVE if native else lib.PROVE_TEST
            if match.is_protocol:
                code.extend((lib.PROVE_CUT, 0))
            if match.needs and not native:
                code.extend((lib.PROVE_NEED, match.needs | match.strict << 16))
            if match.either:
                code.extend((lib.PROVE_EITHER, len(own)) if own else (lib.PROVE_NEVER, 0))
            for test in own:
                code.append(op)
                code.append(test)
            if match.option:
                code.extend((lib.PROVE_OPTION, 0))
            if match.role is Role.CONSTANT:
                code.extend((lib.PROVE_TEST, self._facts[match.key]))
            elif match.role is not Role.SPACE:
                code.extend((lib.PROVE_EVENT, self._keys(match.key) << 1 | (match.role is Role.ONCE)))
                if match.writes:
                    code.extend((lib.PROVE_WRITE, _mask(match.writes)))
            starts.append(len(code) // 2)
        return code, starts

    def _settle_matches(self, matches: list[Match], tests: list[list[int]]) -> None:
        """By number of a match: whether it asks a memory or chance, the tests that must all hold, and
        whether that is not all."""
        count = len(matches)
        roles = np.fromiter((match.role for match in matches), np.int64, count)
        either = np.fromiter((match.either for match in matches), np.bool_, count)
        self.has_memory = bool(np.any(roles == Role.ONCE))
        self.match_asks = roles > Role.CONSTANT
        self.match_writes = np.array([_mask(match.writes) for match in matches], np.uint32)
        self.match_inexact = either | (roles != Role.SPACE)
        of_match = [[] if match.either else own for match, own in zip(matches, tests, strict=True)]
        starts = np.concatenate(([0], np.cumsum(np.fromiter(map(len, of_match), np.int64, count))))
        self.match_tests = starts, np.fromiter(row.from_iterable(of_match), np.int64)
        self.test_sets = (
            np.array(self._set_ends, np.uint32),
            np.array(self._test_start, np.int64),
            np.array(self._test_dim, np.int64),
        )

    # ---- targets ----

    def _action(self, side: int, target: Target | None, number: int) -> tuple[int, int, int]:
        """What rule *number* does; all rules of its side with the same target do."""
        if target is None:
            return self._effect("counts", frozenset(), True)
        if target.enters:
            if target.name not in self._chains[side]:
                at = self.place(number)
                assert at is not None
                place = f"table {self.tables[side].name}, chain {at.chain}, line {at.rule.line}"
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
        count = len(self.chain_start) - 1
        chain = np.repeat(np.arange(count), _sizes(self.chain_start))
        op, number, writes = self.rule_action.T
        enters = (op == lib.PROVE_JUMP) | (op == lib.PROVE_GOTO)
        written = np.zeros(count, np.uint32)
        np.bitwise_or.at(written, chain[~enters], writes[~enters])
        asking = self.match_writes[self.rule_match]
        owner = np.repeat(chain, _sizes(self.rule_start))
        np.bitwise_or.at(written, owner[asking != 0], asking[asking != 0])
        pairs = np.unique(chain[enters] << 32 | number[enters]).tolist()
        entered: dict[int, list[int]] = {}
        for pair in pairs:
            entered.setdefault(pair >> 32, []).append(pair & NOTHING)
        masks = written.tolist()
        for each in self._callees_first(entered):
            for callee in entered.get(each, ()):
                masks[each] |= masks[callee]
        self.chain_writes = np.array(masks, np.uint32)
        self.chain_partner = np.full(count, NOTHING, np.uint32)
        for side, table in enumerate(self.tables):
            other = self.tables[1 - side]
            for at, user in enumerate(table.chains, side * self.chains_before):
                if user.policy is None and user.name in other and other[user.name].policy is None:
                    self.chain_partner[at] = self.chain(1 - side, user.name)

    def _callees_first(self, entered: dict[int, list[int]]) -> list[int]:
        try:
            return list(TopologicalSorter(entered).static_order())
        except CycleError as error:
            numbers: list[int] = error.args[1]
            side = int(numbers[0] >= self.chains_before)
            names = [self.tables[side].chains[at - side * self.chains_before].name for at in numbers]
            raise _loop(self.tables[side], names) from None

    # ---- for C ----

    def input(self) -> tuple[Any, list[Any]]:
        """A struct prove_input, and what must live as long as it does."""
        return self.input_of(
            {
                "rule_start": self.rule_start,
                "rule_match": self.rule_match,
                "rule_action": self.rule_action,
                "chain_start": self.chain_start[:-1],
                "chain_end": self.chain_start[1:],
                "chain_writes": self.chain_writes,
                "chain_partner": self.chain_partner,
            },
            self.chains_before,
        )

    def input_of(self, chains: dict[str, Words], chains_before: int) -> tuple[Any, list[Any]]:
        """`input`, of other chains and rules with the same matches."""
        dims = len(Field) + len(self._fact_reads)
        sizes = array("I", (self.coordinates[field].size for field in Field))
        states = array("I", map(_writers, Field))
        for reads in self._fact_reads:
            sizes.append(2)
            states.append(_mask(reads))
        code, match_start = self._codes[self.backend]
        arrays: dict[str, Any] = {
            "dim_size": sizes, "dim_states": states, "test_dim": self._test_dim,
            "test_start": self._test_start, "set_ends": self._set_ends, "match_start": match_start,
            "code": code, **{name: np.ascontiguousarray(words) for name, words in chains.items()},
        }  # fmt: skip
        held = {name: ffi.from_buffer("uint32_t[]", words) for name, words in arrays.items()}
        made = ffi.new("struct prove_input *", {
            "dims": dims, "tests": len(self._test_dim), "matches": len(match_start) - 1,
            "rules": len(chains["rule_start"]) - 1, "chains": len(chains["chain_start"]),
            "chains_before": chains_before, "drop": self.drop, **held,
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
        return made, self.set_words(each.sets())

    def set_words(self, sets: dict[Field, Values]) -> array[int]:
        """dim, count, low, high, ... of each."""
        words = array("I")
        for field, values in sets.items():
            ends = self.coordinates[field].covering(values)
            words.extend((field, len(ends) // 2, *ends))
        return words


def _loop(table: Table, names: list[str]) -> Unsupported:
    return Unsupported(f"table {table.name}: a loop of jumps: {' -> '.join(names)}")


def _distinct(things: list[Any]) -> tuple[list[Any], npt.NDArray[np.int64]]:
    """The objects, each once, in the order in which they are met; and which of them each is."""
    _, first, which = np.unique(
        np.fromiter(map(id, things), np.int64, len(things)), return_index=True, return_inverse=True
    )
    order = np.argsort(first)
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    return [things[at] for at in first[order].tolist()], place[which]


def _starts(counts: npt.NDArray[np.int64]) -> Words:
    return np.concatenate(([0], np.cumsum(counts))).astype(np.uint32)


def _sizes(starts: Words) -> npt.NDArray[np.int64]:
    counted = starts.astype(np.int64)
    return counted[1:] - counted[:-1]


def _asks(match: Match) -> tuple[object, ...]:
    """What `needs_of` looks at."""
    if not match.needs and not match.option and len(match.tests) == 1 and match.tests[0][0] != _PROTO:
        return ()
    protocols: tuple[Values, ...] = ()
    if match.role is Role.SPACE and not match.either:
        protocols = tuple(test.values for test in match.tests if test.field is Field.PROTO)
    return match.needs, match.native, match.strict, match.option, protocols


def _refuse_long(
    distinct: list[Match], which: npt.NDArray[np.int64], counts: npt.NDArray[np.int64], starts: Words
) -> None:
    """Unsupported when a rule has more tests than the engine holds as bits."""
    tests = np.fromiter((len(match.tests) + 1 for match in distinct), np.int64, len(distinct))
    total = np.concatenate(([0], np.cumsum(tests[which])))
    of_rule = total[starts[1:]] - total[starts[:-1]]
    for at in np.flatnonzero((of_rule > MOST_TESTS) | (counts > MOST_EVENTS)).tolist():
        raise Unsupported(f"a rule of {counts[at]} matches is too long to be proved")


def _writers(field: Field) -> int:
    return _mask(state for state, fields in FIELDS_WRITTEN.items() if field in fields)


def _mask(bits: Iterable[int]) -> int:
    return sum(1 << bit for bit in bits)
