"""The prices of the tree builders agree with the cost model, and change trees."""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from hitables.analyse.boxes import Boxes
from hitables.analyse.callgraph import writes
from hitables.analyse.reorderable import reorderability
from hitables.analyse.rule_boxes import BoxReader, as_boxes
from hitables.api import read
from hitables.build.expected_cost import means, read_in_turn
from hitables.build.grow import grow
from hitables.build.tree import Tree, unsplit
from hitables.compiler.compile import compile_rules
from hitables.compiler.options import Options
from hitables.compiler.pipeline import compile_text
from hitables.costs import Costs, default
from hitables.costs.packet_cost import cached_cost, program_of
from hitables.costs.tree_prices import Priced, nanoseconds, prices
from hitables.errors import HitablesError
from hitables.ir.choices import Malformed
from hitables.ir.fields import Family, Field
from hitables.ir.packet import Backend
from hitables.ir.program import Program
from hitables.kernel.routable import crafted, routable
from hitables.simulate.batch import PacketBatch
from hitables.simulate.boundary_packets import draw_packets

# Without what the processor learns: the part that the builders count.
PLAIN = Costs(
    {backend: replace(each, branch_miss=0.0, cache_miss=()) for backend, each in default().figures.items()},
    "plain",
    {},
)


def rules_text(count: int, seed: int, tests: str = "spt") -> str:
    rng = random.Random(seed)

    def rule() -> str:
        message = ""
        if "s" in tests:
            length = rng.choice((8, 16, 20, 24, 25, 32))
            message += f"-s {rng.randrange(1, 224)}.{rng.randrange(256)}.{rng.randrange(256)}.0/{length} "
        if "d" in tests:
            message += f"-d 10.{rng.randrange(256)}.{rng.randrange(256)}.0/24 "
        if "p" in tests and rng.random() < 0.8:
            low = rng.randrange(60000)
            port = rng.choice((f"{low}", f"{low}:{low + rng.randrange(1, 900)}"))
            message += f"-p {rng.choice(('tcp', 'udp'))} --dport {port} "
        return f"-A FORWARD {message}-j {rng.choice(('ACCEPT', 'DROP'))}\n"

    return "*filter\n:FORWARD DROP [0:0]\n" + "".join(rule() for _ in range(count)) + "COMMIT\n"


def boxes_of(program: Program, backend: Backend, weights: list[float] | None = None) -> Boxes:
    table = program.table("filter")
    rules = table["FORWARD"].rules
    reader = BoxReader(program.family, nft=backend is Backend.NFT, malformed=Malformed.STRICTER)
    boxes = as_boxes(reader.read(rules, writes(table)), program.family, weights)
    boxes.reorder[:] = reorderability(rules, writes(table), reader)
    return boxes


def points_of(boxes: Boxes, batch: PacketBatch) -> np.ndarray:
    return boxes.points([packet.values for packet in batch])


def mean_cost(tree: Tree, boxes: Boxes, batch: PacketBatch) -> float:
    return float(replace(tree, boxes=boxes).spend(points_of(boxes, batch))[2].mean())


def modelled(program: Program, batch: PacketBatch, backend: Backend) -> float:
    alone = program_of(program, "filter", backend)
    return cached_cost(alone, "filter", "FORWARD", batch, PLAIN.of(backend), backend)[0]


@pytest.mark.parametrize("backend", list(Backend))
@pytest.mark.parametrize("seed", range(4))
def test_costs_of_a_list_and_a_tree_agree_with_the_model_of_the_programs(seed: int, backend: Backend) -> None:
    program = read(rules_text(120, seed), family=Family.IPV4)
    options = Options(backend=backend.value, costs=PLAIN)
    compiled = compile_rules(program, options).program
    batch = draw_packets(program, "filter", "FORWARD", 400, seed)
    _, batch = crafted(batch.pick(routable(batch)))
    rules = program.table("filter")["FORWARD"].rules
    boxes = boxes_of(program, backend)
    asked = Priced(rules, boxes.axes, program.family)
    priced = boxes.priced(nanoseconds(asked, PLAIN, backend))
    assert mean_cost(unsplit(priced), priced, batch) == pytest.approx(
        modelled(program, batch, backend), rel=1e-3
    )
    tree = grow(
        boxes.priced(prices(asked, PLAIN, [backend])),
        algorithm="auto",
        max_nesting=15 if backend is Backend.NFT else 200,
        budget=480,
    )
    assert mean_cost(tree, priced, batch) == pytest.approx(modelled(compiled, batch, backend), rel=0.02)


