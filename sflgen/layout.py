"""The base: chains of the master list as trees, laid out so that patches can be put in front.

A master chain is served by *sections*.  A rule whose memory must exist once stands in a shared
chain of its own, which trees and overlays enter by `-j`; one that also leaves its chain
(RETURN, -g) begins a section of its own, entered by `-g`, with fronts of its own behind it.
So memories stay where they are through patches and folds.

Invariants: the master rules of a section, with stand-ins for shared rules and a `-g` to the
next section behind them, are its *list*; reading a section's chain does what reading its list
does.  In a section with a tree the chain begins with the rule with memory, if it has one, then
the tree.  Entries (*fronts*) stand in front of the tree or inside, in chains that are then
*hosts*; of two that may concern the same packet the newer is read first.
"""

from __future__ import annotations

import enum
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from hitables.compiler.compile import compile_rules
from hitables.compiler.options import Options
from hitables.emit.chain_writer import goto
from hitables.emit.jumps import leaves_chain, stand_in
from hitables.ir.choices import BackendChoice, Malformed, backend_choice, choose
from hitables.ir.program import Chain, Program, Table
from hitables.ir.rule import EVERYTHING, Ends, Kind, Rule, Target

from .edits import Edit, Op, apply, jumps_to, rule_edits, rule_key
from .lcs import gaps


@dataclass(frozen=True, slots=True)
class Front:
    """One entry in front of a tree, or of a part of it.

    row    its place in the chain that it stands in
    chain  its overlay; "" when the entry itself says what becomes of its packets
    nth    of an entry that says the insertion of a rule and nothing else: how many rules stand
           before that one in the list of the entry's region
    cost   rules that an average packet reads more for it, in thousandths
    """

    row: int
    chain: str
    nth: int | None
    cost: int


@dataclass(frozen=True, slots=True)
class Host:
    """A chain of the tree of *section* with entries in it, in the order of their rows."""

    section: str
    fronts: tuple[Front, ...]


@dataclass(frozen=True, slots=True)
class Section:
    """*size* rules of a master chain, served by the chain *name*, with a *tree* or one by one."""

    name: str
    size: int
    tree: bool


@dataclass(frozen=True, slots=True)
class Served:
    """How a master chain is served; *once*: place of a shared rule, and its chain, in order."""

    sections: tuple[Section, ...]
    once: tuple[tuple[int, str], ...] = ()

    def names(self) -> set[str]:
        """The chains made for it that are neither tree nor overlay."""
        return {section.name for section in self.sections[1:]} | {name for _, name in self.once}


class Strategy(enum.Enum):
    """How an update reaches the kernel."""

    EDIT = "edit"  # rules are changed where they stand: in a list, or as copies in a tree
    OVERLAY = "overlay"  # an entry in front of the tree
    GRAFT = "graft"  # entries in the leaves that it concerns
    CANCEL = "cancel"  # an insertion that waits in an entry is taken back
    FOLD = "fold"


Place = tuple[str, str]
Map = Mapping[Place, Served]
Hosts = Mapping[Place, Host]


@dataclass(frozen=True, slots=True)
class Settings:
    """How a state is compiled and patched.

    backend    the iptables that loads the result; "any": right and loadable in both
    delta      rules that entries may make an average packet read more before a tree is grown anew
    left       patterns of chains that others change: never touched, never compared
    prefix     what the names of generated chains begin with
    """

    backend: BackendChoice = "any"
    malformed: Malformed = Malformed.STRICTER
    delta: int = 32
    min_length: int = 8
    max_expansion: float = 4.0
    left: tuple[str, ...] = ()
    prefix: str = "sf"

    def __post_init__(self) -> None:
        # The enums are strings: callers may write the words.
        object.__setattr__(self, "backend", backend_choice(self.backend))
        object.__setattr__(self, "malformed", choose(Malformed, self.malformed))

    def options(self, table: str, chains: Iterable[str]) -> Options:
        """What hitables is told."""
        return Options(
            as_written=True,  # counters are carried from copy to copy of the same text
            backend=self.backend,
            malformed=self.malformed,
            min_length=self.min_length,
            max_expansion=self.max_expansion,
            tables=frozenset({table}),
            chains=frozenset(chains),
        )

    def is_left(self, chain: str) -> bool:
        """Whether the chain is somebody else's."""
        from fnmatch import fnmatchcase

        return any(fnmatchcase(chain, pattern) for pattern in self.left)


