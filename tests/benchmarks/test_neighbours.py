"""The campaign beside other programs: a short form, and what makes it fail.  `make neighbours` is the long one."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from support.small_namespace import Namespace

from benchmarks import fail2ban as f2b
from benchmarks.docker_like import DockerLike
from benchmarks.fail2ban import BanProbes, Fail2ban, package
from benchmarks.neighbours import campaign
from hitables.errors import HitablesError
from hitables.ir.packet import Backend
from hitables.kernel.namespace import run

pytestmark = pytest.mark.needs_kernel


@pytest.mark.parametrize("backend", list(Backend), ids=lambda backend: backend.value)
def test_fail2ban_and_docker_go_on_beside_applies_and_patches(backend: Backend) -> None:
    installed = package()
    if installed is None:
        pytest.skip(f"fail2ban is not installed, and ${f2b.ENVIRONMENT} names no folder that has it")
    found = campaign(installed, backend, applies=3, patches=3, seed=1)
    for phase in ("applies", "patches"):
        assert found[phase]["packets_of_banned"] > 0
        assert found[phase]["packets_of_others"] > 0


class Claims(Fail2ban):
    """A server that claims a ban without making a rule."""

    def __init__(self, folder: Path) -> None:
        self.claims = folder / "claims"
        self.claims.write_text("ban 127.0.0.8\nban 127.0.0.9\nunban 127.0.0.9\n")


def probed(folder: str, rule: list[str]) -> list[str]:
    run(["ip", "link", "set", "lo", "up"])
    run(["iptables-nft", "-A", "INPUT", *rule])
    with BanProbes(Claims(Path(folder))) as probes:
        while not probes.sent and not probes.failures:
            time.sleep(0.01)
    return [failure.split(": ", 1)[1] for failure in probes.failures]


@pytest.mark.parametrize(
    ("rule", "failure"),
    [
        (["-s", "127.0.0.9", "-j", "DROP"], "127.0.0.8 is banned, and passes"),
        (["-s", "127.0.0.0/24", "-j", "DROP"], "a packet from 127.0.0.1 was lost, which is not banned"),
    ],
)
def test_a_ban_that_is_not_in_force_is_found(tmp_path: Path, rule: list[str], failure: str) -> None:
    with Namespace() as namespace:
        assert failure in namespace.call(probed, str(tmp_path), rule)
        namespace.run(["iptables-nft", "-F"])
        assert namespace.call(probed, str(tmp_path), ["-s", "127.0.0.8", "-j", "DROP"]) == []


def disturbed(words: list[str]) -> list[str]:
    docker = DockerLike("iptables-nft", seed=1, restarts=False)
    with docker.running():
        run(["iptables-nft", *words])
        while not docker.failures:
            time.sleep(0.01)
    return docker.failures


@pytest.mark.parametrize("words", [["-F", "DOCKER-USER"], ["-D", "FORWARD", "-j", "DOCKER-USER"]])
def test_a_rule_that_the_program_like_docker_loses_is_found(words: list[str]) -> None:
    with Namespace() as namespace:
        assert namespace.call(disturbed, words)


def test_a_server_that_does_not_start_is_an_error(tmp_path: Path) -> None:
    empty = f2b.Package(tmp_path, tmp_path / "etc", "")
    (tmp_path / "etc").mkdir()
    for name in ("action.d", "filter.d"):
        (tmp_path / "etc" / name).mkdir()
    (tmp_path / "fail2ban").mkdir()
    with pytest.raises(HitablesError, match="fail2ban does not start"):
        Fail2ban(empty, tmp_path / "fail2ban", "iptables-nft").__enter__()
