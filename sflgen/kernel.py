"""The running kernel: its rule set compared with the state, and patches loaded into it.

A patch is loaded only if the kernel holds the rule set that the patch was made for, so changes of other
programs are never overwritten.  The output of iptables-save is not trusted: it is compared with the
kernel's own rules (hitables.kernel.checked_save).  A patch is loaded as a whole or not at all.

A patch addresses rules by their numbers, so a rule that another program inserts between the comparison and
the load would be hit in place of another.  What keeps that from happening:

    legacy  the stamp of the comparison (stamps.py) is read again under the lock of the tools, which is held
            until the patch is loaded; before iptables 1.8.8 the tool cannot be run under it, and the rules
            are counted afterwards
    nft     the stamp is read again when the tool has read the first table of the patch, just before the
            COMMIT of that table; the patch also lists the rules that it deletes, and if there was a commit
            of another program, rules of others that were hit are put back (put_back.py)
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterable, Sequence, Set
from dataclasses import replace
from functools import cached_property

from hitables.errors import HitablesError, LiveError
from hitables.ir.fields import Family
from hitables.ir.packet import Backend
from hitables.ir.program import Program
from hitables.kernel.checked_save import KernelReader, also_present
from hitables.kernel.contents_legacy import entries_of
from hitables.kernel.legacy_lock import can_be_held_for, legacy_lock, under_lock
from hitables.kernel.legacy_lock import handles as lock_handles
from hitables.kernel.load_save import load as load_into
from hitables.kernel.load_save import save as save_from
from hitables.kernel.namespace import Namespace, run
from hitables.kernel.retries import retries
from hitables.parse import iptables
from hitables.parse.lines import quote
from hitables.rule_lines import with_ends

from .deletions_listed import Listing, with_listings
from .differences import by_table, is_emptied, listed
from .edits import Count, Edit, jumps_to, rule_key
from .edits import text as text_of
from .layout import ChainId
from .least_edits import sync
from .policy_counters import with_policy_counters
from .refused import Refused
from .restore import Outdated, Restore, Silent, once
from .settings import Settings
from .stamps import Stamp, Stamps
from .state import State
from .store import Store

_QUOTED = re.compile(r'"(?:[^"\\]|\\.)*"')  # as comments are printed
_NO_COUNT = re.compile(r" -c 0 0(?!\S)")
_TABLE = re.compile(r"^\*(.+)", re.MULTILINE)

# For more chains iptables-save reads counters faster than the tool that stays.
FEW_CHAINS = 64


FASTER = "other programs change the rules of the kernel faster than they can be read"
NOT_HELD = "the kernel does not hold the rule set of the state"
REPAIRS = (
    "sflgen repair --take makes the change in the rule list, and sflgen repair --undo takes it back "
    "(--dry-run shows how)"
)
EMPTIED = (
    "was it flushed, or the machine rebooted? sflgen repair --undo loads the rule set of the state again; "
    "sflgen repair --take would take the rules out of the rule list, too (--dry-run shows how)"
)


class Drift(LiveError):
    """The kernel does not hold the loaded rule set of the state."""


class NotRecorded(LiveError):
    """The kernel has a patch of which the record did not reach the disk."""


class Unloadable(LiveError):
    """The kernel refuses rules of the state."""


class Kernel:
    """The tables of the current network namespace, through the tools of one backend.

    stays    one iptables-restore process is kept, if possible, until `close`
    doubt    the states before and after a patch that failed and may nevertheless be loaded
    held     a rule set that the kernel was seen to hold, and the stamp that it had then
    skipped  foreign chains whose rules the last `contents` could not read
    advice   what to do about the differences that the last comparison found
    """

    def __init__(self, family: Family, settings: Settings, stays: bool = False) -> None:
        self.family, self.settings = family, settings
        self.stays = stays and settings.backend == "nft"
        self.doubt: tuple[State, State] | None = None
        self.tool = family.tool + {"any": "", "legacy": "-legacy", "nft": "-nft"}[settings.backend]
        self.reader = KernelReader(family, self.tool, settings.is_foreign)
        self.held: tuple[Program, Stamp] | None = None
        self.skipped: tuple[ChainId, ...] = ()
        self.advice = REPAIRS
        self._stamps = Stamps(family)
        self._restore: Restore | None = None
        self._repeats = True  # comments, as `Restore` needs it

    @cached_property
    def resets_policies(self) -> bool:
        """Whether the tools set the counters of policies to zero."""
        if self.settings.backend == "any":
            return "nf_tables" not in run([self.tool, "--version"])
        return self.settings.backend == "legacy"

    # Reading.

    def contents(self) -> Program:
        """The rule set in the kernel; Misread if the tools print another one.

        A foreign chain that is misread has no rules here.
        """
        reading = self.reader.read()
        self.skipped = reading.left_out
        return self.parse([reading.text])

    def warnings(self) -> list[str]:
        """Warnings for a user whose kernel is read: tables of the other backend."""
        warning = also_present(self.family, self.reader.backend)
        return [warning] if warning else []

    def counters(self, chains: Set[ChainId], loaded: Program | None = None) -> Program:
        """*chains* with their present counters; an empty program if all of these are zero.

        *loaded*: the rule set in the kernel, if known; then the tool that stays lists few chains fast.
        The rules are not compared with the kernel's own, as only their counters are used.
        """
        if loaded is not None and self.stays and self._restore is not None and len(chains) <= FEW_CHAINS:
            return self._listed_counters(chains, loaded, self._restore)
        lines, table, has_counts = [], "", False
        with legacy_lock(self.resets_policies):
            saved = run([f"{self.tool}-save", "-c"])
        for line in with_ends(saved):
            if line.startswith("["):
                count, _, chain, *_ = line.split(" ", 3)
                if (table, chain) not in chains:
                    continue
                has_counts |= count != "[0:0]"
            elif line.startswith("*"):
                table = line[1:].strip()
            if not line.startswith("#"):
                lines.append(line)
        return self.parse(lines if has_counts else [])

    def _listed_counters(self, chain_ids: Set[ChainId], loaded: Program, tool: Restore) -> Program:
        """As `counters`, through the tool that stays."""
        lines: list[str] = []
        has_counts = False
        for table in loaded:
            chains = [
                table[name] for where, name in sorted(chain_ids) if where == table.name and name in table
            ]
            commands = "".join(f"-v -S {quote(chain.name)}\n" for chain in chains)
            output, is_done = tool.run(f"*{table.name}\n{commands}COMMIT\n") if commands else ("", True)
            if not is_done:
                raise LiveError(f"{tool.command[0]}: {output}")
            rules = [line for line in with_ends(output) if line.startswith("-A ")]
            has_counts |= any(_NO_COUNT.search(_QUOTED.sub("", line)) is None for line in rules)
            callees = {name for chain in chains for rule in chain.rules if (name := jumps_to(rule))}
            policies = {chain.name: chain.policy for chain in chains} | dict.fromkeys(callees)
            heads = [f":{quote(name)} {policy or '-'} [0:0]\n" for name, policy in policies.items()]
            lines += [f"*{table.name}\n", *heads, *rules, "COMMIT\n"] if chains else []
        return self.parse(lines if has_counts else [])

    def parse(self, lines: Iterable[str]) -> Program:
        """The output of iptables-save as a program."""
        text = "".join(lines)
        if not text:
            return Program(self.family, (), "the kernel")
        return iptables.read(text, family=self.family, name="the kernel")

    # Comparing.

    def stamp(self) -> Stamp | None:
        """What is equal later if the rules have not changed; None if the kernel does not report it."""
        return self._stamps.read(self.reader.backend)

    def holds(self, program: Program) -> bool:
        """Whether the kernel was seen to hold *program*, and has not changed since."""
        return self.held is not None and self.held[0] is program and self.held[1] == self.stamp()

    def hold(self, program: Program, stamp: Stamp | None) -> None:
        """Remember that the kernel has *program* at *stamp*."""
        self.held = None if stamp is None else (program, stamp)

    def ensure(self, state: State) -> None:
        """`check`, but the kernel's rules are read only if they may have changed since it was seen to hold
        them."""
        if not self.holds(state.loaded):
            self.check(state)

    def check(self, state: State, not_held: str = NOT_HELD, advice: str = "") -> None:
        """Drift, with the words *not_held* and *advice*, unless the kernel holds what *state* has loaded."""
        differences = self.differences(state)
        if differences:
            raise Drift(
                "\n".join(
                    [f"{not_held}; nothing is overwritten", *listed(differences), advice or self.advice]
                )
            )

    def differences(self, state: State) -> list[str]:
        """The differences between the kernel and *state*; none if they agree."""
        self.held, stamp = None, self.stamp()
        contents = self.contents()
        differing = self.compared(state, contents)
        emptied = [name for name in differing if is_emptied(state, contents, name)]
        named = f"table{'s' * (len(emptied) > 1)} {', '.join(emptied)}"
        self.advice = (
            f"the kernel has none of the state's rules in {named}: {EMPTIED}" if emptied else REPAIRS
        )
        if not differing:
            self.hold(state.loaded, stamp)
        return [each for differences in differing.values() for each in differences]

    def compared(self, state: State, contents: Program) -> dict[str, list[str]]:
        """The differences between *contents* of the kernel and *state*, by table that has some."""
        differences = by_table(state, state.loaded, contents)
        if differences and self.settings.backend != "any":
            # The kernel may spell a rule otherwise than the program that inserted it.
            differences = by_table(state, self.as_stored(state.loaded), contents)
        return differences

    def may_hold(self, state: State) -> list[str] | None:
        """As `differences`; None if the kernel refuses rules of *state*, so that it cannot have them."""
        try:
            return self.differences(state)
        except Unloadable:
            return None

    def as_stored(self, program: Program) -> Program:
        """*program* as the kernel stores it, read from a scratch namespace; Unloadable if that refuses it."""
        from hitables.emit.text import write

        backend = Backend(self.settings.backend)
        with Namespace() as namespace:
            try:
                load_into(write(program), self.family, backend, namespace)
            except LiveError as error:
                raise Unloadable(str(error)) from None
            stored = save_from(self.family, backend, namespace)
        return iptables.read(stored, family=self.family, name="loaded")

    # Loading.

    @property
    def is_alone(self) -> bool:
        """Whether a lock keeps other programs from changing rules between the last look and the load."""
        return self.resets_policies and can_be_held_for(f"{self.tool}-restore")

    def load(self, patch: str, store: Store, since: Stamp | None) -> tuple[Stamp | None, list[str]]:
        """Load a patch; LiveError with the tool's message if it is refused, NotRecorded if the disk fails.

        Outdated, and nothing is loaded, if the kernel's stamp is not *since* any more, where this is known.
        Returns the stamp behind the patch, and the rules that it has deleted or replaced as the tool prints
        them, if it prints them.

        The tool holds the lock of *store* too, so if this process is killed, no other one reads the
        kernel before the tool is done.
        """
        if not patch:
            return self.stamp(), []
        with legacy_lock(self.is_alone):
            if self.resets_policies:
                self._check_stamp(since)
                with legacy_lock():
                    patch = with_policy_counters(patch, self.family)
            printed = self._load(patch, store, since)
            return self.stamp(), printed

    def was_alone(
        self, since: Stamp | None, stamp: Stamp | None, patch: str, before: Program, after: Program
    ) -> bool:
        """Whether *patch*, from *before* to *after*, is all that has changed the rules from one stamp to the
        other."""
        if self.resets_policies:
            return self.is_alone or _rules(stamp) == _rules(since) + _entries(after) - _entries(before)
        return isinstance(since, int) and stamp == since + len(tables_of(patch))

    def _check_stamp(self, since: Stamp | None) -> None:
        if since is not None and self.stamp() != since:
            raise Outdated("the rules of the kernel have changed")

    def _load(self, patch: str, store: Store, since: Stamp | None) -> list[str]:
        errors: list[HitablesError] = []

        def flush() -> None:
            try:
                store.flush()
            except HitablesError as error:
                errors.append(error)

        command = [f"{self.tool}-restore", "--noflush", "--counters"]
        command += ["-w"] if self.settings.backend == "legacy" else []
        handles = (*store.handles(), *lock_handles())
        # Under the lock no rule can be hit that should not be.
        listing = Listing(patch, (), ()) if self.is_alone else with_listings(patch)
        output, is_done = self._run_restore(command, listing, flush, handles, since)
        if not is_done:
            raise Refused(" ".join(command), output, patch)
        if errors:
            raise NotRecorded(str(errors[0]))
        return listing.deleted(output)

    def _run_restore(
        self,
        command: Sequence[str],
        listing: Listing,
        meanwhile: Callable[[], None],
        handles: Sequence[int],
        since: Stamp | None,
    ) -> tuple[str, bool]:
        """Run the tool: its output and True, or the reason why it refuses the patch and False."""
        text, added = listing.text, listing.added
        if not self.resets_policies and self._repeats:
            tool = self._restore = self._restore or Restore(command, handles)
            try:
                return tool.load(text, meanwhile, lambda: since is None or self.stamp() == since, added)
            except Silent:
                self.stays = self._repeats = False
            finally:
                if not self.stays:
                    tool.close()
        if not self.resets_policies:
            self._check_stamp(since)
        with under_lock() as environment:
            return once(command, text, meanwhile, handles, environment, added)

    def close(self) -> None:
        """Wait until the tool that stays has exited."""
        if self._restore:
            self._restore.close()
        self._stamps.close()

    # Undoing.

    def roll_back(self, before: State, after: State, store: Store, counted: Program) -> list[str]:
        """Bring the tables back to *before* that hold *after*: of a patch, only some were loaded.

        A table is loaded as a whole, so one that holds neither was changed by other programs: it stays as it
        is, and its differences are returned.

        *counted*: the counters of the rules that the kernel had.
        """
        own = {
            chain.name
            for state in (before, after)
            for table in state.loaded
            for chain in table.chains
            if not before.settings.is_foreign(chain.name)
        }
        for _ in retries():
            stamp, contents = self.stamp(), self.contents()
            by_before = self.compared(before, contents)
            names = by_before.keys() & {table.name for table in before.loaded}
            loaded = {name for name in names if self._has_table(after, contents, name)}
            self.held = None
            if not by_before:
                self.hold(before.loaded, stamp)
            if loaded:
                edits = sync(
                    _only(contents, loaded), _only(before.loaded, loaded), keep=lambda name: name not in own
                )
                try:
                    self.load(text_of(edits, _counts_of(edits, counted)), store, stamp)
                except Outdated:
                    continue
                except NotRecorded:
                    pass  # nothing of what is taken back needs a record
            return [each for name, found in by_before.items() if name not in loaded for each in found]
        raise LiveError(FASTER)

    def _has_table(self, state: State, contents: Program, table: str) -> bool:
        """Whether *table* of *contents* is that of *state*, which the kernel may refuse."""
        state = replace(state, loaded=_only(state.loaded, {table}))
        with contextlib.suppress(Unloadable):  # the kernel cannot have it
            return not self.compared(state, _only(contents, {table}))
        return False

    def resolve(self, store: Store) -> None:
        """If it is in doubt whether a patch was loaded, find out, and undo it if it was."""
        if self.doubt is None:
            return
        before, after = self.doubt
        if self.differences(before) and not self.differences(after) and self.held is not None:
            with contextlib.suppress(Outdated):  # the next comparison finds the change, and tells of it
                self.load(text_of(sync(after.loaded, before.loaded)), store, self.held[1])
        self.doubt = None


def _only(program: Program, tables: Set[str]) -> Program:
    return replace(program, tables=tuple(table for table in program if table.name in tables))


def tables_of(patch: str) -> list[str]:
    """The tables of *patch*, in their order."""
    return _TABLE.findall(patch)


def _counts_of(edits: Sequence[Edit], counted: Program) -> dict[int, Count]:
    """By index of an edit that brings a rule back: what the rule had counted at its place."""
    tables = {table.name: table for table in counted}
    counts: dict[int, Count] = {}
    for number, edit in enumerate(edits):
        table = tables.get(edit.table)
        if edit.rule is None or table is None or edit.chain not in table:
            continue
        rules = table[edit.chain].rules
        if edit.at < len(rules) and rule_key(rules[edit.at]) == rule_key(edit.rule):
            counts[number] = rules[edit.at].counters or (0, 0)
    return counts


def _rules(stamp: Stamp | None) -> int:
    """The number of entries in the tables of a legacy kernel."""
    return sum(entries_of(image) for image in stamp.values()) if isinstance(stamp, dict) else -1


def _entries(program: Program) -> int:
    """The entries of *program* in legacy tables, but for policies: a user chain has two besides its rules."""
    return sum(len(chain.rules) + 2 * (chain.policy is None) for table in program for chain in table.chains)
