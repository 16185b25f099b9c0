"""What rules of raw and mangle do with the packets of a question before they come to the chain that is asked.

-t mangle -A PREROUTING -p tcp -m tcp --dport 22 -j DROP

leaves none of these packets to chain INPUT of table filter, whatever its rules are.

Idea: `reach` asks the earlier chain for the same packets, of a copy in which the rules in question end the
walk.  Of rules that set a mark, those that decide some packet are taken out of the copy, which is asked
again: one packet may come to several.

Invariant: a rule is named only if it meets packets of the question; exactly, as `reach` is.  Where a chain is
not decided within SECONDS, each rule is named whose tests of header fields the question does not exclude.

Left out: what table nat does between, so the question is asked with the destination that it names.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass, replace

from hitables.ir.connection_states import LOOPBACK
from hitables.ir.earlier_tables import leaves_untracked
from hitables.ir.fields import STATES, Family, Field
from hitables.ir.hooks import Box, hook_box
from hitables.ir.intervals import Values
from hitables.ir.program import Program, Table
from hitables.ir.required import required
from hitables.ir.rule import Ends, Kind, Metadata, Role, Rule, Target

from .exact import Tell
from .question import Question
from .reach import Reached, lets_pass, reach

SECONDS, MOST_REGIONS, MOST_ROUNDS = 5.0, 2000, 8
DROPS, UNTRACKS = "drops", "untracks"  # kinds; the others are names of what a rule sets
SETS = {Metadata.MARK: "mark", Metadata.CONNMARK: "mark of the connection", Metadata.TOS: "TOS"}

_BEFORE = {
    "PREROUTING": (("raw", "PREROUTING"), ("mangle", "PREROUTING"), ("nat", "PREROUTING")),
    "INPUT": (
        ("raw", "PREROUTING"), ("mangle", "PREROUTING"), ("mangle", "INPUT"), ("filter", "INPUT"),
        ("security", "INPUT"), ("nat", "INPUT"),
    ),
    "FORWARD": (
        ("raw", "PREROUTING"), ("mangle", "PREROUTING"), ("mangle", "FORWARD"), ("filter", "FORWARD"),
        ("security", "FORWARD"),
    ),
    "OUTPUT": (
        ("raw", "OUTPUT"), ("mangle", "OUTPUT"), ("nat", "OUTPUT"), ("filter", "OUTPUT"),
        ("security", "OUTPUT"),
    ),
    "POSTROUTING": (("mangle", "POSTROUTING"), ("nat", "POSTROUTING")),
}  # fmt: skip
_READ = ("raw", "mangle")
_ENDS = Target("DROP", Kind.VERDICT, "DROP")


@dataclass(frozen=True, slots=True)
class Earlier:
    """What rules of an earlier table do with some packets of the question.

    kind      DROPS, UNTRACKS, or one of SETS
    lines     of the rules
    policies  chains whose policy does it
    """

    kind: str
    table: str
    lines: tuple[int, ...]
    policies: tuple[str, ...] = ()


def earlier_rules(
    program: Program, box: Mapping[Field, Values], question: Question, reached: Reached, tell: Tell
) -> Iterator[Earlier]:
    """Such rules, for the chains of *question* in its table; *reached*: its answer."""
    (table,) = question.tables
    kinds = [DROPS]
    if Field.STATE in box and STATES.index("UNTRACKED") not in box[Field.STATE]:
        kinds.append(UNTRACKS)
    kinds += (SETS[state] for state in _read_by(program.table(table), reached))
    for name in _READ:
        earlier = program.find(name)
        if earlier is None:
            continue
        places = _places(earlier, table, box, question, program.family)
        for kind in kinds:
            lines: set[int] = set()
            policies: list[str] = []
            for chain, own in places.items():
                met, by_policy = _met(program, earlier, chain, own, question, kind, tell)
                lines.update(met)
                policies += [chain] * (by_policy and kind == DROPS)
            if lines or policies:
                yield Earlier(kind, name, tuple(sorted(lines)), tuple(policies))


def _read_by(table: Table, reached: Reached) -> list[Metadata]:
    """The states that conditions of the answer depend on, and that earlier tables set."""
    told = {key for each in reached.outcomes for key, _ in each.facts}
    asked = {
        match
        for chain in table.chains
        for rule in chain.rules
        for match in rule.matches
        if match.role is Role.CONSTANT
    }
    reads = {
        state
        for match in asked
        if any(key in told_of for told_of in told for key in (match.key, match.negates) if key)
        for state in match.reads
    }
    return [state for state in SETS if state in reads]


def _is_of(kind: str, rule: Rule) -> bool:
    target = rule.target
    if target is None:
        return False
    if kind == DROPS:
        return target.is_final and not lets_pass(target.key)
    if kind == UNTRACKS:
        return leaves_untracked(rule)
    return target.ends is Ends.NEVER and any(kind == SETS.get(state) for state in target.writes)


def _places(
    earlier: Table, table: str, box: Mapping[Field, Values], question: Question, family: Family
) -> dict[str, Box]:
    """The chains of *earlier* that packets of the question pass before, with these packets there."""
    places: dict[str, Box] = {}
    for asked in sorted(question.chains):
        way = _BEFORE.get(asked, ())
        before = way[: way.index((table, asked))] if (table, asked) in way else ()
        hook = hook_box(asked, family)
        if any(field in hook and not hook[field].intersect(values) for field, values in box.items()):
            continue
        for name, chain in before:
            if name != earlier.name or chain not in earlier:
                continue
            own = dict(box)
            if chain == "PREROUTING":
                own.pop(Field.OIF, None)
            if name == "raw":
                own.pop(Field.STATE, None)
                if own.get(Field.IIF) != Values.only(LOOPBACK):
                    own[Field.STATE] = Values.only(STATES.index("INVALID"))
            places[chain] = own
    return places


def _met(
    program: Program, table: Table, chain: str, box: Box, question: Question, kind: str, tell: Tell
) -> tuple[list[int], bool]:
    """The lines of the rules of *kind* that meet some packet; and whether the policy drops some."""
    left = {
        (name, at): rule
        for name in table.callers_first(chain)
        for at, rule in enumerate(table[name].rules)
        if _is_of(kind, rule) and _may_meet(rule, box)
    }
    policy = table[chain].policy
    if not left and (kind != DROPS or policy is None or lets_pass(policy)):
        return [], False
    asked = replace(
        question, tables=frozenset({table.name}), chains=frozenset({chain}), timeout=_seconds(question)
    )
    lines: list[int] = []
    by_policy = False
    for _ in range(1 if kind in (DROPS, UNTRACKS) else MOST_ROUNDS):
        ending = replace(program, tables=(_ending(table, left),))
        found = reach(ending, box, asked, tell, stopped=True, most=MOST_REGIONS)
        if not found.complete:
            return [*lines, *(rule.line for rule in left.values())], by_policy
        stopped = [each for each in found.outcomes if not each.passes]
        by_policy |= any(not each.chain for each in stopped)
        met = dict.fromkeys((each.chain, each.at) for each in stopped if (each.chain, each.at) in left)
        lines += (left.pop(place).line for place in met)
        if not met or not left:
            break
    return lines, by_policy


def _seconds(question: Question) -> float:
    return SECONDS if question.timeout is None else min(SECONDS, question.timeout)


def _ending(table: Table, places: Container[tuple[str, int]]) -> Table:
    """*table*, in which the rules at these places end the walk."""
    return table.of(
        {
            chain.name: chain.with_rules(
                tuple(
                    rule._replace(target=_ENDS) if (chain.name, at) in places else rule
                    for at, rule in enumerate(chain.rules)
                )
            )
            for chain in table.chains
        }
    )


def _may_meet(rule: Rule, box: Mapping[Field, Values]) -> bool:
    return all(field not in box or values.intersect(box[field]) for field, values in required(rule).items())
