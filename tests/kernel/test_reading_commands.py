"""Each command that reads a kernel reads what is loaded there, and names the tables of the other backend."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from support import command_clients
from support.kernel_rules import EVERYWHERE, native, rules
from support.small_namespace import Namespace

from hitables.ir.fields import Family
from hitables.ir.packet import Backend
from hitables.kernel.load_save import load, save
from hitables.kernel.namespace import run

pytestmark = pytest.mark.needs_kernel

ROOT = Path(__file__).parents[2]


def programs() -> Path:
    """The folder of the commands."""
    return Path(command_clients.folder())


# The commands.


def command(*words: object, text: str = "") -> subprocess.CompletedProcess[str]:
    """In the namespace that this runs in."""
    return subprocess.run(
        [str(word) for word in words], input=text, capture_output=True, text=True, check=False
    )


ATTACK = native(
    *(f"ip saddr 10.{n}.0.0/16 tcp dport {n} counter accept" for n in range(1, 41)),
    "tcp dport { 22, 80 } counter accept",
    policy="drop",
)
TOLD = "table filter, chain INPUT, rule 41: tcp dport { 22, 80 } counter accept"


def test_the_rule_that_would_have_opened_every_port_is_refused_and_left_with_its_chain(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "st"
    with Namespace() as namespace:
        namespace.run(["nft", "-f", "-"], ATTACK)
        namespace.run(["iptables-nft-restore", "--noflush"], rules(Family.IPV4, 60, "FORWARD", "web"))
        before = namespace.run(["nft", "-s", "list", "ruleset"])
        init = programs() / "sflgen", "init", "--live", "--backend", "nft", "--state", folder
        done = namespace.call(command, *init)
        assert (
            (done.returncode, done.stdout) == (2, "")
            and TOLD in done.stderr
            and "--leave INPUT" in done.stderr
        )
        assert namespace.run(["nft", "-s", "list", "ruleset"]) == before and not (folder / "state").exists()
        done = namespace.call(command, *init, "--leave", "INPUT")
        assert done.returncode == 0, done.stderr
        assert "chain INPUT: matches --leave" in done.stderr and "60 rules" in done.stderr
        read_contents = namespace.run(["nft", "-s", "list", "chain", "ip", "filter", "INPUT"])
        assert (
            read_contents.count("accept") == 41
            and "tcp dport { 22, 80 } counter accept" in read_contents
            and "policy drop" in read_contents
        )
        done = namespace.call(
            command,
            programs() / "sflgen",
            "insert",
            "--live",
            "--state",
            folder,
            "FORWARD",
            "1",
            "-s",
            "192.0.2.1",
            "-j",
            "DROP",
        )
        assert done.returncode == 0, done.stderr
        done = namespace.call(command, programs() / "sflgen", "status", "--live", "--state", folder)
        assert "the kernel holds the rule set of the state" in done.stdout, done.stderr
        assert read_contents == namespace.run(["nft", "-s", "list", "chain", "ip", "filter", "INPUT"])


def readers(folder: Path) -> dict[str, list[object]]:
    sflgen, state = programs() / "sflgen", ["--live", "--state", folder]
    return {
        "init": [sflgen, "init", "--live", "--backend", "nft", "--state", f"{folder}2"],
        "init RULES": [
            sflgen,
            "init",
            f"{folder}.rules",
            "--live",
            "--backend",
            "nft",
            "--state",
            f"{folder}3",
        ],
        "status": [sflgen, "status", *state],
        "insert": [sflgen, "insert", *state, "INPUT", "1", "-s", "192.0.2.1", "-j", "DROP"],
        "delete": [sflgen, "delete", *state, "INPUT", "1"],
        "apply-commands": [sflgen, "apply-commands", *state, "-"],
        "sync": [sflgen, "sync", *state, f"{folder}.rules"],
        "fold": [sflgen, "fold", *state],
        "stream": [sflgen, "stream", *state],
        "save": [programs() / "hitables", "save", "--backend", "nft", "-o", f"{folder}.saved"],
        "refresh_rules": [
            sys.executable,
            ROOT / "examples/refresh_rules.py",
            "--backend",
            "nft",
            f"{folder}.made",
        ],
    }


def test_every_reader_refuses_what_is_misread_and_tells_of_the_other_backend(tmp_path: Path) -> None:
    folder = tmp_path / "st"
    text = rules(Family.IPV4, 30).replace("*filter\n", "*filter\n:web -\n")
    Path(f"{folder}.rules").write_text(text)
    with Namespace() as namespace:
        load(text, Family.IPV4, Backend.NFT, namespace)
        done = namespace.call(
            command, programs() / "sflgen", "init", "--live", "--backend", "nft", "--state", folder
        )
        assert done.returncode == 0 and "warning" not in done.stderr, done.stderr
        namespace.run(["nft", "add", "rule", "ip", "filter", "web", "tcp", "dport", "{ 22, 80 }", "accept"])
        load(rules(Family.IPV4, 2), Family.IPV4, Backend.LEGACY, namespace)
        before = namespace.run(["nft", "-s", "list", "ruleset"])
        for name, words in readers(folder).items():
            done = namespace.call(command, *words)
            assert done.returncode == 2, (name, done)
            assert "chain web, rule 1: tcp dport { 22, 80 } accept" in done.stderr, (name, done.stderr)
            assert (
                "warning: packets pass tables of iptables-legacy, too, which are not read: filter\n"
                in done.stderr
            ), name
            assert "fault of" not in done.stderr and (
                "holds" not in done.stdout if name == "status" else not done.stdout
            ), name
        assert namespace.run(["nft", "-s", "list", "ruleset"]) == before
    assert not Path(f"{folder}.saved").exists() and not Path(f"{folder}.made").exists()


@EVERYWHERE
def test_save_prints_what_iptables_save_prints(family: Family, backend: Backend, tmp_path: Path) -> None:
    words = [programs() / "hitables", "save", "--family", family.value, "--backend", backend.value]
    with Namespace() as namespace:
        load(rules(family, 4), family, backend, namespace)
        done = namespace.call(command, *words)
        assert (done.returncode, done.stderr) == (0, "") and done.stdout == save(family, backend, namespace)
        done = namespace.call(command, *words, "-c", "-o", tmp_path / "saved")
        assert (done.returncode, done.stdout) == (0, "")
        assert (tmp_path / "saved").read_text() == save(family, backend, namespace, counters=True)
        assert "[0:0] -A INPUT" in (tmp_path / "saved").read_text()


def test_save_reads_what_iptables_save_reads_where_no_backend_is_named(tmp_path: Path) -> None:
    for backend in Backend:
        folder = tmp_path / backend.value
        folder.mkdir()
        for name in ("save", "restore"):
            result = run(["sh", "-c", f"command -v iptables-{backend.value}-{name}"]).strip()
            (folder / f"iptables-{name}").symlink_to(result)
        with Namespace() as namespace:
            load(rules(Family.IPV4, 2), Family.IPV4, backend, namespace)
            words = ["env", f"PATH={folder}:{os.environ['PATH']}", programs() / "hitables", "save"]
            assert namespace.call(command, *words).stdout == save(Family.IPV4, backend, namespace)
            for each in Backend:
                told = namespace.call(
                    command, programs() / "hitables", "save", "--backend", each.value
                ).stderr
                other = f"-save prints no table; --backend {backend.value} reads the others"
                assert (other in told) == (each is not backend), told


def test_save_names_native_tables_that_packets_of_its_family_pass(tmp_path: Path) -> None:
    words = [programs() / "hitables", "save", "--backend", "nft"]
    with Namespace() as namespace:
        for family in ("ip6", "inet"):
            namespace.run(["nft", "add", "table", family, "mine"])
            hook = "{ type filter hook input priority 0; policy drop; }"
            namespace.run(["nft", f"add chain {family} mine first {hook}"])
        done = namespace.call(command, *words)
        named = "table inet mine, too: hooks input (priority 0, policy drop); iptables-save does not print"
        assert done.returncode == 0 and named in done.stderr and "ip6 mine" not in done.stderr, done.stderr
        assert "pass" not in done.stdout and ":INPUT ACCEPT" in done.stdout
        done = namespace.call(command, *words, "--family", "6")
        assert named in done.stderr and "table ip6 mine, too" in done.stderr, done.stderr
        (tmp_path / "nft").write_text("#!/bin/sh\nexit 3\n")
        (tmp_path / "nft").chmod(0o755)
        without_nft = ["env", f"PATH={tmp_path}:{os.environ['PATH']}", *words]
        done = namespace.call(command, *without_nft)
        assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("path", ["PATH=/usr/local/bin:/usr/bin:/bin", "--unset=PATH"])
def test_the_tools_are_found_with_the_path_of_cron_or_none(path: str) -> None:
    words = ["env", path, programs() / "hitables", "save", "--backend", "nft"]
    with Namespace() as namespace:
        load(rules(Family.IPV4, 2), Family.IPV4, Backend.NFT, namespace)
        done = namespace.call(command, *words)
        assert done.returncode == 0, done.stderr
        assert done.stdout == save(Family.IPV4, Backend.NFT, namespace)


def test_a_tool_that_is_missing_or_fails_is_told(tmp_path: Path) -> None:
    with Namespace() as namespace:
        words = ["env", f"PATH={tmp_path}", programs() / "hitables", "save", "--backend", "nft"]
        done = namespace.call(command, *words)
        assert done.returncode == 2 and "iptables-nft-save: no such command" in done.stderr
        (tmp_path / "iptables-legacy-save").write_text("#!/bin/sh\necho trouble >&2\nexit 3\n")
        (tmp_path / "iptables-legacy-save").chmod(0o755)
        words = [
            "env",
            f"PATH={tmp_path}:{os.environ['PATH']}",
            programs() / "hitables",
            "save",
            "--backend",
            "legacy",
        ]
        done = namespace.call(command, *words)
        assert done.returncode == 2 and "iptables-legacy-save: exit status 3: trouble" in done.stderr
