"""Where a rule of a compiled set is named, the rule of its source is named too."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.firewall import BACKENDS, Firewall
from support.hitables_command import run
from support.small_namespace import Namespace

import hitables
from hitables.ir.packet import Backend, Outcome
from hitables.ir.packet_reader import read_packet
from hitables.ir.semantics import run as walk_of

RULES = "".join(f"-A INPUT -s 10.1.{n}.0/24 -p udp --dport {1000 + n} -j ACCEPT\n" for n in range(40))
SOURCE = f"*filter\n:INPUT DROP [0:0]\n:FORWARD ACCEPT [0:0]\n:OUTPUT ACCEPT [0:0]\n{RULES}COMMIT\n"
PACKET = "chain=INPUT in=eth0 src=10.1.{0}.9 dst=10.9.9.9 proto=udp sport=9 dport={1}"


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path, Path]:
    source, compiled, map_file = (tmp_path / name for name in ("office.rules", "compiled", "map"))
    source.write_text(SOURCE)
    run("compile", source, "-o", compiled, "--map", map_file)
    return source, compiled, map_file


@pytest.mark.parametrize("at", [0, 7, 39])
def test_the_rule_that_decides_in_the_compiled_set_is_named_as_that_of_the_source(
    files: tuple[Path, Path, Path], at: int
) -> None:
    source, compiled, map_file = files
    packet = PACKET.format(at, 1000 + at)
    before = hitables.read(SOURCE)
    walk = walk_of(before.tables[0], "INPUT", read_packet(packet, before.family).packet, Backend.LEGACY)
    line = walk.steps[-1].rule.line
    assert walk.steps[-1].outcome is Outcome.YES
    done = run("trace", compiled, "--map", map_file, "--packet", packet)
    assert f", by {source}:{line}: -A INPUT -s 10.1.{at}.0/24" in done.stdout.splitlines()[-1]
    told = run("trace", compiled, "--map", map_file, "--packet", packet, "--format", "json").stdout
    document = json.loads(told)
    assert (document["decided_by"]["source"]["file"], document["decided_by"]["source"]["line"]) == (
        str(source),
        line,
    )
    assert document["rules"][-1] == document["decided_by"]


def test_a_difference_names_the_lines_of_the_source(files: tuple[Path, Path, Path], tmp_path: Path) -> None:
    source, compiled, map_file = files
    other = tmp_path / "other.rules"
    other.write_text(SOURCE.replace("--dport 1007 -j ACCEPT", "--dport 1007 -j DROP"))
    done = run("check", other, compiled, "--map", map_file, status=1)
    assert f"    {source}:12: -A INPUT -s 10.1.7.0/24" in done.stdout
    form = ("--format", "json")
    document = json.loads(run("check", other, compiled, "--map", map_file, *form, status=1).stdout)
    assert {"file": str(source), "line": 12, "role": "after"}.items() <= document["findings"][0]["places"][
        2
    ].items()
    run("check", other, compiled, "--map", map_file, "--format", "sarif", status=1)


def test_chains_that_somebody_changed_are_named_and_the_others_stay_known(
    files: tuple[Path, Path, Path],
) -> None:
    source, compiled, map_file = files
    compiled.write_text(compiled.read_text().replace("--dport 1007 -j ACCEPT", "--dport 1008 -j ACCEPT"))
    done = run("check", source, compiled, "--map", map_file, status=1)
    assert "which has other rules than the map" in done.stderr and "10.1.7." in done.stdout
    packet = PACKET.format(33, 1033)
    assert f"{source}:38:" in run("trace", compiled, "--map", map_file, "--packet", packet).stdout


@pytest.mark.needs_kernel
@BACKENDS
def test_what_apply_loaded_is_known_by_its_state(backend: Backend, tmp_path: Path) -> None:
    with Namespace() as namespace:
        firewall = Firewall(namespace, tmp_path, backend)
        firewall.apply(firewall.file(SOURCE))
        saved = firewall.file(firewall.save(), "saved")
        done = firewall.hitables("trace", saved, "--packet", PACKET.format(5, 1005))
        assert f", by {tmp_path}/office.rules:10: -A INPUT -s 10.1.5.0/24" in done.stdout


# Words that the tools print otherwise than we do.
PRINTED_OTHERWISE = (
    '-m comment --comment "it\'s ü"',
    "-m hashlimit --hashlimit-upto 5/sec --hashlimit-name five",
    "-m string --hex-string |00ff| --algo bm",
    '-m u32 --u32 "0&0xf=1"',
)


@pytest.mark.needs_kernel
@BACKENDS
@pytest.mark.parametrize("words", PRINTED_OTHERWISE)
def test_the_state_knows_rules_that_the_tool_prints_in_other_words(
    words: str, backend: Backend, tmp_path: Path
) -> None:
    with Namespace() as namespace:
        firewall = Firewall(namespace, tmp_path, backend)
        source = firewall.file(SOURCE.replace("COMMIT", f"-A INPUT -p tcp {words} -j ACCEPT\nCOMMIT"))
        firewall.apply(source)
        saved = firewall.file(firewall.save(), "saved")
        done = firewall.hitables("trace", saved, "--packet", PACKET.format(5, 1005))
        assert f", by {tmp_path}/office.rules:10: -A INPUT -s 10.1.5.0/24" in done.stdout
        assert "not as rule set" not in done.stderr
        assert "not as rule set" not in firewall.hitables("check", source, saved).stderr


def test_a_map_and_a_state_exclude_each_other(files: tuple[Path, Path, Path]) -> None:
    _, compiled, map_file = files
    done = run(
        "trace", compiled, "--map", map_file, "--state", "x", "--packet", PACKET.format(1, 1), status=2
    )
    assert "exclude each other" in done.stderr


def test_all_mistakes_of_a_packet_are_told_at_once(files: tuple[Path, Path, Path]) -> None:
    words = "chain=INPUT srv=10.0.0.1 dst=10.0.0.300 proto=tcp sport=ssh2 flags=SIN"
    message = run("trace", files[1], "--packet", words, status=2).stderr
    for told in (
        "unknown word srv=",
        "'10.0.0.300' is not",
        "'ssh2' is no port",
        "dport= is missing",
        "mean SYN?",
    ):
        assert told in message, told
    assert run("trace", files[1], "--packet", PACKET.format(1, "domain")).stdout
