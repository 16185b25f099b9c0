"""The running kernel: what it holds, held against what the state says, and patches taken to it.

Nothing is overwritten: a patch is loaded only where the kernel holds what the patch was made for.
"""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Callable, Iterable, Iterator, Set
from dataclasses import replace
from functools import cached_property

from hitables.errors import HitablesError, LiveError
from hitables.ir.fields import Family
from hitables.ir.packet import Backend
from hitables.ir.program import Chain, Program, Table
from hitables.live.namespace import Namespace, run
from hitables.live.tables import load as load_into
from hitables.live.tables import save as save_from
from hitables.parse import iptables

from .base import Names, Place, Settings
from .counters import counted_text, takes_away
from .patch import Plan
from .policies import with_policy_counters
from .state import State
from .store import Store
from .updates import empty_table, rule_key, sync
from .updates import text as text_of

_TOOL = {Family.IPV4: "iptables", Family.IPV6: "ip6tables"}


class Drift(LiveError):
    """The kernel does not hold what the state says."""


class Kernel:
    """The tables of the network namespace that we run in, by the tools of one backend."""

    def __init__(self, family: Family, settings: Settings) -> None:
        self.family, self.settings = family, settings
        self.tool = _TOOL[family] + {"any": "", "legacy": "-legacy", "nft": "-nft"}[settings.backend]

    @cached_property
    def resets_policies(self) -> bool:
        """Whether the tools are those that set the counters of policies to zero."""
        if self.settings.backend == "any":
            return "nf_tables" not in run([self.tool, "--version"])
        return self.settings.backend == "legacy"

    def held(self) -> Program:
        """What the kernel holds."""
        return self.read(line for line in self.saved() if not line.startswith("#"))

    def counted(self, places: Set[Place]) -> Program:
        """The chains of *places* with their counters as they are now; nothing where all of them are zero."""
        kept, table, counts = [], "", False
        for line in self.saved("-c"):
            if line.startswith("["):
                count, _, chain, *_ = line.split(" ", 3)
                if (table, chain) not in places:
                    continue
                counts |= count != "[0:0]"
            elif line.startswith("*"):
                table = line[1:].strip()
            if not line.startswith("#"):
                kept.append(line)
        return self.read(kept if counts else [])

    def saved(self, *options: str) -> list[str]:
        return run([f"{self.tool}-save", *options]).splitlines(keepends=True)

    def read(self, lines: Iterable[str]) -> Program:
        said = "".join(lines)
        if not said:
            return Program(self.family, (), "the kernel")
        return iptables.read(said, family=self.family, name="the kernel")

    def load(self, patch: str, store: Store) -> None:
        """Take a patch to the kernel; LiveError with the tool's words when it is refused.

        The tool holds the lock of *store* too: if we are killed, nobody looks at the kernel
        before it is done.
        """
        if not patch:
            return
        if self.resets_policies:
            patch = with_policy_counters(patch, self.family)
        command = [f"{self.tool}-restore", "--noflush", "--counters"]
        command += ["-w"] if self.settings.backend == "legacy" else []
        with tempfile.TemporaryFile() as file:
            file.write(patch.encode("utf-8", "surrogateescape"))
            file.seek(0)
            try:
                tool = subprocess.Popen(
                    command, stdin=file, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                    pass_fds=store.handles(),
                )  # fmt: skip
            except FileNotFoundError as error:
                raise LiveError(
                    f"{command[0]}: no such command; install it, or put it on the PATH"
                ) from error
            with tool:
                trouble: HitablesError | None = None
                try:
                    store.flush()
                except HitablesError as error:
                    trouble = error
                said = tool.communicate()[0].decode("utf-8", "replace").strip()
        if tool.returncode:
            raise LiveError(f"{' '.join(command)}: exit status {tool.returncode}: {said or 'no message'}")
        if trouble is not None:
            raise LiveError(str(trouble))

    def drift(self, state: State) -> list[str]:
        """Where the kernel holds something else than *state* says; nothing where all is well."""
        held = self.held()
        found = list(_differences(state, state.loaded, held))
        if found and self.settings.backend != "any":
            # A rule may be spelt otherwise by the kernel than by whoever inserted it.
            found = list(_differences(state, self.as_kept(state.loaded), held))
        return found

    def as_kept(self, program: Program) -> Program:
        """*program* in the words of the kernel, which is asked in a namespace of its own."""
        from hitables.emit.text import write

        backend = Backend(self.settings.backend)
        with Namespace() as namespace:
            load_into(write(program), self.family, backend, namespace)
            kept = save_from(self.family, backend, namespace)
        return iptables.read(kept, family=self.family, name="loaded")

    def check(self, state: State) -> None:
        """Drift unless the kernel holds what *state* says."""
        found = self.drift(state)
        if found:
            shown = "\n".join(f"  {each}" for each in found[:10])
            more = f"\n  … and {len(found) - 10} more" if len(found) > 10 else ""
            raise Drift(
                "the kernel does not hold what the state says; nothing is overwritten\n" + shown + more
                + "\nMake the kernel so again, or begin a new state from what it holds (sflgen init --live)"
            )  # fmt: skip

    def restore(self, before: State, after: State, store: Store) -> None:
        """Bring the kernel back to *before* if only some tables of a patch were loaded."""
        if not self.drift(before):
            return
        ours = {
            chain.name for state in (before, after) for table in state.loaded for chain in table.chains
            if not before.settings.is_left(chain.name)
        }  # fmt: skip
        tables = {table.name for table in before.loaded}
        held = self.held()
        held = replace(held, tables=tuple(table for table in held if table.name in tables))
        self.load(text_of(sync(held, before.loaded, keep=lambda name: name not in ours)), store)


