"""The rules that a patch deletes are those that the tool has printed, whether it lists one or a whole chain."""

from __future__ import annotations

from unittest.mock import patch as patched

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hitables.errors import LiveError
from sflgen import deletions_listed
from sflgen.deletions_listed import with_listings

CHAINS = {"INPUT": "-P INPUT ACCEPT", "mine": "-N mine"}


def execute(text: str, chains: dict[str, list[str]]) -> tuple[str, list[str]]:
    """What iptables-restore prints for *text*, and the rules that it deletes or replaces."""
    printed, deleted = [], []
    for line in text.splitlines():
        option, *words = line.removeprefix("-v ").split()
        rules = chains[words[0]]
        at = int(words[1]) - 1 if len(words) > 1 and words[1].isdigit() else None
        if option == "-S":
            chosen = rules if at is None else rules[at : at + 1]
            heads = [CHAINS[words[0]]] if at is None else []
            printed += [*heads, *(f"-A {words[0]} {rule}" for rule in chosen)]
        elif option == "-A":
            rules.append(" ".join(words[1:]))
        else:
            assert at is not None
            deleted.append(f"-A {words[0]} {rules[at]}")
            rules[at : at + 1] = [" ".join(words[2:])] if option == "-R" else []
    return "".join(f"{line}\n" for line in printed), deleted


@st.composite
def patches(draw: st.DrawFn) -> tuple[dict[str, list[str]], str]:
    """Chains, and lines of -D, -R and -A that they take."""
    chains = {name: [f"-s 10.{n}.0.1" for n in range(draw(st.integers(0, 12)))] for name in CHAINS}
    sizes = {name: len(rules) for name, rules in chains.items()}
    lines = []
    for number in range(draw(st.integers(0, 30))):
        name, option = draw(st.sampled_from(sorted(CHAINS))), draw(st.sampled_from("DDDDRA"))
        if option == "A" or not sizes[name]:
            lines.append(f"-A {name} -s 11.0.0.{number}")
            sizes[name] += 1
        else:
            at = draw(st.integers(1, sizes[name]))
            lines.append(f"-{option} {name} {at}" + (f" -s 12.0.0.{number}" if option == "R" else ""))
            sizes[name] -= option == "D"
    return chains, "".join(f"{line}\n" for line in lines)


@given(patches(), st.integers(1, 4))
def test_what_is_listed_is_what_is_deleted(drawn: tuple[dict[str, list[str]], str], many: int) -> None:
    chains, patch = drawn
    with patched.object(deletions_listed, "MANY", many):
        listing = with_listings(patch)
    lines = listing.text.splitlines()
    assert [line for number, line in enumerate(lines, 1) if number not in listing.added] == patch.splitlines()
    printed, deleted = execute(listing.text, {name: list(rules) for name, rules in chains.items()})
    assert deleted == execute(patch, {name: list(rules) for name, rules in chains.items()})[1]
    assert listing.deleted(printed) == deleted


def test_many_deletions_in_a_row_list_their_chain_once() -> None:
    """The tool takes time by the length of the chain for each rule that it lists."""
    row = "-D INPUT 7\n" * deletions_listed.MANY
    assert with_listings(f"*filter\n{row}COMMIT\n").text == f"*filter\n-v -S INPUT\n{row}COMMIT\n"
    assert (
        with_listings(f"*filter\n{row[:-11]}COMMIT\n").text.count("-v -S INPUT 7\n")
        == deletions_listed.MANY - 1
    )


def test_a_chain_that_is_listed_without_its_rules_is_told() -> None:
    listing = with_listings("-D INPUT 1\n" * deletions_listed.MANY)
    with pytest.raises(LiveError, match="the tool lists 0 rules, and the patch deletes rule 1"):
        listing.deleted("-P INPUT ACCEPT\n")