# Names that trees and their overlays can have at one time.
HALF = 1_000_000


class Names:
    """Fresh names for generated chains of one table.

    *half*: 0 or 1.  Trees that are grown while others go on being patched are named in the other half,
    so that two that are named at the same time never get one name.
    """

    def __init__(self, prefix: str, taken: Iterable[str], half: int = 0) -> None:
        self.prefix, self.taken, self.half = prefix, taken, half
        self._free: Iterator[int] | None = None  # looked for when they are needed

    def next(self) -> str:
        if self._free is None:
            self._free = self._numbers()
        return f"{self.prefix}{next(self._free)}"

    def _numbers(self) -> Iterator[int]:
        first, start = self.half * HALF, len(self.prefix)
        rests = [name[start:] for name in self.taken if name.startswith(self.prefix)]
        used = {int(rest) for rest in rests if rest.isdigit()}
        last = max((number for number in used if first < number < first + HALF), default=first)
        yield from range(last + 1, first + HALF)
        yield from (number for number in range(first + 1, last) if number not in used)

    def is_made(self, name: str) -> bool:
        """Whether the name is one of ours."""
        return name.startswith(self.prefix) and name[len(self.prefix) :].isdigit()


def begins_section(rule: Rule) -> bool:
    """Whether the rule can neither be copied nor be entered by -j."""
    return rule.has_memory and leaves_chain(rule)


def section_lists(chain: Chain, served: Served) -> list[tuple[Rule, ...]]:
    """The list of each section of *chain*."""
    once = dict(served.once)
    rules = [stand_in(rule, once[at]) if at in once else rule for at, rule in enumerate(chain.rules)]
    lists, start = [], 0
    for section, after in itertools.zip_longest(served.sections, served.sections[1:]):
        listed = rules[start : start + section.size]
        start += section.size
        lists.append((*listed, Rule((), goto(after.name))) if after else tuple(listed))
    return lists


def _cut(chain: Chain, old: Served | None, names: Names) -> Served:
    """Sections and shared chains for all rules of *chain*; those of *old* keep their names."""
    shared = dict(old.once) if old else {}
    starts: dict[int, str] = {}
    if old:
        ends = itertools.accumulate(section.size for section in old.sections)
        starts = {end: section.name for end, section in zip(ends, old.sections[1:], strict=False)}
    sections, once = [Section(chain.name, 0, False)], []
    for at, rule in enumerate(chain.rules):
        if begins_section(rule) and at:
            sections.append(Section(starts.get(at) or names.next(), 0, False))
        elif rule.has_memory and not begins_section(rule):
            once.append((at, shared.get(at) or names.next()))
        sections[-1] = replace(sections[-1], size=sections[-1].size + 1)
    return Served(tuple(sections), tuple(once))


# What others do with their chains is not known.
OTHERS = Target("chains-of-others", Kind.VERDICT, "chains-of-others", ends=Ends.MAYBE, writes=EVERYTHING)


@dataclass(slots=True)
class Grown:
    """The edits that make the new base of the old one, and how the chains are served then.

    A chain whose value is None is served as it stands in the master list.
    """

    edits: list[Edit] = field(default_factory=list)
    served: dict[Place, Served | None] = field(default_factory=dict)


