"""What a chain does with all packets of a box: disjoint regions, each with the rule that decides it.

Idea: the program is compared with a copy of itself in which each rule that lets packets pass has a verdict of
its own; then with one in which each rule that stops them has.  The two differ for every such packet, and the
prover cuts the header space exactly where another rule decides; the regions of one rule are joined as those
of a diff.  Packets outside the box are decided alike, by rules put in front of the chain in both.  A rule of
unknown effect (ir/foreign.py) decides in both where a fact of its own holds, and may let the packet pass.
SYNPROXY decides the packets that it takes (ir/synproxy.py).  In both, the key of a match with memory has its
rule, so that the answers of two rules are told apart.

Invariant: the regions are disjoint, and contain every whole packet of the box that comes to the chain,
unless `Reached.complete` is False.  Later fragments and packets with broken headers are left out.

Cost: one or two runs of the prover per class of whole packets, chain and backend, of `MOST` regions at most
each.  The packets that pass come first: they are fewer, and their list is complete more often.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import NamedTuple

from hitables.ir.address_mask import AddressMask
from hitables.ir.fields import Family, Field, top
from hitables.ir.foreign import is_hidden, is_unknown
from hitables.ir.intervals import Values
from hitables.ir.packet import Backend
from hitables.ir.program import Program, Table, check_names
from hitables.ir.rule import Ends, Kind, Match, Role, Rule, Target, Test
from hitables.ir.semantics import RETURNS
from hitables.ir.sure_answers import address_masks, sure_answers
from hitables.ir.synproxy import TAKEN, is_synproxy

from .diff import WHOLE, Changes, areas, explained
from .exact import Comparison, Tell, comparisons
from .question import Question, Undecided, with_open_policies

Answers = tuple[tuple[str, bool], ...]

# Regions of one class of packets, before they are joined: those that pass (True), and the others.
MOST = {True: 20_000, False: 4_000}

_STOPPING = ("DROP", "REJECT", "CHAOS", "DELUDE", "ECHO", "TARPIT")
_OF_ONE_PROTOCOL = (Field.FLAGS, Field.ICMP)
_OUTSIDE = Target("outside", Kind.VERDICT, "outside the question")
_MARK = "\0"  # behind verdicts and keys of the copy, which no text has
_DECIDES = "\0decides"  # the match of a rule that was added for one of unknown effect, or for SYNPROXY


class Asked(NamedTuple):
    """A match with memory or chance, of the rule at *line* (0: it has none), and whether it held.

    chain, at  the rule
    """

    key: str
    held: bool
    chain: str
    at: int
    line: int


@dataclass(frozen=True, slots=True)
class ReachedBox:
    """Packets of the box that one rule decides; those of all outcomes are disjoint.

    verdict  of the rule, the policy, or "returns" (the end of a user chain); of a rule of unknown effect its
             target
    chain, at  the deciding rule: its chain and its index there, from 0; "", -1: the end of the chain; -1 in a
             chain: its hidden rules
    line     of that rule; 0: the policy, or a rule without a line
    passes   whether the packets may go on: the verdict is neither DROP nor REJECT, nor one that answers
             in place of the receiver (TARPIT); KERNEL_POLICY may let them
    box      values by field; a missing field may have any value
    no_mac   whether packets without a mac address are among them
    facts    CONSTANT matches and decisions of rules of unknown effect, and whether they hold
    asked    matches with memory or chance that were asked, in order, without those that decide nothing
    headers  how many: addresses, protocol, and ports or icmp type
    """

    table: str
    entered: str
    backends: tuple[Backend, ...]
    verdict: str
    chain: str
    at: int
    line: int
    passes: bool
    box: Mapping[Field, Values]
    no_mac: bool
    facts: tuple[tuple[str, bool], ...]
    asked: tuple[Asked, ...]
    headers: int


@dataclass
class Reached:
    """All outcomes: those that pass, then the others, the largest first.

    undecided  chains for which the budget ran out
    cut_off    of which packets there were too many regions: those that pass (True), the others (False)
    """

    family: Family
    outcomes: list[ReachedBox] = dataclasses.field(default_factory=list)
    undecided: list[Undecided] = dataclasses.field(default_factory=list)
    cut_off: set[bool] = dataclasses.field(default_factory=set)

    @property
    def complete(self) -> bool:
        return not self.undecided and not self.cut_off


def reach(
    program: Program,
    box: Mapping[Field, Values],
    question: Question,
    tell: Tell,
    stopped: bool = False,
    most: int | None = None,
) -> Reached:
    """Which packets of *box* that enter the chains of *question* pass, and by which rules.

    *stopped*: list those that do not pass, too.
    *most*: how many regions of each class of packets at most; None: `MOST`.
    *question* names tables and chains; UnknownName for one that *program* does not have.
    """
    check_names(program, question.tables, question.chains)
    out = Reached(program.family)
    merged: dict[tuple[object, ...], ReachedBox] = {}
    sure, masks = sure_answers(program), address_masks(program)
    for passes in (True, False) if stopped else (True,):
        for comparison in _comparisons(program, box, question, passes):
            tell(f"{comparison.table} {comparison.chain}, {comparison.backend.value}")
            for each in _with_sure_answers(
                _of_chain(program, comparison, out, passes, most or MOST[passes]), sure, masks
            ):
                key = (_place(each), tuple(each.box.items()), each.no_mac, each.facts, each.asked)
                same = merged.get(key)
                backends = tuple(dict.fromkeys((*(same.backends if same else ()), *each.backends)))
                merged[key] = replace(each, backends=backends)
    outcomes = _with_joined_protocols(_without_idle_answers(merged.values()), box)
    out.outcomes = sorted(outcomes, key=lambda each: (not each.passes, -each.headers))
    return out


def _place(outcome: ReachedBox) -> tuple[object, ...]:
    return outcome.table, outcome.entered, outcome.verdict, outcome.chain, outcome.at


def _with_joined_protocols(outcomes: Iterable[ReachedBox], box: Mapping[Field, Values]) -> list[ReachedBox]:
    """Fewer outcomes: packets that differ in their protocol alone are joined, with the flags asked of tcp and
    the types asked of ICMP."""
    every = Values.interval(0, top(Field.PROTO, Family.IPV4))
    joined: dict[tuple[object, ...], ReachedBox] = {}
    for each in outcomes:
        # What the question asks of tcp alone is no difference to a region that says nothing of it.
        rest = {
            field: values
            for field, values in each.box.items()
            if field is not Field.PROTO and (field not in _OF_ONE_PROTOCOL or values != box.get(field))
        }
        key = _place(each), each.backends, tuple(rest.items()), each.no_mac, each.facts, each.asked
        same = joined.get(key)
        if same is None:
            joined[key] = each
            continue
        protocols = [one.box.get(Field.PROTO, every) for one in (same, each)]
        values = protocols[0].union(protocols[1])
        wider = {**same.box, **each.box}  # flags and types of that which has some
        wider[Field.PROTO] = values
        if values == every:
            del wider[Field.PROTO]
        joined[key] = replace(same, box=dict(sorted(wider.items())), headers=same.headers + each.headers)
    return list(joined.values())


def _with_sure_answers(
    outcomes: Iterable[ReachedBox], sure: Mapping[str, bool], masks: Mapping[str, AddressMask]
) -> Iterator[ReachedBox]:
    """The outcomes of packets that there are, without the answers that are the same for each packet.

    Also without those to *masks* where the packets have one address.
    """
    for each in outcomes:
        told = dict(sure)
        for key, asked in masks.items():
            told.update((key, asked.holds(address)) for address in _only_value(each, asked))
        answers = (*each.facts, *((one.key, one.held) for one in each.asked))
        if all(told.get(key, held) == held for key, held in answers):
            yield replace(
                each,
                facts=tuple((key, held) for key, held in each.facts if key not in told),
                asked=tuple(one for one in each.asked if one.key not in told),
            )


def _only_value(outcome: ReachedBox, asked: AddressMask) -> tuple[int, ...]:
    """The address that *asked* looks at, if all packets of *outcome* have the same; else none."""
    values = outcome.box.get(asked.field)
    pairs = () if values is None else values.pairs
    return tuple(low for low, high in pairs if low == high and len(pairs) == 1)


def _without_idle_answers(outcomes: Iterable[ReachedBox]) -> list[ReachedBox]:
    """Fewer outcomes: where a match with memory decides nothing, its answers are left out."""
    groups: dict[tuple[object, ...], list[ReachedBox]] = {}
    for each in outcomes:
        key = _place(each), each.backends, tuple(each.box.items()), each.no_mac, each.facts
        groups.setdefault(key, []).append(each)
    return [
        replace(same[0], asked=asked)
        for same in groups.values()
        for asked in _joined_answers([each.asked for each in same])
    ]


def _joined_answers(answers: list[tuple[Asked, ...]]) -> list[tuple[Asked, ...]]:
    """Fewer lists of answers: two that differ in one answer alone become one without it.

    The later answers come first, as questions may depend on those before.  Of a rule that is asked twice, as
    two rules enter its chain, the earlier answer stays while there is a later one: without it the later one
    would be taken for it.
    """
    current = dict.fromkeys(answers)
    is_joined = True
    while is_joined:
        is_joined = False
        for each in sorted(current, key=len, reverse=True):
            for at in reversed(range(len(each)) if each in current else ()):
                one, rest = each[at], each[at + 1 :]
                other = (*each[:at], one._replace(held=not one.held), *rest)
                if other in current and not any(_is_same_match(one, later) for later in rest):
                    del current[each], current[other]
                    current[(*each[:at], *rest)] = None
                    is_joined = True
                    break
    return list(current)


def _is_same_match(one: Asked, other: Asked) -> bool:
    return one._replace(held=other.held) == other


# ---- the two programs ----


def _comparisons(
    program: Program, box: Mapping[Field, Values], question: Question, passes: bool
) -> Iterator[Comparison]:
    """The program and its copy in which the rules that let packets pass, or stop them, have own verdicts."""
    deadline = None if question.timeout is None else time.monotonic() + question.timeout
    tables = [
        _with_decisions(_with_own_memories(with_open_policies(program.table(name))))
        for name in sorted(question.tables)
    ]
    entered = [
        frozenset(name for name in question.chains if any(name in t and t[name].policy for t in tables))
    ]
    # A chain that another one enters has rules in front only while it is asked for itself.
    entered += [frozenset({name}) for name in sorted(question.chains - entered[0])]
    for chains in filter(None, entered):
        before = [_limited(table, chains, box, program.family) for table in tables]
        after = [_with_own_verdicts(table, passes) for table in before]
        left = None if deadline is None else max(deadline - time.monotonic(), 1e-9)
        for comparison in comparisons(
            replace(program, tables=tuple(before)),
            replace(program, tables=tuple(after)),
            replace(question, chains=chains, timeout=left),
        ):
            # The first rules of both decide the packets outside of the box; without this the engine may cut
            # these packets by the rules behind, into very many regions.
            comparison.tables.within = box
            yield comparison


def _with_own_memories(table: Table) -> Table:
    """*table*, in which the key of a match with memory or chance has its rule: each answers on its own."""
    return table.of(
        {
            chain.name: chain.with_rules(
                tuple(
                    _with_own_memory(rule, f"{chain.name}{_MARK}{at}") for at, rule in enumerate(chain.rules)
                )
            )
            for chain in table.chains
        }
    )


def _with_own_memory(rule: Rule, place: str) -> Rule:
    if not any(match.role > Role.CONSTANT for match in rule.matches):
        return rule
    own = (
        match._replace(key=f"{match.key}{_MARK}{place}") if match.role > Role.CONSTANT else match
        for match in rule.matches
    )
    return rule._replace(matches=tuple(own))


def _asked(table: Table, answers: Answers) -> tuple[Asked, ...]:
    """The *answers* to keys of `_with_own_memories`."""
    found = []
    for own, held in answers:
        key, chain, at = own.split(_MARK)
        found.append(Asked(key, held, chain, int(at), table[chain].rules[int(at)].line))
    return tuple(found)


def _with_decisions(table: Table) -> Table:
    """*table*, in which SYNPROXY decides what it takes, and rules of unknown effect where own facts hold."""
    return table.of(
        {
            chain.name: chain.with_rules(tuple(each for rule in chain.rules for each in _decided(rule)))
            for chain in table.chains
        }
    )


def _decided(rule: Rule) -> tuple[Rule, ...]:
    target = rule.target
    if target is None:
        return (rule,)
    if is_synproxy(target):
        which = Match(_DECIDES, (), Role.SPACE, f"taken by {target.key}", (Test(Field.FLAGS, TAKEN),))
    elif is_unknown(target):
        which = Match(_DECIDES, (), Role.CONSTANT, f"decided by {target.key}", reads=frozenset())
    else:
        return (rule,)
    return rule._replace(matches=(*rule.matches, which), target=replace(target, ends=Ends.SURELY)), rule


def _is_added(rule: Rule) -> bool:
    """Whether no rule of the program is *rule*."""
    return rule.target is _OUTSIDE or any(match.name == _DECIDES for match in rule.matches[-1:])


def _outside(box: Mapping[Field, Values], family: Family) -> list[Rule]:
    """Rules that decide the packets outside *box*, one for each field."""
    rules = []
    for field, values in box.items():
        rest = values.complement(top(field, family))
        if rest:
            key = f"outside {field.name}"
            rules.append(Rule((Match("", (), Role.SPACE, key, (Test(field, rest),)),), _OUTSIDE))
    return rules


def _limited(table: Table, chains: Iterable[str], box: Mapping[Field, Values], family: Family) -> Table:
    """*table*, in which the *chains* decide packets outside *box* first; no rule enters them."""
    by_name = table.by_name()
    for name in chains:
        chain = by_name[name]
        by_name[name] = chain.with_rules((*_outside(box, family), *chain.rules))
    return table.of(by_name)


def lets_pass(verdict: str) -> bool:
    return verdict.split(" ")[0] not in _STOPPING


def _with_own_verdicts(table: Table, passes: bool) -> Table:
    """*table*, in which each rule that decides, and each policy, has a verdict that no other has.

    Only those that let packets pass, or only those that do not.
    """
    chains = {}
    for chain in table.chains:
        rules = tuple(
            _with_own_verdict(rule, f"{chain.name}{_MARK}{at}", passes) for at, rule in enumerate(chain.rules)
        )
        policy = chain.policy
        if policy is not None and lets_pass(policy) is passes:
            policy = f"{policy}{_MARK}{chain.name}"
        chains[chain.name] = replace(chain, rules=rules, policy=policy)
    return table.of(chains)


def _with_own_verdict(rule: Rule, place: str, passes: bool) -> Rule:
    target = rule.target
    if target is None or target is _OUTSIDE or not target.is_final or lets_pass(target.key) is not passes:
        return rule
    return rule._replace(target=replace(target, key=f"{target.key}{_MARK}{place}"))


class _Places:
    """How many rules of the program are in front of a rule of its copy; each chain is counted once."""

    def __init__(self, table: Table) -> None:
        self._table = table
        self._own: dict[str, list[int]] = {}

    def own(self, chain: str, index: int) -> int:
        if chain not in self._own:
            own = (not _is_added(rule) for rule in self._table[chain].rules)
            self._own[chain] = list(accumulate(own, initial=0))
        return self._own[chain][index]


# ---- the regions ----


def _of_chain(
    program: Program, comparison: Comparison, out: Reached, passes: bool, most: int
) -> Iterator[ReachedBox]:
    """The outcomes of one chain."""
    found = Changes(out.family)
    entered = comparison.tables.tables[0][comparison.chain]
    places = _Places(comparison.tables.tables[1])
    for regions in explained(comparison, found, (WHOLE,), most):
        # The prover omits rules that decide as the end of the chain does; in the copy there are none.
        ref = regions[0].rules[1]
        assert regions[0].extra == (None, None), "both programs have the same effects"
        if ref is None or ref.rule.returns:
            decider = entered.policy or RETURNS, "", -1, 0
        else:
            assert ref.rule.target is not None
            at = -1 if is_hidden(ref.rule, ref.chain) else places.own(ref.chain, ref.index)
            decider = ref.rule.target.key.partition(_MARK)[0], ref.chain, at, ref.rule.line
        for area in areas(comparison, regions):
            yield ReachedBox(
                comparison.table,
                entered.name,
                (comparison.backend,),
                *decider,
                passes,
                area.box,
                area.no_mac,
                area.facts,
                _asked(program.table(comparison.table), regions[0].answers),
                area.headers,
            )
    out.undecided += [each for each in found.undecided if each not in out.undecided]
    if found.cut_off:
        out.cut_off.add(passes)