def committed(store: Store, kernel: Kernel) -> None:
    """Find out what became of a commit that a crash cut off, and bring it to its end.

    The kernel has it: settled.  It has what was before: the patch is loaded now.  Else: Drift.
    """
    before = store.unsettled
    if before is None:
        return
    if not kernel.drift(store.state):
        store.settle()
        return
    kernel.check(before)
    after = store.state
    try:
        _load(kernel, store, before, after, text_of(sync(before.loaded, after.loaded)))
    except LiveError:
        store.undo()
        raise
    store.settle()


def loader(kernel: Kernel, store: Store, plan: Plan) -> Callable[[str], None]:
    """What takes a plan's patch to the kernel, all of it or nothing; counters are carried over."""

    def load(patch: str) -> None:
        if takes_away(plan):
            patch = counted_text(plan, kernel.counted({(edit.table, edit.chain) for edit in plan.edits}))
        _load(kernel, store, plan.before, plan.after, patch)

    return load


def _load(kernel: Kernel, store: Store, before: State, after: State, patch: str) -> None:
    known = {table.name for table in before.loaded}
    fresh = [empty_table(table.name) for table in after.loaded if table.name not in known]
    if fresh:  # of these the kernel may have rules that the state never heard of
        before = replace(before, loaded=replace(before.loaded, tables=(*before.loaded.tables, *fresh)))
        kernel.check(before)
    try:
        kernel.load(patch, store)
    except LiveError as error:
        kernel.restore(before, after, store)
        raise LiveError(f"the kernel refuses the patch; nothing is changed\n{error}") from None


def _differences(state: State, wanted: Program, held: Program) -> Iterator[str]:
    settings = state.settings
    for table in wanted:
        there = next((each for each in held if each.name == table.name), empty_table(table.name))
        yield from _table_differences(table, there, settings)
    for there in held:
        names = Names(settings.prefix, ())
        for chain in there.chains:
            known = any(table.name == there.name and chain.name in table for table in wanted)
            if names.is_made(chain.name) and not known:
                yield f"table {there.name}: chain {chain.name}, which has a name of ours, is not in the state"


def _table_differences(wanted: Table, held: Table, settings: Settings) -> Iterator[str]:
    for chain in wanted.chains:
        if settings.is_left(chain.name):
            continue
        place = f"table {wanted.name}, chain {chain.name}"
        if chain.name not in held:
            yield f"{place}: the kernel does not have it"
            continue
        there = held[chain.name]
        if chain.policy is not None and chain.policy != there.policy:
            yield f"{place}: policy {there.policy}, the state says {chain.policy}"
        yield from _rule_differences(place, chain, there)


def _rule_differences(place: str, wanted: Chain, held: Chain) -> Iterator[str]:
    if len(wanted.rules) != len(held.rules):
        yield f"{place}: {len(held.rules)} rules, the state says {len(wanted.rules)}"
        return
    for number, (one, other) in enumerate(zip(wanted.rules, held.rules, strict=True), 1):
        if rule_key(one) != rule_key(other):
            yield f"{place}: rule {number} is another"

