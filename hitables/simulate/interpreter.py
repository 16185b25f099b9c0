"""Programs run over batches of packets by the C interpreter: millions of packets a second.

Invariant: for packet i of a batch the result is that of ir/semantics.py for `batch.packet(i)`: the verdict,
the effects (as a hash), the rules read.  Interpreters whose results are to be compared share an `Interner`,
so that equal verdicts and effects have equal numbers.

A table is encoded once, when it is first used, in the instructions of core/include/interp.h; that takes about
a microsecond a word.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate
from itertools import chain as row

import numpy as np
import numpy.typing as npt

from hitables.core.interpreter import (
    EVERY_OUTCOME,
    OPEN_FACT,
    OPEN_OUTCOME,
    RESULT,
    BatchInput,
    InterpOp,
    TableCode,
)
from hitables.errors import Unsupported
from hitables.ir.fields import Family, Field, top
from hitables.ir.packet import Backend, Outcome
from hitables.ir.program import Program, Table, without_circles
from hitables.ir.rule import Ends, Kind, Match, Role, Rule, Target, Test
from hitables.ir.semantics import DROP, FIELDS_WRITTEN, RETURNS, evaluation

from .batch import PacketBatch, text_hash

_NATIVE_SLOT = {Field.SPORT: len(Field), Field.DPORT: len(Field) + 1, Field.FLAGS: len(Field) + 2}
_WORD, _LONG = 0xFFFFFFFF, 0xFFFFFFFFFFFFFFFF


__all__ = [
    "OPEN_FACT",
    "OPEN_OUTCOME",
    "RESULT",
    "BatchResult",
    "Interner",
    "Interpreter",
    "MatchCounts",
    "jump_depth",
]


class Interner:
    """Numbers for keys, verdicts and effects, from 0 in the order of their first use."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}
        self._texts: list[str] = []

    def number(self, text: str) -> int:
        number = self._numbers.setdefault(text, len(self._texts))
        if number == len(self._texts):
            self._texts.append(text)
        return number

    def text(self, number: int) -> str:
        return self._texts[number]

    def hashes(self) -> npt.NDArray[np.uint64]:
        return np.fromiter(map(text_hash, self._texts), np.uint64, len(self._texts))


@dataclass(frozen=True)
class MatchCounts:
    """How often each match of each rule was evaluated, and each target applied.

    Rule r, of the rules that were counted, has `counts[start[r]:start[r + 1]]`: its matches in order, then
    its target.  The first of these is how often the rule was read.
    """

    start: npt.NDArray[np.int64]
    counts: npt.NDArray[np.uint64]


@dataclass(frozen=True)
class BatchResult:
    """The results of a batch: arrays with one item per packet, unless noted.

    verdict  number of the key of the deciding target, of the policy, or of "returns"
    effects  hash of the effects in order (`batch.effects_hash`)
    count    how many effects
    reads    rules read
    rule     number in the table of the rule that decided (`Interpreter.rule`); -1: no rule did
    open     OPEN_FACT: the truth of a CONSTANT match was needed and is unknown (it counts as false);
             OPEN_OUTCOME: the outcome of a match with memory was needed and is unknown
    hits     by rule of the table: how often all its matches held; None unless asked for
    matched  [packet, n] the first n rules whose matches all held, then -1; n is 0 unless asked for
    match_counts   of the chains that were counted; None unless asked for
    """

    verdict: npt.NDArray[np.uint32]
    effects: npt.NDArray[np.uint64]
    count: npt.NDArray[np.uint32]
    reads: npt.NDArray[np.uint32]
    rule: npt.NDArray[np.int32]
    open: npt.NDArray[np.uint32]
    hits: npt.NDArray[np.uint64] | None
    matched: npt.NDArray[np.int32]
    interner: Interner
    match_counts: MatchCounts | None = None

    def verdict_text(self, at: int) -> str:
        return self.interner.text(int(self.verdict[at]))


