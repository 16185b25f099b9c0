"""`hitables persist`: from now on each boot loads what was confirmed last, before the network is up."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from ..errors import HitablesError, LiveError
from ..files import is_there
from ..ir.fields import Family
from ..ir.packet import Backend
from ..kernel.namespace import run
from ..nouns import counted
from ..rule_lines import lines_of
from .boot_files import BootGeneration, forget_boot, keep_for_boot, set_settings, settings_of
from .boot_script import SshAccess
from .boot_starters import NetfilterPlugin, Starter, SystemdUnit
from .boot_texts import stays_empty
from .both_backends import left_by_change
from .guard import SYSTEMD
from .in_force import for_boot, in_force
from .kernel import Kernel
from .neighbours import appenders, flushers
from .others import own
from .records import CONFIRMED, ApplyState
from .ssh_session import ssh_connection
from .store import StateDirectory
from .texts import Tables, TextChain


@dataclass(frozen=True, slots=True)
class PersistRequest:
    """How to boot.

    access     whom the closed rules let in; None: as before, or ssh from anywhere
    starter    what starts the script of the boot
    netfilter  where netfilter-persistent has its plugins
    """

    folder: str
    access: SshAccess | None = None
    starter: Starter = field(default_factory=SystemdUnit)
    netfilter: NetfilterPlugin = field(default_factory=NetfilterPlugin)


@dataclass(frozen=True, slots=True)
class LadderStep:
    """A step of the ladder, tried in a scratch namespace: *answer* is "ok", "damaged" or "refused ..."."""

    family: Family
    name: str
    answer: str


@dataclass(frozen=True, slots=True)
class Persisted:
    """What was written; *starter*: the file that starts the script of the boot."""

    written: BootGeneration
    access: SshAccess
    starter: Path
    steps: tuple[LadderStep, ...]


def persist(request: PersistRequest, tell: Callable[[str], None]) -> Persisted:
    """Write what the next boot loads, and what starts it; then try each step.

    HitablesError if nothing is confirmed, or if the compiled rules of a family cannot be loaded; then the
    files are written all the same, as a boot that ends with closed rules is better than an open host.
    """
    folder = Path(request.folder).resolve()
    _check_name(folder)
    with StateDirectory.open(str(folder)) as store:
        request.starter.check()
        state = store.state()
        if not state.confirmed:
            raise HitablesError(
                f"{folder}: no rule set is confirmed; hitables apply and hitables confirm first"
            )
        force = in_force(store, state.confirmed)
        record = force.record
        settings = settings_of(folder)
        access = request.access or settings.access or SshAccess(ssh_ports())
        set_settings(folder, replace(settings, access=access))
        written = keep_for_boot(
            folder, Backend(record.backend), for_boot(force, with_source=True), _earlier(store, state)
        )
        assert written is not None, "the settings have an access, so a generation is written"
        request.starter.write(folder, settings_of(folder).backends, access)
        steps = _tried(folder, tell)
        _note_other_init(request.starter, tell)
        _note_other_starts(request, tell)
        _note_what_is_left(written, settings_of(folder).backends, force.leave(), state, tell)
        for warning in (*left_by_change(store, state), *flushers(), *appenders(force.leave())):
            tell(warning)
        store.log(f"{state.confirmed}: every boot loads it, or what is confirmed later")
    _check(steps)
    return Persisted(written, access, request.starter.path, steps)


def _check_name(folder: Path) -> None:
    """HitablesError if a line of a unit, or a comment of a script, would end in the middle of *folder*."""
    if set("\r\n") & set(str(folder)):
        raise HitablesError(
            f"state directory {str(folder)!r}: there is a line break in its path, which the files of a boot "
            "cannot have; nothing is written: rename it (mv), then hitables persist with its new path"
        )


def remove(
    state_folder: str, starters: Sequence[Starter], tell: Callable[[str], None] = lambda message: None
) -> list[Path]:
    """Remove what `persist` has written, but for confirmed.rules; the files of *starters* that are gone.

    The script goes last: a boot closes the host if it is called and missing.  If the whole state directory is
    missing, so that each boot closes the host, the files that name it are removed.
    """
    folder = Path(state_folder).resolve()
    found = [starter for starter in starters if starter.is_there()]
    orphans = [] if is_there(folder) else [starter for starter in found if starter.calls(folder)]
    if orphans:
        tell(f"{folder}: there is no such state directory, so only what starts its script was removed")
        return _removed(orphans)
    with StateDirectory.open(state_folder) as store:
        removed = _removed(found)
        forget_boot(store.folder)
        store.log("boots load nothing from here any more")
        return removed


def _removed(starters: Sequence[Starter]) -> list[Path]:
    for starter in starters:
        starter.disable()
        starter.remove()
    return [starter.path for starter in starters]


def ssh_ports() -> tuple[int, ...]:
    """The ports of the ssh server, and that of this session; 22 if neither is known."""
    ports = []
    if shutil.which("sshd", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin") is not None:
        done = subprocess.run(
            ["sshd", "-T"],
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            env={**os.environ, "PATH": f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"},
        )
        ports += _ports_of(done.stdout)
    session = ssh_connection(os.environ).split()
    if len(session) == 4 and session[3].isdecimal():
        ports.append(int(session[3]))
    return tuple(dict.fromkeys(ports)) or (22,)


def _ports_of(settings: str) -> list[int]:
    """The ports in what `sshd -T` prints; an address to listen on may have a port of its own."""
    lines = (line.split() for line in settings.splitlines())
    words = [line[1].rpartition(":")[2] for line in lines if line[:1] in (["port"], ["listenaddress"])]
    return [int(word) for word in words if word.isdecimal()]


def _earlier(store: StateDirectory, state: ApplyState) -> dict[Family, Tables]:
    """For each family the last other rules that were confirmed, of the tables that are in force now."""
    earlier: dict[Family, Tables] = {}
    now = for_boot(in_force(store, state.confirmed), with_source=False)
    for number in sorted(store.numbers(), reverse=True):
        if number < state.confirmed and state.status.get(number) == CONFIRMED:
            with contextlib.suppress(HitablesError):  # some of its tables are not kept any more
                for family, rules in for_boot(in_force(store, number), with_source=False).items():
                    held = now[family].compiled if family in now else {}
                    kept = {name: each for name, each in rules.compiled.items() if name in held}
                    if kept and kept != held:
                        earlier.setdefault(family, kept)
    return earlier


def _tried(folder: Path, tell: Callable[[str], None]) -> tuple[LadderStep, ...]:
    try:
        printed = run(["/bin/sh", str(folder / "boot" / "load"), "--try"])
    except LiveError as error:
        tell(f"warning: the steps cannot be tried: {error}")
        return ()
    lines = [line.split(" ", 2) for line in lines_of(printed)]
    return tuple(LadderStep(Family(int(family)), name, answer) for family, name, answer in lines)


def _check(steps: tuple[LadderStep, ...]) -> None:
    refused = [each for each in steps if each.answer != "ok" and each.name == "compiled"]
    if refused:
        lines = "".join(f"\n  IPv{int(each.family)}: {each.answer}" for each in refused)
        raise HitablesError(
            "the files for the boot are written, but these rules cannot be loaded in a fresh namespace, so a "
            f"boot would load a lower step (hitables persist --help):{lines}"
        )


def _note_other_init(starter: Starter, tell: Callable[[str], None]) -> None:
    """Warn of a unit where systemd does not run: no boot may start it."""
    if starter == SystemdUnit() and not SYSTEMD.is_dir():
        tell(
            "warning: systemd does not run here, and no other init system starts this unit; "
            "hitables persist --init-script is for OpenRC and sysvinit"
        )


def _note_other_starts(request: PersistRequest, tell: Callable[[str], None]) -> None:
    """Warn of rules that iptables-persistent loads."""
    kept = "its tables that these rules do not have stay loaded"
    if isinstance(request.starter, NetfilterPlugin):
        effect = (
            f"each start of netfilter-persistent loads it first, and then these rules in its place; {kept}"
        )
    elif isinstance(request.starter, SystemdUnit):
        effect = (
            "a boot loads it first, and then these rules in its place; a restart of netfilter-persistent "
            f"loads it in place of these rules; {kept}"
        )
    else:
        effect = "a boot may load it behind these rules, in their place"
    for plugin, rules in request.netfilter.iptables_persistent():
        if plugin.exists() and rules.exists():
            tell(
                f"warning: {rules} exists: {effect}; move the file away, or remove the package "
                "iptables-persistent"
            )


def _note_what_is_left(
    written: BootGeneration,
    backends: Mapping[Family, Backend],
    leave: Sequence[str],
    state: ApplyState,
    tell: Callable[[str], None],
) -> None:
    """Say what the boot does not load."""
    if state.waiting is not None:
        tell(
            f"rule set {state.waiting.number} waits for its confirmation; until then a boot loads "
            f"{state.confirmed}"
        )
    for family in Family:
        rules = written.rules.get(family)
        if rules is None:
            tell(
                f"IPv{int(family)}: no rules were confirmed, so a boot loads none of this family, which is "
                "open unless another program closes it"
            )
            continue
        kernel = Kernel(family, backends[family])
        for name, chains in kernel.read().items():
            busy = any(chain.rules or chain.policy == "DROP" for chain in own(chains, leave).values())
            if name not in rules.compiled and busy:
                tell(f"IPv{int(family)}: table {name} was in no file, so a boot does not load it")
    for each in written.sets:
        if not each.saved:
            tell(f"ipset {each.name} does not exist now, so a boot creates it empty")


def rules_of(tables: Tables) -> int:
    """How many rules are not jumps to chains of other programs; a chain with rules is the user's."""
    return sum(
        not stays_empty(rule.enters) or bool(chains.get(rule.enters, TextChain()).rules)
        for chains in tables.values()
        for chain in chains.values()
        for rule in chain.rules
    )


def show(result: Persisted) -> str:
    """The result in lines, without a newline at the end."""
    lines = []
    for family, rules in result.written.rules.items():
        names = ", ".join(step.name for step in result.steps if step.family is family and step.answer == "ok")
        tried = f"; tried in a scratch namespace: {names}" if names else ""
        lines.append(
            f"IPv{int(family)}: at boot {rules_of(rules.compiled)} rules of "
            f"{counted(len(rules.compiled), 'table')}{tried}"
        )
    if result.written.sets:
        sets = ", ".join(f"{each.name} ({each.members})" for each in result.written.sets)
        lines.append(f"ipsets, with their members: {sets}")
    ports = ", ".join(map(str, result.access.ports))
    sources = ", ".join(result.access.sources) or "anywhere"
    lines.append(f"if nothing else can be loaded: closed, but for ssh to port {ports} from {sources}")
    lines.append(f"started by {result.starter}")
    return "\n".join(lines)
