"""What a boot loads is one generation as a whole, whatever interrupts its writing."""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path

import pytest
from support.disk_order import recorded

from hitables.apply import boot_files, boot_starters
from hitables.apply.boot_files import BootSettings, boot_notes, keep_for_boot, set_settings
from hitables.apply.boot_script import SshAccess, checksum
from hitables.apply.boot_starters import InitScript, NetfilterPlugin, Starter, SystemdUnit
from hitables.apply.boot_texts import BootRules, boot_rules
from hitables.apply.counts import keyed, of_source
from hitables.apply.persist import PersistRequest, _tried, persist, remove, rules_of, ssh_ports
from hitables.apply.store import StateDirectory
from hitables.apply.texts import parse, write
from hitables.errors import HitablesError
from hitables.ir.fields import Family
from hitables.ir.packet import Backend
from hitables.reader import read


def rules(number: int, table: str = "filter") -> BootRules:
    tables = parse(f"*{table}\n:OUTPUT ACCEPT [0:0]\n-A OUTPUT -d 10.0.0.{number}/32 -j ACCEPT\nCOMMIT\n")
    return BootRules(tables, tables)


def keep(folder: Path, number: int, backend: Backend = Backend.NFT, table: str = "filter") -> None:
    keep_for_boot(folder, backend, {Family.IPV4: rules(number, table)})


def number_of(folder: Path) -> int:
    """The rule set of the present generation, every file of which is whole."""
    boot = folder / "boot"
    sums = json.loads((boot / "sums.json").read_text())
    script = (boot / "load").read_text()
    for name, value in sums.items():
        assert checksum((boot / name).read_bytes()) == value
        assert f"{name}) echo '{value}'" in script
    assert script.endswith('main "$@"\n')
    text = (boot / "compiled4").read_text()
    return int(text.partition("10.0.0.")[2].partition("/")[0])


def fail_at(call: int) -> Callable[..., None]:
    """A function for os.fsync that reports a full disk at this call."""
    calls = 0

    def fsync(handle: int) -> None:
        nonlocal calls
        calls += 1
        if calls == call:
            raise OSError(28, "No space left on device")

    return fsync


def test_a_full_disk_at_any_moment_leaves_the_old_generation_or_the_new_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_settings(tmp_path, BootSettings(access=SshAccess()))
    keep(tmp_path, 1)
    failures = 0
    for call in range(1, 100):
        monkeypatch.setattr(os, "fsync", fail_at(call))
        before = number_of(tmp_path)
        try:
            keep(tmp_path, call + 1)
        except HitablesError as error:
            assert "No space left" in str(error)
            assert number_of(tmp_path) in (before, call + 1)
            failures += 1
        else:
            assert number_of(tmp_path) == call + 1
            break
    assert failures >= 6
    monkeypatch.undo()
    keep(tmp_path, 200)
    assert number_of(tmp_path) == 200
    assert [path.name for path in tmp_path.glob("boot-*")] == [os.readlink(tmp_path / "boot")]


def test_a_generation_is_on_the_disk_before_a_boot_can_see_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_settings(tmp_path, BootSettings(access=SshAccess()))
    events = recorded(monkeypatch)
    keep(tmp_path, 1)
    seen = events.index("renamed boot")
    written = [f"flushed {path.name}" for path in (tmp_path / "boot").iterdir()]
    assert {*written, "flushed boot-1"} <= set(events[:seen])
    assert events[seen + 1 :] == [f"flushed {tmp_path.name}"]


def test_a_step_that_an_earlier_boot_has_reached_is_not_told(tmp_path: Path) -> None:
    (tmp_path / "booted").write_text("this\n4 closed\n6 compiled\n")
    (note,) = boot_notes(tmp_path, "this")
    assert note.startswith("IPv4: at boot the closed rules were loaded")
    assert boot_notes(tmp_path, "another") == []


def test_the_rules_confirmed_before_are_the_last_step_and_stay_it(tmp_path: Path) -> None:
    set_settings(tmp_path, BootSettings(access=SshAccess()))
    boot = tmp_path / "boot"
    keep(tmp_path, 1)
    assert not (boot / "last4").exists()
    for number, last in ((2, 1), (2, 1), (3, 2), (2, 3)):
        keep(tmp_path, number)
        assert (number_of(tmp_path), f"10.0.0.{last}/" in (boot / "last4").read_text()) == (number, True)
    (boot / "compiled4").write_text("damaged")
    keep(tmp_path, 4)
    assert "10.0.0.3/" in (boot / "last4").read_text()


def test_tables_stay_until_a_file_has_them_or_the_backend_changes(tmp_path: Path) -> None:
    confirmed = tmp_path / "confirmed.rules"
    keep(tmp_path, 1, table="mangle")
    keep(tmp_path, 2)
    assert "10.0.0.1/" in confirmed.read_text() and "10.0.0.2/" in confirmed.read_text()
    keep_for_boot(tmp_path, Backend.NFT, {Family.IPV6: BootRules()})
    assert "10.0.0.1/" in confirmed.read_text()
    keep(tmp_path, 3, Backend.LEGACY)
    assert "10.0.0.3/" in confirmed.read_text() and "mangle" not in confirmed.read_text()


