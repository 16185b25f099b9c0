"""What check, diff, lint and apply say of chains that packets enter only from chains left to other programs."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.firewall import BACKENDS, Firewall
from support.small_namespace import Namespace

import hitables
from hitables.ir.packet import Backend

# Docker lets a host put its own rules into DOCKER-USER; here they are in a chain of the host's file.
DOCKER = """\
*filter
:FORWARD DROP [0:0]
:DOCKER-USER - [0:0]
:MINE - [0:0]
:DEEP - [0:0]
-A FORWARD -j DOCKER-USER
-A FORWARD -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
-A DOCKER-USER -s 10.0.0.0/8 -j MINE
-A MINE -m limit --limit 5/min -j LOG --log-prefix "mine: "
-A MINE -j DEEP
-A DEEP -s 10.1.0.0/16 -j DROP
COMMIT
"""
OTHER = DOCKER.replace("10.1.0.0/16", "10.2.0.0/16")


@pytest.mark.parametrize("engine", ["exact", "diagrams", "sample"])
def test_check_compares_chains_that_left_ones_enter(engine: str) -> None:
    answer = hitables.check(DOCKER, OTHER, leave="docker", engine=engine)
    assert not answer and {(each.table, each.chain) for each in answer.differences} == {("filter", "MINE")}
    assert hitables.check(DOCKER, DOCKER, leave="docker", engine=engine)
    assert hitables.check(DOCKER, OTHER, leave="docker", chains="FORWARD", engine=engine)


def test_a_chain_that_one_side_lacks_is_not_compared() -> None:
    """Where no left chain enters it, packets do not meet it."""
    removed = "\n".join(line for line in DOCKER.splitlines() if "MINE" not in line and "DEEP" not in line)
    assert hitables.check(DOCKER, removed + "\n", leave="docker")


def test_diff_tells_of_chains_that_left_ones_enter() -> None:
    changes = hitables.diff(DOCKER, OTHER, leave="docker")
    assert {change.chain for change in changes.regions} == {"MINE"}


def test_lint_takes_them_for_reachable() -> None:
    assert not hitables.lint(DOCKER, leave="docker").flaws
    alone = DOCKER.replace("-A DOCKER-USER -s 10.0.0.0/8 -j MINE\n", "")
    assert {flaw.chain for flaw in hitables.lint(alone, leave="docker").flaws} == {"MINE", "DEEP"}


def test_lint_of_one_chain_keeps_what_an_unreachable_one_enters() -> None:
    """Without :DEEP the rule of MINE could not be loaded."""
    alone = DOCKER.replace("-A DOCKER-USER -s 10.0.0.0/8 -j MINE\n", "")
    assert not hitables.lint(alone, chains="DEEP").flaws
    assert {flaw.chain for flaw in hitables.lint(alone, chains=["MINE", "DEEP"]).flaws} == {"MINE", "DEEP"}


@BACKENDS
@pytest.mark.needs_kernel
def test_apply_and_status_show_their_changes(backend: Backend, tmp_path: Path) -> None:
    with Namespace() as namespace:
        firewall = Firewall(namespace, tmp_path, backend)
        firewall.load(DOCKER)
        firewall.apply(firewall.file(DOCKER), "--leave", "docker")
        said = firewall.apply(firewall.file(OTHER), "--leave", "docker", "--dry-run", status=1)
        assert "10.2.0.0/16" in said.stdout + said.stderr
        firewall.iptables("-F", "DEEP")
        shown = firewall.hitables("status", status=1)
        assert "10.1.0.0/16" in shown.stdout
