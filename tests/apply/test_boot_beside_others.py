"""A boot, and a restart of its service, beside programs that load rules at boot themselves."""

from __future__ import annotations

import shlex
import stat
import sys
from pathlib import Path

import pytest
from support.boots import execute, rules
from support.firewall import BACKENDS, Firewall, plain
from support.small_namespace import Namespace

from hitables.apply.boot_starters import NetfilterPlugin
from hitables.apply.persist import PersistRequest, persist
from hitables.ir.fields import Family
from hitables.ir.packet import Backend

pytestmark = [pytest.mark.needs_kernel, BACKENDS]


def test_a_plugin_of_netfilter_persistent_does_the_same(backend: Backend, tmp_path: Path) -> None:
    plugins = tmp_path / "plugins.d"
    with Namespace() as namespace:
        firewall = Firewall(namespace, tmp_path, backend)
        firewall.apply(firewall.file(rules(Family.IPV4, 3000)))
        confirmed = plain(firewall.save())
        words = ["persist", "--netfilter-persistent", "--plugin-folder", plugins]
        assert "install netfilter-persistent" in firewall.hitables(*words, status=2).stderr
        plugins.mkdir()
        firewall.hitables(*words)
    with Namespace() as fresh:
        again = Firewall(fresh, tmp_path, backend)
        for verb in ("save", "start", "flush"):
            fresh.run([str(plugins / "30-hitables"), verb])
        assert plain(again.save()) == confirmed
        again.hitables("persist", "--remove", "--plugin-folder", plugins, "--unit-folder", tmp_path)
    assert list(plugins.iterdir()) == []
    assert not (tmp_path / "state" / "boot").exists()


def told_by(request: PersistRequest) -> list[str]:
    """What `persist` says besides its result."""
    told: list[str] = []
    persist(request, told.append)
    return told


STALE = "*filter\n-A INPUT -p tcp -m tcp --dport 23 -j ACCEPT\nCOMMIT\n*mangle\n{}COMMIT\n"


@pytest.mark.either_backend
@pytest.mark.parametrize("mask", ["000", "077"])
def test_others_may_read_what_a_boot_starts_and_not_write_it(
    mask: str, backend: Backend, tmp_path: Path
) -> None:
    """Root runs it, and some services have a umask of 0."""
    plugins = tmp_path / "plugins.d"
    plugins.mkdir()
    with Namespace() as namespace:
        firewall = Firewall(namespace, tmp_path, backend)
        firewall.apply(firewall.file(rules(Family.IPV4, 3000)))
        persist = [str(Path(sys.executable).with_name("hitables")), "persist", "--state", str(firewall.state)]
        for words in (
            ["--unit-folder", str(tmp_path)],
            ["--netfilter-persistent", "--plugin-folder", str(plugins)],
        ):
            namespace.run(["sh", "-c", f"umask {mask}; {shlex.join([*persist, *words])}"])
    (plugin,) = plugins.iterdir()
    assert stat.S_IMODE((tmp_path / "hitables.service").stat().st_mode) == 0o644
    assert stat.S_IMODE(plugin.stat().st_mode) == 0o755


def test_rules_of_iptables_persistent_do_not_stay(backend: Backend, tmp_path: Path) -> None:
    """Its plugin runs first, and its rules may have some of these among them."""
    plugins, stale = tmp_path / "plugins.d", tmp_path / "rules.v4"
    plugins.mkdir()
    with Namespace() as namespace:
        firewall = Firewall(namespace, tmp_path, backend)
        firewall.apply(firewall.file(rules(Family.IPV4, 3000)))
        confirmed = plain(firewall.save())
        netfilter = NetfilterPlugin(plugins, tmp_path)
        request = PersistRequest(str(tmp_path / "state"), None, netfilter, netfilter)
        assert not any("rules.v4" in each for each in namespace.call(told_by, request))
        ours = "".join(f"{line}\n" for line in confirmed.splitlines() if " -j MARK " in line)
        stale.write_text(STALE.format(ours))
        (plugins / "15-ip4tables").write_text("")
        told = " ".join(namespace.call(told_by, request))
        assert f"{stale} exists" in told and "and then these rules in its place" in told
        assert "its tables that these rules do not have stay loaded; move the file away" in told
    plugin = str(plugins / "30-hitables")
    with Namespace() as fresh:
        again = Firewall(fresh, tmp_path, backend)
        for _ in range(2):
            again.load(stale.read_text())
            assert "--dport 23 " in again.save() and ours in again.save()
            fresh.run([plugin, "start"])
            assert plain(again.save()) == confirmed
        stale.unlink()
        again.iptables("-A", "INPUT", "-p", "tcp", "--dport", "24", "-j", "DROP")
        fresh.run([plugin, "start"])
        assert "--dport 24 " in again.save()  # nothing was replaced, so the rules of others stay


