"""The counters of the rules of a source are the sums of those of its copies, and nothing else is taken for it."""

from __future__ import annotations

import json
import random
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.firewall import BACKENDS, Firewall
from support.hitables_command import run
from support.rule_texts import make_text
from support.scale import examples
from support.small_namespace import Namespace

import hitables
from hitables.errors import HitablesError
from hitables.ir.fields import Family
from hitables.ir.marker import marked_digest
from hitables.ir.meaning import meaning
from hitables.ir.packet import Backend
from hitables.ir.program import Program
from hitables.kernel.experiment import Trial, furnish, prepare, send_trials
from hitables.kernel.load_save import load, save
from hitables.kernel.make_sendable import interfaces_of, make_sendable
from hitables.parse.iptables import read
from hitables.report.counters import _labels, as_saved
from hitables.simulate.batch import PacketBatch
from hitables.simulate.boundary_packets import BoundarySampler
from hitables.simulate.interpreter import Interpreter
from hitables.sources.known import Known, by_map
from hitables.sources.map_file import read_map

SCHEMA = json.loads(Path(hitables.__file__).with_name("schema").joinpath("counters.json").read_text())
LISTED = (
    "*filter\n:INPUT DROP [0:0]\n:FORWARD ACCEPT [0:0]\n:OUTPUT ACCEPT [0:0]\n# the office\n"
    "-A INPUT -s 127.0.0.1,127.0.0.2 -p udp --dport 53 -m comment --comment \"a \\\"name\\\" server\" -j ACCEPT\n"
    + "".join(f"-A INPUT -s 10.1.{n}.0/24 -p udp --dport {1000 + n} -j ACCEPT\n" for n in range(20))
    + "-A INPUT -s 127.0.0.0/8 -p udp --dport 1000:1009 -j ACCEPT\nCOMMIT\n"
)  # fmt: skip


def compile_files(folder: Path, text: str, *options: str) -> tuple[Path, Path]:
    """The files of the compiled rules and of their map."""
    source, compiled, map_file = (folder / name for name in ("office.rules", "compiled", "map"))
    source.write_text(text)
    run("compile", source, "-o", compiled, "--map", map_file, *options)
    return compiled, map_file


def is_printed_well(line: str) -> bool:
    """Whether the tools load the rule in either chain and family, and print what they loaded."""
    return not re.search(r"-m (mac|ttl|connlimit)\b|! --[sd]port 0:65535", line)


def known_by(output: Any, compiled: Program, folder: Path) -> Known:
    path = folder / "map"
    path.write_text(json.dumps(output.source_map))
    return by_map(read_map(str(path)), compiled)


def whole_packets(program: Program, backend: Backend, chain: str, count: int) -> PacketBatch:
    """None is malformed: trees may drop these before the rule that counts them."""
    batch = BoundarySampler(Interpreter(program, backend), "filter", chain, seed=1).draw(count)
    return batch.pick(np.flatnonzero(~batch.malformed()))


# ---- laws ----