class Interpreter:
    """A program as one backend runs it; tables are encoded when first used."""

    def __init__(self, program: Program, backend: Backend, interner: Interner | None = None) -> None:
        tables = tuple(without_circles(table) for table in program)
        unchanged = all(new is old for new, old in zip(tables, program, strict=True))
        self.program, self.backend = program if unchanged else replace(program, tables=tables), backend
        self.interner = interner or Interner()
        self._tables: dict[str, _EncodedTable] = {}

    def run(
        self,
        table: str,
        chain: str,
        batch: PacketBatch,
        *,
        hits: bool = False,
        matched: int = 0,
        limits: npt.NDArray[np.uint32] | None = None,
        match_counts: bool = False,
        counted: Sequence[str] | None = None,
    ) -> BatchResult:
        """Send *batch* into *chain*; KeyError for an unknown table or chain.

        *hits*, *match_counts*: whether to count.  *matched*: how many rules to list for each packet.
        *limits*: how many effects of each packet go into its hash; None: all.
        *counted*: the chains of *match_counts*, in this order; None: all of the table.
        """
        encoded = self._encoded(table)
        return encoded.run(chain, batch, self.interner, hits, matched, limits, match_counts, counted)

    def first_rules(self, table: str) -> dict[str, int]:
        """By chain of the table: the number of its first rule in a `BatchResult`."""
        return self._encoded(table).first_rules

    def rule(self, table: str, number: int) -> tuple[str, int, Rule]:
        """The rule with this *number* in a `BatchResult`: its chain, its index there from 0, and itself."""
        for chain in self.program.table(table).chains:
            if number < len(chain.rules):
                return chain.name, number, chain.rules[number]
            number -= len(chain.rules)
        raise IndexError(number)

    def bytes(self, table: str) -> int:
        """Memory that the encoded table takes."""
        return self._encoded(table).code.bytes()

    def _encoded(self, name: str) -> _EncodedTable:
        if name not in self._tables:
            table = self.program.table(name)
            self._tables[name] = _EncodedTable(table, self.program.family, self.backend, self.interner)
        return self._tables[name]


