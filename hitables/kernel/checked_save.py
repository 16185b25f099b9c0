"""The rules of a kernel as iptables-save text, held against the kernel.

iptables-nft-save 1.8.9 prints the native rule `tcp dport { 22, 80 } accept` as `-p tcp -j ACCEPT`, with
exit status 0.  So what a tool prints is loaded into a scratch namespace, and what the kernel then holds
there is compared with what it holds here, rule by rule and byte by byte (`held`).

Invariant: a text that `Reader.read` gives makes, when it is loaded, the very rules that the kernel held at
one moment of the call (in legacy: each table at one of its own), chains that are left out apart.  So a
change between printing and comparing does no harm: it looks like a difference, and all is read again.
"""

from __future__ import annotations

import errno
import os
import re
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import Self

from ..errors import LiveError
from ..ir.fields import Family
from ..ir.packet import Backend
from ..parse.lines import unquote
from . import contents_legacy, contents_nft
from .contents import Held, HeldChain, Place
from .namespace import Namespace, run
from .prerequisites import furnish

_TOOL = {Family.IPV4: "iptables", Family.IPV6: "ip6tables"}
_RULE = re.compile(r'(?:\[\d+:\d+\] )?(-A ((?:[^\s"]|"(?:[^"\\]|\\.)*")+).*)', re.DOTALL)
_HEAD = re.compile(r":(\S+) (\S+)")
_CUT_TIMEOUT = re.compile(r"-j CT .*--timeout \S{4}(?!\S)")
_TRIES = 10
_SHOWN = 10  # differences that are told
_LABEL = 28  # bytes of the label of an idle timer
_UNLOADABLE = "what is printed cannot be loaded"
_WIDTH = 200  # characters of a native rule that are told
# What a kernel answers that was made without nf_tables.
_NO_SUCH_PART = (errno.EINVAL, errno.EOPNOTSUPP, errno.EPROTONOSUPPORT)
_HOOKED = b"\0\0\0\x01"  # policy ACCEPT in the head of a base chain of nft


class Misread(LiveError):
    """The tools do not print what the kernel holds; the chains and rules are named."""


@dataclass(frozen=True, slots=True)
class Reading:
    """*text*: as iptables-save prints it, without comment lines.  Of the chains *left_out*, which others
    manage, it has no rules, because the tools do not print them as they are."""

    text: str
    left_out: tuple[Place, ...] = ()


@dataclass(frozen=True, slots=True)
class _Said:
    """What a tool printed: by table and chain `POLICY` (or `-`) and the rules, without counters."""

    chains: Mapping[Place, tuple[str, tuple[str, ...]]]
    tables: tuple[str, ...]

    def all_rules(self) -> dict[Place, range]:
        """The rules of each chain, by their places."""
        return {place: range(len(lines)) for place, (_, lines) in self.chains.items()}


class _Loading:
    """A scratch namespace into which rules that were printed, *rows* of each chain, are being loaded.

    *timers*: what makes the bytes of a rule with an idle timer those that it has there.
    """

    def __init__(self, reader: Reader, said: _Said, rows: Mapping[Place, Sequence[int]]) -> None:
        self.reader = reader
        lines = {
            place: [printed[at] for at in rows.get(place, ())] for place, (_, printed) in said.chains.items()
        }
        renamed, self.timers = _renamed(lines, rows)
        self.text = _text(said, renamed)
        self.namespace = Namespace()

    def __enter__(self) -> Self:
        self.namespace.__enter__()
        try:
            furnish(self.namespace, self.text)
            command = (f"{self.reader.tool}-restore",)
            self.namespace.begin(_load_and_hold, command, self.text, self.reader.backend, self.reader.family)
        except BaseException:
            self.namespace.close()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        self.namespace.close()

    def finish(self) -> Held:
        """What the kernel holds there now; LiveError where the tool did not take it."""
        held: Held = self.namespace.finish()
        return held


@dataclass(frozen=True, slots=True)
class _Fault:
    """A chain, or its rule *number* (from 1; 0: the chain itself), that is not what was *printed*."""

    place: Place
    number: int
    why: str
    printed: str = ""


