"""Programs whose start undoes the rules are known by their settings, and named by apply and persist."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner
from support.firewall import Firewall, office

from hitables.apply import neighbours
from hitables.apply.neighbours import appenders, flushers
from hitables.cli.main import main
from hitables.ir.packet import Backend
from hitables.kernel.namespace import Namespace


@pytest.fixture
def etc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder that is taken for /etc, on a machine where nothing runs."""
    monkeypatch.setattr(neighbours, "ETC", tmp_path / "etc")
    monkeypatch.setattr(neighbours, "_PROC", tmp_path / "proc")
    for folder in ("etc/ufw", "etc/default", "etc/firewalld", "proc/7"):
        (tmp_path / folder).mkdir(parents=True)
    return tmp_path / "etc"


def test_ufw_flushes_if_it_manages_built_in_chains(etc: Path) -> None:
    (etc / "default/ufw").write_text("# MANAGE_BUILTINS=no\nMANAGE_BUILTINS=yes\n")
    assert not flushers()
    (etc / "ufw/ufw.conf").write_text("ENABLED=yes\nLOGLEVEL=low\n")
    (warning,) = flushers()
    assert warning.startswith("warning: ufw deletes all rules of iptables")
    assert "MANAGE_BUILTINS=no" in warning
    (etc / "default/ufw").write_text("MANAGE_BUILTINS=no\n")
    assert not flushers()


def test_ufw_appends_its_rules_at_boot_unless_its_chains_are_left(etc: Path) -> None:
    assert not appenders(())
    (etc / "ufw/ufw.conf").write_text('ENABLED="yes"\n')
    assert "--leave ufw" in appenders(("DOCKER", "DOCKER-*"))[0]
    assert not appenders(("ufw-*", "ufw6-*"))
    (etc / "default/ufw").write_text("MANAGE_BUILTINS=yes\n")
    assert not appenders(()), "ufw deletes the rules before it adds its own"


@pytest.mark.parametrize("used", ["runs", "starts at boot"])
def test_firewalld_flushes_with_the_backend_iptables_and_with_direct_rules(etc: Path, used: str) -> None:
    settings, direct = etc / "firewalld/firewalld.conf", etc / "firewalld/direct.xml"
    settings.write_text("FirewallBackend=iptables\n")
    assert not flushers()
    if used == "runs":
        (etc.parent / "proc/7/comm").write_text("firewalld\n")
    else:
        wants = etc / "systemd/system/multi-user.target.wants"
        wants.mkdir(parents=True)
        (wants / "firewalld.service").symlink_to("/usr/lib/systemd/system/firewalld.service")
    assert "FirewallBackend=nftables" in flushers()[0]
    settings.write_text("FirewallBackend=nftables\n")
    assert not flushers()
    direct.write_text('<?xml version="1.0" encoding="utf-8"?>\n<direct>\n</direct>\n')
    assert not flushers()
    direct.write_text(
        '<direct>\n  <rule ipv="ipv4" table="filter" chain="INPUT">-j ACCEPT</rule>\n</direct>\n'
    )
    assert "direct rules" in flushers()[0]


@pytest.mark.parametrize(
    ("direct", "flushes"),
    [
        ('<direct>\n<!-- off:\n<rule ipv="ipv4">-j ACCEPT</rule>\n-->\n</direct>\n', False),
        ('<direct>\n<!-- a --><rule\n  ipv="ipv4">-j ACCEPT</rule><!-- b -->\n</direct>\n', True),
    ],
)
def test_direct_rules_of_firewalld_are_elements_of_its_file(etc: Path, direct: str, flushes: bool) -> None:
    (etc.parent / "proc/7/comm").write_text("firewalld\n")
    (etc / "firewalld/direct.xml").write_text(direct)
    assert bool(flushers()) == flushes


def said(*arguments: str) -> str:
    done = CliRunner().invoke(main, arguments)
    assert done.exit_code == 0, done.output
    return done.output


@pytest.mark.needs_kernel
def test_apply_and_persist_name_programs_that_delete_the_rules(etc: Path, tmp_path: Path) -> None:
    (etc / "ufw/ufw.conf").write_text("ENABLED=yes\n")
    (etc / "default/ufw").write_text("MANAGE_BUILTINS=yes\n")
    with Namespace() as namespace:
        firewall = Firewall(namespace, tmp_path, Backend.NFT)
        file, state = str(firewall.file(office())), ("--state", str(firewall.state))
        applied = namespace.call(said, "apply", file, "--confirm", "0", "--backend", "nft", *state)
        assert applied.count("warning: ufw deletes all rules of iptables") == 1
        persisted = namespace.call(said, "persist", "--unit-folder", str(tmp_path), *state)
        assert persisted.count("warning: ufw deletes all rules of iptables") == 1
        assert "ufw is enabled: at boot it adds its rules behind these" not in persisted
        (etc / "default/ufw").write_text("MANAGE_BUILTINS=no\n")
        persisted = namespace.call(said, "persist", "--unit-folder", str(tmp_path), *state)
        assert "warning: ufw is enabled: at boot it adds its rules behind these" in persisted
