"""A boot loads what was confirmed last, or the best of what is left of it, and never leaves the host open.

A boot is simulated by a fresh network namespace, in which the command of the unit is run.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.boots import execute, rules
from support.firewall import Firewall, plain
from support.small_namespace import Namespace

from hitables.apply.boot_script import STEPS, checksum
from hitables.ir.fields import Family
from hitables.ir.packet import Backend
from hitables.kernel.prerequisites import furnish

pytestmark = pytest.mark.needs_kernel


SETS = "create allowed hash:ip family inet\nadd allowed 10.0.0.7\ncreate banned hash:net family inet\nadd banned 192.0.2.0/24\n"
WITH_SETS = (
    "-A INPUT -m set --match-set allowed src -j ACCEPT\n-A INPUT -m set --match-set banned src -j DROP\n"
)


class Machine:
    """A firewall that was persisted, and what its kernel held: by step and family, without counters."""

    def __init__(self, folder: Path, backend: Backend) -> None:
        self.folder, self.backend = folder, backend
        self.held: dict[tuple[str, Family], str] = {}
        with Namespace() as namespace:
            firewall = Firewall(namespace, folder, backend)
            namespace.run(["ipset", "restore"], SETS)
            for step, base, extra in (("last", 2000, ""), ("compiled", 1000, WITH_SETS)):
                files = (
                    firewall.file(rules(Family.IPV4, base, extra), f"{step}.rules"),
                    firewall.file(rules(Family.IPV6, base), f"{step}6.rules"),
                )
                firewall.apply(*files)
                for family in Family:
                    self.held[step, family] = plain(firewall.save(family))
            self.shown = firewall.hitables("persist", "--unit-folder", folder).stdout
        with Namespace() as namespace:
            firewall = Firewall(namespace, folder, backend)
            for family, name in ((Family.IPV4, "compiled.rules"), (Family.IPV6, "compiled6.rules")):
                firewall.load((folder / name).read_text(), family)
                self.held["source", family] = plain(firewall.save(family))


@pytest.fixture(scope="module", params=list(Backend), ids=lambda backend: backend.value)
def machine(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Machine:
    request.getfixturevalue("needs_kernel")
    return Machine(tmp_path_factory.mktemp("machine"), request.param)


class Disk:
    """A copy of the state directory of *machine*, to be damaged and booted from."""

    def __init__(self, machine: Machine, folder: Path) -> None:
        self.machine, self.folder = machine, folder
        shutil.copytree(machine.folder / "state", folder / "state", symlinks=True)
        self.boot = folder / "state" / "boot"
        script = (self.boot / "load").read_text()
        (self.boot / "load").write_text(script.replace(str(machine.folder), str(folder)))
        self.unit = (
            (machine.folder / "hitables.service").read_text().replace(str(machine.folder), str(folder))
        )

    @property
    def command(self) -> list[str]:
        """The command of the unit, as systemd reads it."""
        (line,) = re.findall(r"^ExecStart=(.*)$", self.unit, flags=re.MULTILINE)
        quoted = line.replace("%%", "%").replace("$$", "$")
        shell, option, command = re.fullmatch(r'(\S+) (-c) "(.*)"', quoted).groups()  # type: ignore[union-attr]
        return [shell, option, command.replace('\\"', '"').replace("\\\\", "\\")]

    def write(self, name: str, text: str) -> None:
        """Change a file, and its checksum: the file is whole, and says something else."""
        (self.boot / name).write_text(text)
        load = self.boot / "load"
        value = checksum(text.encode())
        load.write_text(re.sub(rf"(?<=  {name}\) echo ')[^']*", value, load.read_text()))

    def damage(self, name: str, how: str) -> None:
        path = self.boot / name
        if how == "missing":
            path.unlink()
        elif how == "truncated":
            path.write_text(path.read_text()[: len(path.read_text()) // 2])
        else:
            assert how == "refused"
            self.write(name, path.read_text().replace("COMMIT", "-A INPUT -j SOMETHING_NEW\nCOMMIT", 1))

    def find_first(self, tools: Path) -> None:
        """Let the script take the tools of this folder before others."""
        load = self.boot / "load"
        load.write_text(re.sub("^PATH=", f"PATH={tools}:", load.read_text(), flags=re.MULTILINE))

    @property
    def log(self) -> str:
        return (self.folder / "state" / "log").read_text()


@pytest.fixture
def disk(machine: Machine, tmp_path: Path) -> Disk:
    return Disk(machine, tmp_path)


@pytest.fixture
def booted(machine: Machine, tmp_path: Path) -> Iterator[Firewall]:
    """A machine that is switched on; nothing is loaded yet."""
    with Namespace() as namespace:
        yield Firewall(namespace, tmp_path, machine.backend)


def start(firewall: Firewall, disk: Disk, status: int = 0) -> str:
    """Run the command of the unit; its messages."""
    ended, messages = firewall.namespace.call(execute, disk.command)
    assert ended == status, messages
    return messages


def assert_closed_but_for_ssh(firewall: Firewall) -> None:
    for family in Family:
        saved = firewall.save(family)
        assert ":INPUT DROP" in saved and ":FORWARD DROP" in saved
        accepts = re.findall(r"^-A INPUT.*-p tcp.* -j ACCEPT$", saved, flags=re.MULTILINE)
        assert [re.sub("-m tcp ", "", each) for each in accepts] == ["-A INPUT -p tcp --dport 22 -j ACCEPT"]
        assert "MARK" not in saved


@pytest.mark.parametrize("how", ["missing", "truncated", "refused"])
@pytest.mark.parametrize("broken", range(4), ids=lambda number: f"{number}-broken")
def test_a_boot_loads_the_first_step_that_is_whole_and_taken(
    disk: Disk, booted: Firewall, broken: int, how: str
) -> None:
    for step in STEPS[:broken]:
        for family in Family:
            disk.damage(f"{step}{int(family)}", how)
    start(booted, disk, status=1 if broken == 3 else 0)
    for family in Family:
        for step in STEPS[:broken]:
            assert re.search(f"IPv{int(family)}: the {step} rules are (missing|damaged|refused)", disk.log)
        assert f"IPv{int(family)}: the {STEPS[broken]} rules are loaded" in disk.log
        if broken < 3:
            assert plain(booted.save(family)) == disk.machine.held[STEPS[broken], family]
    if broken == 3:
        assert_closed_but_for_ssh(booted)


@pytest.mark.either_backend
def test_a_host_that_can_load_no_text_is_closed_by_single_commands(disk: Disk, booted: Firewall) -> None:
    tools = disk.folder / "tools"
    tools.mkdir()
    for family in ("iptables", "ip6tables"):
        tool = tools / f"{family}-{disk.machine.backend.value}-restore"
        tool.write_text("#!/bin/sh\necho no memory >&2\nexit 1\n")
        tool.chmod(0o755)
    disk.find_first(tools)
    _, messages = booted.namespace.call(execute, ["/bin/sh", str(disk.boot / "load")])
    assert messages.count("no rules can be loaded; the policies of INPUT and FORWARD are DROP") == 2
    for family in Family:
        saved = booted.save(family)
        assert ":INPUT DROP" in saved and ":FORWARD DROP" in saved


def test_the_families_do_not_wait_for_each_other(disk: Disk, booted: Firewall) -> None:
    disk.damage("compiled6", "truncated")
    disk.damage("source6", "missing")
    start(booted, disk)
    assert plain(booted.save()) == disk.machine.held["compiled", Family.IPV4]
    assert plain(booted.save(Family.IPV6)) == disk.machine.held["last", Family.IPV6]


def test_a_family_that_stays_closed_makes_the_boot_fail_whatever_the_other_has(
    disk: Disk, booted: Firewall
) -> None:
    for step in STEPS[:3]:
        disk.damage(f"{step}4", "missing")
    start(booted, disk, status=1)
    assert ":INPUT DROP" in booted.save()
    assert plain(booted.save(Family.IPV6)) == disk.machine.held["compiled", Family.IPV6]


@pytest.mark.parametrize("part", [0.0, 0.2, 0.5, 0.9, 0.999, None])
def test_a_script_that_is_cut_off_or_missing_leaves_the_host_closed(
    disk: Disk, booted: Firewall, part: float | None
) -> None:
    load = disk.boot / "load"
    text = load.read_text()
    load.unlink()
    if part is not None:
        load.write_text(text[: int(len(text) * part)])
    assert "closed but for ssh" in start(booted, disk, status=1)
    assert_closed_but_for_ssh(booted)


@pytest.mark.parametrize("how", ["missing", "truncated"])
def test_a_lost_ipset_is_created_empty_and_reported(disk: Disk, booted: Firewall, how: str) -> None:
    disk.damage("set1", how)
    assert "ipset allowed: its file is missing or damaged; the set is empty" in start(booted, disk)
    assert plain(booted.save()) == disk.machine.held["compiled", Family.IPV4]
    sets = booted.namespace.run(["ipset", "save"])
    assert "create allowed hash:ip family inet" in sets and "add allowed" not in sets
    assert "add banned 192.0.2.0/24" in sets


def test_ipsets_come_back_with_their_members_and_one_that_exists_stays(disk: Disk, booted: Firewall) -> None:
    booted.namespace.run(["ipset", "restore"], "create banned hash:net\nadd banned 198.51.100.0/24\n")
    start(booted, disk)
    added = re.findall("^add .*$", booted.namespace.run(["ipset", "save"]), flags=re.MULTILINE)
    assert sorted(added) == ["add allowed 10.0.0.7", "add banned 198.51.100.0/24"]


def hide_python(command: list[str]) -> tuple[int, str]:
    """Run *command* where no Python can be started."""
    pythons = {sys.executable, str(Path(sys.executable).resolve()), shutil.which("python3") or "/bin/false"}
    hidden = "; ".join(f"mount --bind /dev/null {shlex.quote(os.path.realpath(each))}" for each in pythons)
    script = f'set -e; {hidden}; ! python3 -c "" 2>/dev/null; exec "$@"'
    return execute(["unshare", "-m", "/bin/sh", "-c", script, "sh", *command])


def test_a_boot_needs_no_python(disk: Disk, booted: Firewall) -> None:
    status, messages = booted.namespace.call(hide_python, disk.command)
    assert status == 0, messages
    assert plain(booted.save()) == disk.machine.held["compiled", Family.IPV4]


SHIM = """#!/bin/sh
# Takes everything in a scratch namespace.  In the real one it loads table mangle, and then fails.
cat >{text}
if [ "$(readlink /proc/self/ns/net)" = "{real}" ] && grep -q MARK {text}; then
    sed -n '/^.mangle/,$p' {text} | {tool} "$@"
    echo "no memory" >&2
    exit 1