def test_nothing_but_the_text_is_written_before_persist(tmp_path: Path) -> None:
    keep(tmp_path, 1)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["boot.json", "confirmed.rules"]


@pytest.mark.parametrize("starter", [SystemdUnit, InitScript, NetfilterPlugin])
@pytest.mark.parametrize("name", ["a\nb", "a\rb"])
def test_a_state_directory_with_a_line_break_in_its_path_is_refused(
    tmp_path: Path, name: str, starter: type[Starter]
) -> None:
    """A unit of systemd would be cut off there, and a comment of the script of the boot would end there."""
    folder = tmp_path / name
    folder.mkdir()
    keep(folder, 1)
    before = sorted(folder.iterdir())
    link = tmp_path / "link"
    link.symlink_to(folder)
    with pytest.raises(HitablesError, match=r"a\\[nr]b': there is a line break .* rename it"):
        persist(PersistRequest(str(link), starter=starter(tmp_path)), lambda message: None)
    assert sorted(folder.iterdir()) == before and sorted(tmp_path.iterdir()) == sorted([folder, link])


@pytest.mark.parametrize(
    ("starter", "advice"),
    [
        (
            SystemdUnit,
            "systemctl: no such command; hitables persist --init-script is for OpenRC and sysvinit",
        ),
        (InitScript, "rc-update, update-rc.d: no such command, so this host has neither"),
    ],
)
def test_a_host_without_the_tool_that_enables_a_starter_gets_advice_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, starter: type[Starter], advice: str
) -> None:
    """Nothing is confirmed here, so that no file of this host would be written without the check either."""
    StateDirectory.open(str(tmp_path), create=True).close()
    before = sorted(tmp_path.iterdir())
    monkeypatch.setattr(shutil, "which", lambda name, path=None: None)
    with pytest.raises(HitablesError, match=advice):
        persist(PersistRequest(str(tmp_path), starter=starter()), lambda message: None)
    assert sorted(tmp_path.iterdir()) == before
    starter(tmp_path).check()  # another folder than that of the host, where nothing is enabled


