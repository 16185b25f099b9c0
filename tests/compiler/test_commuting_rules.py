"""Lists that count hosts in both addresses, or do one thing to them, are printed as a tree for each address."""

from __future__ import annotations

import itertools
import json
import random
import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.counted_packets import known_source, with_hits
from support.firewall import Firewall
from support.scale import examples

import hitables
from hitables.compiler.pipeline import Output
from hitables.emit.text import write
from hitables.ir.commuting import DEPTH, CountingChains
from hitables.ir.fields import Family
from hitables.ir.packet import Backend
from hitables.kernel import Namespace
from hitables.parse.iptables import read
from hitables.report.counters import as_saved
from hitables.simulate.boundary_packets import BoundarySampler
from hitables.simulate.interpreter import Interpreter
from hitables.sources.known import by_map
from hitables.sources.map_file import read_map
from hitables.verify import exact
from hitables.verify.diff import changes
from hitables.verify.question import Difference, Equal, Question

pytestmark = pytest.mark.engine


def hosts(chain: str, count: int) -> list[str]:
    return [
        f'-A {chain} -{side} 10.0.{n // 200}.{n % 200 + 1}/32 -m comment --comment "host {n}"'
        for n in range(count)
        for side in "sd"
    ]


def text(lines: list[str], chains: str = "") -> str:
    heads = f":INPUT ACCEPT [0:0]\n:FORWARD ACCEPT [0:0]\n:OUTPUT ACCEPT [0:0]\n{chains}"
    return f"*filter\n{heads}" + "\n".join(lines) + "\nCOMMIT\n"


VERDICTS = [f"-A FORWARD -d 10.0.0.0/16 -p tcp -m tcp --dport {n} -j DROP" for n in range(1, 60, 2)]
LIMIT = "-A FORWARD -p icmp -m limit --limit 5/min -j LOG"
STATE = "-A FORWARD -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT"
LISTS = {
    "alone": text(hosts("FORWARD", 400)),
    "before verdicts": text([*hosts("FORWARD", 400), *VERDICTS]),
    "behind verdicts": text([STATE, *VERDICTS, *hosts("FORWARD", 400)]),
    "beside a memory": text([STATE, LIMIT, *VERDICTS, *hosts("FORWARD", 400)]),
    "between": text([STATE, "-A FORWARD -p icmp -j LOG", *VERDICTS, *hosts("FORWARD", 400), *VERDICTS]),
    "in a user chain": text(
        ["-A FORWARD -j acct", *hosts("acct", 400), "-A acct -j RETURN"], ":acct - [0:0]\n"
    ),
    "in chains of their own": text(
        [
            *(f"{line} -j user{n // 2}" for n, line in enumerate(hosts("FORWARD", 300))),
            *(f"-A user{n} -p {kind}" for n in range(300) for kind in ("tcp -j RETURN", "udp")),
        ],
        "".join(f":user{n} - [0:0]\n" for n in range(300)),
    ),
}
# Chains that only count, and chains that do not.
OF_USERS = [
    "-A plain -p udp", "-A plain -p udp -j RETURN", "-A outer -p icmp -j plain", "-A outer -p udp -g plain",
    "-A logs -j LOG", "-A limits -m limit --limit 1/min", "-A drops -p udp -j DROP", "-A far -j logs",
]  # fmt: skip
USERS = ["plain", "outer", "empty", "logs", "limits", "drops", "far"]
HEADS = "".join(f":{name} - [0:0]\n" for name in USERS)


def report(output: Output) -> tuple[float, int]:
    """Mean rules read in the longest chain, and rules printed."""
    each = max(output.reports, key=lambda each: each.before)
    return each.read_after, each.after


@pytest.mark.parametrize("backend", ["any", "nft"])
@pytest.mark.parametrize("kind", LISTS)
def test_packets_read_a_tree_for_each_address(kind: str, backend: str) -> None:
    output = hitables.compile(LISTS[kind], backend=backend)
    read_after, printed = report(output)
    assert read_after < 60 and printed < 1200 and not output.faults and not output.by_regions


@pytest.mark.parametrize("backend", ["any", "nft"])
@pytest.mark.parametrize(
    ("table", "chain", "action"),
    [("raw", "PREROUTING", "CT --notrack"), ("mangle", "FORWARD", "MARK --set-mark 7"), ("filter", "FORWARD", "LOG")],
)  # fmt: skip
def test_hosts_of_one_action_have_a_tree_for_each_address_too(
    table: str, chain: str, action: str, backend: str
) -> None:
    lines = [f"{line} -j {action}" for line in hosts(chain, 400)]
    output = hitables.compile("\n".join([f"*{table}", *lines, "COMMIT", ""]), backend=backend)
    read_after, printed = report(output)
    assert read_after < 40 and printed < 1200 and not output.faults and not output.by_regions


