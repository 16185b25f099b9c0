"""Where the packet of a log line enters, by what stands in front of the line.

    BAD IN=eth0 OUT= ...                           a rule of the file has --log-prefix "BAD "
    TRACE: mangle:PREROUTING:rule:1 IN=eth0 ...    target TRACE of legacy names table, chain and rule

A packet comes to the rule that wrote the line.  So the table, the chain and the state of its connection,
which the line does not say, are those with which it does: the usual ones (filter, by the interfaces, the
state of a packet of no connection) if it does with these.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from .answers import ANY
from .assumed_walk import run_assuming
from .connection_states import STATE_NAMES
from .fields import STATES, Family, Field
from .packet import Backend, Outcome
from .packet_log import LogLine
from .packet_reader import Spelled, read_packet
from .program import BUILT_IN, Program
from .rule import Role, Rule, word_behind
from .sure_answers import answer_surely

_TRACED = re.compile(r"TRACE: (\w+):([^:\s]+):(rule|return|policy):([0-9]+) *$")
_BY_INTERFACES = {  # where a packet may enter that has an input interface, an output interface
    (True, False): ("INPUT", "PREROUTING"),
    (True, True): ("FORWARD", "POSTROUTING"),
    (False, True): ("OUTPUT", "POSTROUTING"),
}


@dataclass(frozen=True, slots=True)
class Wrote:
    """A rule that may have written a line: its table, its chain, its index there from 0."""

    table: str
    chain: str
    at: int
    rule: Rule


@dataclass(frozen=True, slots=True)
class Placed:
    """
    line     with table, chain and state
    spelled  its packet; the limits and memories of *wrote* hold for it
    assumed  what the line does not say of these, and what was taken
    wrote    the rule that wrote the line, if the packet comes to it
    others   if it comes to none: those that may have written the line
    lacks    the table that TRACE names, if the program has none of this name
    """

    line: LogLine
    spelled: Spelled
    assumed: tuple[str, ...]
    wrote: Wrote | None = None
    others: tuple[Wrote, ...] = ()
    lacks: str = ""


def place(line: LogLine, program: Program, backend: Backend) -> Placed:
    """Find out where the packet of *line* enters, and the state of its connection."""
    traced = _TRACED.search(line.before)
    if traced is not None:
        line = _in_table(line, traced[1], traced[2], program)
        found = _rule_at(traced[1], traced[2], int(traced[4]) - 1, program)
    else:
        found = _with_prefix(line.before, program)
    usual = _placed(line, program.family)
    for table, chain, state in _tries(usual.spelled, found):
        tried = line.with_words(table=table, chain=chain, **({"state": state} if state else {}))
        spelled = read_packet(tried.words, program.family)
        wrote = _met(found, spelled, program, backend)
        if wrote is not None:
            return replace(_placed(tried, program.family), spelled=spelled, wrote=wrote)
    lacks = traced[1] if traced is not None and program.find(traced[1]) is None else ""
    return replace(usual, others=tuple(found), lacks=lacks)


def _in_table(line: LogLine, table: str, chain: str, program: Program) -> LogLine:
    """The line with the table that TRACE has named, and its chain if that is built in."""
    if program.find(table) is None:
        return line
    return line.with_words(table=table, **({"chain": chain} if chain in BUILT_IN[table] else {}))


def _rule_at(table: str, chain: str, at: int, program: Program) -> list[Wrote]:
    found = program.find_chain(table, chain)
    return [Wrote(table, chain, at, found.rules[at])] if found and at in range(len(found.rules)) else []


def _with_prefix(before: str, program: Program) -> list[Wrote]:
    """The rules with a prefix at the end of *before*; with the longest one."""
    by_length: dict[int, list[Wrote]] = {}
    for table in program.tables:
        for chain in table.chains:
            for at, rule in enumerate(chain.rules):
                prefix = word_behind("--log-prefix", rule.target.words if rule.target else ()).strip()
                if prefix and before.rstrip().endswith(prefix):
                    by_length.setdefault(len(prefix), []).append(Wrote(table.name, chain.name, at, rule))
    return by_length[max(by_length)] if by_length else []


def _tries(usual: Spelled, found: list[Wrote]) -> Iterator[tuple[str, str, str]]:
    """Tables of *found*, chains and states that the line may mean, the usual first; "": the usual state."""
    has_in, has_out = (bool(usual.packet.values.get(field)) for field in (Field.IIF, Field.OIF))
    tables = sorted({each.table for each in found}, key=lambda table: (table != usual.table, table))
    for table in tables:
        chains = [chain for chain in _BY_INTERFACES.get((has_in, has_out), ()) if chain in BUILT_IN[table]]
        yield from itertools.product([table], chains, ("", *STATE_NAMES))


def _met(found: list[Wrote], spelled: Spelled, program: Program, backend: Backend) -> Wrote | None:
    """The first of *found* that the packet comes to and matches, where limits and memories let them write."""
    if program.find(spelled.table) is None or spelled.chain not in program.table(spelled.table):
        return None
    answer_surely(spelled.answers, program, spelled.packet)
    by_place = {(each.chain, each.at): each for each in found if each.table == spelled.table}
    for each in by_place.values():
        for match in each.rule.matches:
            if match.role in (Role.NAMED, Role.ONCE):
                spelled.answers.outcomes.setdefault((match.key, ANY), Outcome.YES)
    walk = run_assuming(program.table(spelled.table), spelled.chain, spelled.packet, backend).walk
    places = ((step.chain, step.index) for step in walk.steps if step.outcome is Outcome.YES)
    return next((by_place[place] for place in places if place in by_place), None)


def _placed(line: LogLine, family: Family) -> Placed:
    """*line* where its words say, with what these words leave out."""
    spelled = read_packet(line.words, family)
    state = STATES[spelled.packet.values[Field.STATE]]
    line = line.with_words(state=state)
    taken = {"table": spelled.table, "chain": spelled.chain, "state": state}
    assumed = tuple(
        f"{word}={value}"
        for word, value in taken.items()
        if word not in line.own and (word, value) != ("table", "filter")
    )
    return Placed(line, spelled, assumed)
