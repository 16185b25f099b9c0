"""Chains on one path share the nesting that nf_tables allows, by what each of their trees wants."""

from __future__ import annotations

from random import Random

import pytest

import hitables
from hitables.compiler.result import ChainReport

pytestmark = pytest.mark.engine


def security_groups(machines: int) -> str:
    """As OpenStack writes them: two long lists one behind the other, over the ports of a bridge by turns."""
    drawn = Random(1)
    taps = [f"tap{drawn.getrandbits(32):08x}-{drawn.getrandbits(8):02x}" for _ in range(machines)]
    chains = [f"{side}{tap[3:]}" for tap in taps for side in "io"]
    lines = [":FORWARD ACCEPT [0:0]", *(f":{name} - [0:0]" for name in ("groups", "machines", *chains))]
    lines += ["-A FORWARD -j groups"]
    for tap in taps:
        lines += [
            f"-A groups -m physdev --physdev-{side} {tap} --physdev-is-bridged -j machines"
            for side in ("out", "in")
        ]
    for tap in taps:
        lines += [
            f"-A machines -m physdev --physdev-out {tap} --physdev-is-bridged -j i{tap[3:]}",
            f"-A machines -m physdev --physdev-in {tap} --physdev-is-bridged -j o{tap[3:]}",
        ]
    lines.append("-A machines -j ACCEPT")
    lines += [f"-A {name} -p udp -m udp --dport 67 -j RETURN\n-A {name} -j DROP" for name in chains]
    return "\n".join(["*filter", *lines, "COMMIT", ""])


def reads(text: str, backend: str) -> dict[str, ChainReport]:
    output = hitables.compile(text, backend=backend)
    assert output.proved and not output.faults
    return {each.chain: each for each in output.reports if each.before > 100}


def test_the_second_of_two_long_chains_has_room_for_its_tree() -> None:
    reports = reads(security_groups(100), "nft")
    assert reports["groups"].read_after < 45 and reports["machines"].read_after < 75
    assert reports["groups"].nesting + reports["machines"].nesting <= 12
    legacy = reads(security_groups(100), "legacy")
    assert sum(each.read_after for each in legacy.values()) <= sum(
        each.read_after for each in reports.values()
    )