@dataclass(slots=True)
class Reader:
    """Reads the network namespace of the caller with the tools of one backend.

    *tool*: iptables, iptables-nft, ip6tables-legacy and so on.  *is_left*: the chains that others manage,
    whose rules need not be readable.  A reader that is kept compares only what it has not compared before.
    """

    family: Family
    tool: str = ""
    is_left: Callable[[str], bool] = lambda name: False
    _backend: Backend | None = None
    # What was found equal: rules, and what was printed of them; heads of chains, and the policies printed.
    _known: dict[tuple[Place, bytes], str] = field(default_factory=dict)
    _heads: dict[Place, tuple[str, bytes]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.tool = self.tool or _TOOL[self.family]

    @property
    def backend(self) -> Backend:
        """That of the tool, which is asked where its name does not say."""
        if self._backend is None:
            named = self.tool.rpartition("-")[2]
            known = [each for each in Backend if each.value == named]
            self._backend = known[0] if known else backend_of(f"{self.tool}-save")
        return self._backend

    def read(self, counters: bool = False) -> Reading:
        """What the kernel holds; Misread where the tools do not print that.

        Counters of rules are printed if *counters*, those of policies always.
        """
        before: object = None
        for _ in range(_TRIES):
            self._awake()
            text, failed = self._saved(counters)
            said = _said(text)
            with ExitStack() as stack:
                # All is loaded again while the kernel is asked here; what is new alone, behind that.
                first = not failed and not self._known and bool(said.tables)
                loading = stack.enter_context(_Loading(self, said, said.all_rules())) if first else None
                try:
                    found = self._held()
                except LiveError as error:
                    raise LiveError(f"{self.tool}-save: {failed}" if failed else str(error)) from error
                if failed:
                    faults, left_out = self._refused(said, found, failed)
                else:
                    faults, left_out = self._compared(said, found, loading)
            if not faults:
                return Reading(_without(text, left_out), tuple(left_out))
            now = said, found, failed
            if before == now:
                raise Misread(self._told(faults, failed))
            before = now  # it may have been changed in between
        raise LiveError(f"the rules are changed faster than {self.tool}-save can be compared with the kernel")

    def _awake(self) -> None:
        """Misread where a table has flags of nft.  Before a tool is run: iptables-nft-save makes base chains
        that are missing, and a table that sleeps is woken by that."""
        flags = contents_nft.table_flags(self.family) if self.backend is Backend.NFT else {}
        faults = [
            _Fault((table, ""), 0, "the table has flags, which iptables does not know: " + " ".join(names))
            for table, names in flags.items()
            if names
        ]
        if faults:
            raise Misread(self._told(faults, ""))

    def _saved(self, counters: bool) -> tuple[str, str]:
        """What the tool prints, without comments; and why that is not all, if it is not."""
        command = [f"{self.tool}-save", *(["-c"] if counters else [])]
        try:
            done = subprocess.run(command, capture_output=True, check=False, start_new_session=True)
        except FileNotFoundError as error:
            raise LiveError(f"{command[0]}: no such command; install it, or put it on the PATH") from error
        except OSError as error:
            raise LiveError(f"{command[0]}: {error.strerror}") from error
        lines = done.stdout.decode("utf-8", "surrogateescape").splitlines(keepends=True)
        failed = [line.strip("# \n") for line in lines if line.startswith("#") and "incompatible" in line]
        if done.returncode:
            said = done.stderr.decode("utf-8", "replace").strip().splitlines()
            failed = [f"exit status {done.returncode}: {'; '.join(said) or 'no message'}"]
        return "".join(line for line in lines if not line.startswith("#")), "\n".join(failed)

    def _held(self) -> Held:
        return _held(self.backend, self.family)

    def _compared(
        self, said: _Said, found: Held, loading: _Loading | None
    ) -> tuple[list[_Fault], list[Place]]:
        """What was printed and is not held, and the chains of others of which that is so."""
        faults = [
            _Fault(place, 0, f"{self.tool}-save does not print it")
            for place in found.chains
            if place not in said.chains
        ]
        if self.backend is Backend.NFT:
            faults += [
                _Fault(place, number, "the kernel tells no more than four letters of the timeout", line)
                for place, (_, lines) in said.chains.items()
                for number, line in enumerate(lines, 1)
                if _CUT_TIMEOUT.search(line)
            ]
        fresh: dict[Place, list[int]] = {}
        for place, (_, lines) in said.chains.items():
            rules = found.chains[place].rules if place in found.chains else ()
            if len(lines) == len(rules):
                pairs = enumerate(zip(rules, lines, strict=True))
                fresh[place] = [at for at, (rule, line) in pairs if self._known.get((place, rule)) != line]
            else:
                faults.append(_Fault(place, 0, f"{len(rules)} rules, of which {len(lines)} are printed"))
        heads = {place: (policy, _head(found, place)) for place, (policy, _) in said.chains.items()}
        if loading is not None:
            faults += self._differing(said, found, fresh, loading)
        elif any(fresh.values()) or heads != self._heads:
            with _Loading(self, said, fresh) as loading:
                faults += self._differing(said, found, fresh, loading)
        named = (fault.place for fault in faults if fault.place[1])
        left_out = list(dict.fromkeys(place for place in named if self.is_left(place[1])))
        faults = [fault for fault in faults if fault.place not in left_out]
        if not faults:
            self._heads = {} if left_out else heads
            self._known = {
                (place, rule): line
                for place, chain in found.chains.items()
                if place not in left_out
                for rule, line in zip(chain.rules, said.chains[place][1], strict=True)
            }
        else:  # of what is new alone something may be missing that it refers to
            self._heads, self._known = {}, {}
        return faults, left_out

    def _differing(
        self, said: _Said, found: Held, fresh: Mapping[Place, Sequence[int]], loading: _Loading
    ) -> Iterator[_Fault]:
        """What is another, loaded again, than it is *found* here; of the rules the *fresh* ones."""
        try:
            again = loading.finish()
        except LiveError as error:
            left = {place for place in fresh if self.is_left(place[1]) and fresh[place]}
            if not left:
                yield self._unloadable(loading.text, error)
                return
            # Rules of others need not be such as can be loaded.
            yield from (_Fault(place, 0, "not loaded") for place in left)
            fresh = {place: () if place in left else rows for place, rows in fresh.items()}
            with _Loading(self, said, fresh) as without:
                yield from self._differing(said, found, fresh, without)
            return
        other = [
            (place, at, nth)
            for place, rows in fresh.items()
            if place in again.chains and place in found.chains
            for nth, (at, rule) in enumerate(zip(rows, again.chains[place].rules, strict=False))
            if loading.timers.get((place, at), _same)(found.chains[place].rules[at]) != rule
        ]
        alike = self._alike(found, again, other, loading.namespace) if other else set()
        for place, (_, printed) in said.chains.items():
            here, there = found.chains.get(place), again.chains.get(place)
            if here is None or there is None:
                if here is not there and not _is_idle(here or there):
                    yield _Fault(place, 0, "the chain is not there when what is printed is loaded again")
                continue
            if here.head != there.head:
                yield _Fault(place, 0, "hook, priority, type or policy are others than iptables has")
            if place not in fresh:
                continue  # the kernel has more rules than are printed, or fewer
            rows = fresh[place]
            if len(there.rules) != len(rows):
                yield _Fault(place, 0, f"of {len(rows)} rules that are printed {len(there.rules)} are loaded")
                continue
            wrong = (at for where, at, _ in other if where == place)
            yield from (_Fault(place, at + 1, "", printed[at]) for at in wrong if (place, at) not in alike)

    def _alike(
        self, found: Held, again: Held, other: Sequence[tuple[Place, int, int]], namespace: Namespace
    ) -> set[tuple[Place, int]]:
        """Of the *other* rules those that nft prints alike: tests in another order, or no counter.

        nft does not print what is asked of xtables, so rules that ask it anything are not alike.
        """
        if self.backend is not Backend.NFT:
            return set()
        tables = {place[0] for place, _, _ in other}
        here, there = _native(tables, self.family), namespace.call(_native, tables, self.family)
        alike = set()
        for place, at, nth in other:
            one, two = found.chains[place], again.chains[place]
            both = one.rules[at] + two.rules[nth]
            said, printed = here.get((place[0], one.handles[at])), there.get((place[0], two.handles[nth]))
            if b"match" in both or b"target" in both or said is None or printed is None:
                continue
            if _uncounted(said) == _uncounted(printed):
                alike.add((place, at))
        return alike

    def _unloadable(self, text: str, error: LiveError) -> _Fault:
        """What is printed cannot be loaded, so it cannot be compared."""
        number = re.search(r"\bline:? (\d+)", str(error))
        line, table = "", ""
        if number:
            lines = text.splitlines()[: int(number[1])]
            line = lines[-1] if lines else ""
            table = next((each[1:] for each in reversed(lines) if each.startswith("*")), "")
        found = _RULE.match(line)
        place = table, unquote(found[2]) if found else ""
        return _Fault(place, 0, f"{_UNLOADABLE}: {error}", line if found else "")

    def _refused(self, said: _Said, found: Held, failed: str) -> tuple[list[_Fault], list[Place]]:
        """What the tool could not read: named by the kernel, or what comes behind that it printed."""
        if self.backend is Backend.NFT:
            known = [_Fault(*each) for each in contents_nft.culprits(self.family)]
            if known:
                return known, []
            tables = re.findall(r"Table `(\w+)' is incompatible", failed)
            if tables:
                return [_Fault((table, ""), 0, f"see `nft list table {table}`") for table in tables], []
            for place, chain in found.chains.items():
                printed = said.chains.get(place, ("", ()))[1]
                if len(printed) < len(chain.rules):
                    return [_Fault(place, len(printed) + 1, f"{self.tool}-save ends here")], []
        raise LiveError(f"{self.tool}-save: {failed}")

    def _told(self, faults: Sequence[_Fault], failed: str) -> str:
        tables = {fault.place[0] for fault in faults} - {""}
        native = _native(tables, self.family) if self.backend is Backend.NFT else {}
        found = self._held()
        said = [f"{self.tool}-save does not print what the kernel holds" + (f" ({failed})" if failed else "")]
        for fault in faults[:_SHOWN]:
            (table, chain), number = fault.place, fault.number
            parts = [f"table {table}"] * bool(table) + [f"chain {chain}"] * bool(chain)
            where = ", ".join([*parts, *([f"rule {number}"] if number else [])])
            held = found.chains.get(fault.place)
            rule = ""
            if number and held is not None and number <= len(held.handles):
                rule = native.get((table, held.handles[number - 1]), "")
                rule = rule if len(rule) <= _WIDTH else rule[: _WIDTH - 1] + "…"
            shown = [rule, f"({fault.why})" if rule and fault.why else fault.why]
            what = " ".join(each for each in shown if each) or "the kernel holds another rule"
            said.append(f"  {where}: {what}" if where else f"  {what}")
            if fault.printed:
                said.append(f"    it prints: {fault.printed.strip()}")
        if len(faults) > _SHOWN:
            said.append(f"  … and {len(faults) - _SHOWN} more")
        chains = [] if failed else sorted({fault.place[1] for fault in faults if fault.place[1]})
        leave = f", or let sflgen leave the chain to others (--leave {chains[0]})" if chains else ""
        if self.backend is Backend.NFT and not any(fault.why.startswith(_UNLOADABLE) for fault in faults):
            said.append(f"Write it with iptables, or move it into a table of another name{leave}")
        else:
            said.append(f"Write it so that what is printed of it can be loaded in its place{leave}")
        return "\n".join(said)


def backend_of(tool: str) -> Backend:
    """Of which backend *tool* is, by its own word; LiveError where it cannot be run."""
    try:
        done = subprocess.run([tool, "--version"], capture_output=True, text=True, check=False)
    except FileNotFoundError as error:
        raise LiveError(f"{tool}: no such command; install it, or put it on the PATH") from error
    except OSError as error:
        raise LiveError(f"{tool}: {error.strerror}") from error
    return Backend.NFT if "nf_tables" in done.stdout else Backend.LEGACY


def also_present(family: Family, backend: Backend) -> str:
    """A warning that names the tables of the backend that is not read, where the namespace of the caller has
    any; else "".  Asking makes no table."""
    other = "iptables-legacy" if backend is Backend.NFT else "nf_tables"
    try:
        asked = contents_legacy if backend is Backend.NFT else contents_nft
        tables = asked.tables_present(family)
    except LiveError as error:
        cause = error.__cause__
        if isinstance(cause, OSError) and cause.errno in _NO_SUCH_PART:
            return ""
        return f"warning: whether packets pass tables of {other} too cannot be found out: {error}"
    if not tables:
        return ""
    named = ", ".join(name if busy else f"{name} (empty)" for name, busy in tables)
    return f"warning: packets pass tables of {other} too, which are not read: {named}"


def _held(backend: Backend, family: Family) -> Held:
    return contents_nft.held(family) if backend is Backend.NFT else contents_legacy.held(family)


def _load_and_hold(command: Sequence[str], text: str, backend: Backend, family: Family) -> Held:
    run(command, text)
    return _held(backend, family)


def _head(found: Held, place: Place) -> bytes:
    return found.chains[place].head if place in found.chains else b"missing"


def _native(tables: set[str], family: Family) -> dict[tuple[str, int], str]:
    """The rules of *tables* as nft prints them, by handle; nothing where there is no nft."""
    kind = "ip" if family is Family.IPV4 else "ip6"
    found: dict[tuple[str, int], str] = {}
    for table in sorted(tables):
        command = ["nft", "-s", "-a", "list", "table", kind, table]
        try:
            done = subprocess.run(command, capture_output=True, check=False)
        except OSError:
            return {}
        begun: list[str] = []
        for line in done.stdout.decode("utf-8", "replace").splitlines():
            rule = re.fullmatch(r"\s*(.*[^{]) # handle (\d+)", line)
            if rule:
                found[table, int(rule[2])] = " ".join([*begun, rule[1]])
            # An anonymous set goes over several lines.
            begun = [*begun, line.strip()] if line.rstrip().endswith(",") else []
    return found


def _uncounted(native: str) -> str:
    """The rule without the word counter where it is not in quotes."""
    words = re.findall(r'"[^"]*"|[^\s"]+', native)
    return " ".join(word for word in words if word != "counter")


def _is_idle(chain: HeldChain | None) -> bool:
    """Whether it is a base chain without rules that accepts, which iptables makes where it is missing."""
    return chain is not None and not chain.rules and chain.head[8:12] == _HOOKED


def _said(text: str) -> _Said:
    policies: dict[Place, str] = {}
    rules: dict[Place, list[str]] = {}
    tables: list[str] = []
    for line in text.splitlines(keepends=True):
        if line.startswith("*"):
            tables.append(line[1:].strip())
        elif line.startswith(":"):
            head = _HEAD.match(line)
            if head and tables:
                policies[tables[-1], unquote(head[1])] = head[2]
        elif tables:
            rule = _RULE.match(line)
            if rule:
                rules.setdefault((tables[-1], unquote(rule[2])), []).append(rule[1])
    chains = {place: (policy, tuple(rules.get(place, ()))) for place, policy in policies.items()}
    return _Said(chains, tuple(tables))


def _text(said: _Said, rules: Mapping[Place, Sequence[str]]) -> str:
    """The tables with these rules only.  A table with rate estimators comes first: others ask for them."""
    parts: list[tuple[bool, str]] = []
    for table in said.tables:
        chains = [(name, policy) for (at, name), (policy, _) in said.chains.items() if at == table]
        heads = "".join(f":{name} {policy} [0:0]\n" for name, policy in chains)
        lines = "".join(line for (at, _), lines in rules.items() if at == table for line in lines)
        parts.append(("-j RATEEST" not in lines, f"*{table}\n{heads}{lines}COMMIT\n"))
    return "".join(part for _, part in sorted(parts, key=lambda part: part[0]))


def _renamed(
    lines: Mapping[Place, Sequence[str]], fresh: Mapping[Place, Sequence[int]]
) -> tuple[dict[Place, list[str]], dict[tuple[Place, int], Callable[[bytes], bytes]]]:
    """*lines* with other labels of idle timers, and what renames them in the bytes of a rule.

    Timers are one for the machine: a rule with a label that is there would begin that timer anew.
    """
    renamed = {place: list(rules) for place, rules in lines.items()}
    timers: dict[tuple[Place, int], Callable[[bytes], bytes]] = {}
    for place, rules in renamed.items():
        for nth, line in enumerate(rules):
            label = re.search(r"-j IDLETIMER .*--label (\S+)", line)
            if label is None:
                continue
            other = f"hitables{os.getpid()}.{len(timers)}"
            rules[nth] = line[: label.start(1)] + other + line[label.end(1) :]
            old, new = (name.encode("utf-8", "surrogateescape") for name in (unquote(label[1]), other))
            timers[place, fresh[place][nth]] = partial(_relabelled, old, new)
    return renamed, timers


def _relabelled(old: bytes, new: bytes, rule: bytes) -> bytes:
    return rule.replace(old.ljust(_LABEL, b"\0"), new.ljust(_LABEL, b"\0"))


def _same(rule: bytes) -> bytes:
    return rule


def _without(text: str, left_out: Sequence[Place]) -> str:
    """*text* without the rules of some chains."""
    if not left_out:
        return text
    kept, table = [], ""
    for line in text.splitlines(keepends=True):
        if line.startswith("*"):
            table = line[1:].strip()
        rule = _RULE.match(line)
        if not rule or (table, unquote(rule[2])) not in left_out:
            kept.append(line)
    return "".join(kept)