def grow(
    loaded: Program,
    master: Program,
    served: Map,
    hosts: Hosts,
    table: str,
    chains: Sequence[str],
    settings: Settings,
    half: int = 0,
    aside: bool = False,
) -> Grown:
    """Build new trees for *chains* of *table*; what else is loaded stays as it is.

    New trees take the place of the old ones chain by chain, so what did not change is not
    said again; *aside*, they get chains of their own, which can be loaded while the old ones serve.
    """
    held = loaded.table(table)
    names = Names(settings.prefix, [chain.name for chain in held.chains], half)
    cuts = {name: _cut(master.table(table)[name], served.get((table, name)), names) for name in chains}
    before = [served[table, name] for name in chains if (table, name) in served]
    old = set().union(*(owned(held, how, names) | how.names() for how in before))
    planned = _planned(held, master.table(table), cuts, old, settings)
    wanted = {s.name for cut in cuts.values() for s in cut.sections if s.size >= settings.min_length}
    trees: set[str] = set()
    roots: dict[str, tuple[Rule, ...]] = {}
    made: dict[str, tuple[Rule, ...]] = {}
    if wanted:
        tables = [planned if each.name == table else each for each in loaded]
        compiled = compile_rules(replace(loaded, tables=tuple(tables)), settings.options(table, wanted))
        trees = {report.chain for report in compiled.reports if not report.why and report.chain in wanted}
        after = compiled.program.table(table)
        roots = {name: after[name].rules for name in trees}
        made = {chain: after[chain].rules for at, chain in compiled.origins if at == table}
    grown = Grown()
    for name in chains:
        cut: Served | None = None
        if any(section.name in trees for section in cuts[name].sections):
            sections = tuple(replace(each, tree=each.name in trees) for each in cuts[name].sections)
            cut = replace(cuts[name], sections=sections)
        was = served.get((table, name))
        _Replanting(grown, held, master.table(table)[name], was, cut, hosts, roots, made, names, aside).run()
        grown.served[table, name] = cut
    kept = {**served, **grown.served}
    stay = set().union(*(how.names() for (at, _), how in kept.items() if at == table and how is not None))
    (after,) = apply(Program(loaded.family, (held,)), grown.edits)
    gone = unreached(after, stay, names)
    grown.edits += [Edit(Op.FLUSH, table, name) for name in gone if after[name].rules]
    grown.edits += [Edit(Op.REMOVE, table, name) for name in gone]
    return grown


def unreached(table: Table, stay: set[str], names: Names) -> list[str]:
    """The generated chains that nobody enters any more, those of *stay* apart."""
    todo = [chain.name for chain in table.chains if not names.is_made(chain.name) or chain.name in stay]
    found = set(todo)
    while todo:
        for rule in table[todo.pop()].rules:
            name = jumps_to(rule)
            if name and name not in found:
                found.add(name)
                todo.append(name)
    return [chain.name for chain in table.chains if chain.name not in found]


def owned(held: Table, served: Served, names: Names) -> set[str]:
    """The chains of the trees and overlays of a served chain."""
    kept = served.names()
    found: set[str] = set()
    todo = [section.name for section in served.sections if section.tree]
    while todo:
        for rule in held[todo.pop()].rules:
            name = jumps_to(rule)
            if names.is_made(name) and name not in kept and name not in found:
                found.add(name)
                todo.append(name)
    return found


def _planned(
    held: Table, master: Table, cuts: Mapping[str, Served], gone: set[str], settings: Settings
) -> Table:
    """The table in which trees are grown: all that is loaded, with the lists of the sections of *cuts*."""
    lists: dict[str, tuple[Rule, ...]] = {}
    for name, cut in cuts.items():
        lists.update(
            (section.name, listed)
            for section, listed in zip(cut.sections, section_lists(master[name], cut), strict=True)
        )
        lists.update((chain, (master[name].rules[at],)) for at, chain in cut.once)
    chains = []
    for chain in held.chains:
        if chain.name in gone and chain.name not in lists:
            continue
        rules = lists.pop(chain.name, chain.rules)
        if settings.is_left(chain.name):
            rules = (Rule((), OTHERS),)
        chains.append(chain.with_rules(tuple(rules)))
    chains += [Chain(name, None, rules) for name, rules in lists.items()]
    return replace(held, chains=tuple(chains))


