"""Programs lowered for the C interpreter: millions of packets a second.

Invariant: for every packet of a batch the result says what ir/semantics.py says of
`batch.packet(i)`: the verdict, the effects (as a hash), the rules read.  Interpreters that are
to be compared share an `Interner`, so that equal verdicts and effects have equal numbers.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from hitables.core.interpreter import (
    EVERY_OUTCOME,
    OPEN_FACT,
    OPEN_OUTCOME,
    RESULT,
    BatchInput,
    Op,
    TableCode,
)
from hitables.errors import Unsupported
from hitables.ir.fields import Family, Field, top
from hitables.ir.packet import Backend, Outcome
from hitables.ir.program import Program, Table, without_circles
from hitables.ir.rule import Ends, Kind, Match, Role, Rule, Target, Test
from hitables.ir.semantics import DROP, FIELDS_WRITTEN, RETURNS

from .batch import PacketBatch, text_hash

_NATIVE_SLOT = {Field.SPORT: len(Field), Field.DPORT: len(Field) + 1, Field.FLAGS: len(Field) + 2}
_WORD = 0xFFFFFFFF


__all__ = ["OPEN_FACT", "OPEN_OUTCOME", "RESULT", "Interner", "Interpreter", "Result", "Tried", "jump_depth"]


class Interner:
    """Numbers for keys, verdicts and effects, from 0 in the order in which they are met."""

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
class Tried:
    """How often packets came to each rule of a table, to each of its matches, and past all of them.

    Rule r has `counts[start[r]:start[r + 1]]`: its matches in order, then its target.  What came to
    the first is how often the rule was read.
    """

    start: npt.NDArray[np.int64]
    counts: npt.NDArray[np.uint64]


@dataclass(frozen=True)
class Result:
    """What became of each packet of a batch; one array each.

    verdict  number of the key of the target that ended its way, the policy, or "returns"
    effects  hash of the effects in order (`packets.effects_hash`)
    count    how many effects
    reads    rules read
    rule     number in the table of the rule that decided (`Interpreter.rule`); -1: none did
    open     OPEN_FACT: asked for a fact that nobody gave (and took it for no);
             OPEN_OUTCOME: asked for an outcome that nobody gave
    hits     by rule of the table: how often its matches all said yes; only when asked for
    matched  by packet: the first rules whose matches all said yes, then -1; no columns
             unless asked for
    tried    see `Tried`; only when asked for
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
    tried: Tried | None = None

    def verdict_text(self, at: int) -> str:
        return self.interner.text(int(self.verdict[at]))


class Interpreter:
    """A program as one backend runs it.  Tables are lowered when first used."""

    def __init__(self, program: Program, backend: Backend, interner: Interner | None = None) -> None:
        tables = tuple(without_circles(table) for table in program)
        same = all(new is old for new, old in zip(tables, program, strict=True))
        self.program, self.backend = program if same else replace(program, tables=tables), backend
        self.interner = interner or Interner()
        self._tables: dict[str, _Lowered] = {}

    def run(
        self,
        table: str,
        chain: str,
        batch: PacketBatch,
        *,
        hits: bool = False,
        matched: int = 0,
        limits: npt.NDArray[np.uint32] | None = None,
        tried: bool = False,
    ) -> Result:
        """Send *batch* into *chain*; KeyError for an unknown table or chain.

        *hits*, *tried*, *matched*: whether to count, and how many rules to name for each packet.
        *limits*: how many effects of each packet go into its hash.
        """
        return self._lowered(table).run(chain, batch, self.interner, hits, matched, limits, tried)

    def rule(self, table: str, number: int) -> tuple[str, int, Rule]:
        """Chain, index there from 0, and rule, of the rule that a `Result` calls *number*."""
        for chain in self.program.table(table).chains:
            if number < len(chain.rules):
                return chain.name, number, chain.rules[number]
            number -= len(chain.rules)
        raise IndexError(number)

    def bytes(self, table: str) -> int:
        """Memory that the lowered table takes."""
        return self._lowered(table).code.bytes()

    def _lowered(self, name: str) -> _Lowered:
        if name not in self._tables:
            table = self.program.table(name)
            self._tables[name] = _Lowered(table, self.program.family, self.backend, self.interner)
        return self._tables[name]


class _Lowered:
    """One table in the words of core/include/interp.h."""

    def __init__(self, table: Table, family: Family, backend: Backend, interner: Interner) -> None:
        depth = jump_depth(table)
        code = _Code(family, backend, interner, {chain.name: at for at, chain in enumerate(table.chains)})
        starts, ends = array("I"), array("I")
        number = 0
        for chain in table.chains:
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
        tried: bool,
    ) -> Result:
        results, counted, visits, named = self.code.run(
            self.chains[chain],
            _batch_input(batch, interner, limits),
            hits=hits,
            visits=tried,
            matched=matched,
        )
        return Result(
            results["verdict"],
            results["effects"],
            results["effect_count"],
            results["reads"],
            results["rule"],
            results["open"],
            counted,
            named,
            interner,
            None if visits is None else self._tried(visits),
        )

    def _tried(self, visits: npt.NDArray[np.uint64]) -> Tried:
        places, lengths = array("Q"), array("Q", [0])
        at = 0
        for chain in self._table.chains:
            for rule in chain.rules:
                at += 2
                for match in rule.matches:
                    places.append(at)
                    at += self._sizes[id(match)]
                places.append(at)
                at += self._sizes[id(rule.target)]
                lengths.append(len(rule.matches) + 1)
            at += 1
        assert at == self._words, "a rule is not as long as its parts"
        return Tried(np.cumsum(lengths, dtype=np.int64), visits[np.frombuffer(places, np.uint64)])


