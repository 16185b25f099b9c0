"""What the next boot loads: written whenever rules are confirmed, in the state directory.

    confirmed.rules, confirmed6.rules   what was confirmed last, compiled, for iptables-restore
    boot.json    with which backend, and once `hitables persist` was called, whom the closed rules let in
    boot         a link to the folder of the last complete generation, boot-1, boot-2 ...; in it:
    load         the script of the boot (boot_script.py)
    compiled4, source4, last4, compiled6 ...    the steps of its ladder
    set1 ...     the ipsets that their rules name
    sums.json    by file: its checksum

Invariant: a boot sees one generation as a whole, since the link is replaced when all files are on the disk.

A record has the tables of the files that were applied; others stayed as they were.  So the tables of records
before it are kept, unless these were loaded by the other backend.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from ..errors import FileError
from ..files import flush_folder, parse_json, read_text, trouble, write_text
from ..interrupts import deferred
from ..ir.fields import Family
from ..ir.packet import Backend
from . import texts
from .boot_script import STEPS, SshAccess, checksum, script
from .boot_sets import SavedSet, saved_sets
from .boot_texts import BootRules
from .texts import Tables

VERSION = 1


@dataclass(frozen=True, slots=True)
class BootSettings:
    """What `hitables persist` was asked for.

    backends  by family: the backend of what was confirmed last
    access    whom the closed rules let in; None: boots load nothing of ours
    """

    backends: Mapping[Family, Backend] = field(default_factory=dict)
    access: SshAccess | None = None


@dataclass(frozen=True, slots=True)
class BootGeneration:
    """The files that the next boot loads: their *folder*, what each family loads first, and its ipsets."""

    folder: Path
    rules: Mapping[Family, BootRules]
    sets: tuple[SavedSet, ...]


def confirmed_file(folder: Path, family: Family) -> Path:
    return folder / ("confirmed.rules" if family is Family.IPV4 else "confirmed6.rules")


def settings_of(folder: Path) -> BootSettings:
    """The settings in the state directory *folder*; FileError if the file is damaged."""
    path = folder / "boot.json"
    if not path.exists():
        return BootSettings()
    try:
        data = parse_json(read_text(str(path)))
        access = data["access"]
        return BootSettings(
            {Family(int(family)): Backend(backend) for family, backend in data["backends"].items()},
            SshAccess(tuple(access["ports"]), tuple(access["sources"])) if access else None,
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise FileError(
            f"{path}: damaged ({error}); hitables persist writes it anew, once it is removed"
        ) from None


def set_settings(folder: Path, settings: BootSettings) -> None:
    access = settings.access
    data = {
        "format": "hitables-boot",
        "version": VERSION,
        "backends": {str(int(family)): backend.value for family, backend in settings.backends.items()},
        "access": access and {"ports": list(access.ports), "sources": list(access.sources)},
    }
    write_text(str(folder / "boot.json"), json.dumps(data, indent=1) + "\n")
    _flush(folder)


def keep_for_boot(
    folder: Path,
    backend: Backend,
    rules: Mapping[Family, BootRules],
    earlier: Mapping[Family, Tables] | None = None,
    given_up: Collection[tuple[Family, str]] = (),
    record: Callable[[], None] = lambda: None,
) -> BootGeneration | None:
    """Write what the next boot loads: *rules*, which were confirmed, and the older tables beside them.

    *record*, the last step, writes down that they are confirmed.  If anything fails, the next boot loads what
    it would have loaded before.

    None if `hitables persist` was not called; then only confirmed.rules and confirmed6.rules are written.
    *earlier*: rules that were confirmed before, for the first generation.  *given_up*: tables that stay in no
    file.
    """
    with deferred(), _as_before_on_error(folder):
        written = _write(folder, backend, rules, earlier or {}, given_up)
        record()
    _remove_generations(folder, but=_present(folder))
    return written


@contextmanager
def _as_before_on_error(folder: Path) -> Iterator[None]:
    """If the block fails, a boot finds the same files as before it.

    The disk may be full then, so these stay on it meanwhile, under second names.
    """
    paths = [*(confirmed_file(folder, family) for family in Family), folder / "boot.json"]
    generation = _present(folder)
    kept: dict[Path, Path] = {}
    try:
        for path in paths:
            if path.exists():
                kept[path] = _with_second_name(path)
        try:
            yield
        except BaseException:
            with suppress(OSError):
                _put_back(folder, paths, kept, generation)
            raise
    except OSError as error:
        raise trouble(error.filename or str(folder), error) from None
    finally:
        for second in kept.values():
            with suppress(OSError):
                second.unlink(missing_ok=True)


def _put_back(folder: Path, paths: Iterable[Path], kept: Mapping[Path, Path], generation: str) -> None:
    """Let *paths* be the files *kept*, where there are such, and *generation* the present one."""
    for path in paths:
        if path in kept:
            os.replace(kept[path], path)
        else:
            path.unlink(missing_ok=True)
    if _present(folder) != generation:
        _link(folder, generation)
        _remove_generations(folder, but=generation)
    flush_folder(folder)


def _with_second_name(path: Path) -> Path:
    second = path.with_name(f"{path.name}.before")
    second.unlink(missing_ok=True)
    try:
        os.link(path, second)
    except OSError:  # not every file system has links
        shutil.copyfile(path, second)
        shutil.copymode(path, second)
    return second


def _write(
    folder: Path,
    backend: Backend,
    rules: Mapping[Family, BootRules],
    earlier: Mapping[Family, Tables],
    given_up: Collection[tuple[Family, str]],
) -> BootGeneration | None:
    settings = settings_of(folder)
    every: dict[Family, BootRules] = {}
    backends = {family: backend for family in Family if confirmed_file(folder, family).exists()}
    backends |= {**settings.backends, **{family: backend for family in rules}}
    for family in backends:
        path = confirmed_file(folder, family)
        older = BootRules()
        if path.exists() and settings.backends.get(family, backend) is backends[family]:
            compiled = texts.parse(read_text(str(path)))
            older = BootRules(compiled, {**compiled, **_step(folder, f"source{int(family)}")})
        released = {table for of_family, table in given_up if of_family is family}
        every[family] = rules.get(family, BootRules()).over(older).without(released)
        if released and not every[family].compiled:
            path.unlink(missing_ok=True)
            del every[family]
        elif family in rules or released:
            write_text(str(path), texts.write(every[family].compiled))
    backends = {family: backend for family, backend in backends.items() if family in every}
    settings = replace(settings, backends=backends)
    set_settings(folder, settings)
    if settings.access is None:
        return None
    return _write_generation(folder, settings, every, earlier)


def _write_generation(
    folder: Path, settings: BootSettings, rules: Mapping[Family, BootRules], earlier: Mapping[Family, Tables]
) -> BootGeneration:
    assert settings.access is not None
    contents: dict[str, str] = {}
    for family, of_family in rules.items():
        steps = {
            "compiled": texts.write(of_family.compiled),
            "source": texts.write(of_family.source),
            "last": _last(folder, family, of_family.compiled, earlier.get(family, {})),
        }
        contents |= {f"{step}{int(family)}": text for step, text in steps.items() if text}
    by_family = {family: [contents.get(f"{step}{int(family)}", "") for step in STEPS] for family in rules}
    sets = saved_sets(by_family)
    contents |= {f"set{number}": each.saved for number, each in enumerate(sets, 1) if each.saved}
    sums = {name: checksum(text.encode("utf-8", "surrogateescape")) for name, text in contents.items()}
    tables = dict.fromkeys(
        line[1:] for all_texts in by_family.values() for text in all_texts for line in _heads(text)
    )
    named_sets = [(f"set{number}", each.name, each.create) for number, each in enumerate(sets, 1)]
    filtered = [family for family, of_family in rules.items() if "filter" in of_family.compiled]
    contents["load"] = script(
        folder, settings.backends, filtered, list(tables), sums, named_sets, settings.access
    )
    contents["sums.json"] = json.dumps(sums, indent=1) + "\n"
    return BootGeneration(_put(folder, contents), rules, tuple(sets))


def _heads(text: str) -> list[str]:
    return [line for line in text.split("\n") if line.startswith("*")]


def _last(folder: Path, family: Family, compiled: Tables, earlier: Tables) -> str:
    """The text of step `last`: the first that differs from *compiled* of the present generation's `compiled`,
    its `last`, and *earlier*; "" if none does.

    Of the tables of *compiled* alone: others were given up.
    """
    present = texts.write(compiled)
    for tables in (_step(folder, f"compiled{int(family)}"), _step(folder, f"last{int(family)}"), earlier):
        text = texts.write({name: chains for name, chains in tables.items() if name in compiled})
        if text and text != present:
            return text
    return ""


def _step(folder: Path, name: str) -> Tables:
    return texts.parse(_whole(folder, name))


def _whole(folder: Path, name: str) -> str:
    """A file of the present generation; "" if it is missing or damaged."""
    present = folder / "boot"
    with suppress(OSError, ValueError, FileError):
        text = read_text(str(present / name))
        sums = parse_json(read_text(str(present / "sums.json")))
        if sums.get(name) == checksum(text.encode("utf-8", "surrogateescape")):
            return text
    return ""


def _put(folder: Path, contents: Mapping[str, str]) -> Path:
    """Write a generation, and make it the present one."""
    numbers = [int(name[5:]) for name in _generations(folder) if name[5:].isdecimal()]
    generation = folder / f"boot-{max(numbers, default=0) + 1}"
    try:
        generation.mkdir(mode=0o700)
        for name, text in contents.items():
            with open(generation / name, "w", encoding="utf-8", errors="surrogateescape", newline="") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
        flush_folder(generation)
        _link(folder, generation.name)
    except OSError as error:
        shutil.rmtree(generation, ignore_errors=True)
        raise trouble(error.filename or str(generation), error) from None
    _flush(folder)  # until then the disk may have the old link, so the old generation is still there
    return generation


def _link(folder: Path, generation: str) -> None:
    """Make *generation* the present one; "": none is."""
    link, fresh = folder / "boot", folder / "boot.new"
    if generation:
        fresh.unlink(missing_ok=True)
        fresh.symlink_to(generation)
        os.replace(fresh, link)
    else:
        link.unlink(missing_ok=True)


def _present(folder: Path) -> str:
    """The name of the present generation; "" if there is none."""
    link = folder / "boot"
    return os.readlink(link) if link.is_symlink() else ""


def _generations(folder: Path) -> list[str]:
    return [name for name in _names(folder) if name.startswith("boot-")]


def _remove_generations(folder: Path, but: str = "") -> None:
    for name in _generations(folder):
        if name != but:
            shutil.rmtree(folder / name, ignore_errors=True)


def boot_notes(folder: Path, boot_id: str) -> list[str]:
    """A message for each family of which the boot *boot_id* has not loaded the compiled rules."""
    try:
        booted, *lines = read_text(str(folder / "booted")).split("\n")
    except FileError:
        return []
    steps = [line.split(" ") for line in lines if line] if booted == boot_id else []
    return [
        f"IPv{family}: at boot the {step} rules were loaded, because the compiled ones could not be; "
        f"{folder / 'log'} says why"
        for family, step in steps
        if step != STEPS[0]
    ]


def forget_boot(folder: Path) -> None:
    """Remove the script and its files; what was confirmed stays."""
    settings = settings_of(folder)
    (folder / "boot").unlink(missing_ok=True)
    _remove_generations(folder)
    set_settings(folder, replace(settings, access=None))


def _names(folder: Path) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except OSError as error:
        raise trouble(str(folder), error) from None


def _flush(folder: Path) -> None:
    try:
        flush_folder(folder)
    except OSError as error:
        raise trouble(str(folder), error) from None