@settings(max_examples=examples(8))
@given(seed=st.integers(0, 2**32))
def test_each_packet_is_counted_by_one_copy_of_each_rule_that_it_matches(
    seed: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    rng = random.Random(seed)
    text = make_text(rng, rng.choice(list(Family)), rules=60, memory=0.2)
    output = hitables.compile(text, min_length=2)
    for backend in Backend:
        for chain in ("INPUT", "FORWARD", "OUTPUT"):
            batch = whole_packets(output.before, backend, chain, 1500)
            before, after = (
                _with_hits(program, backend, chain, batch) for program in (output.before, output.program)
            )
            known = known_by(output, read(hitables.write(after), family=after.family),
                             tmp_path_factory.mktemp("map"))  # fmt: skip
            counts = [each.count for each in known.counted()]
            assert counts == [rule.counters for each in before.tables[0].chains for rule in each.rules]


def _with_hits(program: Program, backend: Backend, chain: str, batch: PacketBatch) -> Program:
    """*program*, whose rules have counted *batch*."""
    hits = Interpreter(program, backend).run("filter", chain, batch, hits=True).hits
    assert hits is not None
    counts = iter(hits.tolist())
    (table,) = program.tables
    chains = (
        each.with_rules(tuple(rule._replace(counters=(next(counts), 0)) for rule in each.rules))
        for each in table.chains
    )
    return replace(program, tables=(replace(table, chains=tuple(chains)),))


@pytest.mark.needs_kernel
@BACKENDS
@pytest.mark.parametrize("family", Family, ids=lambda family: f"IPv{int(family)}")
def test_the_kernel_counts_for_the_copies_what_it_counts_for_the_source(
    backend: Backend, family: Family, tmp_path: Path
) -> None:
    """The same packets go through the source in one namespace and through the compiled rules in another."""
    rng = random.Random(f"{backend} {family}")
    lines = make_text(rng, family, rules=90, memory=0.0).splitlines(keepends=True)
    text = "".join(line for line in lines if is_printed_well(line) and "-m statistic" not in line)
    output = hitables.compile(text, family=family, min_length=4, backend=backend.value)
    assert any(not each.why for each in output.reports)
    sent = 0
    with Namespace() as plain, Namespace() as fast:
        for namespace, rules in ((plain, text), (fast, output.text)):
            load(rules, family, backend, namespace)
            furnish(namespace, family, ("eth0", "eth1"))
        for chain in ("INPUT", "FORWARD", "OUTPUT"):
            batch = whole_packets(output.before, backend, chain, 600)
            names = dict.fromkeys(interfaces_of([batch]), "eth0")
            batch = make_sendable(batch, chain, names)
            trials = [Trial(packet) for packet in batch.pick(~batch.malformed())]
            for namespace in (plain, fast):
                prepare(namespace, "filter", chain, trials, True)
                sent += sum(result.arrived for result in send_trials(namespace))
        truth, copies = (read(save(family, backend, each, True), family=family) for each in (plain, fast))
    known = known_by(output, copies, tmp_path)
    table = truth.table("filter")
    wanted = [
        (chain.name, meaning(rule), rule.counters)
        for chain in output.before.tables[0].chains
        for rule in table[chain.name].rules
    ]
    assert sent > 500 and sum(bool(count and count[0]) for *_, count in wanted) > 20
    assert [(each.chain, meaning(each.rule), each.count) for each in known.counted()] == wanted
    for (_, chain_name), count in known.policy_counts().items():
        assert count == table[chain_name].counters
    again = read(as_saved(known), family=family)
    assert [rule.counters for chain in again.tables[0].chains for rule in chain.rules] == [
        count for *_, count in wanted
    ]


@pytest.mark.needs_kernel
@BACKENDS
def test_a_kernel_stores_the_marker_and_the_digests(backend: Backend, tmp_path: Path) -> None:
    for family in Family:
        lines = make_text(random.Random(int(family)), family, rules=60).splitlines(keepends=True)
        ports = (
            "--dport {}",
            "--syn --dport {}",
            "--dport {} --sport 1024:65535",
            "--dport {} --tcp-flags NONE NONE",
        )
        more = "".join(f"-A FORWARD -p tcp {ports[n % 4].format(n)} -j ACCEPT\n" for n in range(30))
        text = "".join(filter(is_printed_well, lines)).replace("COMMIT", f"{more}COMMIT")
        output = hitables.compile(text, family=family)
        with Namespace() as namespace:
            load(output.text, family, backend, namespace)
            stored = read(save(family, backend, namespace), family=family)
        (entry,) = output.source_map["tables"]
        assert marked_digest(stored.table("filter")) == entry["digest"]
        assert len(known_by(output, stored, tmp_path).counted()) == output.before.rule_count()


@pytest.mark.needs_kernel
@BACKENDS
def test_the_state_of_apply_gives_the_sums_also_after_rules_changed(backend: Backend, tmp_path: Path) -> None:
    with Namespace() as namespace:
        firewall = Firewall(namespace, tmp_path, backend)
        firewall.apply(firewall.file(LISTED))
        firewall.send(3, 53)
        firewall.send(2, 1005)
        assert _counts(firewall) == {"127.0.0.1": 3, "127.0.0.2": 0, "127.0.0.0/8": 2}
        firewall.apply(firewall.file(LISTED.replace("10.1.7.0/24", "10.9.7.0/24")))
        firewall.send(4, 53)
        assert _counts(firewall) == {"127.0.0.1": 7, "127.0.0.2": 0, "127.0.0.0/8": 2}
        assert firewall.hitables("source").stdout == LISTED.replace("10.1.7.0/24", "10.9.7.0/24")
        firewall.iptables("-I", "INPUT", "-s", "192.0.2.1", "-j", "DROP")
        foreign = firewall.hitables("counters", "--format", "json")
        assert "chain INPUT" in foreign.stderr and _packets(foreign.stdout)["127.0.0.1"] == 7
        file = firewall.file(firewall.save(counters=True), "saved")
        assert _packets(firewall.hitables("counters", file, "--format", "json").stdout)["127.0.0.1"] == 7


@pytest.mark.needs_kernel
@BACKENDS
def test_a_jump_has_a_counter_once_another_program_has_made_its_chain(
    backend: Backend, tmp_path: Path
) -> None:
    jump = "-A INPUT -p udp -j f2b-a"
    with Namespace() as namespace:
        firewall = Firewall(namespace, tmp_path, backend)
        text = LISTED.replace("# the office\n", f":f2b-a - [0:0]\n{jump}\n")
        firewall.apply(firewall.file(text), "--leave", "fail2ban")
        done = firewall.hitables("counters")
        assert f"\n{jump}\n" in done.stdout and done.stderr.count("has no counter") == 1
        firewall.iptables("-N", "f2b-a")
        firewall.iptables(*jump.replace("-A", "-I").split())
        firewall.send(3, 53)
        done = firewall.hitables("counters")
        assert re.search(rf"^\[3:\d+\] {jump}$", done.stdout, flags=re.MULTILINE) and done.stderr == ""


def _counts(firewall: Firewall) -> dict[str, int]:
    done = firewall.hitables("counters", "--format", "json")
    assert done.stderr == ""
    return _packets(done.stdout)


def _packets(text: str) -> dict[str, int]:
    """By source address: the packets of rules that begin with 127."""
    document = json.loads(text)
    jsonschema.validate(document, SCHEMA)
    return {
        match[1]: each["packets"]
        for each in document["rules"]
        if (match := re.search(r"-s (127[\d./]*)", each["rule"]))
    }


# ---- cases ----


def test_rules_of_one_line_have_counters_of_their_own(tmp_path: Path) -> None:
    compiled, map_file = compile_files(tmp_path, LISTED)
    text = re.sub(r"^(-A \S+ -s 127.0.0.2 )", r"[7:70] \1", compiled.read_text(), flags=re.MULTILINE)
    compiled.write_text(text.replace(":INPUT DROP [0:0]", ":INPUT DROP [5:50]"))
    lines = run("counters", compiled, "--map", map_file).stdout.splitlines()
    assert ":INPUT DROP [5:50]" in lines and "# the office" in lines
    assert [line.split(" -p")[0] for line in lines if "127.0.0." in line][:2] == [
        "[0:0] -A INPUT -s 127.0.0.1",
        "[7:70] -A INPUT -s 127.0.0.2",
    ]


def test_the_source_is_given_back_byte_by_byte(tmp_path: Path) -> None:
    compiled, map_file = compile_files(tmp_path, LISTED)
    assert run("source", compiled, "--map", map_file).stdout == LISTED


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda text: re.sub(r"^-A ht1 .*\n", "", text, count=1, flags=re.MULTILINE), "rules, and"),
        (lambda text: text.replace("--dport 1003", "--dport 1004"), "has other rules than the map"),
        (lambda text: re.sub(r"ht-source-\w{4}", "ht-source-0123", text), "from a source with digest 0123"),
        (lambda text: text.replace("*filter", "*mangle"), "has no table filter"),
        (lambda text: text.replace("-A ht1 ", "-A ht1 -j more\n-A ht1 ", 1).replace(":ht1 ", ":more -\n:ht1 "),
         "rules, and"),
    ],
)  # fmt: skip
def test_a_map_of_other_rules_is_refused(change: Any, message: str, tmp_path: Path) -> None:
    compiled, map_file = compile_files(tmp_path, LISTED)
    changed = change(compiled.read_text())
    assert changed != compiled.read_text()
    compiled.write_text(changed)
    for command in ("counters", "source"):
        done = run(command, compiled, "--map", map_file, status=2)
        assert done.stdout == "" and message in done.stderr


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda data: {**data, "version": 1}, "a map of version 1"),
        (lambda data: {**data, "format": "x"}, "its format is not hitables-map"),
        (lambda data: {**data, "text": data["text"].replace("1003", "1004")}, "has another digest"),
        (lambda data: {**data, "text": ""}, "has no text"),
        (lambda data: {**data, "family": 5}, "damaged"),
        (lambda data: {**data, "family": 6}, "map: the map is damaged (its text of "),
        (lambda data: {**data, "text": data["text"].replace("-j", "-x")}, "the map is damaged (its text of"),
        (lambda data: {**data, "tables": [{"name": "filter"}]}, "damaged"),
        (lambda data: [], "its format is not hitables-map"),
    ],
)  # fmt: skip
def test_a_file_that_is_no_map_is_refused(change: Any, message: str, tmp_path: Path) -> None:
    compiled, map_file = compile_files(tmp_path, LISTED)
    map_file.write_text(json.dumps(change(json.loads(map_file.read_text()))))
    assert message in run("counters", compiled, "--map", map_file, status=2).stderr
    map_file.write_text("*filter\nCOMMIT\n")
    assert "no map of" in run("counters", compiled, "--map", map_file, status=2).stderr