class _Replanting:
    """Puts the new trees of one chain in the place of its old ones."""

    def __init__(
        self,
        grown: Grown,
        held: Table,
        chain: Chain,
        before: Served | None,
        after: Served | None,
        hosts: Hosts,
        roots: Mapping[str, tuple[Rule, ...]],
        made: Mapping[str, tuple[Rule, ...]],
        names: Names,
        aside: bool,
    ) -> None:
        self.aside = aside
        self.grown, self.held, self.chain, self.hosts = grown, held, chain, hosts
        self.before, self.after, self.roots, self.made, self.names = before, after, roots, made, names
        self.called: dict[str, str] = {}  # name of hitables -> name that is loaded
        self.kept: set[str] = set()
        # Sections and shared chains have the same name before and after.
        self.fixed = set().union(*(how.names() for how in (before, after) if how is not None))

    def run(self) -> None:
        after, held = self.after, self.held
        chains: dict[str, tuple[Rule, ...]] = {self.chain.name: self.chain.rules}
        if after is not None:
            lists = section_lists(self.chain, after)
            chains = {
                section.name: self.roots[section.name] if section.tree else listed
                for section, listed in zip(after.sections, lists, strict=True)
            }
            chains.update((name, (self.chain.rules[at],)) for at, name in after.once)
            for section in after.sections:
                if section.tree and not self.aside:
                    self.pair(section)
        for name in self.reached(chains):
            chains[name] = self.made[name]
            self.called.setdefault(name, self.names.next())
        fresh = [name for name in chains if self.called.get(name, name) not in held]
        edits = [self.edit(Op.NEW, self.called.get(name, name)) for name in fresh]
        for name, rules in chains.items():
            loaded = self.called.get(name, name)
            was = held[loaded].rules if loaded in held else ()
            edits += rule_edits(held.name, loaded, was, [self.renamed(rule) for rule in rules])
        self.grown.edits += edits

    def edit(self, op: Op, name: str) -> Edit:
        return Edit(op, self.held.name, name)

    def reached(self, chains: Mapping[str, Sequence[Rule]]) -> list[str]:
        """The chains of the new trees; one that nobody enters (rules that others cover) is not loaded."""
        found: dict[str, None] = {}
        todo = list(chains.values())
        while todo:
            for rule in todo.pop():
                name = jumps_to(rule)
                if name in self.made and name not in chains and name not in found:
                    found[name] = None
                    todo.append(self.made[name])
        return list(found)

    def pair(self, section: Section) -> None:
        """Let the new chains that stand where old ones stood take their names, from the root down."""
        before = {each.name: each for each in self.before.sections} if self.before else {}
        if section.name not in before or not before[section.name].tree:
            return
        todo = [(self.grown_rules(section.name), self.roots[section.name])]
        kept = self.before.names() if self.before else set()
        while todo:
            old, new = todo.pop()
            for one, other in self.alike(old, new):
                before_name, name = jumps_to(old[one]), jumps_to(new[other])
                if not self.names.is_made(before_name) or before_name in kept or before_name in self.kept:
                    continue
                if name not in self.made or name in self.called:
                    continue
                self.called[name] = before_name
                self.kept.add(before_name)
                todo.append((self.grown_rules(before_name), self.made[name]))

    def grown_rules(self, name: str) -> tuple[Rule, ...]:
        """The rules of a chain of the old trees, without the entries that were put there since."""
        host = self.hosts.get((self.held.name, name))
        rows = {front.row for front in host.fronts} if host else set()
        return tuple(rule for row, rule in enumerate(self.held[name].rules) if row not in rows)

    def alike(self, old: Sequence[Rule], new: Sequence[Rule]) -> list[tuple[int, int]]:
        """Rules of both that stand in the same place, their ways down a tree among them."""
        keys = [[self.way(rule) for rule in rules] for rules in (old, new)]
        pairs: list[tuple[int, int]] = []
        a = b = 0
        for gone, come in (*gaps(*keys), (range(len(old), len(old)), range(len(new), len(new)))):
            pairs += zip(range(a, gone.start), range(b, come.start), strict=True)
            parts = zip(keys, (gone, come), strict=True)
            ways = [[at for at in part if side[at][1] in ("-g", "-j")] for side, part in parts]
            pairs += zip(*ways, strict=False)
            a, b = gone.stop, come.stop
        return pairs

    def way(self, rule: Rule) -> tuple[object, str]:
        matches, target = rule_key(rule)
        name = jumps_to(rule)
        if (name in self.made or self.names.is_made(name)) and name not in self.fixed:
            return matches, target.partition(" ")[0]
        return matches, target

    def renamed(self, rule: Rule) -> Rule:
        name = self.called.get(jumps_to(rule))
        if name is None or rule.target is None:
            return rule
        if rule.target.kind is Kind.GOTO:
            return rule._replace(target=goto(name))
        return rule._replace(target=Target(name, Kind.JUMP, f"-j {name}"))
