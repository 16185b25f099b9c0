"""Effort and nesting of compile, and how it is stopped."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.crossing_text import crossing

from hitables import HitablesError, read
from hitables.analyse.boxes import Axis, Boxes, Cut
from hitables.build.grow import ALGORITHMS, EFFORTS, PAPER, grow
from hitables.compiler.compile import compile_rules
from hitables.compiler.options import Options
from hitables.core import trees
from hitables.ir.fields import Field

pytestmark = pytest.mark.engine

AXES = (Axis(Field.SRC, 32, False, Cut.PREFIX), Axis(Field.DST, 32, False, Cut.PREFIX))


def crossed(count: int) -> Boxes:
    """Rules wide in the source, among rules wide in the destination."""
    rules = [[{AXES[n % 2].field: (n << 20, (n << 20) + 4095)}] for n in range(count)]
    return Boxes.of(AXES, rules, [True] * count, reorder=[3] * count)


@pytest.mark.parametrize("effort", EFFORTS)
def test_every_effort_gives_one_tree_that_keeps_its_bounds(effort: str) -> None:
    program = read(crossing(300, seed=3))
    options = Options(backend="legacy", effort=effort, max_expansion=2.0)
    one, two = compile_rules(program, options), compile_rules(program, options)
    assert one.program == two.program
    assert one.program.rule_count() <= 2 * program.rule_count()


def test_more_effort_gives_fewer_reads() -> None:
    read_after = {}
    for effort in EFFORTS:
        tree = grow(crossed(300), algorithm="bisect", effort=effort, leaf_size=2)
        read_after[effort] = tree.search(crossed(300).low)[1].mean()
    assert read_after["best"] <= read_after["normal"] < read_after["fast"]


@pytest.mark.parametrize("depth", [1, 2, 4])
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_no_chain_nests_deeper_than_max_depth(algorithm: str, depth: int) -> None:
    text = crossing(200, seed=4).replace("-j LOG", "-m limit --limit 5/min -j LOG", 3)
    options = Options(backend="legacy", algorithm=algorithm, max_depth=depth)
    reports = compile_rules(read(text), options).reports
    assert max(report.nesting for report in reports) <= depth
    assert depth < 4 or not next(each.why for each in reports if each.chain == "FORWARD")


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"max_depth": 0}, "max-depth of 0"),
        ({"effort": "wild"}, "fast, normal, best"),
        ({"max_expansion": 0.9}, "below 1"),
    ],
)
def test_impossible_bounds_are_refused(wrong: dict[str, object], message: str) -> None:
    with pytest.raises(HitablesError, match=message):
        Options(**wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("algorithm", [*ALGORITHMS, PAPER])
def test_every_builder_can_be_stopped(algorithm: str) -> None:
    trees.stop(True)
    try:
        with pytest.raises(KeyboardInterrupt):
            grow(crossed(100), algorithm=algorithm)
    finally:
        trees.stop(False)
    assert len(grow(crossed(100), algorithm=algorithm)) > 1


INTERRUPTED_BUILD = """
import os, signal, sys, threading
import hitables.compiler.run_trees
from hitables.cli.main import main
signal.signal(signal.SIGINT, signal.default_int_handler)  # where the tests run in the background it is ignored
grow = hitables.compiler.run_trees.grow
def interrupted(*given, **options):
    threading.Thread(target=os.kill, args=(os.getpid(), signal.SIGINT)).start()
    return grow(*given, **options)
hitables.compiler.run_trees.grow = interrupted
main(sys.argv[1:])
"""


def test_an_interrupt_ends_compile_with_130_and_nothing_is_written(tmp_path: Path) -> None:
    rules, output = tmp_path / "rules", tmp_path / "output"
    rules.write_text(crossing(3000, seed=5))
    command = [
        sys.executable,
        "-c",
        INTERRUPTED_BUILD,
        "compile",
        "--effort",
        "best",
        str(rules),
        "-o",
        str(output),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ})
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "hitables: interrupted\n")
    assert not output.exists()