MAP_FIELDS: list[tuple[str, list[Any]]] = [
    *((name, []) for name in ("source", "text", "leave", "tables")),
    *((name, ["tables", 0]) for name in ("name", "digest", "chains")),
    *((name, ["tables", 0, "chains", 0]) for name in ("name", "origin", "digest", "lines", "rules")),
]  # fmt: skip


def test_a_map_whose_fields_are_missing_or_of_another_kind_is_damaged(tmp_path: Path) -> None:
    _, map_file = compile_files(tmp_path, LISTED)
    whole = map_file.read_text()
    for name, place in MAP_FIELDS:
        for value in (None, {}, 7, [[5]]):
            data = json.loads(whole)
            inner = data
            for step in place:
                inner = inner[step]
            inner[name] = value
            if value is None:
                del inner[name]
            if (name, value) == ("lines", [[5]]):
                continue  # nothing reads them
            map_file.write_text(json.dumps(data))
            with pytest.raises(HitablesError, match=rf"{map_file}: the map is damaged \("):
                read_map(str(map_file))


def test_json_that_nests_too_deep_is_refused_by_the_name_of_its_file(tmp_path: Path) -> None:
    compiled, _ = compile_files(tmp_path, LISTED)
    deep = tmp_path / "deep.json"
    deep.write_text("[" * 100_000)
    for words in (["counters", compiled, "--map", deep], ["stats", compiled, "--costs", deep]):
        assert re.search(rf"{deep}: .*it nests too deep", run(*words, status=2).stderr)
    with pytest.raises(HitablesError, match="costs: not a profile of costs: it nests too deep"):
        hitables.compile(LISTED, costs="[" * 100_000)