@pytest.mark.parametrize("words", ["", " --again"])
def test_chains_of_ufw_that_a_file_has_as_its_own_are_loaded_as_confirmed(
    words: str, backend: Backend, tmp_path: Path
) -> None:
    """`hitables save` on a host with ufw, and then `ufw disable`, makes such a file."""
    text = "*filter\n:INPUT DROP\n:ufw-before-input -\n-A INPUT -j ufw-before-input\n-A ufw-before-input {} -j ACCEPT\n"
    text += "-A INPUT -p tcp --dport 443 -j ACCEPT\nCOMMIT\n"
    with Namespace() as namespace:
        firewall = Firewall(namespace, tmp_path, backend)
        firewall.apply(firewall.file(text.format("-p tcp --dport 22")))
        confirmed = plain(firewall.save())
        firewall.hitables("persist", "--unit-folder", tmp_path)
    with Namespace() as fresh:
        again = Firewall(fresh, tmp_path, backend)
        again.load(text.format("-s 10.0.0.0/8"))
        again.iptables("-F", "INPUT")
        command = f"/bin/sh {again.state}/boot/load{words}"
        assert fresh.call(execute, ["sh", "-c", command])[0] == 101
        assert plain(again.save()) == confirmed


def test_a_flush_says_whether_the_rules_are_there(backend: Backend, tmp_path: Path) -> None:
    (tmp_path / "plugins.d").mkdir()
    with Namespace() as namespace:
        firewall = Firewall(namespace, tmp_path, backend)
        firewall.apply(firewall.file(rules(Family.IPV4, 3000)))
        firewall.hitables("persist", "--netfilter-persistent", "--plugin-folder", tmp_path / "plugins.d")
        plugin = [str(tmp_path / "plugins.d" / "30-hitables"), "flush"]
        tool = f"iptables-{backend.value}"
        assert namespace.run(plugin) == f"hitables: {tool}: the rules stay; iptables-restore replaces them\n"
        for chain in ("INPUT", "FORWARD"):
            firewall.iptables("-P", chain, "ACCEPT")
        for table in ("filter", "mangle"):
            firewall.iptables("-t", table, "-F")
        assert "all rules are gone, and everything is let in until the next start" in (namespace.run(plugin))


# What /usr/lib/ufw/ufw-init-functions does: without its first chain it creates all and appends the jumps.
START_OF_UFW = """\
chains=$(for part in before-logging before after after-logging reject track; do echo ufw-$part-input; done)
if $1 -n -L ufw-before-logging-input >/dev/null 2>&1; then
    for chain in $chains; do $1 -F $chain; done
    $1 -X ufw-user-input
else
    for chain in $chains; do $1 -N $chain && $1 -A INPUT -j $chain; done
fi
$1 -N ufw-user-input
$1 -A ufw-user-input -p tcp --dport 22 -j ACCEPT
$1 -A ufw-before-input -j ufw-user-input
"""


@pytest.mark.parametrize("order", ["hitables ufw", "ufw hitables"])
def test_the_rules_of_ufw_come_after_a_boot_where_they_came_when_confirmed(
    backend: Backend, tmp_path: Path, order: str
) -> None:
    """ufw appends its jumps if its chains do not exist: behind a rule that drops all, ssh would be shut."""
    tool = f"iptables-{backend.value}"
    start_ufw = ["sh", "-c", START_OF_UFW, "start", tool]
    with Namespace() as namespace:
        firewall = Firewall(namespace, tmp_path, backend)
        namespace.run(start_ufw)
        text = rules(Family.IPV4, 3000, "-A INPUT -j DROP\n").replace("-A INPUT -i lo -j ACCEPT\n", "")
        firewall.apply(firewall.file(text), "--leave", "ufw")
        shown = firewall.hitables("persist", "--unit-folder", tmp_path).stdout
        held = plain(firewall.save())
        assert held.index("-j ufw-before-input") < held.index("-A INPUT -j DROP")
        ours = [line for line in held.splitlines() if line.startswith("-A ") and "ufw" not in line]
        assert f"IPv4: at boot {len(ours)} rules" in shown
    with Namespace() as fresh:
        booted = Firewall(fresh, tmp_path, backend)
        load = ["sh", str(tmp_path / "state" / "boot" / "load")]
        for program in order.split():
            if program == "ufw":
                fresh.run(start_ufw)
            else:
                assert fresh.call(execute, load)[0] == 101
        in_order = [line for line in booted.save().splitlines() if line.startswith("-A ")]
        assert sorted(in_order) == sorted(line for line in held.splitlines() if line.startswith("-A "))
        of_input = [line for line in held.splitlines() if line.startswith("-A INPUT ")]
        assert [line for line in in_order if line.startswith("-A INPUT ")] == of_input
        booted.hitables("status")


