"""A rule set brought into the kernel, whatever the kernel holds: the one way of `apply` and `rollback`.

The kernel may hold what was recorded, something else, or what a killed process left behind, so nothing is
assumed.  The tables are read, the steps to the wanted ones are planned (steps.py), and after the flip the
kernel is read again and compared.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from ..errors import LiveError
from ..ir.fields import Family
from ..ir.packet import Backend
from ..ir.program import BUILT_IN
from ..kernel.legacy_lock import legacy_lock
from . import flip_nft, steps
from .counts import carry, keys_of, recognised, sums
from .kernel import Kernel
from .others import Merged, merge
from .steps import TablePlan
from .texts import NO_COUNT, Chains, Count, Tables, TextChain, TextRule, empty, fresh_names, without_counts

_TRIES = 3  # when others change the rules meanwhile
_SECONDS_AT_ONCE = 10.0  # for which a change of nf_tables in one commit is tried
# For which a text that a tool refuses is written anew and tried again, while others change the rules: a
# program that does so all the time comes before one attempt of two.
_TRIES_OF_TEXT = 20
_SECONDS_OF_TEXT = 10.0


@dataclass(frozen=True, slots=True)
class Wanted:
    """What one kernel shall hold: tables whose rules have keys (counts.py), and their generated chains.

    *known*: what was loaded last, with keys; the counters of its rules go on.
    """

    tables: Tables
    generated: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    known: Tables = field(default_factory=dict)


class RuleSetChange:
    """The rules of one family on their way into the kernel.

    present  what the kernel held when it was read last, with keys
    merged   the wanted rule set with the chains of others that are there now
    plans    the steps, by table
    """

    def __init__(self, kernel: Kernel, wanted: Wanted, is_foreign: Callable[[str], bool]) -> None:
        self.kernel, self.wanted, self.is_foreign = kernel, wanted, is_foreign
        self.present: Tables = {}
        self.merged = Merged()
        self._set: dict[str, dict[str, Count]] = {}  # by table and key: counts of staged chains
        self._bodies: dict[tuple[str, str], str] = {}  # by table and visible chain
        self._staged: dict[tuple[str, str], list[str]] = {}  # by table and body: its rules
        self._grown: set[tuple[str, str]] = set()
        self._commits: int | None = None  # to nf_tables, when the kernel was read last
        self.plans: dict[str, TablePlan] = {}
        self._plan()

    def _plan(self) -> None:
        """Read the kernel, and plan the steps."""
        self.read()
        self.plans = {
            name: steps.plan(name, self._chains(name), chains, self._generated(name), self.merged.left[name])
            for name, chains in self.merged.tables.items()
        }

    @property
    def is_idle(self) -> bool:
        """Whether the kernel holds the wanted rule set."""
        return all(plan.is_idle for plan in self.plans.values())

    def loaded(self) -> Tables:
        """The own chains after the change, with the names that they have in the kernel."""
        return {name: plan.target for name, plan in self.plans.items()}

    def generated(self) -> dict[str, tuple[str, ...]]:
        """The generated chains of `loaded`."""
        return {
            name: tuple(plan.names.get(chain, chain) for chain in self._generated(name))
            for name, plan in self.plans.items()
        }

    def staged_chains(self, table: str) -> frozenset[str]:
        """The chains that this change loads, and that no packet reaches before its visible commit."""
        staged = self.plans[table].staged if table in self.plans else ()
        return frozenset((*staged, *(body for name, body in self._staged if name == table)))

    def stage(self) -> None:
        """Load the new chains, which no packet reaches."""
        _insist(self._stage, self._plan, [self])

    def _stage(self) -> None:
        texts = []
        for name, plan in self.plans.items():
            present = self._chains(name)
            counts = sums(present, {*plan.changed, *plan.removed})
            all_counts = dict(counts)
            gone = {*plan.changed, *plan.removed}
            goes_on = keys_of(present, (each for each in plan.target if each not in gone))
            target = carry(plan.target, plan.staged, counts, goes_on)
            self.plans[name] = plan = replace(plan, target=target)
            self._set[name] = {key: count for key, count in all_counts.items() if key not in counts}
            texts.append(steps.stage_text(plan, present, self.kernel.resets_policies))
        self.kernel.load("".join(texts))
        self.set_counts(lambda plan: plan.staged)

    def set_counts(self, chains_of: Callable[[TablePlan], Sequence[str]]) -> None:
        """Set the counters of rules that the tool has loaded as zeros."""
        for name, plan in self.plans.items() if self.kernel.zeroes_counters else ():
            chains = {chain: plan.target[chain] for chain in chains_of(plan)}
            flip_nft.set_counts(self.kernel.family, name, chains)

    def flip_text(self) -> str:
        """The text that changes the visible chains, for the rules that the kernel has at this moment.

        Chains of others may have come and gone since the change was planned.  Tables with more lines come
        first, since what separates two commits is the text of the second.
        """
        self.read()
        texts = []
        for name in self.plans:
            plan = self.plans[name] = self._flip_plan(name)
            texts.append(steps.flip_text(plan, self._chains(name), self.kernel.resets_policies))
        return "".join(sorted(texts, key=len, reverse=True))

    def _flip_plan(self, name: str) -> TablePlan:
        plan, present, left = self.plans[name], self._chains(name), self.merged.left[name]
        target = dict(plan.target)
        for chain, content in self.merged.tables[name].items():
            # A chain of a tree never changes, and the name that it has here may be that of another one there.
            if chain in target and chain not in plan.names and chain not in plan.staged and chain not in left:
                rules = tuple(rule.with_names(plan.names) for rule in content.rules)
                target[chain] = replace(content, rules=rules)
        changed = tuple(
            chain
            for chain, content in target.items()
            if chain not in plan.staged and (chain not in present or present[chain].differs_from(content))
        )
        removed = tuple(
            chain
            for chain in present
            if chain not in target and chain not in left and (name, chain) not in self._staged
        )
        counts = sums(present, {*changed, *removed})
        for key, count in self._set[name].items():
            packets, size = counts.get(key, count)
            counts[key] = packets - count[0], size - count[1]  # counted since the chain was staged
        changing = {*changed, *plan.staged}
        goes_on = keys_of(present, (each for each in target if each not in changing))
        target = self._with_growth(name, carry(target, changed, counts, goes_on), plan.staged, counts)
        self._check_target(name, plan, target)
        return replace(plan, target=target, changed=changed, removed=removed)

    def _check_target(self, name: str, plan: TablePlan, target: Chains) -> None:
        """What is about to be loaded is what was proved, but for the names of the chains of trees."""
        for chain, content in self.merged.tables[name].items():
            if chain not in self.merged.left[name]:
                loaded = target[plan.names.get(chain, chain)]
                assert loaded.bodies == [rule.with_names(plan.names).body for rule in content.rules], (
                    f"table {name}, chain {chain}: what would be loaded is not what was proved"
                )

    def _with_growth(
        self, name: str, target: Chains, staged: Sequence[str], counts: dict[str, Count]
    ) -> Chains:
        """*target*, in whose *staged* chains the rules also have the *counts* since they were staged."""
        growth = {key: count for key, count in counts.items() if count != NO_COUNT}
        grown: Chains = {}
        for chain in staged:
            rules = []
            for rule in target[chain].rules:
                packets, size = growth.pop(rule.key, NO_COUNT)
                if (packets, size) != NO_COUNT:
                    before = self._set[name].get(rule.key, NO_COUNT)
                    self._set[name][rule.key] = before[0] + packets, before[1] + size
                    rule = replace(rule, count=(rule.count[0] + packets, rule.count[1] + size))
                    self._grown.add((name, chain))
                rules.append(rule)
            grown[chain] = replace(target[chain], rules=tuple(rules))
        return {**target, **grown}

    def grown(self) -> list[tuple[Family, str, Chains]]:
        """By table, the staged chains with counts that are not in the kernel yet."""
        return [
            (self.kernel.family, name, {chain: plan.target[chain] for at, chain in self._grown if at == name})
            for name, plan in self.plans.items()
        ]

    def stage_bodies(self) -> int:
        """Load the rules of the chains that change into chains that no packet reaches; the commits made.

        Bodies that were loaded before, for a change that another program came before, are used again.
        """
        texts = []
        for name, plan in self.plans.items():
            names = fresh_names({*self._chains(name), *plan.target})
            rules = {}
            for chain in plan.changed:
                part = self._staged_part(name, chain)
                body = self._bodies.pop((name, chain), "")
                if part.rules and self._staged.get((name, body)) != part.bodies:
                    body = next(names)
                    rules[body] = part
                    self._staged[name, body] = part.bodies
                if part.rules:
                    self._bodies[name, chain] = body
            # A base chain may not exist although iptables-nft-save prints it; the flip needs it.
            chains = self._chains(name)
            new = [
                each
                for each in plan.changed
                if each in BUILT_IN[name] and chains[each] == TextChain("ACCEPT")
            ]
            heads = "".join(f":{chain} ACCEPT [0:0]\n" for chain in new)
            texts.append(steps.new_chains_text(name, rules, heads))
        self.kernel.load("".join(texts))
        return sum(bool(each) for each in texts)

    def _kept(self, table: str, chain: str) -> tuple[int | None, ...]:
        """By rule of the visible *chain* after the change: its place now, if it is a jump of others.

        Such a jump is not staged: while it is, its program could not remove the chain that it enters.
        """
        places: dict[str, list[int]] = {}
        present = self._chains(table)
        for place, rule in enumerate(present[chain].rules if chain in present else ()):
            if self.is_foreign(rule.enters):
                places.setdefault(rule.body, []).append(place)
        kept: list[int | None] = []
        for rule in self.plans[table].target[chain].rules:
            found = places.get(rule.body)
            kept.append(found.pop(0) if found else None)
        return tuple(kept)

    def _staged_part(self, table: str, chain: str) -> TextChain:
        """The rules of the visible *chain* that have to be staged."""
        rules = self.plans[table].target[chain].rules
        places = self._kept(table, chain)
        # The change itself sets the counters.  Here they would count twice if the change is tried again.
        return TextChain(
            "-",
            tuple(
                replace(rule, count=NO_COUNT)
                for rule, place in zip(rules, places, strict=True)
                if place is None
            ),
        )

    def flips(self) -> list[flip_nft.Flip]:
        """The visible chains, with the bodies that hold their rules; "" for a chain without such rules."""
        return [
            flip_nft.Flip(
                self.kernel.family,
                name,
                chain,
                plan.target[chain],
                self._bodies.get((name, chain), ""),
                self._kept(name, chain),
            )
            for name, plan in self.plans.items()
            for chain in plan.changed
        ]

    def policies(self) -> dict[tuple[Family, str, str], str]:
        """The policies that change."""
        return {
            (self.kernel.family, name, chain): plan.target[chain].policy
            for name, plan in self.plans.items()
            for chain in plan.changed
            if plan.target[chain].policy != self._chains(name).get(chain, plan.target[chain]).policy
        }

    def policy_counts(self) -> dict[tuple[Family, str, str], Count]:
        """The counters of policies that do not go on by themselves, as rules are printed as the policy."""
        return {
            (self.kernel.family, name, chain): count
            for name, plan in self.plans.items()
            for chain, count in steps.policy_counts(plan, self._chains(name)).items()
            if chain in plan.changed and count != self._chains(name)[chain].count
        }

    def compared(self) -> tuple[list[str], list[str]]:
        """The own chains in the kernel that lack something of what was loaded; and the rules that others have
        added to the other ones since.
        """
        self.read()
        faults, added = [], []
        for name, plan in self.plans.items():
            present = self._chains(name)
            for chain, content in sorted(plan.target.items()):
                more = _more_rules(present[chain], content) if chain in present else None
                if more is None:
                    faults.append(f"table {name}, chain {chain}")
                else:
                    others = (rule.body for rule in more if not self.is_foreign(rule.enters))
                    added += [f"table {name}: -A {chain} {body}" for body in others]
        return faults, added

    def clean(self) -> None:
        """Remove the chains that are not needed any more."""
        _insist(self._clean, self.read, [self])

    def _clean(self) -> None:
        texts = []
        for name, plan in self.plans.items():
            present = self._chains(name)
            bodies = [body for table, body in self._staged if table == name]
            gone = steps.unused({*plan.removed, *bodies}, present)
            texts.append(steps.clean_text(name, gone, present, self.kernel.resets_policies))
        self.kernel.load("".join(texts))

    def read(self) -> None:
        """Read the kernel again."""
        self._commits = self._commits_now()
        self.present = recognised(self.kernel.read(), self.wanted.known)
        self.merged = merge(self.wanted.tables, self.present, self.is_foreign)

    def has_moved(self) -> bool:
        """Whether the kernel may hold other rules than when it was read last.

        A chain that is gone may be there again at the next reading, so where the kernel counts its commits
        their number decides.
        """
        if self._commits is not None:
            return self._commits_now() != self._commits
        return without_counts(self.kernel.read()) != without_counts(self.present)

    def _commits_now(self) -> int | None:
        if self.kernel.backend is not Backend.NFT:
            return None
        try:
            return flip_nft.generation()
        except LiveError:
            return None

    def _chains(self, table: str) -> Chains:
        return self.present.get(table) or empty(table)

    def _generated(self, table: str) -> tuple[str, ...]:
        return self.wanted.generated.get(table, ())


def _insist(load: Callable[[], None], again: Callable[[], None], changes: Sequence[RuleSetChange]) -> None:
    """Call *load*; if a tool refuses its text, and others have changed rules since it was written, write it
    *again* for the rules that the kernel has now, and try once more.

    A chain of another program that was read may be removed before a text that names it is loaded.
    """
    until = time.monotonic() + _SECONDS_OF_TEXT
    for rest in reversed(range(_TRIES_OF_TEXT)):
        try:
            return load()
        except LiveError:
            if not rest or time.monotonic() > until or not any(change.has_moved() for change in changes):
                raise
        again()


def _more_rules(present: TextChain, loaded: TextChain) -> list[TextRule] | None:
    """The rules of *present* beside those of *loaded*; None if it lacks some, or their order or policy."""
    if present.policy != loaded.policy:
        return None
    more = []
    rest = iter(present.rules)
    for body in loaded.bodies:
        for rule in rest:
            if rule.body == body:
                break
            more.append(rule)
        else:
            return None
    return [*more, *rest]


@dataclass(frozen=True, slots=True)
class Performed:
    """What `perform` did, as far as the user should know.

    seconds  between the first and the last visible commit, at most
    added    rules that others have added since, for the user: they stay, and are not ours
    lost     rules that others had added, and that a further attempt replaced
    """

    seconds: float = 0.0
    added: tuple[str, ...] = ()
    lost: tuple[str, ...] = ()


def perform(changes: Sequence[RuleSetChange], staged: Callable[[], None] = lambda: None) -> Performed:
    """Make all *changes*.

    *staged* is called before the first visible commit, each time that the kernel was read for it.
    LiveError if a tool refuses its text.  Some tables may then have their new rules and others the old ones,
    and the caller rolls back.
    """
    changes = [change for change in changes if not change.is_idle]
    for change in changes:
        change.stage()
    seconds = 0.0
    added: list[str] = []
    ever_added: dict[str, None] = {}
    for attempt in range(_TRIES):
        seconds = _flip(changes, staged if attempt == 0 else lambda: None)
        found = [change.compared() for change in changes]
        faults = [fault for each, _ in found for fault in each]
        added = [rule for _, each in found for rule in each]
        ever_added.update(dict.fromkeys(added))
        if not faults:
            break
        if attempt + 1 == _TRIES:
            raise LiveError(
                "other programs change the rules as fast as they are loaded: " + "; ".join(faults[:5])
            )
    for change in changes:
        change.clean()
    return Performed(seconds, tuple(added), tuple(rule for rule in ever_added if rule not in added))


def _flip(changes: Sequence[RuleSetChange], staged: Callable[[], None]) -> float:
    """Change the visible chains: in nf_tables in one commit if the kernel takes it, else table by table."""
    if all(change.kernel.backend is Backend.NFT for change in changes):
        until = time.monotonic() + _SECONDS_AT_ONCE
        while time.monotonic() < until:
            try:
                _flip_at_once(changes, staged)
                return 0.0
            except flip_nft.Changed:
                continue
            except LiveError:
                break  # some rule has a part that cannot be copied
    return _flip_by_tables(changes, staged)


def _flip_by_tables(changes: Sequence[RuleSetChange], staged: Callable[[], None]) -> float:
    """Change the visible chains table by table; the seconds between the first commit and the last one."""
    texts: list[str] = []
    began: list[float] = []
    ended = 0.0

    def read() -> None:
        texts[:] = [change.flip_text() for change in changes]

    def load() -> None:
        nonlocal ended
        for change in changes:
            for place in change.grown() if change.kernel.backend is Backend.NFT else ():
                flip_nft.set_counts(*place)
        began.append(time.monotonic())
        for change, text in zip(changes, texts, strict=True):
            change.kernel.load(text)
        ended = time.monotonic()

    with legacy_lock(all(change.kernel.takes_lock for change in changes)):
        read()
        staged()  # once: if the text is refused, some tables may have their new rules already
        _insist(load, read, changes)
    for change in changes:
        change.set_counts(lambda plan: plan.changed)
    return ended - began[0]


def _flip_at_once(changes: Sequence[RuleSetChange], staged: Callable[[], None]) -> None:
    expected = flip_nft.generation()
    for change in changes:
        change.flip_text()
    staged()
    for change in changes:
        expected += change.stage_bodies()
    policies = {place: policy for change in changes for place, policy in change.policies().items()}
    counts = {place: count for change in changes for place, count in change.policy_counts().items()}
    flip_nft.flip(
        [flip for change in changes for flip in change.flips()],
        policies,
        counts,
        [chains for change in changes for chains in change.grown()],
        expected,
    )