def test_rules_that_were_removed_have_no_counter(tmp_path: Path) -> None:
    text = LISTED.replace("COMMIT", "-A INPUT -s 10.1.3.0/24 -p udp --dport 1003 -j ACCEPT\nCOMMIT")
    compiled, map_file = compile_files(tmp_path, text, "--equivalence", "verdict")
    done = run("counters", compiled, "--map", map_file, "--format", "json")
    gone = [each["line"] for each in json.loads(done.stdout)["rules"] if each["packets"] is None]
    assert gone == [28] and "office.rules:28 has no counter" in done.stderr
    prometheus = run("counters", compiled, "--map", map_file, "--format", "prometheus").stdout
    assert prometheus.count("hitables_rule_packets_total{") == 23


def test_rules_of_other_programs_may_come_and_go(tmp_path: Path) -> None:
    text = LISTED.replace(":OUTPUT ACCEPT [0:0]\n", ":OUTPUT ACCEPT [0:0]\n:f2b-a - [0:0]\n:f2b-b - [0:0]\n")
    text = text.replace("# the", "-A INPUT -j f2b-a\n-A INPUT -p tcp -j f2b-b\n-A f2b-a -j RETURN\n# the")
    compiled, map_file = compile_files(tmp_path, text, "--leave", "fail2ban")
    changed = compiled.read_text().replace("-A INPUT -j f2b-a\n", "-A INPUT -j f2b-c\n")
    changed = changed.replace("-A INPUT -p tcp -j f2b-b", "[9:90] -A INPUT -p tcp -j f2b-b")
    changed = changed.replace("-A f2b-a", "-A f2b-a -s 1.2.3.4 -j DROP\n[3:30] -A f2b-a")
    compiled.write_text(changed.replace(":f2b-b", ":f2b-c -\n:f2b-b"))
    done = run("counters", compiled, "--map", map_file)
    assert "\n-A INPUT -j f2b-a\n[9:90] -A INPUT -p tcp -j f2b-b\n" in done.stdout
    assert "[3:30] -A f2b-a -j RETURN" in done.stdout and "has no counter" in done.stderr