def flush_and_repair(firewall: Firewall, confirmed: str) -> None:
    firewall.iptables("-F")
    firewall.iptables("-X")
    firewall.hitables("status", "--repair")
    assert plain(firewall.save()) == confirmed


def assert_a_boot_loads(confirmed: str, backend: Backend, folder: Path) -> None:
    with Namespace() as namespace:
        Firewall(namespace, folder, backend).hitables("persist", "--unit-folder", folder)
        namespace.call(execute, ["sh", str(folder / "state" / "boot" / "load")])
        booted = Firewall(namespace, folder, backend)
        assert plain(booted.save()) == confirmed
        booted.iptables("-I", "sshguard", "-s", "198.51.100.9", "-j", "DROP")
        assert "the kernel holds" in booted.hitables("status").stdout


def test_a_chain_that_its_program_only_fills_is_made_with_the_jump_of_the_file(
    backend: Backend, tmp_path: Path
) -> None:
    """sshguard makes neither its chain nor a jump to it."""
    jump = "-A INPUT -p tcp -m tcp --dport 22 -j sshguard"
    text = f"*filter\n:INPUT DROP\n:sshguard -\n{jump}\n-A INPUT -p tcp -m tcp --dport 22 -j ACCEPT\nCOMMIT\n"
    ban = ["-I", "sshguard", "-s", "198.51.100.9", "-j", "DROP"]
    with Namespace() as namespace:
        firewall = Firewall(namespace, tmp_path, backend)
        told = firewall.apply(firewall.file(text), "--leave", "sshguard").stderr
        assert "left out" not in told
        confirmed = plain(firewall.save())
        assert jump in confirmed
        firewall.iptables(*ban)
        assert "the kernel holds" in firewall.hitables("status").stdout
        firewall.apply(firewall.file(text), "--leave", "sshguard")
        assert "-s 198.51.100.9/32 -j DROP" in firewall.save()
        flush_and_repair(firewall, confirmed)
    assert_a_boot_loads(confirmed, backend, tmp_path)


def test_rules_that_were_there_already_bring_such_a_chain_back(backend: Backend, tmp_path: Path) -> None:
    jump = "-A INPUT -p tcp -m tcp --dport 22 -j sshguard"
    text = f"*filter\n:INPUT DROP\n:sshguard -\n{jump}\n-A INPUT -i lo -j ACCEPT\nCOMMIT\n"
    with Namespace() as namespace:
        firewall = Firewall(namespace, tmp_path, backend)
        firewall.load(text)
        confirmed = plain(firewall.save())
        assert "recorded" in firewall.apply(firewall.file(text), "--leave", "sshguard").stderr
        flush_and_repair(firewall, confirmed)
    assert_a_boot_loads(confirmed, backend, tmp_path)


def test_the_chain_of_the_cni_plugin_is_entered_where_the_file_enters_it(
    backend: Backend, tmp_path: Path
) -> None:
    """The plugin inserts its jump in front, unless it finds one."""
    jump = '-m comment --comment "CNI firewall plugin rules" -j CNI-FORWARD'
    drops = [f"-A FORWARD -s 10.{each}.0.0/16 -j DROP" for each in range(9)]
    behind = [rule.replace("DROP", "ACCEPT") for rule in drops] * 9
    head = ["*filter", ":INPUT ACCEPT", ":FORWARD ACCEPT", ":OUTPUT ACCEPT", ":CNI-FORWARD -"]
    text = "\n".join(
        [*head, *drops, f"-A FORWARD {jump}", "-A FORWARD -i lan0 -j ACCEPT", *behind, "COMMIT\n"]
    )
    with Namespace() as namespace:
        firewall = Firewall(namespace, tmp_path, backend)
        firewall.iptables("-N", "CNI-FORWARD")
        firewall.apply(firewall.file(text), "--leave", "cni")
        firewall.hitables("persist", "--unit-folder", tmp_path)
    for is_compiled in (True, False):
        with Namespace() as fresh:
            again = Firewall(fresh, tmp_path, backend)
            if not is_compiled:  # the boot then loads the rules of the file
                (tmp_path / "state" / "boot" / "compiled4").write_text("no rules\n")
            fresh.call(execute, ["sh", str(tmp_path / "state" / "boot" / "load")])
            listed = again.iptables("-S", "FORWARD").splitlines()
            assert listed[10] == f"-A FORWARD {jump}" and len(listed) > 11
