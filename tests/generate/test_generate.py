"""Seeds are read, written and learnt; what is made from one has its statistics, and is the same each time."""

from __future__ import annotations

import gzip
import re
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from hitables import engine
from hitables.cli.main import main
from hitables.errors import HitablesError, ParseError, Unsupported
from hitables.generate import rules as made
from hitables.generate import seed as seeds
from hitables.generate import trace as traces
from hitables.generate.likeness import likeness
from hitables.parse import classbench, trace

OWN = sorted((Path(__file__).parents[2] / "rulesets/seeds").iterdir())


@pytest.fixture(params=OWN, ids=lambda path: path.name)
def own(request: pytest.FixtureRequest) -> seeds.Seed:
    return seeds.parse(request.param.read_text(), request.param.name)


def test_a_seed_reads_back_what_it_prints(own: seeds.Seed) -> None:
    text = seeds.to_text(own)
    assert seeds.to_text(seeds.parse(text)) == text


@pytest.mark.parametrize("count", [1, 300, 3000])
def test_as_many_distinct_rules_come_out_as_are_asked_for(own: seeds.Seed, count: int) -> None:
    rules = made.rules(own, count)
    assert len({rule._replace(line=0) for rule in rules}) == count
    again = classbench.parse(classbench.to_filter_text(rules))
    assert [rule._replace(line=0) for rule in again] == [rule._replace(line=0) for rule in rules]


def test_the_same_number_makes_the_same_set(own: seeds.Seed) -> None:
    assert made.rules(own, 200, 5) == made.rules(own, 200, 5) != made.rules(own, 200, 6)


def test_no_rule_is_hidden_by_one_that_stands_before_it(own: seeds.Seed) -> None:
    boxes = engine.Rules.of_filter(made.rules(own, 400)).boxes
    for number in range(1, len(boxes)):
        before = (boxes[:number, :, 0] <= boxes[number, :, 0]) & (boxes[number, :, 1] <= boxes[:number, :, 1])
        assert not before.all(axis=1).any(), number


def test_a_seed_learnt_from_what_it_made_is_like_it(own: seeds.Seed) -> None:
    learnt = seeds.learn(made.rules(own, 5000))
    for protocol, share in own.protocols.items():
        assert learnt.protocols.get(protocol, 0) == pytest.approx(share, abs=0.05)
    for tree, again in ((own.source, learnt.source), (own.destination, learnt.destination)):
        assert again.nest <= tree.nest + 1
    first, second = likeness(made.rules(own, 1000)), likeness(made.rules(learnt, 1000))
    assert second.parts_from(first) < 0.25


@pytest.mark.parametrize(("size", "count"), [("1K", 1000), ("10K", 10_000)])
@pytest.mark.parametrize("name", ["acl1", "fw1", "ipc1"])
def test_sets_resemble_the_published_ones_of_the_same_seed(
    name: str, size: str, count: int, shared: Path
) -> None:
    seed = seeds.parse((shared / f"rulesets/classbench/seeds/{name}_seed").read_text())
    published = likeness(
        classbench.parse(gzip.decompress((shared / f"rulesets/wustl/{name}_{size}.gz").read_bytes()).decode())
    )
    own = likeness(made.rules(seed, count))
    assert own.parts_from(published) < 0.1
    assert 0.4 < own.overlap * own.rules / (published.overlap * published.rules) < 2.5
    for share in ("any_source", "any_destination", "any_sport", "any_dport", "any_protocol"):
        assert getattr(own, share) == pytest.approx(getattr(published, share), abs=0.1), share


def test_every_public_seed_is_read_and_makes_rules(shared: Path) -> None:
    for path in sorted((shared / "rulesets/classbench/seeds").iterdir()):
        assert len(made.rules(seeds.parse(path.read_text(), path.name), 500)) == 500


def test_a_trace_lies_in_its_rules_and_bursts_as_pareto_says(own: seeds.Seed) -> None:
    rules = engine.Rules.of_filter(made.rules(own, 300))
    even, bursts = traces.headers(rules, 5000), traces.headers(rules, 5000, scale=1.0)
    repeats = [float((packets[1:] == packets[:-1]).all(axis=1).mean()) for packets in (even, bursts)]
    assert repeats[0] < 0.05 < 0.4 < repeats[1]
    with engine.open("linear", rules) as db:
        result = db.search(bursts)
    assert (result >= 0).all()
    again = trace.parse(traces.to_text(bursts, result))
    assert (again.headers == bursts).all() and again.expected is not None and (again.expected == result).all()