def test_without_prices_every_rule_read_costs_one() -> None:
    boxes = boxes_of(read(rules_text(80, 1), family=Family.IPV4), Backend.LEGACY)
    tree = grow(boxes, algorithm="auto")
    rng = np.random.default_rng(1)
    points = boxes.low[rng.integers(len(boxes.rule), size=500)]
    rule_found, reads, cost = tree.spend(points)
    assert (reads == cost).all() and (rule_found == tree.search(points)[0]).all()


def test_the_estimate_of_a_list_agrees_with_points() -> None:
    program = read(rules_text(300, 5, "s"), family=Family.IPV4)
    rules = program.table("filter")["FORWARD"].rules
    boxes = boxes_of(program, Backend.LEGACY)
    asked = nanoseconds(Priced(rules, boxes.axes, program.family), default(), Backend.LEGACY)
    assert read_in_turn(asked, boxes.weight) == pytest.approx(
        means(boxes, [unsplit(boxes)], [asked])[0, 1, 0], rel=0.1
    )


@pytest.mark.parametrize("rules", [300, 700])  # as many points for costs as for rules read, and fewer
def test_trees_that_are_weighed_together_have_the_means_of_each_alone(rules: int) -> None:
    program = read(rules_text(rules, 5, "s"), family=Family.IPV4)
    boxes = boxes_of(program, Backend.LEGACY)
    priced = Priced(program.table("filter")["FORWARD"].rules, boxes.axes, program.family)
    each = [nanoseconds(priced, default(), backend) for backend in Backend]
    trees = [grow(boxes, algorithm=algorithm) for algorithm in ("hicuts", "bisect", "auto")]
    together = means(boxes, trees, each)
    assert together.shape == (3, 1 + len(Backend), 2) and len(np.unique(together[:, :, 1])) == 9
    assert (together == [means(boxes, [tree], each)[0] for tree in trees]).all()


def test_a_chain_that_would_cost_more_stays_and_the_report_has_the_reason() -> None:
    program = read(rules_text(40, 2, "s"), family=Family.IPV4)
    assert not compile_rules(program, Options(backend="legacy")).reports[0].why
    figures = default().of(Backend.LEGACY)
    slow = replace(figures, targets={**figures.targets, "goto": 1000.0, "jump": 1000.0})
    costs = Costs({Backend.LEGACY: slow}, "slow jumps", {})
    result = compile_rules(program, Options(backend="legacy", costs=costs))
    assert "would not cost less" in result.reports[0].why or "would not read fewer" in result.reports[0].why
    assert result.program.table("filter")["FORWARD"].rules == program.table("filter")["FORWARD"].rules


def test_reports_give_time_for_each_backend_that_is_compiled_for() -> None:
    program = read(rules_text(200, 4), family=Family.IPV4)
    for backend, names in (("any", {"legacy", "nft"}), ("legacy", {"legacy"}), ("nft", {"nft"})):
        (report,) = compile_rules(program, Options(backend=backend)).reports
        assert set(report.ns_before) == set(report.ns_after) == names
        assert all(report.ns_after[name] < report.ns_before[name] / 2 for name in names)


def test_a_profile_without_the_backend_is_refused() -> None:
    program = read(rules_text(20, 1), family=Family.IPV4)
    costs = Costs({Backend.NFT: default().of(Backend.NFT)}, "mine.json", {})
    with pytest.raises(HitablesError, match="the profile has no figures for legacy"):
        compile_rules(program, Options(backend="any", costs=costs))


