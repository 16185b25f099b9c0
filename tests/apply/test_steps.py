"""Plans of a change: what the kernel has already stays, whatever its generated chains are called."""

from __future__ import annotations

import random

from hitables.apply.counts import carry, recognised, sums
from hitables.apply.steps import plan
from hitables.apply.texts import Chains, TextChain, TextRule, callees, empty, parse, renamed, table_text


def random_trees(rng: random.Random) -> tuple[Chains, list[str]]:
    """A table with trees whose chains are often equal, and the names of these chains."""
    names = [f"ht{number}" for number in range(1, rng.randrange(2, 12))]
    chains = empty("filter")
    for at, name in enumerate(names):
        below = names[at + 1 :]
        rules = [f"-s 10.{rng.randrange(3)}.0.0/16 -j DROP" for _ in range(rng.randrange(2))]
        rules += [f"-d 10.{rng.randrange(2)}.0.0/16 -g {rng.choice(below)}" for _ in range(2) if below]
        chains[name] = TextChain("-", tuple(TextRule(rule) for rule in rules))
    for base in ("INPUT", "FORWARD"):
        rules = [f"-s 10.{n}.0.0/16 -g {rng.choice(names)}" for n in range(rng.randrange(4))]
        chains[base] = TextChain("ACCEPT", tuple(TextRule(rule) for rule in rules))
    reached = callees(chains, ["INPUT", "FORWARD", "OUTPUT"])  # as all chains that the compiler makes
    return {name: chain for name, chain in chains.items() if name in reached}, [
        n for n in names if n in reached
    ]


def test_the_same_trees_under_other_names_are_nothing_to_do() -> None:
    busy = 0
    for seed in range(300):
        rng = random.Random(seed)
        wanted, names = random_trees(rng)
        others = [f"ht{number}" for number in range(1, 30)]
        rng.shuffle(others)
        present = renamed(wanted, dict(zip(names, others, strict=False)))
        steps = plan("filter", present, wanted, names, ())
        assert steps.is_idle, (present, wanted)
        busy += bool(names)
    assert busy > 100


def test_a_plan_ends_in_the_wanted_rules() -> None:
    """Chain by chain: what is used again has the same rules, and the rest is staged or changed."""
    for seed in range(300):
        rng = random.Random(seed)
        present, _ = random_trees(rng)
        wanted, names = random_trees(rng)
        steps = plan("filter", present, wanted, names, ())
        expected = renamed(wanted, steps.names)
        assert steps.target == expected
        after = {name: chain for name, chain in present.items() if name not in steps.removed}
        after |= {name: steps.target[name] for name in (*steps.staged, *steps.changed)}
        assert {name: chain.bodies for name, chain in after.items()} == {
            name: chain.bodies for name, chain in expected.items()
        }
        # No chain that packets reach before the change is touched but visible ones.
        assert not set(steps.staged) & set(present)
        assert set(steps.changed) <= {"INPUT", "FORWARD", "OUTPUT"}


def counted_chains(rng: random.Random, count: int, most: int) -> Chains:
    """Chains of copies of a few rules, each with a count below *most*."""
    return {
        f"c{n}": TextChain(
            "-",
            tuple(
                TextRule("-j DROP", (rng.randrange(most), rng.randrange(most)), key=f"key{rng.randrange(5)}")
                for _ in range(3)
            ),
        )
        for n in range(count)
    }


def test_the_sum_of_the_counts_of_a_rule_stays() -> None:
    for seed in range(200):
        rng = random.Random(seed)
        before, after = counted_chains(rng, 4, 9), counted_chains(rng, 3, 1)
        counts = sums(before, before)
        counted = sums(carry(after, after, dict(counts)), after)
        in_both = {rule.key for chain in after.values() for rule in chain.rules}
        assert counted == {key: count for key, count in counts.items() if key in in_both}


def test_rules_of_a_changed_chain_keep_what_is_known_of_them() -> None:
    loaded = {
        "filter": {"INPUT": TextChain("ACCEPT", (TextRule("-j A", key="one"), TextRule("-j B", key="two")))}
    }
    text = "*filter\n:INPUT ACCEPT [0:0]\n-A INPUT -j NEW\n-A INPUT -j A\n-A INPUT -j B\nCOMMIT\n"
    found = recognised(parse(text), loaded)["filter"]["INPUT"]
    assert [rule.key for rule in found.rules][1:] == ["one", "two"]
    assert "-j NEW" in found.rules[0].key


def test_text_is_read_as_it_was_written() -> None:
    text = (
        "*filter\n:INPUT DROP [3:40]\n:web - [0:0]\n"
        '[1:2] -A INPUT -m comment --comment "say \\"-j web\\" here" -j web\n-A INPUT -g web\nCOMMIT\n'
    )
    chains = parse(text)["filter"]
    assert table_text("filter", chains) == text
    assert [rule.enters for rule in chains["INPUT"].rules] == ["web", "web"]
    assert renamed(chains, {"web": "ht1"})["INPUT"].rules[0].body.endswith('here" -j ht1')
