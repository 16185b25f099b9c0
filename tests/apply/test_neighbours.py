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
    monkeypatch.setattr(neighbours, "PROC", tmp_path / "proc")
    monkeypatch.setattr(neighbours, "PYTHON_FOLDERS", (tmp_path / "lib", tmp_path / "local/lib"))
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


def install_firewalld(etc: Path, version: str, packages: str = "lib/python3/dist-packages") -> None:
    """Have the Python package of firewalld below the folder that is taken for /usr."""
    package = etc.parent / packages / "firewall/config"
    package.mkdir(parents=True, exist_ok=True)
    (package / "__init__.py").write_text(f"# configuration\nDAEMON_NAME = 'firewalld'\n{version}\n")


def start_firewalld(etc: Path) -> None:
    (etc.parent / "proc/7/comm").write_text("firewalld\n")


@pytest.mark.parametrize("used", ["runs", "starts at boot"])
def test_firewalld_flushes_with_the_backend_iptables_and_with_direct_rules(etc: Path, used: str) -> None:
    settings, direct = etc / "firewalld/firewalld.conf", etc / "firewalld/direct.xml"
    install_firewalld(etc, 'VERSION = "2.1.1"')
    settings.write_text("FirewallBackend=iptables\n")
    assert not flushers()
    if used == "runs":
        start_firewalld(etc)
    else:
        wants = etc / "systemd/system/multi-user.target.wants"
        wants.mkdir(parents=True)
        (wants / "firewalld.service").symlink_to("/usr/lib/systemd/system/firewalld.service")
    (warning,) = flushers()
    assert warning == (
        "warning: firewalld 2.1.1 deletes all rules of iptables, these too, when it starts, stops or is "
        f"reloaded: set FirewallBackend=nftables in {settings}, or disable firewalld"
    )
    settings.write_text("FirewallBackend=nftables\n")
    assert not flushers()
    direct.write_text('<?xml version="1.0" encoding="utf-8"?>\n<direct>\n</direct>\n')
    assert not flushers()
    direct.write_text(
        '<direct>\n  <rule ipv="ipv4" table="filter" chain="INPUT">-j ACCEPT</rule>\n</direct>\n'
    )
    assert "remove the direct rules" in flushers()[0]
    settings.write_text("FirewallBackend=iptables\n")
    assert "FirewallBackend=nftables" in flushers()[0] and "direct rules" in flushers()[0]


@pytest.mark.parametrize(
    ("said", "flushes"),
    [
        ("VERSION = '1.3.3'", "firewalld 1.3.3 deletes"), ('VERSION = "0.9.11"', "firewalld 0.9.11 deletes"),
        ('VERSION = "2.0.0"', ""), ("VERSION='2.3.1'", ""), ('VERSION = "10.0"', ""),
        ("VERSION = VERSION_OF_PACKAGE", "firewalld of unknown version"),
    ],
)  # fmt: skip
def test_firewalld_before_version_2_flushes_whatever_its_settings_are(
    etc: Path, said: str, flushes: str
) -> None:
    install_firewalld(etc, said)
    (etc / "firewalld/firewalld.conf").write_text("FirewallBackend=nftables\n")
    assert not flushers(), "firewalld is not used"
    start_firewalld(etc)
    told = flushers()
    assert len(told) == bool(flushes)
    if flushes:
        assert flushes in told[0] and "have version 2.0 or later, or disable firewalld" in told[0]


def test_firewalld_whose_version_is_not_found_is_taken_for_an_early_one(etc: Path) -> None:
    start_firewalld(etc)
    assert "warning: firewalld of unknown version deletes all rules of iptables" in flushers()[0]


def test_of_two_packages_of_firewalld_the_earlier_one_counts(etc: Path) -> None:
    start_firewalld(etc)
    install_firewalld(etc, 'VERSION = "2.1.0"', "local/lib/python3.12/site-packages")
    assert not flushers()
    install_firewalld(etc, "VERSION = '1.3.3'")
    assert "firewalld 1.3.3" in flushers()[0]


@pytest.mark.parametrize(
    ("direct", "flushes"),
    [
        ('<direct>\n<!-- off:\n<rule ipv="ipv4">-j ACCEPT</rule>\n-->\n</direct>\n', False),
        ('<direct>\n<!-- a --><rule\n  ipv="ipv4">-j ACCEPT</rule><!-- b -->\n</direct>\n', True),
    ],
)
def test_direct_rules_of_firewalld_are_elements_of_its_file(etc: Path, direct: str, flushes: bool) -> None:
    start_firewalld(etc)
    install_firewalld(etc, 'VERSION = "2.0.0"')
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
    start_firewalld(etc)
    install_firewalld(etc, "VERSION = '1.3.3'")
    with Namespace() as namespace:
        firewall = Firewall(namespace, tmp_path, Backend.NFT)
        file, state = str(firewall.file(office())), ("--state", str(firewall.state))
        applied = namespace.call(said, "apply", file, "--confirm", "0", "--backend", "nft", *state)
        for warning in ("ufw deletes all rules of iptables", "firewalld 1.3.3 deletes all rules of iptables"):
            assert applied.count(f"warning: {warning}") == 1
        persisted = namespace.call(said, "persist", "--unit-folder", str(tmp_path), *state)
        assert persisted.count("warning: ufw deletes all rules of iptables") == 1
        assert persisted.count("warning: firewalld 1.3.3 deletes all rules of iptables") == 1
        assert "ufw is enabled: at boot it adds its rules behind these" not in persisted
        (etc / "default/ufw").write_text("MANAGE_BUILTINS=no\n")
        persisted = namespace.call(said, "persist", "--unit-folder", str(tmp_path), *state)
        assert "warning: ufw is enabled: at boot it adds its rules behind these" in persisted
