"""Local proofs: they succeed for plans of sflgen, and fail for wrong patches."""

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
from sflgen.cache import Cache
from sflgen.commands import read_commands
from sflgen.edits import Edit, Op, apply
from sflgen.local_proof import holds_locally
from sflgen.planner import Plan, plan_unproved, start_unproved
from sflgen.proof import prove_plan, verify
from sflgen.settings import Settings, Strategy


def plans(rng: random.Random, family: Family, backend: str, malformed: str) -> Iterator[Plan]:
    """A few consecutive plans, for trees of either kind."""
    crossing = rng.random() < 0.5
    text = (
        crossing_text(rng, family, "FORWARD", 70, 0.1) if crossing else make_text(rng, family, 60, memory=0.1)
    )
    state = start_unproved(
        hitables.read(text, family=family), Settings(backend, malformed, min_length=3)
    ).after
    for _ in range(6):
        try:
            if crossing:
                updates = read_commands(crossing_command(rng, state.master, "FORWARD", 0.1), state.master)
            else:
                _, updates, _ = make_updates(rng, state.master, rng.choice([1, 1, 3]), favoured(state))
            plan = plan_unproved(
                state,
                updates,
                rng.choice([Strategy.GRAFT, Strategy.OVERLAY]),
                delete_in_place=rng.random() < 0.5,
            )
        except (HitablesError, ParseError):
            continue
        yield plan
        if not isinstance(verify(plan.after), Equal):
            assert plan.deleted_in_place, plan.text  # a rule that hid others
            plan = plan_unproved(state, updates)
        state = plan.after


DROP, ACCEPT = (Target(name, Kind.VERDICT, name) for name in ("DROP", "ACCEPT"))


def spoilt(rng: random.Random, plan: Plan) -> Plan | None:
    """*plan* with one edit of the loaded rule set removed, or with another effect."""
    rules = [at for at, edit in enumerate(plan.edits) if edit.rule is not None]
    if not rules:
        return None
    edits = list(plan.edits)
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
        loaded = apply(plan.before.loaded, edits)
    except (IndexError, KeyError):
        return None
    return replace(plan, edits=tuple(edits), after=replace(plan.after, loaded=loaded, cache=Cache()))


@settings(max_examples=examples(12))
@given(
    seed=st.integers(0, 1 << 32),
    family=st.sampled_from(Family),
    backend=st.sampled_from(["any", "nft", "legacy"]),
    malformed=st.sampled_from(["stricter", "exact"]),
)
def test_a_local_proof_implies_the_proof_of_the_whole(
    seed: int, family: Family, backend: str, malformed: str
) -> None:
    rng = random.Random(seed)
    for plan in plans(rng, family, backend, malformed):
        if holds_locally(plan) is True:
            assert isinstance(verify(plan.after), Equal)
        for _ in range(3):
            wrong = spoilt(rng, plan)
            try:
                if wrong is not None and holds_locally(wrong) is True:
                    assert isinstance(verify(wrong.after), Equal), wrong.text
            except HitablesError:
                continue  # a chain is missing, or a memory exists twice


def test_most_patches_are_proved_locally(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sflgen.local_proof.TIMEOUT", 250.0)  # the load of the machine must not matter
    shown, folds, count = 0, 0, 0
    for seed in range(8):
        for plan in plans(random.Random(seed), Family.IPV4, "nft", "stricter"):
            count += 1
            folds += any(strategy is Strategy.FOLD for _, _, strategy in plan.chosen)
            shown += holds_locally(plan) is True
    assert shown > 0.7 * (count - folds) > 20


@pytest.mark.parametrize(
    "command", ["-I INPUT 100 -s 10.0.0.0/12 -p tcp -j DROP", "-D INPUT {drop}", "-R INPUT 9 -j DROP"]
)
def test_a_patch_that_lacks_a_rule_is_refused_with_a_packet(command: str) -> None:
    state = start_unproved(prefixes(300), Settings(backend="nft")).after
    rules = state.master.table("filter")["INPUT"].rules
    drop = next(at for at, rule in enumerate(rules, 1) if at > 40 and rule.target == DROP)
    plan = plan_unproved(state, read_commands(command.format(drop=drop), state.master), Strategy.OVERLAY)
    assert holds_locally(plan)
    at = max(
        at for at, edit in enumerate(plan.edits) if edit.rule is not None and edit.rule.target not in (None,)
    )
    edits = (*plan.edits[:at], *plan.edits[at + 1 :])
    wrong = replace(
        plan, edits=edits, after=replace(plan.after, loaded=apply(state.loaded, edits), cache=Cache())
    )
    with pytest.raises(NotEquivalent, match="treats a packet differently"):
        prove_plan(wrong)


def test_an_edit_outside_the_region_fails_the_local_proof() -> None:
    state = start_unproved(prefixes(300), Settings(backend="nft")).after
    plan = plan_unproved(state, read_commands("-I INPUT 100 -s 10.0.0.0/12 -p tcp -j DROP", state.master))
    table = state.loaded.table("filter")
    host = next(chain for chain in table.chains if chain.name.startswith("sf") and len(chain.rules) > 2)
    extra = Edit(Op.DELETE, "filter", host.name, 1)
    for more in (extra, Edit(Op.DELETE, "filter", "plain", 0)):
        edits = (*plan.edits, more)
        loaded = apply(plan.before.loaded, edits)
        assert not holds_locally(
            replace(plan, edits=edits, after=replace(plan.after, loaded=loaded, cache=Cache()))
        )


def test_an_edit_of_a_listed_chain_that_no_update_names_fails_the_local_proof() -> None:
    """Chains that both sides jump to are compared by name alone."""
    crossing = crossing_text(random.Random(1), Family.IPV4, "FORWARD", 70, 0.0)
    logs = "-A logs -j LOG\n-A logs -j DROP\n-A FORWARD -j logs\nCOMMIT\n"
    text = crossing.replace("COMMIT\n", f":logs -\n{logs}")
    state = start_unproved(hitables.read(text), Settings("nft", min_length=3)).after
    updates = read_commands("-I FORWARD 60 -j logs", state.master)
    plan = plan_unproved(state, updates, Strategy.OVERLAY)
    assert holds_locally(plan)
    edits = (*plan.edits, Edit(Op.DELETE, "filter", "logs", 1, state.loaded.table("filter")["logs"].rules[1]))
    loaded = apply(plan.after.loaded, edits[-1:])
    wrong = replace(plan, edits=edits, after=replace(plan.after, loaded=loaded, cache=Cache()))
    assert holds_locally(wrong) is False


def test_a_patch_without_the_policy_of_the_list_is_refused() -> None:
    state = start_unproved(prefixes(100), Settings("nft")).after
    planned = plan_unproved(state, read_commands("-P INPUT DROP", state.master))
    prove_plan(planned)
    wrong = replace(planned, edits=(), after=replace(planned.after, loaded=state.loaded))
    assert not holds_locally(wrong)
    with pytest.raises(NotEquivalent):
        prove_plan(wrong)
