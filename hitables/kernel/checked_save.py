"""The rules of a kernel as iptables-save text, checked against the kernel.

iptables-nft-save 1.8.9 prints the native rule `tcp dport { 22, 80 } accept` as `-p tcp -j ACCEPT`, with
exit status 0.  So the output of a tool is loaded into a scratch namespace, and the contents of the kernel
there are compared with its contents here, rule by rule and byte by byte (contents.py).

Invariant: a text that `KernelReader.read` returns yields, when loaded, exactly the rules that the kernel had
at one moment of the call (in legacy: each table at a moment of its own), except for chains that are left out.
So a change between printing and comparing is harmless: it looks like a difference, and the reader starts
again.  A difference is reported when it is there twice, and nothing changed between printing and comparing
the second time: in nft the kernel counts its commits, and in legacy the reader holds the lock then.  A rule,
or a chain, that others take away and put back at the same moment of both readings is none.
"""

from __future__ import annotations

import errno
import re
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from typing import Self

from ..errors import LiveError
from ..ir.fields import Family
from ..ir.foreign import preset_of
from ..ir.packet import Backend
from ..parse.lines import of_unknown_revision, unquote
from ..rule_lines import lines_of, with_ends
from . import contents_legacy, contents_nft
from .contents import ChainContents, ChainId, Contents
from .legacy_lock import legacy_lock
from .namespace import Namespace, run, start_error
from .netlink import Netfilter
from .prerequisites import furnish
from .printed import RULE, Printed, parse_printed, text_of, unchanged, with_other_timers, without_rules
from .retries import retries

_CUT_TIMEOUT = re.compile(r"-j CT .*--timeout \S{4}(?!\S)")
_SHOWN = 10  # differences in a message
_UNKNOWN_REVISION = "iptables-save does not know this revision"
_WRITES_PAYLOAD = "it changes packets that go on"
_UNLOADABLE = "the output cannot be loaded"
_WIDTH = 200  # characters of a native rule in a message
# The errors of a kernel that was built without nf_tables.
_NO_SUCH_PART = (errno.EINVAL, errno.EOPNOTSUPP, errno.EPROTONOSUPPORT)
_HOOKED = b"\0\0\0\x01"  # policy ACCEPT in the head of a base chain of nft


class Misread(LiveError):
    """The tools do not print the rules of the kernel; the message names chains and rules."""


@dataclass(frozen=True, slots=True)
class Reading:
    """*text*: the output of iptables-save, without comment lines and without the rules of the chains
    *left_out*.

    Others manage these chains, and the tools do not print their rules correctly.
    """

    text: str
    left_out: tuple[ChainId, ...] = ()


class _Loading:
    """A scratch namespace into which rules of the output, *rows* of each chain, are being loaded.

    timers  by rule: a function from its bytes here to its bytes there, where its idle timer has another label
    """

    def __init__(self, reader: KernelReader, output: Printed, rows: Mapping[ChainId, Sequence[int]]) -> None:
        self.reader = reader
        lines = {
            chain_id: [printed[at] for at in rows.get(chain_id, ())]
            for chain_id, (_, printed) in output.chains.items()
        }
        renamed, self.timers = with_other_timers(lines, rows)
        self.text = text_of(output, renamed)
        self.namespace = Namespace()

    def __enter__(self) -> Self:
        self.namespace.__enter__()
        try:
            furnish(self.namespace, self.text)
            command = (f"{self.reader.tool}-restore",)
            self.namespace.begin(_load_and_read, command, self.text, self.reader.backend, self.reader.family)
        except BaseException:
            self.namespace.close()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        self.namespace.close()

    def finish(self) -> Contents:
        """The contents of the kernel there; LiveError if the tool refused the text."""
        contents: Contents = self.namespace.finish()
        return contents


@dataclass(frozen=True, slots=True)
class _Fault:
    """A chain, or its rule *number* (from 1; 0: the chain itself), that differs from the *printed* one."""

    chain_id: ChainId
    number: int
    why: str
    printed: str = ""