def test_a_starter_can_be_removed_without_the_tool_that_would_disable_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As the unit that an earlier version wrote where there was no systemctl."""
    monkeypatch.setattr(shutil, "which", lambda name, path=None: None)
    monkeypatch.setattr(boot_starters, "run", lambda command: pytest.fail(str(command)))
    SystemdUnit().disable()
    InitScript().disable()


def test_a_family_keeps_the_backend_that_it_was_confirmed_with(tmp_path: Path) -> None:
    set_settings(tmp_path, BootSettings(access=SshAccess()))
    keep_for_boot(tmp_path, Backend.LEGACY, {Family.IPV6: BootRules(parse("*filter\nCOMMIT\n"))})
    keep(tmp_path, 1)
    script = (tmp_path / "boot" / "load").read_text()
    assert "FAMILIES='4 6'" in script or "FAMILIES='6 4'" in script
    assert "BACKEND4=nft\nBACKEND6=legacy\n" in script


def test_a_damaged_settings_file_is_named(tmp_path: Path) -> None:
    for text in ("{", '{"backends": []}', '{"backends": {"4": "none"}, "access": null}'):
        (tmp_path / "boot.json").write_text(text)
        with pytest.raises(HitablesError, match=r"boot\.json: damaged"):
            boot_files.settings_of(tmp_path)


SOURCE = """*filter
:INPUT DROP [0:0]
:mine - [0:0]
:kept - [0:0]
:f2b-sshd - [0:0]
-A INPUT -j f2b-sshd
-A INPUT -s 10.0.0.1 -j mine
-A INPUT -j kept
-A mine -j ACCEPT
-A kept -j DROP
COMMIT
"""


def test_rules_for_the_boot_enter_no_chain_that_does_not_exist() -> None:
    """*kept* was not loaded, as a chain of another program enters it; our own rules enter it, too."""
    loaded = parse(
        "*filter\n:INPUT DROP [0:0]\n:ht1 - [0:0]\n-A INPUT -j f2b-sshd\n-A INPUT -g ht1\n-A ht1 -j kept\nCOMMIT\n"
    )
    of_boot = boot_rules(loaded, (), SOURCE, "office.rules", Family.IPV4, ("f2b-*",))
    assert write(of_boot.compiled) == (
        "*filter\n:INPUT DROP [0:0]\n:ht1 - [0:0]\n:kept - [0:0]\n"
        "-A INPUT -g ht1\n-A ht1 -j kept\n-A kept -j DROP\nCOMMIT\n"
    )
    text = write(of_boot.source)
    assert "f2b" not in text and text.count("-A ") == 4 and ":INPUT DROP" in text


def test_rules_for_the_boot_have_the_jumps_to_chains_of_ufw_and_these_chains_empty() -> None:
    """ufw fills the chains that it finds, and leaves the jumps where they are."""
    text = (
        "*filter\n:INPUT DROP [0:0]\n:ht1 - [0:0]\n:ufw6-before-input - [0:0]\n:ufw6-user-input - [0:0]\n"
        ":f2b-sshd - [0:0]\n-A INPUT -s 2001:db8::1/128 -j ACCEPT\n-A INPUT -j ufw6-before-input\n-A INPUT -j f2b-sshd\n"
        "-A INPUT -g ht1\n-A ht1 -j DROP\n-A ufw6-before-input -j ufw6-user-input\n"
        "-A ufw6-user-input -j ACCEPT\nCOMMIT\n"
    )
    source = "*filter\n:INPUT DROP\n-A INPUT -s 2001:db8::1 -j ACCEPT\n-A INPUT -j DROP\nCOMMIT\n"
    patterns = ("ufw-*", "ufw6-*", "f2b-*")
    loaded = keyed(parse(text), of_source(read(text, family=Family.IPV6)))
    of_boot = boot_rules(loaded, (), source, "office.rules", Family.IPV6, patterns)
    jump = "-j ufw6-before-input"
    assert of_boot.compiled["filter"]["INPUT"].bodies == ["-s 2001:db8::1/128 -j ACCEPT", jump, "-g ht1"]
    assert of_boot.source["filter"]["INPUT"].bodies == ["-s 2001:db8::1 -j ACCEPT", jump, "-j DROP"]
    for chains in (of_boot.compiled["filter"], of_boot.source["filter"]):
        of_ufw = [name for name in chains if name.startswith("ufw")]
        assert len(of_ufw) == 18 and "ufw6-track-output" in of_ufw and "ufw6-user-input" not in of_ufw
        assert not any(chains[name].rules for name in of_ufw)
    assert rules_of(of_boot.compiled) == 3


def test_jumps_to_own_chains_that_are_named_as_those_of_ufw_are_counted() -> None:
    own = (
        "*filter\n:INPUT DROP [0:0]\n:ufw-before-input - [0:0]\n-A INPUT -j ufw-before-input\n"
        "-A ufw-before-input -p tcp -m tcp --dport 22 -j ACCEPT\nCOMMIT\n"
    )
    assert rules_of(boot_rules(parse(own), (), own, "office.rules", Family.IPV4, ()).compiled) == 2


def test_a_removal_that_fails_leaves_what_the_unit_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The unit closes the host if the script is gone."""
    unit = SystemdUnit(tmp_path)
    folder = str(tmp_path / "state")
    StateDirectory.open(folder, create=True).close()
    set_settings(tmp_path / "state", BootSettings(access=SshAccess()))
    keep(tmp_path / "state", 1)
    unit.path.touch()
    unlink = Path.unlink

    def refused(path: Path, missing_ok: bool = False) -> None:
        if path == unit.path:
            raise OSError(errno.EROFS, os.strerror(errno.EROFS))
        unlink(path, missing_ok)

    with monkeypatch.context() as patch, pytest.raises(HitablesError, match="Read-only"):
        patch.setattr(Path, "unlink", refused)
        remove(folder, [unit])
    assert number_of(tmp_path / "state") == 1
    assert remove(folder, [unit, InitScript(tmp_path)]) == [unit.path]
    assert not (tmp_path / "state" / "boot").exists()


def test_the_boot_lets_in_ssh_at_the_ports_of_all_addresses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As sshd -T prints `ListenAddress` without a `Port`."""
    sshd = tmp_path / "sshd"
    sshd.write_text(
        "#!/bin/sh\necho port 22\necho addressfamily any\necho listenaddress 192.0.2.1:2222\n"
        "echo 'listenaddress [2001:db8::1]:2223'\n"
    )
    sshd.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("SSH_CONNECTION", raising=False)
    assert ssh_ports()[:3] == (22, 2222, 2223)


def test_a_byte_that_is_no_text_in_the_settings_of_ssh_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sshd = tmp_path / "sshd"
    sshd.write_text("#!/bin/sh\nprintf 'banner /etc/\\377\\nport 2222\\n'\n")
    sshd.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert 2222 in ssh_ports()


def test_the_lines_of_a_trial_end_at_line_breaks_alone(tmp_path: Path) -> None:
    """A message of a tool may have any other character."""
    script = tmp_path / "boot" / "load"
    script.parent.mkdir()
    script.write_text("printf '4 compiled refused a\\f1\\302\\205\\0342\\342\\200\\2503\\n4 bare ok\\n'\n")
    told: list[str] = []
    steps = _tried(tmp_path, told.append)
    assert [step.answer for step in steps] == ["refused a\f1\x85\x1c2\u20283", "ok"] and not told


def test_the_script_of_the_boot_shows_a_message_as_it_is() -> None:
    r"""The echo of dash would make a line break of \n, and end at \c."""
    text = (files("hitables.apply") / "boot.sh").read_text()
    short = text[text.index("short() {") : text.index("# Whether a file is there")]
    command = ["/bin/sh", "-c", f'{short}short "$1"', "sh", "a\\nb\\cd\nnext"]
    assert (
        subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip() == r"a\nb\cd next"
    )


def test_the_boot_lets_in_ssh_at_the_port_of_this_session(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("SSH_CONNECTION", "192.0.2.7 40000 192.0.2.1 2244")
    assert 2244 in ssh_ports()
