"""The script for configuration managers does what it says, on files and on a host."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "examples" / "refresh_rules.py"


def refresh(*arguments: object, inside: str = "") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(SCRIPT), *map(str, arguments)]
    if inside:
        command = ["unshare", "-n", "sh", "-c", f'{inside} && exec "$@"', "sh", *command]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_it_writes_once_and_again_only_when_the_rules_change(tmp_path: Path) -> None:
    source, made = tmp_path / "rules", tmp_path / "compiled"
    source.write_text((ROOT / "docs/example/office.rules").read_text())
    first = refresh("--source", source, made)
    assert (first.returncode, first.stderr) == (10, "")
    written = made.stat()
    assert refresh("--source", source, made).returncode == 0
    assert made.stat().st_mtime_ns == written.st_mtime_ns
    source.write_text(source.read_text().replace("--dport 25 ", "--dport 587 "))
    assert refresh("--source", source, made).returncode == 10
    assert "--dport 587" in made.read_text()


@pytest.mark.parametrize("fault", ["-A FORWARD -p tcp --sprot 1 -j DROP", "-A FORWARD -j NOWHERE"])
def test_trouble_leaves_the_old_file(fault: str, tmp_path: Path) -> None:
    source, made = tmp_path / "rules", tmp_path / "compiled"
    source.write_text(f"*filter\n:FORWARD ACCEPT [0:0]\n{fault}\nCOMMIT\n")
    made.write_text("old")
    done = refresh("--source", source, made)
    assert done.returncode == 2
    assert f"{source}:3:" in done.stderr
    assert made.read_text() == "old"


@pytest.mark.parametrize("link", [None, os.symlink, os.link])
def test_the_source_is_not_written_over(link: Callable[[Path, Path], None] | None, tmp_path: Path) -> None:
    source = made = tmp_path / "rules"
    text = (ROOT / "docs/example/office.rules").read_text()
    source.write_text(text)
    if link is not None:
        made = tmp_path / "compiled"
        link(source, made)
    done = refresh("--source", source, made)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert "would overwrite --source" in done.stderr
    assert source.read_text() == text


def test_what_cannot_be_told_is_not_written(tmp_path: Path) -> None:
    made = tmp_path / "compiled"
    command = [sys.executable, SCRIPT, "--source", ROOT / "docs/example/office.rules", made]
    for end in (">/dev/full", ">&-"):
        done = subprocess.run(
            ["sh", "-c", f'exec "$@" {end}', "sh", *command], capture_output=True, text=True, check=False
        )
        assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
        assert done.stderr.startswith("refresh_rules: standard output: ")
        assert not made.exists()


def test_an_interrupt_ends_it_without_a_traceback(tmp_path: Path) -> None:
    """SIGINT comes while it waits for its source."""
    source, made = tmp_path / "rules", tmp_path / "compiled"
    os.mkfifo(source)
    command = ["env", "--default-signal=INT", sys.executable, SCRIPT, "--source", source, made]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as running, open(source, "w"):
        time.sleep(0.2)
        running.send_signal(signal.SIGINT)
        said = running.communicate()[1]
    assert (running.returncode, said) == (130, "refresh_rules: interrupted\n")
    assert not made.exists()


@pytest.mark.needs_kernel
@pytest.mark.parametrize("backend", ["legacy", "nft"])
def test_it_compiles_what_the_host_runs_and_knows_its_own_work(backend: str, tmp_path: Path) -> None:
    """`iptables-save` is the backend's own one here, by way of the search path."""
    made = tmp_path / "compiled"
    for name in ("iptables-save", "iptables-restore"):
        tool = shutil.which(f"iptables-{backend}-{name[9:]}")
        assert tool
        (tmp_path / name).symlink_to(tool)
    path = f"PATH={tmp_path}:{os.environ['PATH']}; export PATH"
    load = f"{path} && iptables-restore {ROOT / 'docs/example/office.rules'}"
    assert refresh(made, inside=load).returncode == 10
    assert refresh(made, inside=load).returncode == 0
    again = refresh(made, inside=f"{path} && iptables-restore {made}")
    assert again.returncode == 2
    assert "the host runs compiled rules" in again.stderr
    begun = subprocess.run(
        [sys.executable, "-c", "from sflgen.cli import main; main()", "init", "--state", tmp_path / "st",
         "--backend", backend, ROOT / "docs/example/office.rules"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    (tmp_path / "patch").write_text(begun.stdout)
    updated = refresh(made, inside=f"{load} && iptables-restore --noflush {tmp_path / 'patch'}")
    assert updated.returncode == 2
    assert "the host runs compiled rules" in updated.stderr
