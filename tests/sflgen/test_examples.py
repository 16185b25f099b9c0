"""sflgen beside fail2ban and docker, in real network namespaces: their chains stay, counters are kept."""

from __future__ import annotations

import configparser
import contextlib
import os
import socket
import subprocess
from pathlib import Path

import pytest
from support import command_clients
from support.small_namespace import Namespace

from hitables.kernel.namespace import run
from sflgen.edits import rule_key
from sflgen.kernel import Kernel
from sflgen.settings import Settings

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
both = pytest.mark.parametrize("backend", ["legacy", "nft"])
pytestmark = pytest.mark.needs_kernel


@pytest.fixture(autouse=True)
def programs() -> str:
    """One server for all namespaces, which inherit what is begun here."""
    return command_clients.folder()


def sflgen(*words: str, status: int = 0) -> str:
    done = command_clients.run("sflgen", *words)
    assert done.returncode == status, done.stderr
    return done.stdout


def counts(backend: str, table: str, *chains: str) -> dict[object, int]:
    """Packets by rule, summed over its copies in *chains*, or in all chains."""
    from hitables.ir.fields import Family

    packets: dict[object, int] = {}
    saved = [
        line for line in run([f"iptables-{backend}-save", "-c"]).splitlines(keepends=True) if line[0] != "#"
    ]
    loaded = Kernel(Family.IPV4, Settings(backend)).parse(saved).table(table)
    for chain in loaded.chains:
        for rule in chain.rules if not chains or chain.name in chains else ():
            key = rule_key(rule)
            packets[key] = packets.get(key, 0) + (rule.counters or (0, 0))[0]
    return packets


def listed(backend: str, table: str, chain: str) -> list[str]:
    """The rules of a chain in the kernel, with their counters."""
    lines = run([f"iptables-{backend}-save", "-c", "-t", table]).splitlines()
    return [line for line in lines if f" -A {chain} " in line]