def test_prices_of_other_rules_are_refused() -> None:
    boxes = boxes_of(read(rules_text(20, 1), family=Family.IPV4), Backend.LEGACY)
    other = read(rules_text(10, 1), family=Family.IPV4).table("filter")["FORWARD"].rules
    with pytest.raises(ValueError, match="not for these boxes"):
        boxes.priced(nanoseconds(Priced(other, boxes.axes, Family.IPV4), default(), Backend.LEGACY))


def lengths_tested(tree: Tree) -> Counter[int]:
    """How often the tree tests the destination for a prefix of each length."""
    sizes = [
        node.edges[0].high - node.edges[0].low + 1
        for node in tree.as_tests().nodes()
        if node.axis is not None and node.axis.field is Field.DST
    ]
    return Counter(33 - size.bit_length() for size in sizes)


@pytest.mark.parametrize(("nets", "ports", "instead"), [(range(64), 8, 25), ((7, 90, 91, 200), 60, 23)])
def test_nft_trees_cut_where_tests_are_cheap(nets: Sequence[int], ports: int, instead: int) -> None:
    """nft pays ten times as much for a /24: a wider prefix stands for it, or its two halves do."""
    rules = "".join(
        f"-A FORWARD -d 10.1.{net}.0/24 -p tcp --dport {port} -j ACCEPT\n"
        for port in range(100, 100 + ports)
        for net in nets
    )
    program = read(f"*filter\n:FORWARD DROP [0:0]\n{rules}COMMIT\n", family=Family.IPV4)
    listed = program.table("filter")["FORWARD"].rules
    boxes = boxes_of(program, Backend.NFT)
    priced = Priced(listed, boxes.axes, program.family)
    nft = nanoseconds(priced, default(), Backend.NFT)
    trees, cost = {}, {}
    for backend in Backend:
        asked = boxes.priced(prices(priced, default(), [backend]))
        trees[backend] = grow(asked, algorithm="auto", max_nesting=15, budget=2048)
        cost[backend] = means(boxes, [trees[backend]], [nft])[0, 1, 1]
    assert lengths_tested(trees[Backend.LEGACY])[24]
    tested = lengths_tested(trees[Backend.NFT])
    assert not tested[24] and tested[instead]
    assert cost[Backend.NFT] < 0.95 * cost[Backend.LEGACY]


def test_halves_that_lead_to_one_chain_are_proved() -> None:
    """Rules that cross in many /24s: groups, versions, and tests in halves, all together."""
    halved = 0
    for seed in range(6):
        rng = random.Random(seed)
        rules = "".join(
            f"-A FORWARD {rng.choice(('', f'-s 10.0.{rng.randrange(8)}.0/24 '))}"
            f"-d 172.0.{rng.randrange(8)}.0/{rng.choice((24, 24, 16, 28))} "
            f"-p {rng.choice(('tcp', 'udp'))} --dport {rng.randrange(900)} -j {rng.choice(('ACCEPT', 'DROP'))}\n"
            for _ in range(500)
        )
        text = f"*filter\n:FORWARD DROP [0:0]\n{rules}COMMIT\n"
        result = compile_text(text, Options(backend="nft"), family=Family.IPV4)
        entered = Counter(re.findall(r"/25 -g (\S+)$", result.text, re.MULTILINE))
        halved += sum(times > 1 for times in entered.values())
    assert halved > 10


@pytest.mark.parametrize("backend", ["legacy", "nft", "any"])
def test_a_list_of_single_ports_becomes_a_tree(backend: str) -> None:
    """A port is asked for at half the price of a range in nft, but a tree of single ports is a list."""
    rules = "".join(f"-A FORWARD -p tcp --dport {at * 7 + 100} -j ACCEPT\n" for at in range(100))
    program = read(f"*filter\n:FORWARD DROP [0:0]\n{rules}COMMIT\n", family=Family.IPV4)
    (report,) = compile_rules(program, Options(backend=backend)).reports
    assert not report.why and report.read_after < 12