def jump_depth(table: Table) -> int:
    """How deep jumps nest in *table*, a goto counted as a jump.

    Unsupported when a chain reaches itself, or enters one that does not exist.
    """
    depth: dict[str, int] = {}
    for root in table.chains:
        if root.name in depth:
            continue
        # Depth first without recursion: a chain's depth is known when those it enters are done.
        path, rest = [root.name], [iter(_entered(table, root.name))]
        depth[root.name] = 0
        on_path = {root.name}
        while path:
            name = next(rest[-1], None)
            if name is None:
                rest.pop()
                on_path.discard(done := path.pop())
                if path:
                    depth[path[-1]] = max(depth[path[-1]], depth[done] + 1)
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


class _Code:
    """Words under construction.  Matches and targets are shared, so each is lowered once."""

    def __init__(self, family: Family, backend: Backend, interner: Interner, chains: dict[str, int]) -> None:
        self.words = array("I")
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
            lowered = self._matches.get(id(match))
            if lowered is None:
                lowered = self._matches[id(match)] = array("I", self._match(match))
            words.extend(lowered)
        lowered = self._targets.get(id(rule.target))
        if lowered is None:
            lowered = self._targets[id(rule.target)] = array("I", self._target(rule.target))
        words.extend(lowered)
        words[at] = len(words) - at

    def _match(self, match: Match) -> Iterator[int]:
        native = match.native and self.backend is Backend.NFT
        if self.backend is Backend.LEGACY and match.is_protocol:
            yield Op.CUT
        if match.needs and not native:
            yield Op.GUARD | match.strict << 8 | match.needs << 16
        tests = [word for test in match.tests for word in self._test(test, native)]
        if match.either:
            yield from (Op.EITHER, len(match.tests), len(tests))
        yield from tests
        if match.option:
            yield Op.OPTION
        number = self.interner.number
        if match.role is Role.CONSTANT:
            yield from (Op.FACT, number(match.key), _mask(match.reads))
        elif match.role is not Role.SPACE:
            yield from (Op.EVENT, number(match.key), self._effects_of(match.key), _mask(match.writes))

    def _effects_of(self, key: str) -> int:
        """The first of three numbers in a row, for no, yes, dropped."""
        texts = [f"asks {key}: {outcome.name.lower()}" for outcome in sorted(Outcome)]
        first, *rest = map(self.interner.number, texts)
        assert rest == [first + 1, first + 2], "effects are not numbered in a row"
        return first

    def _test(self, test: Test, native: bool) -> Iterator[int]:
        slot = _NATIVE_SLOT.get(test.field, test.field) if native else test.field
        pairs = test.values.pairs
        if test.field in self.wide:
            yield from (Op.WIDE | slot << 8, len(pairs))
            for bound in (bound for pair in pairs for bound in pair):
                yield from (bound >> shift & _WORD for shift in (0, 32, 64, 96))
        elif len(pairs) == 1:
            yield from (Op.RANGE | slot << 8, pairs[0][0], pairs[0][1] - pairs[0][0])
        else:
            yield from (Op.RANGES | slot << 8, len(pairs))
            yield from (bound for pair in pairs for bound in pair)
        if not pairs:
            yield 0

    def _target(self, target: Target | None) -> tuple[int, ...]:
        number = self.interner.number
        if target is None:
            return Op.COUNT, number("counts")
        if target.kind is Kind.JUMP:
            return Op.JUMP, self.chains[target.name]
        if target.kind is Kind.GOTO:
            return Op.GOTO, self.chains[target.name]
        if target.kind is Kind.RETURN:
            return (Op.RETURN,)
        if target.ends is Ends.SURELY:
            return Op.VERDICT, number(target.key)
        return Op.FIRE, number(f"fires {target.key}"), _mask(target.writes)


def _mask(bits: Iterable[int]) -> int:
    return sum(1 << bit for bit in bits)


def _batch_input(batch: PacketBatch, interner: Interner, limits: npt.NDArray[np.uint32] | None) -> BatchInput:
    """The batch with its keys as numbers of *interner*."""
    count = len(batch)
    keys, epochs, answers = array("I"), array("I"), []
    for (key, epoch), given in batch.facts.items():
        keys.append(interner.number(key))
        epochs.append(epoch)
        answers.append(given)
    for key, given in batch.outcomes.items():
        keys.append(interner.number(key))
        epochs.append(EVERY_OUTCOME)
        answers.append(given)
    values = np.ascontiguousarray(np.array(answers, np.uint8))
    assert values.size == len(keys) * count, "an answer for each packet"
    rewrites = array("Q")
    starts = [0]
    for field in Field:
        for value in batch.rewrites.get(field, ()):
            rewrites.extend((value & 0xFFFFFFFFFFFFFFFF, value >> 64))
        starts.append(len(rewrites) // 2)
    assert limits is None or (len(limits) == count and limits.dtype == np.uint32)
    return BatchInput(
        np.ascontiguousarray(batch.rows), batch.seeded, keys, epochs, values, rewrites, starts,
        None if limits is None else np.ascontiguousarray(limits),
    )  # fmt: skip