def send(packets: dict[tuple[str, int], int]) -> None:
    """Send UDP packets to local addresses."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as out:
        for address, count in packets.items():
            for _ in range(count):
                sent = 0
                while not sent:
                    with contextlib.suppress(ConnectionRefusedError):  # the answer to an earlier packet
                        sent = out.sendto(b"x", address)


def action(name: str, *sections: str, **tags: str) -> list[str]:
    """The command of fail2ban's action, with its tags replaced as fail2ban does.

    *sections*: those with more tags, as the one for a family.
    """
    conf = configparser.ConfigParser(interpolation=None)
    conf.read(EXAMPLES / "fail2ban" / "sflgen.conf")
    command = conf["Definition"][name]
    values = {tag: value for section in ("Init", *sections) for tag, value in conf[section].items()}
    for tag, value in {**values, **tags}.items():
        command = command.replace(f"<{tag}>", value)
    return command.split()


def banned(backend: str, state: str) -> None:
    tool = f"iptables-{backend}"
    run(["ip", "link", "set", "lo", "up"])
    run(
        [f"{tool}-restore"],
        subprocess.run([EXAMPLES / "fail2ban/host.sh"], capture_output=True, text=True, check=True).stdout,
    )
    to = {(f"127.0.{n}.9", 5000 + n): n % 4 for n in range(1, 41)}
    send(to)
    before = counts(backend, "filter")
    assert sum(before.values()) >= sum(to.values()) > 20
    sflgen("init", "--live", "--backend", backend, "--leave", "f2b-*", "--delta", "2", "--state", state)
    assert counts(backend, "filter").items() >= before.items(), "compiling keeps the counters"
    run([tool, "-I", "f2b-sshd", "1", "-s", "192.0.2.9", "-j", "REJECT"])  # fail2ban's own action
    jail = listed(backend, "filter", "f2b-sshd")
    environment = os.environ | {"PATH": f"{command_clients.folder()}:{os.environ['PATH']}"}
    for host in (7, 8, 9):
        command = action("actionban", ip=f"198.51.100.{host}", state=state)
        subprocess.run(command, check=True, env=environment, capture_output=True)
    wide = ["-s", "127.0.0.0/12", "-p", "udp", "-j", "ACCEPT"]
    sflgen("insert", "--live", "--state", state, "INPUT", "30", *wide)
    sflgen("insert", "--live", "--state", state, "INPUT", "28", *wide, "--strategy", "overlay")
    send(to)  # counted in overlays too
    now = counts(backend, "filter")
    subprocess.run(
        action("actionunban", ip="198.51.100.8", state=state),
        check=True,
        env=environment,
        capture_output=True,
    )
    sflgen("fold", "--live", "--state", state)
    after = counts(backend, "filter")
    own = {key: count for key, count in now.items() if " sf" not in f" {key[1]}" and "sf" not in str(key[1])}  # type: ignore[index]
    lifted = {key for key in own if key not in after}
    assert len(lifted) == 1, "the ban that was lifted"
    assert {key: after[key] for key in own if key not in lifted} == {
        key: own[key] for key in own if key not in lifted
    }
    assert listed(backend, "filter", "f2b-sshd") == jail
    assert "the kernel holds the rule set of the state" in sflgen("status", "--live", "--state", state)
    assert "proved" in sflgen("verify", "--state", state)


@both
def test_bans_and_folds_keep_the_chains_of_fail2ban_and_all_counters(backend: str, tmp_path: Path) -> None:
    with Namespace() as namespace:
        namespace.call(banned, backend, str(tmp_path / "state"))


def jail(tool: str, chain: str, *verbs: str) -> None:
    """What fail2ban does for the first ban of a jail with a chain of its own (-I), and at its end (-D)."""
    jump = ["INPUT", "-p", "tcp", "-m", "multiport", "--dports", "22", "-j", chain]
    if "-I" in verbs:
        run([tool, "-N", chain])
        run([tool, "-A", chain, "-j", "RETURN"])
        run([tool, "-I", *jump])
    if "-D" in verbs:
        run([tool, "-D", *jump])
        run([tool, "-F", chain])
        run([tool, "-X", chain])


def beside_jails(backend: str, folder: str) -> None:
    environment = os.environ | {"PATH": f"{command_clients.folder()}:{os.environ['PATH']}"}
    for family, command, sections, address in (
        ("4", "iptables", (), "198.51.100.{}/32"),
        ("6", "ip6tables", ("Init?family=inet6",), "2001:db8::{}/128"),
    ):
        tool, state = f"{command}-{backend}", action("actionban", *sections)[4].replace("/var/lib", folder)
        accepts = "".join(f"-A INPUT -p tcp --dport {port} -j ACCEPT\n" for port in range(8000, 8040))
        run([f"{tool}-restore"], f"*filter\n:INPUT DROP\n{accepts}COMMIT\n")
        words = ["--family", family, "--backend", backend, "--leave", "f2b-*", "--state", state]
        sflgen("init", "--live", *words)
        for number, chain in enumerate(("f2b-one", "f2b-two"), 1):
            jail(tool, chain, "-I")
            ip = address.format(number)
            ban = action("actionban", *sections, ip=ip, state=state)
            subprocess.run(ban, check=True, env=environment, capture_output=True)
            assert f"-A INPUT -s {ip} -j DROP" in run([f"{tool}-save"])
        jail(tool, "f2b-two", "-D")
        unban = action("actionunban", *sections, ip=address.format(1), state=state)
        subprocess.run(unban, check=True, env=environment, capture_output=True)
        saved = run([f"{tool}-save"])
        assert address.format(1) not in saved and address.format(2) in saved and "-j f2b-one" in saved
        assert "the kernel holds the rule set of the state" in sflgen("status", "--live", "--state", state)
        assert "proved" in sflgen("verify", "--state", state)


@both
def test_bans_of_both_families_go_on_while_other_jails_start_and_stop(backend: str, tmp_path: Path) -> None:
    with Namespace() as namespace:
        namespace.call(beside_jails, backend, str(tmp_path))


def contained(backend: str, state: str) -> None:
    tool = f"iptables-{backend}"
    run(
        [f"{tool}-restore"],
        subprocess.run([EXAMPLES / "containers/host.sh"], capture_output=True, text=True, check=True).stdout,
    )
    sflgen("init", "--live", "--backend", backend, "--leave", "DOCKER*", "--state", state)
    env = {"IPTABLES": tool}
    for host in range(2, 6):
        run([str(EXAMPLES / "containers/container.sh"), "up", f"172.17.0.{host}", "80"], env=env)
        sflgen(
            "insert",
            "--live",
            "--state",
            state,
            "FORWARD",
            str(20 + host),
            "-s",
            f"10.{host}.0.0/14",
            "-j",
            "DROP",
        )
        sflgen("delete", "--live", "--state", state, "FORWARD", str(8 * host))
    run([str(EXAMPLES / "containers/container.sh"), "down", "172.17.0.3", "80"], env=env)
    foreign = [
        listed(backend, table, chain)
        for table, chain in (("filter", "DOCKER"), ("nat", "DOCKER"), ("filter", "DOCKER-USER"))
    ]
    assert [len(each) for each in foreign] == [3, 4, 1]
    sflgen("fold", "--live", "--state", state)
    sflgen("fold", "--live", "--state", state, "FORWARD")
    assert foreign == [
        listed(backend, table, chain)
        for table, chain in (("filter", "DOCKER"), ("nat", "DOCKER"), ("filter", "DOCKER-USER"))
    ]
    assert "proved" in sflgen("verify", "--state", state)
    run([tool, "-I", "FORWARD", "-j", "DOCKER-USER"])  # docker restarts, and changes FORWARD
    assert "chain FORWARD: " in sflgen("status", "--live", "--state", state, status=1)


@both
def test_containers_start_and_stop_between_patches_and_folds(backend: str, tmp_path: Path) -> None:
    with Namespace() as namespace:
        namespace.call(contained, backend, str(tmp_path / "state"))
