"""The kernel's results compared with the interpreter's: verdicts of packets, counters of rules.

The interpreter predicts for each packet that reached the table under test whether it passes.  It gets the
packet's real properties: the connection state is read back from the kernel.  Where an answer is unknown
(the outcome of a match with memory or chance, a predicate without a truth) it runs several times, with
other answers each time.  A packet whose verdict depends on them is *open*.
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
from ..ir.rule import Ends, Match, Metadata, Role, Rule
from ..ir.tracked_walk import untracks
from ..simulate.batch import NOT_GIVEN, PacketBatch
from ..simulate.interpreter import OPEN_FACT, Interpreter
from .experiment import PacketResult
from .stateful_truth import answer, asked

Bools = npt.NDArray[np.bool_]
Counts = npt.NDArray[np.int64]

NEW = STATES.index("NEW")
_EPOCHS = 4  # writes to the state that a match reads, at most
_ALONE = 8  # unknown matches that are varied one at a time
# Targets with which a packet leaves the table and continues.
_PASSING = frozenset({"ACCEPT", "SNAT", "DNAT", "MASQUERADE", "REDIRECT", "NETMAP"})
# Matches with memory that drop packets: unreadable ones (False), or any (True).
_DROPPING = {"hashlimit": False, "connlimit": True}
# Matches and targets that make the kernel track connections.
_FOLLOWING_MATCHES = frozenset(
    {"state", "conntrack", "connbytes", "connmark", "connlabel", "connlimit", "helper", "socket", "cluster"}
)
_FOLLOWING_TARGETS = frozenset(
    {"CT", "NOTRACK", "CONNMARK", "CONNSECMARK", "SNAT", "DNAT", "MASQUERADE", "REDIRECT", "NETMAP",
     "SYNPROXY", "HMARK"}
)  # fmt: skip


def alone(program: Program, table: str, chain: str) -> Program:
    """*program* reduced to *chain* of *table* and the user chains, with counters of 0."""
    chains = []
    for each in program.table(table).chains:
        included = each.name == chain or each.name not in BUILT_IN[table]
        rules = tuple(rule._replace(counters=None) for rule in each.rules) if included else ()
        policy = each.policy if included or each.policy is None else "ACCEPT"
        chains.append(replace(each, policy=policy, rules=rules, counters=None))
    return Program(program.family, (replace(program.table(table), chains=tuple(chains)),), program.name)


def follows_connections(table: Table) -> bool:
    """Whether the rules of *table* make the kernel track connections."""
    for rule in _rules(table):
        if rule.target is not None and rule.target.name in _FOLLOWING_TARGETS:
            return True
        if any(match.name in _FOLLOWING_MATCHES for match in rule.matches):
            return True
    return table.name == "nat"


def consulted(table: str, results: Sequence[PacketResult]) -> Bools:
    """The packets for which the kernel evaluated the table."""
    return np.array([result.arrived and (table != "nat" or result.state == NEW) for result in results], bool)


@dataclass(frozen=True)
class Prediction:
    """The interpreter's results.

    passes, hits         by packet, and by rule of the table
    closed, hits_closed  whether the result is the same under all answers to unknown questions
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
    """Run the interpreter over *batch*; *facts*: the truth of CONSTANT matches (predicates), by key."""
    rules = machine.program.table(table)
    batches = answer_sets(rules, batch, facts)
    runs = [machine.run(table, chain, guess, hits=True) for guess in batches]
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
        # Such a target drops a packet that it cannot rewrite, so later rules do not count it.
        closed &= ~malformed
        dropped_hits = machine.run(table, chain, batches[0].pick(malformed), hits=True).hits
        assert dropped_hits is not None
        known &= dropped_hits == 0
    return Prediction(passes[0], closed, hits[0], known)


def counted(saved: str, table: Table) -> Counts:
    """The packets that each rule of *table* has counted, from the text of iptables-save -c."""
    by_chain: dict[str, list[int]] = {}
    for packets, chain in re.findall(r"^\[(\d+):\d+\] -A (\S+)", saved, re.MULTILINE):
        by_chain.setdefault(chain, []).append(int(packets))
    flat = [count for chain in table.chains for count in _padded(by_chain.get(chain.name, []), chain)]
    return np.array(flat, np.int64)


def _padded(counts: list[int], chain: Chain) -> list[int]:
    assert len(counts) == len(chain.rules), f"chain {chain.name}: {len(counts)} rules were printed"
    return counts