class _EncodedTable:
    """One table in the instructions of core/include/interp.h."""

    def __init__(self, table: Table, family: Family, backend: Backend, interner: Interner) -> None:
        depth = jump_depth(table)
        chains = {chain.name: at for at, chain in enumerate(table.chains)}
        code = _Code(family, backend, interner, chains, _reads_of_numbers(table))
        starts, ends = array("I"), array("I")
        number = 0
        self.first_rules: dict[str, int] = {}
        for chain in table.chains:
            self.first_rules[chain.name] = number
            starts.append(len(code.words))
            ends.append(interner.number(chain.policy or RETURNS))
            for rule in chain.rules:
                code.rule(rule, number)
                number += 1
            code.words.append(0)
        drop = interner.number(DROP)
        self.chains, self.rules = code.chains, number
        self._table, self._words, self._sizes = table, len(code.words), code.sizes()
        self.interner = interner
        writers = [
            _mask(state for state, fields in FIELDS_WRITTEN.items() if field in fields) for field in Field
        ]
        self.code = TableCode(code.words, starts, ends, drop, interner.hashes(), number, depth, writers)

    def run(
        self,
        chain: str,
        batch: PacketBatch,
        interner: Interner,
        hits: bool,
        matched: int,
        limits: npt.NDArray[np.uint32] | None,
        match_counts: bool,
        counted: Sequence[str] | None,
    ) -> BatchResult:
        results, hit_counts, visits, rules = self.code.run(
            self.chains[chain],
            _batch_input(batch, interner, limits),
            hits=hits,
            visits=match_counts,
            matched=matched,
        )
        return BatchResult(
            results["verdict"],
            results["effects"],
            results["effect_count"],
            results["reads"],
            results["rule"],
            results["open"],
            hit_counts,
            rules,
            interner,
            None if visits is None else self._match_counts(visits, counted),
        )

    def _match_counts(self, visits: npt.NDArray[np.uint64], counted: Sequence[str] | None) -> MatchCounts:
        positions, start = self._positions
        if counted is None:
            return MatchCounts(start, visits[positions])
        rules = [
            range(self.first_rules[name], self.first_rules[name] + len(self._table[name].rules))
            for name in counted
        ]
        of_rules = [positions[start[part.start] : start[part.stop]] for part in rules]
        sizes = [start[part.start + 1 : part.stop + 1] - start[part.start : part.stop] for part in rules]
        starts = np.cumsum(np.concatenate([np.zeros(1, np.int64), *sizes]))
        return MatchCounts(starts, visits[np.concatenate([np.zeros(0, np.int64), *of_rules])])

    @cached_property
    def _positions(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """The word of each match and target, rule by rule; by rule where its own start, and the end."""
        positions, lengths = array("q"), array("q", [0])
        at = 0
        for chain in self._table.chains:
            for rule in chain.rules:
                at += 2
                for match in rule.matches:
                    positions.append(at)
                    at += self._sizes[id(match)]
                positions.append(at)
                at += self._sizes[id(rule.target)]
                lengths.append(len(rule.matches) + 1)
            at += 1
        assert at == self._words, "the length of a rule is not the sum of its parts"
        return np.array(positions, np.int64), np.cumsum(lengths, dtype=np.int64)


def jump_depth(table: Table) -> int:
    """How deep jumps nest in *table*, a goto counted as a jump.

    Unsupported when a chain reaches itself, or enters one that does not exist.
    """
    depth: dict[str, int] = {}
    for root in table.chains:
        if root.name in depth:
            continue
        # Depth first without recursion: the depth of a chain follows from those of the chains that it enters.
        path, rest = [root.name], [iter(_entered(table, root.name))]
        depth[root.name] = 0
        on_path = {root.name}
        while path:
            name = next(rest[-1], None)
            if name is None:
                rest.pop()
                on_path.discard(finished := path.pop())
                if path:
                    depth[path[-1]] = max(depth[path[-1]], depth[finished] + 1)
            elif name in on_path:
                loop = [*path[path.index(name) :], name]
                raise Unsupported(f"table {table.name}: a loop of jumps: {' -> '.join(loop)}")
            elif name in depth:
                depth[path[-1]] = max(depth[path[-1]], depth[name] + 1)
            else:
                depth[name] = 0
                path.append(name)
                on_path.add(name)
                rest.append(iter(_entered(table, name)))
    return max(depth.values(), default=0)


def _entered(table: Table, chain: str) -> dict[str, None]:
    """The chains that *chain* enters, each once."""
    entered: dict[str, None] = {}
    for rule in table[chain].rules:
        target = rule.target
        if target is not None and target.enters:
            if target.name not in table:
                place = f"table {table.name}, chain {chain}, line {rule.line}"
                raise Unsupported(f"{place}: there is no chain {target.name}")
            entered[target.name] = None
    return entered


def _reads_of_numbers(table: Table) -> dict[str, int]:
    """By attribute that matches ask: mask of the states that it depends on; empty if no target makes one."""
    rules = [rule for chain in table.chains for rule in chain.rules]
    targets = {id(rule.target): rule.target for rule in rules}.values()
    if not any(target is not None and target.makes is not None for target in targets):
        return {}
    matches = {id(match): match for rule in rules for match in rule.matches}.values()
    return {
        match.number.attribute: _mask(match.reads)
        for match in matches
        if match.role is Role.CONSTANT and match.number is not None
    }


class _Code:
    """The instructions of a table under construction; a match or target that rules share is encoded once.

    reads  as `_reads_of_numbers`
    """

    def __init__(
        self,
        family: Family,
        backend: Backend,
        interner: Interner,
        chains: dict[str, int],
        reads: Mapping[str, int],
    ) -> None:
        self.words, self.reads = array("I"), reads
        self.family, self.backend, self.interner, self.chains = family, backend, interner, chains
        self.wide = frozenset(field for field in Field if top(field, family) > _WORD)
        self._matches: dict[int, array[int]] = {}
        self._targets: dict[int, array[int]] = {}

    def sizes(self) -> dict[int, int]:
        """How many words each match and target takes, by its id."""
        return {each: len(words) for each, words in (*self._matches.items(), *self._targets.items())}

    def rule(self, rule: Rule, number: int) -> None:
        words = self.words
        at = len(words)
        words.append(0)
        words.append(number)
        for match in rule.matches:
            encoded = self._matches.get(id(match))
            if encoded is None:
                encoded = self._matches[id(match)] = array("I", self._match(match))
            words.extend(encoded)
        encoded = self._targets.get(id(rule.target))
        if encoded is None:
            encoded = self._targets[id(rule.target)] = array("I", self._target(rule.target))
        words.extend(encoded)
        words[at] = len(words) - at

    def _match(self, match: Match) -> Iterator[int]:
        native = match.native and self.backend is Backend.NFT
        if self.backend is Backend.LEGACY and match.is_protocol:
            yield InterpOp.CUT
        if match.needs and not native:
            yield InterpOp.GUARD | match.strict << 8 | match.needs << 16
        tests = [word for test in match.tests for word in self._test(test, native)]
        if match.either:
            yield from (InterpOp.EITHER, len(match.tests), len(tests))
        yield from tests
        if match.option:
            yield InterpOp.OPTION
        number = self.interner.number
        if match.role is Role.CONSTANT:
            fact = match.fact
            yield from (InterpOp.FACT, number(match.key), number(match.negates or match.key))
            yield from (number(fact.attribute), _mask(match.reads))
            words = (fact.mask, *(end for pair in fact.values.pairs for end in pair))
            low, high, *ends = (word for value in words for word in (value & _WORD, value >> 32))
            yield from (low, high, len(ends) // 4, *ends)
        elif match.role is not Role.SPACE:
            yield from (InterpOp.EVENT, number(match.key), self._effects_of(match.key), _mask(match.writes))

    def _effects_of(self, key: str) -> int:
        """The first of three consecutive numbers: the effects of the outcomes no, yes, dropped."""
        texts = [evaluation(key, outcome) for outcome in sorted(Outcome)]
        first, *rest = map(self.interner.number, texts)
        assert rest == [first + 1, first + 2], "the numbers of effects are not consecutive"
        return first

    def _test(self, test: Test, native: bool) -> Iterator[int]:
        slot = _NATIVE_SLOT.get(test.field, test.field) if native else test.field
        pairs = test.values.pairs
        if test.field in self.wide:
            yield from (InterpOp.WIDE | slot << 8, len(pairs))
            for bound in (bound for pair in pairs for bound in pair):
                yield from (bound >> shift & _WORD for shift in (0, 32, 64, 96))
        elif len(pairs) == 1:
            yield from (InterpOp.RANGE | slot << 8, pairs[0][0], pairs[0][1] - pairs[0][0])
        else:
            yield from (InterpOp.RANGES | slot << 8, len(pairs))
            yield from (bound for pair in pairs for bound in pair)
        if not pairs:
            yield 0

    def _target(self, target: Target | None) -> tuple[int, ...]:
        number = self.interner.number
        if target is None:
            return InterpOp.COUNT, number("counts")
        if target.kind is Kind.JUMP:
            return InterpOp.JUMP, self.chains[target.name]
        if target.kind is Kind.GOTO:
            return InterpOp.GOTO, self.chains[target.name]
        if target.kind is Kind.RETURN:
            return (InterpOp.RETURN,)
        if target.ends is Ends.SURELY:
            return InterpOp.VERDICT, number(target.key)
        makes = target.makes
        words: tuple[int, ...] = (0,) * 6
        if makes is not None and makes.attribute in self.reads:
            reads, attribute = self.reads[makes.attribute], number(makes.attribute)
            values = (makes.keep & _LONG, makes.flip)
            words = (reads, attribute, *(word for value in values for word in (value & _WORD, value >> 32)))
        return InterpOp.FIRE, number(f"fires {target.key}"), _mask(target.writes), *words


def _mask(bits: Iterable[int]) -> int:
    return sum(1 << bit for bit in bits)


def _batch_input(batch: PacketBatch, interner: Interner, limits: npt.NDArray[np.uint32] | None) -> BatchInput:
    """The batch with its keys as numbers of *interner*."""
    count = len(batch)
    keys, epochs, answers = array("I"), array("I"), []
    for (key, epoch), truths in batch.facts.items():
        keys.append(interner.number(key))
        epochs.append(epoch)
        answers.append(truths)
    for key, outcomes in batch.outcomes.items():
        keys.append(interner.number(key))
        epochs.append(EVERY_OUTCOME)
        answers.append(outcomes)
    rows = np.ascontiguousarray(np.array(answers, np.uint8))
    assert rows.size == len(keys) * count, "a row of answers has not one for each packet"
    rewrites = array("Q")
    starts = [0]
    for field in Field:
        for value in batch.rewrites.get(field, ()):
            rewrites.extend((value & 0xFFFFFFFFFFFFFFFF, value >> 64))
        starts.append(len(rewrites) // 2)
    numbers = array("Q", row.from_iterable(batch.numbers.values()))
    first_numbers = accumulate(map(len, batch.numbers.values()), initial=0)
    assert limits is None or (len(limits) == count and limits.dtype == np.uint32)
    return BatchInput(
        np.ascontiguousarray(batch.rows), batch.seeded, keys, epochs, rows, rewrites, starts,
        None if limits is None else np.ascontiguousarray(limits),
        array("I", map(interner.number, batch.numbers)), array("I", first_numbers), numbers,
    )  # fmt: skip
