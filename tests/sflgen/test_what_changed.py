"""What a command without --live says: the state is changed, the kernel is not."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from sflgen.cli import main

RULES = Path(__file__).parents[2] / "docs" / "example" / "office.rules"


def sflgen(*words: str) -> Result:
    return CliRunner().invoke(main, words)


@pytest.mark.parametrize(
    ("backend", "tool"),
    [("any", "iptables-restore"), ("nft", "iptables-nft-restore"), ("legacy", "iptables-legacy-restore")],
)
def test_an_update_without_live_names_the_command_that_loads_it(
    tmp_path: Path, backend: str, tool: str
) -> None:
    folder = str(tmp_path / "office")
    assert sflgen("init", str(RULES), "--state", folder, "--backend", backend).exit_code == 0
    done = sflgen("insert", "--state", folder, "FORWARD", "1", "-s", "192.0.2.7", "-j", "DROP")
    assert done.exit_code == 0 and done.stdout.startswith("*filter\n")
    assert done.stderr.splitlines()[-1] == (
        f"changed: the state in {folder}, to version 2; "
        f"not changed: the kernel, until {tool} --noflush loads this patch"
    )


def test_an_update_that_needs_no_patch_says_so(tmp_path: Path) -> None:
    folder = str(tmp_path / "office")
    assert sflgen("init", str(RULES), "--state", folder).exit_code == 0
    done = sflgen("sync", "--state", folder, str(RULES))
    assert done.exit_code == 0 and not done.stdout
    assert done.stderr.splitlines() == ["nothing to do: the state holds these rules", "0 updates"]
    assert "version 1," in sflgen("status", "--state", folder).stdout
    done = sflgen("fold", "--state", folder)
    assert done.exit_code == 0 and not done.stdout
    assert done.stderr.endswith(f"changed: the state in {folder}, to version 2; the kernel needs no patch\n")