def test_the_order_in_which_hosts_are_counted_is_no_difference() -> None:
    lines = hosts("FORWARD", 100)
    by_host = read(text([*lines, *VERDICTS]))
    by_address = read(text([*lines[::2], *lines[1::2], *VERDICTS]))
    for pair in ((by_host, by_address), (by_address, by_host)):
        assert isinstance(exact.check(*pair, Question()), Equal)


def test_beside_a_memory_the_order_is_no_difference_either() -> None:
    """By the product of the addresses each of these takes minutes."""
    lines = hosts("FORWARD", 500)
    source = text([LIMIT, *lines, *VERDICTS])
    by_host, printed = read(source), read(hitables.compile(source).text)
    by_address = read(text([LIMIT, *lines[::2], *lines[1::2], *VERDICTS]))
    for pair in itertools.permutations((by_host, by_address, printed), 2):
        assert isinstance(exact.check(*pair, Question(timeout=20)), Equal)


def test_diff_does_not_walk_through_the_product_of_addresses() -> None:
    before = read(text([LIMIT, *hosts("FORWARD", 1000), *VERDICTS]))
    after = read(hitables.compile(write(before)).text)
    for pair in ((before, after), (after, before)):
        found = changes(*pair, Question(timeout=20), tell=lambda _: None)
        assert found.complete and not found.regions


def test_chains_that_only_count_are_told_from_others() -> None:
    table = read(text(OF_USERS, HEADS)).table("filter")
    counting = CountingChains(table, Family.IPV4)
    assert [name for name in (*USERS, "FORWARD", "missing") if name in counting] == [
        "plain",
        "outer",
        "empty",
    ]
    deep = [f"-A c{n} -j c{n + 1}" for n in range(200)]
    heads = "".join(f":c{n} - [0:0]\n" for n in range(201))
    nested = CountingChains(read(text(deep, heads)).table("filter"), Family.IPV4)
    assert [n for n in range(201) if f"c{n}" in nested] == [n for n in range(201) if n > 200 - DEPTH]


@pytest.mark.parametrize(("of_sources", "equal"), [("plain", True), ("empty", True), ("drops", False)])
def test_the_order_of_jumps_is_a_difference_if_their_chains_do_more_than_count(
    of_sources: str, equal: bool
) -> None:
    jumps = [
        f"-A FORWARD -{side} 10.0.0.{n} -j {of_sources if side == 's' else 'outer'}"
        for n in range(20)
        for side in "sd"
    ]
    one, other = (read(text([*lines, *OF_USERS], HEADS)) for lines in (jumps, [*jumps[1::2], *jumps[::2]]))
    assert isinstance(exact.check(one, other, Question()), Equal) == equal


def test_a_host_that_is_counted_twice_is_a_difference() -> None:
    lines = hosts("FORWARD", 30)
    more = [*lines[:50], lines[0], *lines[50:]]
    assert isinstance(exact.check(read(text(lines)), read(text(more)), Question()), Difference)


@settings(max_examples=examples(6))
@given(seed=st.integers(0, 2**32), backend=st.sampled_from(["legacy", "nft", "any"]))
def test_each_rule_counts_what_it_counts_in_the_source(
    seed: int, backend: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    rng = random.Random(seed)
    lines = [
        f"-A FORWARD -{rng.choice('sd')} 10.0.{rng.randrange(8)}.0/{rng.choice([22, 24])}" for _ in range(80)
    ]
    lines = [f"{line} -j {rng.choice(USERS)}" if rng.random() < 0.5 else line for line in lines]
    lines[rng.randrange(80)] = "-A FORWARD -s 10.0.0.0/24 -p udp -j DROP"
    output = hitables.compile(text(lines + OF_USERS, HEADS), backend=backend)
    assert not output.faults
    batch = BoundarySampler(Interpreter(output.before, Backend.LEGACY), "filter", "FORWARD", seed=1).draw(600)
    batch = batch.pick(np.flatnonzero(~batch.malformed()))
    path = tmp_path_factory.mktemp("map") / "map"
    path.write_text(json.dumps(output.source_map))
    known = by_map(read_map(str(path)), read(write(with_hits(output.program, batch))))
    assert as_saved(known) == as_saved(known_source(with_hits(output.before, batch), path))


@pytest.mark.needs_kernel
@pytest.mark.parametrize("backend", list(Backend))
def test_the_kernel_counts_each_host(backend: Backend, tmp_path: Path) -> None:
    lines = [line.replace("10.0.0.7/", "127.0.0.1/") for line in hosts("INPUT", 60)]
    with Namespace() as namespace:
        firewall = Firewall(namespace, tmp_path, backend)
        firewall.load(text(lines))
        firewall.send(3, 53)
        path = firewall.file(text(lines))
        firewall.apply(path)
        firewall.send(4, 53)
        counted = firewall.hitables("counters").stdout
    # Each packet is followed by an error of this host, which is for 127.0.0.1, too.
    sums = [
        int(found) for found in re.findall(r"^\[(\d+):\d+\] .* 127\.0\.0\.1/32", counted, flags=re.MULTILINE)
    ]
    assert sums == [14, 14]