@dataclass(slots=True)
class KernelReader:
    """Reads the network namespace of the caller with the tools of one backend.

    *tool*: iptables, iptables-nft, ip6tables-legacy and so on.  *is_left*: the chains that others manage,
    whose rules need not be readable.  A reader compares each rule once, so reading again is faster.
    """

    family: Family
    tool: str = ""
    is_left: Callable[[str], bool] = lambda name: False
    _backend: Backend | None = None
    # Rules that were equal, with their printed lines; heads of chains, with their printed policies.
    _equal_rules: dict[tuple[ChainId, bytes], str] = field(default_factory=dict)
    _equal_heads: dict[ChainId, tuple[str, bytes]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.tool = self.tool or self.family.tool

    @property
    def backend(self) -> Backend:
        """The backend of the tool, from its name or from its --version."""
        if self._backend is None:
            named = self.tool.rpartition("-")[2]
            known = [each for each in Backend if each.value == named]
            self._backend = known[0] if known else backend_of(f"{self.tool}-save")
        return self._backend

    def read(self, counters: bool = False) -> Reading:
        """The rules of the kernel; Misread if the tools do not print them.

        Counters of rules are printed if *counters*, those of policies always.
        """
        before: object = None
        for _ in retries():
            self._awake()
            with ExitStack() as stack:
                with legacy_lock(before is not None and self.backend is Backend.LEGACY):
                    commits = self._commits()
                    text, failed = self._saved(counters)
                    output = parse_printed(text)
                    # The first time, the namespace loads everything while we read the kernel; later only new
                    # rules, after the lock, which the tool takes there too.
                    loading = None
                    if before is None and not failed and not self._equal_rules and output.tables:
                        loading = stack.enter_context(_Loading(self, output, output.all_rules()))
                    try:
                        kernel = self._read_contents()
                    except LiveError as error:
                        raise LiveError(f"{self.tool}-save: {failed}" if failed else str(error)) from error
                    is_one_moment = self._commits() == commits
                if failed:
                    faults, left_out = self._refused(output, kernel, failed)
                else:
                    faults, left_out = self._compared(output, kernel, loading)
            if not faults:
                return Reading(without_rules(text, left_out), tuple(left_out))
            now = output, kernel, failed
            if before == now and is_one_moment:
                raise Misread(self._message(faults, failed))
            before = now  # the rules may have changed in between
        raise LiveError(f"the rules are changed faster than {self.tool}-save can be compared with the kernel")

    def _commits(self) -> int:
        """The number of commits to nf_tables."""
        if self.backend is not Backend.NFT:
            return 0
        with closing(Netfilter()) as netfilter:
            return netfilter.generation()

    def _awake(self) -> None:
        """Misread if a table has flags of nft.

        Called before a tool runs: iptables-nft-save creates missing base chains, which wakes a dormant table.
        """
        flags = contents_nft.table_flags(self.family) if self.backend is Backend.NFT else {}
        faults = [
            _Fault((table, ""), 0, "the table has flags, which iptables does not know: " + " ".join(names))
            for table, names in flags.items()
            if names
        ]
        if faults:
            raise Misread(self._message(faults, ""))

    def _saved(self, counters: bool) -> tuple[str, str]:
        """The output of the tool without comments, and the reason if it is incomplete."""
        command = [f"{self.tool}-save", *(["-c"] if counters else [])]
        try:
            with legacy_lock(counters and self.backend is Backend.LEGACY):
                process = subprocess.run(command, capture_output=True, check=False, start_new_session=True)
        except OSError as error:
            raise start_error(command[0], error) from error
        lines = with_ends(process.stdout.decode("utf-8", "surrogateescape"))
        failed = [line.strip("# \n") for line in lines if line.startswith("#") and "incompatible" in line]
        if process.returncode:
            complaint = process.stderr.decode("utf-8", "replace").strip().splitlines()
            failed = [f"exit status {process.returncode}: {'; '.join(complaint) or 'no message'}"]
        return "".join(line for line in lines if not line.startswith("#")), "\n".join(failed)

    def _read_contents(self) -> Contents:
        return _read_contents(self.backend, self.family)

    def _compared(
        self, output: Printed, kernel: Contents, loading: _Loading | None
    ) -> tuple[list[_Fault], list[ChainId]]:
        """The differences between the output and the kernel, and the chains of others that have any."""
        faults = [
            _Fault(chain_id, 0, f"{self.tool}-save does not print it")
            for chain_id in kernel.chains
            if chain_id not in output.chains
        ]
        if self.backend is Backend.NFT:
            faults += [
                _Fault(chain_id, number, "the kernel returns only four letters of the timeout", line)
                for chain_id, (_, lines) in output.chains.items()
                for number, line in enumerate(lines, 1)
                if _CUT_TIMEOUT.search(line)
            ]
        unknown = [
            _Fault(chain_id, number, f"{_UNKNOWN_REVISION} of {name}", line)
            for chain_id, (_, lines) in output.chains.items()
            for number, line in enumerate(lines, 1)
            if (name := of_unknown_revision(line))
        ]
        if not all(self.is_left(fault.chain_id[1]) for fault in unknown):
            return [*faults, *unknown], []  # the text cannot be loaded
        fresh: dict[ChainId, list[int]] = {}
        for chain_id, (_, lines) in output.chains.items():
            rules = kernel.chains[chain_id].rules if chain_id in kernel.chains else ()
            if len(lines) == len(rules):
                pairs = enumerate(zip(rules, lines, strict=True))
                fresh[chain_id] = [
                    at for at, (rule, line) in pairs if self._equal_rules.get((chain_id, rule)) != line
                ]
            else:
                faults.append(_Fault(chain_id, 0, f"{len(rules)} rules, of which {len(lines)} are printed"))
        heads = {
            chain_id: (policy, _head(kernel, chain_id)) for chain_id, (policy, _) in output.chains.items()
        }
        if loading is not None:
            faults += self._differing(output, kernel, fresh, loading)
        elif any(fresh.values()) or heads != self._equal_heads:
            with _Loading(self, output, fresh) as loading:
                faults += self._differing(output, kernel, fresh, loading)
        named = (fault.chain_id for fault in faults if fault.chain_id[1])
        left_out = list(dict.fromkeys(chain_id for chain_id in named if self.is_left(chain_id[1])))
        faults = [fault for fault in faults if fault.chain_id not in left_out]
        faults += [
            _Fault(chain_id, number, _WRITES_PAYLOAD)
            for chain_id in left_out
            if self.backend is Backend.NFT and chain_id[0] in ("filter", "nat") and chain_id in kernel.chains
            for number, rule in enumerate(kernel.chains[chain_id].rules, 1)
            if contents_nft.writes_payload(rule)
        ]
        if not faults:
            self._equal_heads = {} if left_out else heads
            self._equal_rules = {
                (chain_id, rule): line
                for chain_id, chain in kernel.chains.items()
                if chain_id not in left_out
                for rule, line in zip(chain.rules, output.chains[chain_id][1], strict=True)
            }
        else:  # the new rules alone may lack something to which they refer
            self._equal_heads, self._equal_rules = {}, {}
        return faults, left_out

    def _differing(
        self, output: Printed, kernel: Contents, fresh: Mapping[ChainId, Sequence[int]], loading: _Loading
    ) -> Iterator[_Fault]:
        """The differences between *kernel* and the output loaded again; of the rules, the *fresh* ones."""
        try:
            reloaded = loading.finish()
        except LiveError as error:
            left = {chain_id for chain_id in fresh if self.is_left(chain_id[1]) and fresh[chain_id]}
            if not left:
                yield self._unloadable(loading.text, error)
                return
            # Rules of others need not be loadable.
            yield from (_Fault(chain_id, 0, "not loaded") for chain_id in left)
            fresh = {chain_id: () if chain_id in left else rows for chain_id, rows in fresh.items()}
            with _Loading(self, output, fresh) as without:
                yield from self._differing(output, kernel, fresh, without)
            return
        different = [
            (chain_id, at, nth)
            for chain_id, rows in fresh.items()
            if chain_id in reloaded.chains and chain_id in kernel.chains
            for nth, (at, rule) in enumerate(zip(rows, reloaded.chains[chain_id].rules, strict=False))
            if loading.timers.get((chain_id, at), unchanged)(kernel.chains[chain_id].rules[at]) != rule
        ]
        equal = self._equal_in_nft(kernel, reloaded, different, loading.namespace) if different else set()
        for chain_id, (_, printed) in output.chains.items():
            kernel_chain, loaded_chain = kernel.chains.get(chain_id), reloaded.chains.get(chain_id)
            if kernel_chain is None or loaded_chain is None:
                if kernel_chain is not loaded_chain and not _is_idle(kernel_chain or loaded_chain):
                    yield _Fault(chain_id, 0, "the chain is missing when the output is loaded again")
                continue
            if kernel_chain.head != loaded_chain.head:
                yield _Fault(chain_id, 0, "hook, priority, type or policy differ from those of iptables")
            if chain_id not in fresh:
                continue  # the kernel has more rules than are printed, or fewer
            rows = fresh[chain_id]
            if len(loaded_chain.rules) != len(rows):
                yield _Fault(
                    chain_id, 0, f"of {len(rows)} printed rules {len(loaded_chain.rules)} are loaded"
                )
                continue
            wrong = (at for where, at, _ in different if where == chain_id)
            yield from (
                _Fault(chain_id, at + 1, "", printed[at]) for at in wrong if (chain_id, at) not in equal
            )

    def _equal_in_nft(
        self,
        kernel: Contents,
        reloaded: Contents,
        different: Sequence[tuple[ChainId, int, int]],
        namespace: Namespace,
    ) -> set[tuple[ChainId, int]]:
        """The *different* rules that nft prints equally: tests in another order, or no counter.

        nft does not print the arguments of xtables extensions, so rules that use one are not equal.
        """
        if self.backend is not Backend.NFT:
            return set()
        tables = {chain_id[0] for chain_id, _, _ in different}
        here, there = native_rules(tables, self.family), namespace.call(native_rules, tables, self.family)
        equal = set()
        for chain_id, at, nth in different:
            one, two = kernel.chains[chain_id], reloaded.chains[chain_id]
            both = one.rules[at] + two.rules[nth]
            one_text, other_text = (
                here.get((chain_id[0], one.handles[at])),
                there.get((chain_id[0], two.handles[nth])),
            )
            if b"match" in both or b"target" in both or one_text is None or other_text is None:
                continue
            if without_counter(one_text) == without_counter(other_text):
                equal.add((chain_id, at))
        return equal

    def _unloadable(self, text: str, error: LiveError) -> _Fault:
        """The output cannot be loaded, so it cannot be compared."""
        number = re.search(r"\bline:? (\d+)", str(error))
        line, table = "", ""
        if number:
            lines = lines_of(text)[: int(number[1])]
            line = lines[-1] if lines else ""
            table = next((each[1:] for each in reversed(lines) if each.startswith("*")), "")
        named = RULE.match(line)
        chain_id = table, unquote(named[2]) if named else ""
        return _Fault(chain_id, 0, f"{_UNLOADABLE}: {error}", line if named else "")

    def _refused(self, output: Printed, kernel: Contents, failed: str) -> tuple[list[_Fault], list[ChainId]]:
        """The rules that the tool cannot read: named by the kernel, or those after the last printed rule."""
        if self.backend is Backend.NFT:
            known = [_Fault(*each) for each in contents_nft.culprits(self.family)]
            if known:
                return known, []
            tables = re.findall(r"Table `(\w+)' is incompatible", failed)
            if tables:
                return [_Fault((table, ""), 0, f"see `nft list table {table}`") for table in tables], []
            for chain_id, chain in kernel.chains.items():
                printed = output.chains.get(chain_id, ("", ()))[1]
                if len(printed) < len(chain.rules):
                    return [_Fault(chain_id, len(printed) + 1, f"{self.tool}-save ends here")], []
        raise LiveError(f"{self.tool}-save: {failed}")

    def _has_protocol_all(self, rule: bytes) -> bool:
        return self.backend is Backend.LEGACY and contents_legacy.asks_for_protocol_all(rule, self.family)

    def _message(self, faults: Sequence[_Fault], failed: str) -> str:
        tables = {fault.chain_id[0] for fault in faults} - {""}
        native = native_rules(tables, self.family) if self.backend is Backend.NFT else {}
        kernel = self._read_contents()
        message = [
            f"{self.tool}-save does not print the rules of the kernel" + (f" ({failed})" if failed else "")
        ]
        for fault in faults[:_SHOWN]:
            (table, chain), number = fault.chain_id, fault.number
            parts = [f"table {table}"] * bool(table) + [f"chain {chain}"] * bool(chain)
            where = ", ".join([*parts, *([f"rule {number}"] if number else [])])
            present = kernel.chains.get(fault.chain_id)
            rules = present.rules if present is not None else ()
            rule = ""
            if number and present is not None and number <= len(present.handles):
                rule = native.get((table, present.handles[number - 1]), "")
                rule = rule if len(rule) <= _WIDTH else rule[: _WIDTH - 1] + "…"
            shown = [rule, f"({fault.why})" if rule and fault.why else fault.why]
            what = " ".join(each for each in shown if each) or "the kernel has another rule"
            if 0 < number <= len(rules) and self._has_protocol_all(rules[number - 1]):
                what += "; it has `-p all`, which the tool does not print: delete it, and load it without"
            message.append(f"  {where}: {what}" if where else f"  {what}")
            if fault.printed:
                message.append(f"    it prints: {fault.printed.strip()}")
        if len(faults) > _SHOWN:
            message.append(f"  … and {len(faults) - _SHOWN} more")
        chains = [] if failed else sorted({fault.chain_id[1] for fault in faults if fault.chain_id[1]})
        commands = "of hitables save, sflgen init, and hitables apply FILE, which tells status"
        leave = ""
        if chains:
            words = f"--leave {preset_of(chains[0])} {commands}"
            leave = f", or leave the chain to the program that manages it ({words})"
        if any(fault.why == _WRITES_PAYLOAD for fault in faults):
            message.append(
                "No rule of iptables does so in tables filter and nat, so no chain can be left that has one: "
                "move it into a table of another name"
            )
        elif any(fault.why.startswith(_UNKNOWN_REVISION) for fault in faults):
            message.append(
                "Another version of iptables, or a program with one of its own, loaded it. Load it with the "
                f"iptables of this host{leave}"
            )
        elif self.backend is Backend.NFT and not any(fault.why.startswith(_UNLOADABLE) for fault in faults):
            message.append(f"Write it with iptables, or move it into a table of another name{leave}")
        else:
            message.append(f"Write it so that its output can be loaded in its place{leave}")
        return "\n".join(message)


def backend_of(tool: str) -> Backend:
    """The backend of *tool*, from its --version; LiveError if it cannot be run."""
    try:
        result = subprocess.run([tool, "--version"], capture_output=True, text=True, check=False)
    except OSError as error:
        raise start_error(tool, error) from error
    return Backend.NFT if "nf_tables" in result.stdout else Backend.LEGACY


def also_present(family: Family, backend: Backend) -> str:
    """A warning that names the tables of the other backend, which are not read; "" if there are none.

    Looking creates no table.
    """
    other = "iptables-legacy" if backend is Backend.NFT else "nf_tables"
    try:
        tables = tables_present(family, Backend.LEGACY if backend is Backend.NFT else Backend.NFT)
    except LiveError as error:
        return f"warning: cannot find out whether packets pass tables of {other}, too: {error}"
    if not tables:
        return ""
    named = ", ".join(name if busy else f"{name} (empty)" for name, busy in tables)
    return f"warning: packets pass tables of {other}, too, which are not read: {named}"


def tables_present(family: Family, backend: Backend) -> list[tuple[str, bool]]:
    """The tables of *backend*, and whether each may affect a packet; none where the kernel lacks this part.

    Looking creates no table.
    """
    try:
        if backend is Backend.NFT:
            return contents_nft.tables_present(family)
        return contents_legacy.tables_present(family)
    except LiveError as error:
        cause = error.__cause__
        if isinstance(cause, OSError) and cause.errno in _NO_SUCH_PART:
            return []
        raise


def _read_contents(backend: Backend, family: Family) -> Contents:
    return (
        contents_nft.read_contents(family)
        if backend is Backend.NFT
        else contents_legacy.read_contents(family)
    )


def _load_and_read(command: Sequence[str], text: str, backend: Backend, family: Family) -> Contents:
    run(command, text)
    return _read_contents(backend, family)


def _head(kernel: Contents, chain_id: ChainId) -> bytes:
    return kernel.chains[chain_id].head if chain_id in kernel.chains else b"missing"


def native_rules(tables: set[str], family: Family) -> dict[tuple[str, int], str]:
    """The rules of *tables* as nft prints them, by handle; empty if there is no nft."""
    kind = "ip" if family is Family.IPV4 else "ip6"
    native: dict[tuple[str, int], str] = {}
    for table in sorted(tables):
        command = ["nft", "-s", "-a", "list", "table", kind, table]
        try:
            result = subprocess.run(command, capture_output=True, check=False)
        except OSError:
            return {}
        begun: list[str] = []
        for line in lines_of(result.stdout.decode("utf-8", "replace")):
            rule = re.fullmatch(r"\s*(.*[^{]) # handle (\d+)", line)
            if rule:
                native[table, int(rule[2])] = " ".join([*begun, rule[1]])
            # An anonymous set continues on several lines.
            begun = [*begun, line.strip()] if line.rstrip().endswith(",") else []
    return native


def without_counter(native: str) -> str:
    """The rule without the word counter, except in quotes."""
    words = re.findall(r'"[^"]*"|[^\s"]+', native)
    return " ".join(word for word in words if word != "counter")


def _is_idle(chain: ChainContents | None) -> bool:
    """Whether it is an empty base chain that accepts, which iptables creates if it is missing."""
    return chain is not None and not chain.rules and chain.head[8:12] == _HOOKED