def test_the_commands_make_what_the_library_makes(tmp_path: Path) -> None:
    files = {name: str(tmp_path / name) for name in ("rules", "trace", "seed")}
    args = [
        "generate",
        str(OWN[0]),
        "-n",
        "50",
        "-o",
        files["rules"],
        "--trace",
        files["trace"],
        "--packets",
        "70",
    ]
    assert CliRunner().invoke(main, args).exit_code == 0
    assert CliRunner().invoke(main, ["seed", files["rules"], "-o", files["seed"]]).exit_code == 0
    assert CliRunner().invoke(main, ["generate", files["seed"], "-n", "20"]).output.count("\n") == 20
    checked = CliRunner().invoke(main, ["classify", files["rules"], files["trace"], "--check"])
    assert checked.exit_code == 0, checked.output


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("-pcorr", "-pcor", "there is no section -pcorr"),
        ("-prots\n", "-prots\n6 1.0\n", "2 columns"),
        ("-scale\n", "-scale\nmany\n", "'many' is no whole number|has one number"),
        ("-dpem\n", "-dpem\n0.5 90:80\n", "the range 90:80 is empty"),
        ("-dpem\n", "-dpem\n1.5 80:80\n", "1.5 does not lie in 0..1"),
        ("-snest\n", "", "no section -snest|no section is open"),
        ("-wc_wc\n", "-wc_wc\n70,1.0 40,1.0\n", "70 does not lie in 0..64"),
        (r"(?<=-scale\n)\d+", "0", r"s:2:1: -scale is the number of rules, at least 1"),
        (r"(?<=-prots\n)(.*\n)*?#", "#", "s: the shares of the protocols sum to 0"),
        (
            r"(?m)^(\d+\t)[0-9.]+(?=(\t[0-9.]+){25}$)",
            r"\g<1>0",
            r"s:5:1: the shares of the protocols sum to 0",
        ),
        (r"(?<=-prots\n)(\d+\t[0-9.]+)\t.*", r"\1" + "\t0" * 25, r"s:5:1: the shares of the port classes of"),
        (r"(?<=-flags\n)(\d+).*", r"\1", r"s:\d+:1: the shares of the flags sum to 0; leave the line out"),
        (r"(?<=-flags\n)(\d+).*", r"\1\t0x0000/0x0000,0", r"s:\d+:1: the shares of the flags sum to 0"),
    ],
)
def test_a_damaged_seed_is_refused_with_its_line(old: str, new: str, message: str) -> None:
    with pytest.raises(ParseError, match=message):
        seeds.parse(re.sub(old, new, OWN[0].read_text()), "s")


def test_no_seed_is_learnt_of_protocol_0_which_is_any_protocol_there() -> None:
    rule = "@0.0.0.0/0 0.0.0.0/0 0 : 65535 0 : 65535 0x00/0x00\n"
    with pytest.raises(Unsupported, match=r"x:2: protocol 0 \(0x00/0xFF\): .* write 0x00/0x00"):
        seeds.learn(classbench.parse(rule + rule.replace("0x00/0x00", "0x00/0xFF"), "x"))


def test_what_cannot_be_made_is_said() -> None:
    one = seeds.learn(classbench.parse("@128.0.0.0/1 0.0.0.0/0 0 : 65535 80 : 80 0x06/0xFF\n"))
    with pytest.raises(HitablesError, match="fewer than 3 distinct rules"):
        made.rules(one, 3)
    with pytest.raises(HitablesError, match="ask for at least one"):
        made.rules(one, 0)
    with pytest.raises(HitablesError, match="Pareto shape"):
        traces.headers(engine.Rules.of_filter(made.rules(one, 1)), 5, shape=0)
    assert np.array_equal(traces.headers(engine.Rules.of_filter(made.rules(one, 1)), 3)[:, 3], [80] * 3)