fi
exec {tool} "$@" <{text}
"""


def test_rules_that_fail_half_way_are_taken_back(disk: Disk, booted: Firewall) -> None:
    """The trial succeeds and the loading does not: each step leaves a part, and the last one removes it."""
    real = booted.namespace.call(os.readlink, "/proc/self/ns/net")
    tools = disk.folder / "tools"
    tools.mkdir()
    for family in ("iptables", "ip6tables"):
        name = f"{family}-{disk.machine.backend.value}-restore"
        shim = tools / name
        shim.write_text(SHIM.format(real=real, text=disk.folder / f"{family}.text", tool=shutil.which(name)))
        shim.chmod(0o755)
    disk.find_first(tools)
    messages = start(booted, disk, status=1)
    assert "IPv4: the compiled rules are refused: no memory" in messages
    assert "IPv6: the last rules are refused: no memory" in messages
    assert_closed_but_for_ssh(booted)


def test_a_boot_loads_the_rules_where_a_scratch_namespace_takes_none(disk: Disk, booted: Firewall) -> None:
    """As with the profile unshare-userns-restrict of AppArmor: what unshare starts has no capabilities."""
    tools = disk.folder / "tools"
    tools.mkdir()
    powerless = f'exec {shutil.which("unshare")} -n setpriv --bounding-set=-all --inh-caps=-all "$@"'
    (tools / "unshare").write_text(f"#!/bin/sh\nshift\n{powerless}\n")
    (tools / "unshare").chmod(0o755)
    disk.find_first(tools)
    messages = start(booted, disk)
    assert messages.count("no scratch namespace takes rules, so they are loaded without a trial: ip") == 1
    assert "refused" not in messages
    for family in Family:
        assert plain(booted.save(family)) == disk.machine.held["compiled", family]
    assert booted.namespace.call(execute, ["/bin/sh", str(disk.boot / "load"), "--try"])[0] == 1


@pytest.mark.parametrize("function", ["can_try", "set_of", "climb", "try", "text_of"])
def test_a_boot_that_is_killed_leaves_the_host_closed(disk: Disk, booted: Firewall, function: str) -> None:
    load = disk.boot / "load"
    script, replaced = re.subn(
        rf"^{function}\(\) {{", r"\g<0> kill -9 $$", load.read_text(), flags=re.MULTILINE
    )
    assert replaced == 1
    load.write_text(script)
    assert booted.namespace.call(execute, ["/bin/sh", str(load)])[0] == -9
    assert_closed_but_for_ssh(booted)


def test_a_second_start_leaves_the_chains_that_other_programs_have_made(disk: Disk, booted: Firewall) -> None:
    """A restart of the unit is no boot; after a flush it loads the rules again, and closed rules are tried again."""
    start(booted, disk)
    booted.iptables("-N", "DOCKER-USER")
    assert "loaded already" in start(booted, disk)
    assert ":DOCKER-USER" in booted.save()
    flushed = "*filter\n:INPUT ACCEPT [0:0]\n:f2b-x - [0:0]\n-A INPUT -j f2b-x\nCOMMIT\n*mangle\nCOMMIT\n"
    booted.load(flushed)  # what is left is of fail2ban
    start(booted, disk)
    assert plain(booted.save()) == disk.machine.held["compiled", Family.IPV4]
    booted.iptables("-N", "DOCKER-USER")
    path = disk.folder / "state" / "booted"
    path.write_text(path.read_text().replace("4 compiled", "4 closed"))
    assert "loaded already" not in start(booted, disk)
    assert "DOCKER" not in booted.save()


def test_a_family_of_policies_alone_does_not_make_a_second_start_a_boot(disk: Disk, booted: Firewall) -> None:
    """No rule shows that its policies were loaded; the rules of the other family do."""
    for path in disk.boot.iterdir():
        if path.name in ("compiled6", "source6", "last6"):
            disk.write(
                path.name, "*filter\n:INPUT DROP [0:0]\n:FORWARD DROP [0:0]\n:OUTPUT ACCEPT [0:0]\nCOMMIT\n"
            )
    assert "IPv6: the compiled rules are loaded" in start(booted, disk)
    booted.iptables("-N", "DOCKER-USER")
    assert "loaded already" in start(booted, disk)
    assert ":DOCKER-USER" in booted.save()
    booted.load("*filter\nCOMMIT\n*mangle\nCOMMIT\n")
    assert "loaded already" not in start(booted, disk)


@pytest.mark.either_backend
def test_the_tools_of_busybox_find_a_flush(disk: Disk, booted: Firewall) -> None:
    """Its grep finds every line with an empty list of lines; GNU's finds none."""
    busybox = shutil.which("busybox")
    if busybox is None:
        pytest.skip("busybox is not installed")
    tools = disk.folder / "tools"
    tools.mkdir()
    # Debian's busybox has no cksum.
    for applet in ("sh", "grep", "sed", "head", "tr", "cut", "cat", "date"):
        (tools / applet).symlink_to(busybox)
    disk.find_first(tools)
    load = [str(tools / "sh"), str(disk.boot / "load")]
    for said in ("the compiled rules are loaded", "loaded already", "the compiled rules are loaded"):
        status, messages = booted.namespace.call(execute, load)
        assert status == 101 and said in messages
        for family in Family:
            assert plain(booted.save(family)) == disk.machine.held["compiled", family]
        if said == "loaded already":
            for family in Family:
                booted.load("*filter\nCOMMIT\n*mangle\nCOMMIT\n", family)


