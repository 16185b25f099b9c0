"""Patches loaded into the kernel as commits of a store: all of a patch, or nothing.

A patch is loaded only if the kernel holds the rule set that it was made for.  A commit that a crash
interrupted is completed when the state is opened next.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from hitables import interrupts
from hitables.errors import LiveError
from hitables.ir.packet import Backend
from hitables.ir.rule import Rule
from hitables.kernel.retries import retries

from .counters import carried_text, counted_text, deletes_copies
from .differences import listed
from .edits import empty_table
from .edits import line as line_of
from .kernel import FASTER, REPAIRS, Drift, Kernel, NotRecorded, tables_of
from .planner import Plan
from .put_back import put_back
from .refused import is_refused_commit, line_refused
from .restore import Outdated
from .state import State
from .store import Store


def loader(kernel: Kernel, store: Store, plan: Plan) -> Callable[[str], None]:
    """A function that loads the patch of *plan*, all of it or nothing, and carries counters over."""

    def load(patch: str) -> None:
        for edit in plan.updates:
            reason = "" if edit.rule is None else _misprinted(edit.rule, kernel.reader.backend)
            if reason:
                raise LiveError(f"{line_of(edit)}\n{reason}")
        if deletes_copies(plan):
            patch = counted_text(plan, lambda chains: kernel.counters(chains, plan.before.loaded))
        load_all(kernel, store, plan.before, plan.after, patch)

    return load


_ALL_PORTS = frozenset({"0:65535", "0:", ":65535", ":"})


def _misprinted(rule: Rule, backend: Backend) -> str:
    """Why the tool would print *rule* as another one, which no later update could be compared with; or ""."""
    native = [match for match in rule.matches if match.native and match.name]
    named = [match.name for match in native]
    twice = [f"-m {name}" for name in dict.fromkeys(named) if named.count(name) > 1]
    if twice and backend is Backend.NFT:
        return f"iptables-nft prints two {twice[0]} as one; write their options behind one {twice[0]}"
    no_port = [match for match in native if "!" in match.words and _ALL_PORTS.intersection(match.words)]
    if no_port and backend is Backend.LEGACY:
        return "it matches no packet, and iptables-legacy prints it as one that matches; leave it out"
    return ""


def finish_commit(store: Store, kernel: Kernel) -> None:
    """Complete the last commit if a crash interrupted it.

    If the kernel has its patch, it is settled; if the kernel has the state before, the patch is loaded
    now; else Drift.  The commit is undone if the kernel refuses the patch.
    """
    before = store.unsettled
    if before is None:
        return
    if kernel.may_hold(store.state) == []:
        store.settle()
        return
    kernel.check(before)
    after = store.state
    with interrupts.deferred():
        try:
            patch = carried_text(before, after, store.unsettled_edits, kernel.counters)
            load_all(kernel, store, before, after, patch)
        except LiveError:
            store.undo()
            raise
        store.settle()


# How often a patch is tried whose COMMIT the legacy kernel refuses.  It refuses one also if a program that
# asks for no lock, as miniupnpd with libiptc, has changed the table since the tool read it.
_TRIES_OF_COMMIT = 5


def load_all(kernel: Kernel, store: Store, before: State, after: State, patch: str) -> None:
    """Load *patch* from *before* to *after*: all of it, or nothing and LiveError.

    Drift if the kernel does not hold *before*.
    """
    known = {table.name for table in before.loaded}
    new = [empty_table(table.name) for table in after.loaded if table.name not in known]
    if new:  # the kernel may have rules in these tables, which the state did not include
        before = replace(before, loaded=replace(before.loaded, tables=(*before.loaded.tables, *new)))
    if not patch:
        kernel.ensure(before)
        kernel.hold(after.loaded, kernel.held[1] if kernel.held is not None else None)
        return
    for tries, _ in enumerate(retries(), 1):
        if kernel.held is None or kernel.held[0] is not before.loaded:
            kernel.check(before)
        try:
            _load_once(kernel, store, before, after, patch, is_last=tries >= _TRIES_OF_COMMIT)
        except Outdated:
            continue
        return
    raise LiveError(f"{FASTER}; nothing is changed")


def _load_once(kernel: Kernel, store: Store, before: State, after: State, patch: str, is_last: bool) -> None:
    """`load_all` for a kernel that was seen to hold *before*; Outdated if it may have changed since.

    *is_last*: a COMMIT that is refused is not tried again.
    """
    # iptables-restore commits table by table: of two, the second may be refused.
    tables = tables_of(patch)
    chains = {
        (table.name, chain.name)
        for table in before.loaded
        if table.name in tables[:-1]
        for chain in table.chains
    }
    counted = kernel.counters(chains) if chains else kernel.parse([])
    since, kernel.held = kernel.held[1] if kernel.held is not None else None, None
    try:
        stamp, printed = kernel.load(patch, store, since)
    except Outdated:
        raise
    except LiveError as error:
        kernel.doubt = before, after
        try:
            others = kernel.roll_back(before, after, store, counted)
        except LiveError as other:
            raise LiveError(f"it is unknown whether the kernel has the patch\n{error}\n{other}") from None
        kernel.doubt = None
        if kernel.resets_policies and is_refused_commit(error) and not others and not is_last:
            raise Outdated("the kernel refuses the COMMIT") from None
        reason = f"{error}{line_refused(error, kernel.tool)}"
        is_recorded = not isinstance(error, NotRecorded)
        failed = "the kernel refuses the patch" if is_recorded else "the patch cannot be recorded"
        if others:
            message = f"{failed}, and other programs have changed rules; nothing is overwritten"
            raise Drift("\n".join([message, reason, *listed(others), REPAIRS])) from None
        raise LiveError(f"{failed}; nothing is changed\n{reason}") from None
    if kernel.was_alone(since, stamp, patch, before.loaded, after.loaded):
        kernel.hold(after.loaded, stamp)
    elif kernel.differences(after):
        put_back(kernel, store, before, after, patch, printed)
