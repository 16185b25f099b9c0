"""The running kernel: what it holds, held against what the state says, and patches taken to it.

Nothing is overwritten: a patch is loaded only where the kernel holds what the patch was made for.  What the
tools print of the kernel is not believed: hitables.kernel.checked_save compares it with what is loaded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from dataclasses import replace
from functools import cached_property

from hitables import interrupts
from hitables.errors import HitablesError, LiveError
from hitables.ir.fields import Family
from hitables.ir.packet import Backend
from hitables.ir.program import Chain, Program, Table
from hitables.kernel.checked_save import Reader, also_present
from hitables.kernel.load_save import load as load_into
from hitables.kernel.load_save import save as save_from
from hitables.kernel.namespace import Namespace, run
from hitables.parse import iptables
from hitables.parse.lines import quote

from .counters import counted_text, counting, takes_away
from .edits import empty_table, jumps_to, rule_key, sync
from .edits import text as text_of
from .layout import Names, Place, Settings
from .planner import Plan
from .policy_counters import with_policy_counters
from .restore import Restore, Silent, once
from .state import State
from .store import Store

_TOOL = {Family.IPV4: "iptables", Family.IPV6: "ip6tables"}


# Of more chains iptables-save tells sooner.
FEW_CHAINS = 64


class Drift(LiveError):
    """The kernel does not hold what the state says."""


class Kernel:
    """The tables of the network namespace that we run in, by the tools of one backend.

    *stays*: the tool that loads is kept running where that can be, until `close`.
    """

    def __init__(self, family: Family, settings: Settings, stays: bool = False) -> None:
        self.family, self.settings = family, settings
        self.stays = stays and settings.backend == "nft"
        self.restoring: Restore | None = None
        self.doubt: tuple[State, State] | None = None  # around a patch that failed, if it may be there
        self.tool = _TOOL[family] + {"any": "", "legacy": "-legacy", "nft": "-nft"}[settings.backend]
        self.reader = Reader(family, self.tool, settings.is_left)
        self.left_out: tuple[Place, ...] = ()  # chains of others whose rules the last `held` does not have

    @cached_property
    def resets_policies(self) -> bool:
        """Whether the tools are those that set the counters of policies to zero."""
        if self.settings.backend == "any":
            return "nf_tables" not in run([self.tool, "--version"])
        return self.settings.backend == "legacy"

    def held(self) -> Program:
        """What the kernel holds; Misread where the tools do not print that.

        A chain that others manage may be misread: it has no rules here then.
        """
        reading = self.reader.read()
        self.left_out = reading.left_out
        return self.read([reading.text])

    def warnings(self) -> list[str]:
        """What a user should know of a kernel that is read: tables of the other backend."""
        said = also_present(self.family, self.reader.backend)
        return [said] if said else []

    def counted(self, places: Set[Place], loaded: Program | None = None) -> Program:
        """The chains of *places* with their counters as they are now; nothing where all of them are zero.

        Only the counters are made use of, so what is printed of the rules is not compared.

        Where *loaded*, what the kernel holds, is given, the tool that stays tells of a few chains at once.
        """
        if loaded is not None and self.stays and self.restoring is not None and len(places) <= FEW_CHAINS:
            return self.listed(places, loaded, self.restoring)
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

    def listed(self, places: Set[Place], loaded: Program, tool: Restore) -> Program:
        """As `counted`, of *places* that *loaded* has."""
        kept: list[str] = []
        counts = False
        for table in loaded:
            chains = [table[name] for where, name in sorted(places) if where == table.name and name in table]
            asked = "".join(f"-v -S {quote(chain.name)}\n" for chain in chains)
            said, done = tool.run(f"*{table.name}\n{asked}COMMIT\n") if asked else ("", True)
            if not done:
                raise LiveError(f"{tool.command[0]}: {said}")
            rules = [line for line in said.splitlines(keepends=True) if line.startswith("-A ")]
            counts |= any(" -c 0 0" not in line for line in rules)
            below = {name for chain in chains for rule in chain.rules if (name := jumps_to(rule))}
            names = {chain.name: chain.policy for chain in chains} | dict.fromkeys(below)
            heads = [f":{quote(name)} {policy or '-'} [0:0]\n" for name, policy in names.items()]
            kept += [f"*{table.name}\n", *heads, *rules, "COMMIT\n"] if chains else []
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
        trouble: list[HitablesError] = []

        def flush() -> None:
            try:
                store.flush()
            except HitablesError as error:
                trouble.append(error)

        command = [f"{self.tool}-restore", "--noflush", "--counters"]
        command += ["-w"] if self.settings.backend == "legacy" else []
        refused = self.done(command, patch, flush, store.handles())
        if refused is not None:
            raise LiveError(f"{' '.join(command)}: {refused}")
        if trouble:
            raise LiveError(str(trouble[0]))

    def done(
        self, command: Sequence[str], patch: str, meanwhile: Callable[[], None], handles: Sequence[int]
    ) -> str | None:
        """Why *patch* was refused, if it was."""
        if self.stays:
            self.restoring = self.restoring or Restore(command, handles)
            try:
                return self.restoring.load(patch, meanwhile)
            except Silent:
                self.stays = False
        return once(command, patch, meanwhile, handles)

    def close(self) -> None:
        """Wait until the tool that stays has ended."""
        if self.restoring:
            self.restoring.close()

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
                "the kernel does not hold what the state says; nothing is overwritten\n"
                + shown
                + more
                + "\nMake the kernel so again, or begin a new state from what it holds (sflgen init --live)"
            )

    def restore(self, before: State, after: State, store: Store) -> None:
        """Bring the kernel back to *before* if only some tables of a patch were loaded."""
        if not self.drift(before):
            return
        ours = {
            chain.name
            for state in (before, after)
            for table in state.loaded
            for chain in table.chains
            if not before.settings.is_left(chain.name)
        }
        tables = {table.name for table in before.loaded}
        held = self.held()
        held = replace(held, tables=tuple(table for table in held if table.name in tables))
        self.load(text_of(sync(held, before.loaded, keep=lambda name: name not in ours)), store)

    def resolve(self, store: Store) -> None:
        """Find out what became of a patch that failed, and take it back if it is there."""
        if self.doubt is None:
            return
        before, after = self.doubt
        if self.drift(before) and not self.drift(after):
            self.load(text_of(sync(after.loaded, before.loaded)), store)
        self.doubt = None


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
    with interrupts.deferred():
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
            patch = counted_text(plan, kernel.counted(counting(plan), plan.before.loaded))
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
        kernel.doubt = before, after
        try:
            kernel.restore(before, after, store)
        except LiveError as other:
            raise LiveError(f"nobody knows whether the kernel has the patch\n{error}\n{other}") from None
        kernel.doubt = None
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