def test_the_boot_leaves_table_filter_to_others_if_the_rules_have_none(
    machine: Machine, tmp_path: Path
) -> None:
    nat = "*nat\n:POSTROUTING ACCEPT [0:0]\n-A POSTROUTING -s 10.0.0.0/8 -j MASQUERADE\nCOMMIT\n"
    with Namespace() as namespace:
        firewall = Firewall(namespace, tmp_path, machine.backend)
        firewall.apply(firewall.file(nat))
        held = plain(firewall.save())
        firewall.hitables("persist", "--unit-folder", tmp_path)
    with Namespace() as fresh:
        again = Firewall(fresh, tmp_path, machine.backend)
        assert fresh.call(execute, ["/bin/sh", str(again.state / "boot" / "load")])[0] == 101
        assert plain(again.save()) == held
        assert "MASQUERADE" in held


def test_no_command_that_closes_the_host_meets_the_lock_of_legacy_without_a_limit(disk: Disk) -> None:
    """Versions of iptables-legacy end at once if another program holds the lock, or wait for ever."""
    commands = re.findall(r"ip6?tables-(?:legacy|nft) [^;]*", " ".join(disk.command))
    assert len(commands) > 10
    for command in commands:
        assert (" -w 30 " in command) == ("legacy" in command)


def test_rules_that_were_not_confirmed_before_the_reboot_are_not_loaded(
    machine: Machine, tmp_path: Path
) -> None:
    with Namespace() as namespace:
        firewall = Firewall(namespace, tmp_path, machine.backend)
        firewall.apply(firewall.file(rules(Family.IPV4, 3000)))
        confirmed = plain(firewall.save())
        firewall.hitables("persist", "--unit-folder", tmp_path)
        firewall.hitables("apply", firewall.file(rules(Family.IPV4, 4000)), "--confirm", 600)
        assert plain(firewall.save()) != confirmed
        load = ["/bin/sh", str(firewall.state / "boot" / "load")]
        with Namespace() as fresh:
            again = Firewall(fresh, tmp_path, machine.backend)
            assert fresh.call(execute, load)[0] == 101
            assert plain(again.save()) == confirmed
        firewall.hitables("confirm")
        newer = plain(firewall.save())
        with Namespace() as fresh:
            again = Firewall(fresh, tmp_path, machine.backend)
            assert fresh.call(execute, load)[0] == 101
            assert plain(again.save()) == newer


