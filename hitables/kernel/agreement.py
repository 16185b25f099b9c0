"""The kernel's word against the interpreter's: verdicts packet by packet, counters rule by rule.

For each packet that came to the table under test the interpreter is given what the packet really
was (its connection state is read back from the kernel) and says whether it passes.  Where it
cannot know (the outcome of a match with memory or chance, a fact nobody knows) it is asked
several times, under other answers each time; a packet whose verdict depends on them is *open*.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from ..ir.fields import STATES, Field, Fragment
from ..ir.packet import Outcome
from ..ir.program import BUILT_IN, Chain, Program, Table
from ..ir.rule import Ends, Match, Role, Rule, State
from ..simulate.batch import NOT_GIVEN, PacketBatch
from ..simulate.interpreter import OPEN_FACT, Interpreter
from .experiment import Fate
from .stateful_truth import answer

Bools = npt.NDArray[np.bool_]
Counts = npt.NDArray[np.int64]

NEW = STATES.index("NEW")
_EPOCHS = 4  # writes to what a match reads that we reckon with
_ALONE = 8  # unknown matches that are tried one by one
# Targets behind which a packet is in the table no more but goes on.
_PASSING = frozenset({"ACCEPT", "SNAT", "DNAT", "MASQUERADE", "REDIRECT", "NETMAP"})
# Matches with memory that drop packets: those which they cannot read, or any.
_DROPPING = {"hashlimit": False, "connlimit": True}
# What makes the kernel follow connections.
_FOLLOWING_MATCHES = frozenset(
    {"state", "conntrack", "connbytes", "connmark", "connlabel", "connlimit", "helper", "socket", "cluster"}
)
_FOLLOWING_TARGETS = frozenset(
    {"CT", "NOTRACK", "CONNMARK", "CONNSECMARK", "SNAT", "DNAT", "MASQUERADE", "REDIRECT", "NETMAP",
     "SYNPROXY", "HMARK"}
)  # fmt: skip


def alone(program: Program, table: str, chain: str) -> Program:
    """*program* with nothing but *chain* of *table* and the user chains; counters from 0."""
    kept = []
    for one in program.table(table).chains:
        mine = one.name == chain or one.name not in BUILT_IN[table]
        rules = tuple(rule._replace(counters=None) for rule in one.rules) if mine else ()
        policy = one.policy if mine or one.policy is None else "ACCEPT"
        kept.append(replace(one, policy=policy, rules=rules, counters=None))
    return Program(program.family, (replace(program.table(table), chains=tuple(kept)),), program.name)


def follows_connections(table: Table) -> bool:
    """Whether the rules of *table* make the kernel follow connections."""
    for rule in _rules(table):
        if rule.target is not None and rule.target.name in _FOLLOWING_TARGETS:
            return True
        if any(match.name in _FOLLOWING_MATCHES for match in rule.matches):
            return True
    return table.name == "nat"


def consulted(table: str, fates: Sequence[Fate]) -> Bools:
    """Which packets the table was really asked about."""
    return np.array([fate.arrived and (table != "nat" or fate.state == NEW) for fate in fates], bool)


@dataclass(frozen=True)
class Prediction:
    """What the interpreter says of packets and rules; *closed*: however the unknown turns out.

    passes, closed      by packet
    hits, hits_closed   by rule of the table
    """

    passes: Bools
    closed: Bools
    hits: Counts
    hits_closed: Bools


def predict(
    machine: Interpreter,
    table: str,
    chain: str,
    batch: PacketBatch,
    facts: Mapping[str, npt.NDArray[np.uint8]],
) -> Prediction:
    """Ask the interpreter about *batch*; *facts*: answers to CONSTANT matches, by key."""
    rules = machine.program.table(table)
    asked = guesses(rules, batch, facts)
    runs = [machine.run(table, chain, guess, hits=True) for guess in asked]
    passes = [_passes(run.verdict, machine) for run in runs]
    closed = ~np.logical_or.reduce([run.open & OPEN_FACT != 0 for run in runs])
    hits = []
    for passed, run in zip(passes, runs, strict=True):
        closed &= passed == passes[0]
        assert run.hits is not None
        hits.append(run.hits.astype(np.int64))
    known = np.logical_and.reduce([counted == hits[0] for counted in hits])
    malformed = batch.malformed()
    if may_drop(rules) and malformed.any():
        # Such a target drops a packet that it cannot rewrite, and rules behind it do not count it.
        closed &= ~malformed
        lost = machine.run(table, chain, asked[0].pick(malformed), hits=True).hits
        assert lost is not None
        known &= lost == 0
    return Prediction(passes[0], closed, hits[0], known)


def counted(saved: str, table: Table) -> Counts:
    """The packets that each rule of *table* has counted, from what iptables-save -c printed."""
    by_chain: dict[str, list[int]] = {}
    for packets, chain in re.findall(r"^\[(\d+):\d+\] -A (\S+)", saved, re.MULTILINE):
        by_chain.setdefault(chain, []).append(int(packets))
    flat = [count for chain in table.chains for count in _padded(by_chain.get(chain.name, []), chain)]
    return np.array(flat, np.int64)


def _padded(counts: list[int], chain: Chain) -> list[int]:
    assert len(counts) == len(chain.rules), f"chain {chain.name}: {len(counts)} rules came back"
    return counts


def facts_of(table: Table) -> dict[str, Match]:
    """The CONSTANT matches of *table*, by key."""
    matches = (match for rule in _rules(table) for match in rule.matches)
    return {match.key: match for match in matches if match.role is Role.CONSTANT}


def _rules(table: Table) -> list[Rule]:
    return [rule for chain in table.chains for rule in chain.rules]


def passes(verdict: str) -> bool:
    """Whether a packet with this verdict leaves the table and goes on."""
    name, *words = verdict.split()
    return name in _PASSING or (name == "NFQUEUE" and "--queue-bypass" in words)


def _passes(verdicts: npt.NDArray[np.uint32], machine: Interpreter) -> Bools:
    passing = np.zeros(int(verdicts.max(initial=0)) + 1, bool)
    for number in np.unique(verdicts):
        passing[number] = passes(machine.interner.text(int(number)))
    return passing[verdicts]


def guesses(
    table: Table, batch: PacketBatch, facts: Mapping[str, npt.NDArray[np.uint8]]
) -> list[PacketBatch]:
    """*batch* under each of some answers to what is not known.

    Nothing holds; everything holds; each holds alone, and each alone does not; and matches that
    may drop what they cannot read do so.
    """
    matches = {match.key: match for rule in _rules(table) for match in rule.matches}
    chancy = {key: match for key, match in matches.items() if match.role in (Role.NAMED, Role.ONCE)}
    outcomes = {key: answer(match, batch, chancy.values()) for key, match in chancy.items()}
    written = frozenset[State]().union(*(rule.writes for rule in _rules(table)))
    rewritten = [
        key for key, match in matches.items() if match.role is Role.CONSTANT and match.reads & written
    ]
    told_of = (*facts.items(), *outcomes.items())
    unknown = sorted({key for key, told in told_of if (told == NOT_GIVEN).any()} | set(rewritten))
    rewrites = {which: (value,) for which, value in written_fields(table).items()}
    batch = replace(batch, rewrites=rewrites, seeded=False)
    everything = frozenset(unknown)
    turns = [frozenset[str](), everything] if unknown else [frozenset[str]()]
    if len(unknown) > 1:
        turns += [frozenset({key}) for key in unknown[:_ALONE]]
        turns += [everything - {key} for key in unknown[:_ALONE]]
    found = [_guess(batch, facts, outcomes, rewritten, turn) for turn in turns]
    unreadable = (batch.rows["l4_bytes"] < 8) | (batch.rows["low"][:, Field.FRAG] == Fragment.LATER)
    if any(match.name in _DROPPING for match in chancy.values()):
        dropping = dict(outcomes)
        for key, match in chancy.items():
            if match.name in _DROPPING:
                dropped = (unreadable | _DROPPING[match.name]) & (outcomes[key] == NOT_GIVEN)
                dropping[key] = np.where(dropped, Outcome.DROPPED, outcomes[key]).astype(np.uint8)
        found.append(_guess(batch, facts, dropping, rewritten, frozenset()))
    return found


def _guess(
    batch: PacketBatch,
    facts: Mapping[str, npt.NDArray[np.uint8]],
    outcomes: Mapping[str, npt.NDArray[np.uint8]],
    rewritten: Sequence[str],
    hold: frozenset[str],
) -> PacketBatch:
    """*batch*, where of what is not known *hold* hold."""

    def filled(key: str, told: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
        return np.where(told == NOT_GIVEN, key in hold, told).astype(np.uint8)

    given = {(key, 0): filled(key, told) for key, told in facts.items()}
    for key in rewritten:
        for epoch in range(1, _EPOCHS + 1):
            given[key, epoch] = np.full(len(batch), key in hold, np.uint8)
    return replace(batch, facts=given, outcomes={key: filled(key, told) for key, told in outcomes.items()})


def written_fields(table: Table) -> dict[Field, int]:
    """What targets make of the connection state, where that is known: notrack makes it UNTRACKED."""
    writers = [rule.target for rule in _rules(table) if rule.target and State.CT in rule.target.writes]
    if writers and all(target.name == "NOTRACK" or "--notrack" in target.words for target in writers):
        return {Field.STATE: STATES.index("UNTRACKED")}
    return {}


def may_drop(table: Table) -> bool:
    """Whether a rule has a target that drops a packet which it cannot rewrite."""
    return any(rule.target is not None and rule.target.ends is Ends.MAYBE for rule in _rules(table))
