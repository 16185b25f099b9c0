"""Compile offers every builder of the engine; its trees are proved, load, and keep their bounds."""

from __future__ import annotations

import pytest
from support.crossing_text import crossing
from support.small_namespace import Namespace

from hitables import read
from hitables.build.grow import ALGORITHMS
from hitables.compiler.options import Options
from hitables.compiler.pipeline import compile_text

pytestmark = pytest.mark.engine


def test_the_published_builders_are_among_them() -> None:
    assert {"auto", "bisect", "hicuts", "hypercuts"} <= set(ALGORITHMS)


@pytest.mark.parametrize("backend", ["legacy", "nft", "any"])
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_the_tree_of_each_builder_is_proved_and_keeps_its_bounds(algorithm: str, backend: str) -> None:
    text = crossing(150, seed=1)
    result = compile_text(text, Options(algorithm=algorithm, backend=backend, max_expansion=3.0))
    (report,) = [each for each in result.reports if each.chain == "FORWARD"]
    assert not report.why
    assert report.after <= 3 * report.before
    assert report.read_after < report.read_before
    assert backend == "legacy" or report.nesting <= 15


@pytest.mark.needs_kernel
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_the_tree_of_each_builder_loads_in_both_kernels(algorithm: str) -> None:
    result = compile_text(crossing(150, seed=2), Options(algorithm=algorithm), prove=False)
    count = read(result.text).rule_count()
    for kernel in ("legacy", "nft"):
        with Namespace() as namespace:
            namespace.run([f"iptables-{kernel}-restore"], result.text)
            saved = namespace.run([f"iptables-{kernel}-save", "-t", "filter"])
        assert read(saved).rule_count() == count


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_rule_that_drops_cut_off_packets_is_not_hidden_by_one_of_its_state(algorithm: str) -> None:
    """`-m udp` drops a header that is cut off before `--state` is asked, in whatever state the packet is."""
    rules = ["-m state --state RELATED,ESTABLISHED -j ACCEPT"]
    rules += ["-p udp -m udp --sport 53 -m state --state ESTABLISHED -j ACCEPT"]
    rules += [f"-i eth{n} -j LOG" for n in range(40)]
    rules += [f"-i eth{n} -p udp -m udp --sport {port} -j ACCEPT" for n in range(40) for port in (67, 123)]
    text = "\n".join(
        ["*filter", ":FORWARD DROP [0:0]", *(f"-A FORWARD {rule}" for rule in rules), "COMMIT", ""]
    )
    compile_text(text, Options(algorithm=algorithm, leaf_size=2, min_length=4))
