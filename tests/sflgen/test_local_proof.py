"""Proofs of patches where they are: they hold for what sflgen plans, and for nothing that is wrong."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.commands import make_updates
from support.crossing_rules import crossing_command, crossing_text
from support.planned_updates import favoured, prefixes
from support.rule_texts import make_text
from support.scale import examples

import hitables
from hitables.errors import HitablesError, NotEquivalent, ParseError
from hitables.ir.fields import Family
from hitables.ir.rule import Kind, Target
from hitables.verify.question import Equal
from sflgen.edits import Edit, Op, apply, read_commands
from sflgen.layout import Settings, Strategy
from sflgen.local_proof import holds, prove_patch
from sflgen.planner import Plan, plan, start
from sflgen.state import verify


def plans(rng: random.Random, family: Family, backend: str, malformed: str) -> Iterator[Plan]:
    """A few plans, one after the other, of trees of either kind."""
    crossing = rng.random() < 0.5
    text = (
        crossing_text(rng, family, "FORWARD", 70, 0.1) if crossing else make_text(rng, family, 60, memory=0.1)
    )
    state = start(hitables.read(text, family=family), Settings(backend, malformed, min_length=3)).after
    for _ in range(6):
        try:
            if crossing:
                updates = read_commands(crossing_command(rng, state.master, "FORWARD", 0.1), state.master)
            else:
                _, updates, _ = make_updates(rng, state.master, rng.choice([1, 1, 3]), favoured(state))
            made = plan(
                state, updates, rng.choice([Strategy.GRAFT, Strategy.OVERLAY]), taking=rng.random() < 0.5
            )
        except (HitablesError, ParseError):
            continue
        yield made
        if not isinstance(verify(made.after), Equal):
            assert made.taken, made.text  # a rule that hid others
            made = plan(state, updates)
        state = made.after


DROP, ACCEPT = (Target(name, Kind.VERDICT, name) for name in ("DROP", "ACCEPT"))


def spoilt(rng: random.Random, made: Plan) -> Plan | None:
    """*made* with one edit of what is loaded left out, or saying something else."""
    rules = [at for at, edit in enumerate(made.edits) if edit.rule is not None]
    if not rules:
        return None
    edits = list(made.edits)
    at = rng.choice(rules)
    rule = edits[at].rule
    assert rule is not None
    if rng.random() < 0.3 and edits[at].op in (Op.APPEND, Op.INSERT):
        del edits[at]
    elif rng.random() < 0.6:
        edits[at] = replace(edits[at], rule=rule._replace(target=DROP if rule.target == ACCEPT else ACCEPT))
    else:
        edits[at] = replace(edits[at], rule=rule._replace(matches=rule.matches[:-1]))
    try:
        loaded = apply(made.before.loaded, edits)
    except (IndexError, KeyError):
        return None
    return replace(made, edits=tuple(edits), after=replace(made.after, loaded=loaded, hulls={}))


@settings(max_examples=examples(12))
@given(
    seed=st.integers(0, 1 << 32),
    family=st.sampled_from(Family),
    backend=st.sampled_from(["any", "nft", "legacy"]),
    malformed=st.sampled_from(["stricter", "exact"]),
)
def test_what_holds_where_it_was_patched_holds_everywhere(
    seed: int, family: Family, backend: str, malformed: str
) -> None:
    rng = random.Random(seed)
    for made in plans(rng, family, backend, malformed):
        if holds(made):
            assert isinstance(verify(made.after), Equal)
        for _ in range(3):
            wrong = spoilt(rng, made)
            try:
                if wrong is not None and holds(wrong):
                    assert isinstance(verify(wrong.after), Equal), wrong.text
            except HitablesError:
                continue  # a chain is missing, or two memories


def test_most_patches_are_proved_where_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sflgen.local_proof.LONGEST", 250.0)  # how busy the machine is decides nothing here
    shown, folds, count = 0, 0, 0
    for seed in range(12):
        for made in plans(random.Random(seed), Family.IPV4, "nft", "stricter"):
            count += 1
            folds += any(strategy is Strategy.FOLD for _, _, strategy in made.chosen)
            shown += holds(made)
    assert shown > 0.7 * (count - folds) > 20


@pytest.mark.parametrize(
    "command", ["-I INPUT 100 -s 10.0.0.0/12 -p tcp -j DROP", "-D INPUT {drop}", "-R INPUT 9 -j DROP"]
)
def test_a_patch_that_forgets_a_rule_is_caught_with_a_packet(command: str) -> None:
    state = start(prefixes(300), Settings(backend="nft")).after
    rules = state.master.table("filter")["INPUT"].rules
    drop = next(at for at, rule in enumerate(rules, 1) if at > 40 and rule.target == DROP)
    made = plan(state, read_commands(command.format(drop=drop), state.master), Strategy.OVERLAY)
    assert prove_patch(made)
    at = max(
        at for at, edit in enumerate(made.edits) if edit.rule is not None and edit.rule.target not in (None,)
    )
    edits = (*made.edits[:at], *made.edits[at + 1 :])
    wrong = replace(made, edits=edits, after=replace(made.after, loaded=apply(state.loaded, edits), hulls={}))
    with pytest.raises(NotEquivalent, match="treats a packet differently"):
        prove_patch(wrong)


def test_an_edit_of_something_else_is_not_taken_for_an_entry() -> None:
    state = start(prefixes(300), Settings(backend="nft")).after
    made = plan(state, read_commands("-I INPUT 100 -s 10.0.0.0/12 -p tcp -j DROP", state.master))
    table = state.loaded.table("filter")
    host = next(chain for chain in table.chains if chain.name.startswith("sf") and len(chain.rules) > 2)
    extra = Edit(Op.DELETE, "filter", host.name, 1)
    for more in (extra, Edit(Op.DELETE, "filter", "plain", 0)):
        edits = (*made.edits, more)
        loaded = apply(made.before.loaded, edits)
        assert not holds(replace(made, edits=edits, after=replace(made.after, loaded=loaded, hulls={})))