def predicates_of(table: Table) -> dict[str, Match]:
    """The CONSTANT matches (predicates) of *table*, by key."""
    matches = (match for rule in _rules(table) for match in rule.matches)
    return {match.key: match for match in matches if match.role is Role.CONSTANT}


def _rules(table: Table) -> list[Rule]:
    return [rule for chain in table.chains for rule in chain.rules]


def passes(verdict: str) -> bool:
    """Whether a packet with this verdict leaves the table and continues."""
    name, *words = verdict.split()
    return name in _PASSING or (name == "NFQUEUE" and "--queue-bypass" in words)


def _passes(verdicts: npt.NDArray[np.uint32], machine: Interpreter) -> Bools:
    passing = np.zeros(int(verdicts.max(initial=0)) + 1, bool)
    for number in np.unique(verdicts):
        passing[number] = passes(machine.interner.text(int(number)))
    return passing[verdicts]


def answer_sets(
    table: Table, batch: PacketBatch, facts: Mapping[str, npt.NDArray[np.uint8]]
) -> list[PacketBatch]:
    """*batch* with several sets of answers to the unknown questions.

    No unknown match holds; all hold; each holds alone, and each alone fails; and matches that may drop
    unreadable packets do so.
    """
    matches = {match.key: match for rule in _rules(table) for match in rule.matches}
    others = asked(table)
    chancy = {match.key: match for match in others}
    outcomes = {key: answer(match, batch, others) for key, match in chancy.items()}
    written = frozenset[Metadata]().union(*(rule.writes for rule in _rules(table)))
    rewritten = [
        key for key, match in matches.items() if match.role is Role.CONSTANT and match.reads & written
    ]
    answers = (*facts.items(), *outcomes.items())
    unknown = sorted({key for key, truths in answers if (truths == NOT_GIVEN).any()} | set(rewritten))
    rewrites = {which: (value,) for which, value in written_fields(table).items()}
    batch = replace(batch, rewrites=rewrites, seeded=False)
    everything = frozenset(unknown)
    choices = [frozenset[str](), everything] if unknown else [frozenset[str]()]
    if len(unknown) > 1:
        choices += [frozenset({key}) for key in unknown[:_ALONE]]
        choices += [everything - {key} for key in unknown[:_ALONE]]
    batches = [_answered(batch, facts, outcomes, rewritten, holding) for holding in choices]
    unreadable = (batch.rows["l4_bytes"] < 8) | (batch.rows["low"][:, Field.FRAG] == Fragment.LATER)
    if any(match.name in _DROPPING for match in chancy.values()):
        dropping = dict(outcomes)
        for key, match in chancy.items():
            if match.name in _DROPPING:
                dropped = (unreadable | _DROPPING[match.name]) & (outcomes[key] == NOT_GIVEN)
                dropping[key] = np.where(dropped, Outcome.DROPPED, outcomes[key]).astype(np.uint8)
        batches.append(_answered(batch, facts, dropping, rewritten, frozenset()))
    return batches


def _answered(
    batch: PacketBatch,
    facts: Mapping[str, npt.NDArray[np.uint8]],
    outcomes: Mapping[str, npt.NDArray[np.uint8]],
    rewritten: Sequence[str],
    holding: frozenset[str],
) -> PacketBatch:
    """*batch*, where of the unknown matches *holding* hold."""

    def filled(key: str, truths: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
        return np.where(truths == NOT_GIVEN, key in holding, truths).astype(np.uint8)

    predicates = {(key, 0): filled(key, truths) for key, truths in facts.items()}
    for key in rewritten:
        for epoch in range(1, _EPOCHS + 1):
            predicates[key, epoch] = np.full(len(batch), key in holding, np.uint8)
    return replace(
        batch, facts=predicates, outcomes={key: filled(key, truths) for key, truths in outcomes.items()}
    )


def written_fields(table: Table) -> dict[Field, int]:
    """The value of a field after targets write it, where that is known: notrack makes the state UNTRACKED."""
    writers = [rule.target for rule in _rules(table) if rule.target and Metadata.CT in rule.target.writes]
    if writers and all(map(untracks, writers)):
        return {Field.STATE: STATES.index("UNTRACKED")}
    return {}


def may_drop(table: Table) -> bool:
    """Whether a rule has a target that drops a packet which it cannot rewrite."""
    return any(rule.target is not None and rule.target.ends is Ends.MAYBE for rule in _rules(table))