def test_prometheus_gets_a_series_for_each_rule_that_lines_before_do_not_rename(tmp_path: Path) -> None:
    compiled, map_file = compile_files(tmp_path, LISTED)
    text = run("counters", compiled, "--map", map_file, "--format", "prometheus").stdout
    label = r'(\w+="(?:[^"\\\n]|\\.)*")'
    sample = re.compile(rf"\w+_total\{{{label}(?:,{label})*\}} \d+")
    samples = [line for line in text.splitlines() if not line.startswith("# ")]
    assert all(sample.fullmatch(line) for line in samples) and len(set(samples)) == len(samples)
    assert len(samples) == 2 * 23 + 2 * 3
    inserted = LISTED.replace("# the office\n", "-A INPUT -s 192.0.2.9 -j DROP\n")
    compiled, map_file = compile_files(tmp_path, inserted)
    more = run("counters", compiled, "--map", map_file, "--format", "prometheus").stdout.splitlines()
    assert set(samples) < set(more)


def test_a_source_that_is_not_compiled_has_no_copies_known_by_the_map(tmp_path: Path) -> None:
    _, map_file = compile_files(tmp_path, LISTED)
    done = run("counters", tmp_path / "office.rules", "--map", map_file, status=2)
    assert "is not the map of table filter, chain INPUT" in done.stderr


def test_without_a_state_directory_the_message_says_what_to_do(tmp_path: Path) -> None:
    done = run("counters", "--state", tmp_path / "none", status=2)
    assert "there is no such state directory" in done.stderr


def test_prometheus_labels_of_different_names_are_different() -> None:
    names = [
        "\udcff",
        r"\xff",
        r"\\xff",
        "\\\udcff",
        r"\\\xff",
        "web",
        'a"b',
        r"a\"b",
        "a\nb",
        r"a\nb",
        r"a\x",
    ]
    labels = [_labels({"chain": name}) for name in names]
    assert len(set(labels)) == len(names)
    assert (
        labels[0] == r'{chain="\\xff"}' and labels[5] == '{chain="web"}' and labels[10] == r'{chain="a\\x"}'
    )