def test_status_names_the_step_that_the_boot_has_reached(disk: Disk, booted: Firewall) -> None:
    disk.damage("compiled4", "truncated")
    start(booted, disk)
    shown = booted.hitables("status", status=1).stdout
    assert "rules differ from rule set 3, but every packet is treated the same" in shown
    assert "IPv4: at boot the source rules were loaded" in shown
    assert "IPv6: the kernel holds rule set 3" in shown
    assert "at boot" not in booted.hitables("status", "--repair").stdout.split("loaded again")[1]
    assert "at boot" not in booted.hitables("status").stdout


def test_persist_says_what_a_boot_loads(machine: Machine) -> None:
    assert "tried in a scratch namespace: compiled, source, last, closed, bare" in machine.shown
    assert "ipsets, with their members: allowed (1), banned (1)" in machine.shown
    assert "closed, but for ssh to port 22 from anywhere" in machine.shown


def test_systemd_takes_the_unit(machine: Machine) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not installed")
    unit = machine.folder / "hitables.service"
    done = subprocess.run(["systemd-analyze", "verify", unit], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert re.search(r"^Before=.*\bnetwork-pre\.target\b", unit.read_text(), flags=re.MULTILINE)
    assert re.search(r"^Wants=network-pre\.target$", unit.read_text(), flags=re.MULTILINE)
    root = machine.folder / "root"
    (root / "etc/systemd/system").mkdir(parents=True)
    shutil.copy(unit, root / "etc/systemd/system")
    subprocess.run(["systemctl", f"--root={root}", "enable", unit.name], capture_output=True, check=True)
    assert (root / "etc/systemd/system/sysinit.target.wants" / unit.name).is_symlink()


def test_the_script_says_which_steps_can_be_loaded_and_loads_none(disk: Disk, booted: Firewall) -> None:
    disk.damage("compiled4", "refused")
    disk.damage("source6", "truncated")
    answers = booted.namespace.run(["/bin/sh", str(disk.boot / "load"), "--try"]).splitlines()
    assert answers[0].startswith("4 compiled refused ")
    assert "6 source damaged" in answers and answers.count("6 compiled ok") == 1
    assert plain(booted.save()) == ""


@pytest.mark.parametrize("word", ["--dry-run", "--tyr", "--help", "now"])
def test_a_word_that_the_script_does_not_know_loads_nothing(disk: Disk, booted: Firewall, word: str) -> None:
    status, said = booted.namespace.call(execute, ["/bin/sh", str(disk.boot / "load"), word])
    assert status == 2 and "--try" in said
    assert plain(booted.save()) == ""


def test_nothing_is_persisted_before_something_is_confirmed(machine: Machine, tmp_path: Path) -> None:
    with Namespace() as namespace:
        firewall = Firewall(namespace, tmp_path, machine.backend)
        firewall.hitables("apply", firewall.file(rules(Family.IPV4, 3000)), "--confirm", 600)
        error = firewall.hitables("persist", "--unit-folder", tmp_path, status=2).stderr
        assert "no rule set is confirmed" in error
        firewall.hitables("confirm")
        shown = firewall.hitables(
            "persist", "--unit-folder", tmp_path, "--ssh", 2222, "--ssh-from", "192.0.2.0/24"
        )
        assert "ssh to port 2222 from 192.0.2.0/24" in shown.stdout
        assert "IPv6: no rules were confirmed" in shown.stderr
        wrong = firewall.hitables("persist", "--unit-folder", tmp_path, "--ssh-from", "home", status=2)
        assert "'home' is no address or network" in wrong.stderr


def test_what_is_confirmed_has_the_tables_of_earlier_files_and_no_chains_of_others(
    machine: Machine, tmp_path: Path
) -> None:
    """A file without table mangle leaves that of the file before; fail2ban's chain does not exist at boot."""
    with Namespace() as namespace:
        firewall = Firewall(namespace, tmp_path, machine.backend)
        firewall.apply(firewall.file(rules(Family.IPV4, 3000)))
        firewall.iptables("-N", "f2b-sshd")
        firewall.iptables("-I", "INPUT", "-p", "tcp", "-j", "f2b-sshd")
        firewall.apply(firewall.file(rules(Family.IPV4, 4000).partition("*mangle")[0]), "--leave", "fail2ban")
        held = plain(firewall.save())
    with Namespace() as fresh:
        again = Firewall(fresh, tmp_path, machine.backend)
        again.load((tmp_path / "state" / "confirmed.rules").read_text())
        assert "0xbb8" in again.save() and "f2b" in held
        assert plain(again.save()) == re.sub("^.*f2b-sshd.*\n", "", held, flags=re.MULTILINE)


def test_going_back_to_an_empty_kernel_is_what_the_next_boot_loads(machine: Machine, tmp_path: Path) -> None:
    with Namespace() as namespace:
        firewall = Firewall(namespace, tmp_path, machine.backend)
        firewall.apply(firewall.file(rules(Family.IPV4, 3000)))
        firewall.hitables("rollback")
        assert plain(firewall.save()) == ""
    with Namespace() as fresh:
        again = Firewall(fresh, tmp_path, machine.backend)
        again.load((tmp_path / "state" / "confirmed.rules").read_text())
        assert plain(again.save()) == ""


def test_the_checksum_is_that_of_the_command_cksum() -> None:
    for size in (0, 1, 255, 256, 70_000):
        data = bytes(at * 7 & 0xFF for at in range(size))
        printed = subprocess.run(["cksum"], input=data, capture_output=True, check=True).stdout.decode()
        assert printed.strip() == checksum(data)


def test_persist_names_the_rules_that_a_fresh_machine_refuses(machine: Machine, tmp_path: Path) -> None:
    """A rule that counts in an accounting object is loaded here, where the object exists, and not at boot."""
    with Namespace() as namespace:
        firewall = Firewall(namespace, tmp_path, machine.backend)
        furnish(namespace, "-m nfacct --nfacct-name traffic")
        firewall.apply(firewall.file(rules(Family.IPV4, 3000, "-A INPUT -m nfacct --nfacct-name traffic\n")))
        error = firewall.hitables("persist", "--unit-folder", tmp_path, status=2).stderr
        assert "the files for the boot are written" in error and "IPv4: refused" in error
        assert (tmp_path / "hitables.service").exists()
    with Namespace() as fresh:
        again = Firewall(fresh, tmp_path, machine.backend)
        assert fresh.call(execute, ["/bin/sh", str(again.state / "boot" / "load")])[0] == 104
        assert ":INPUT DROP" in again.save() and "--dport 22 -j ACCEPT" in again.save()
