"""Proofs of patches where they are: on the packets that an update may concern, and nowhere else.

A plan that grew trees is proved as a whole.  Of any other it is shown that

1. each edit of a tree concerns packets of an updated rule's header tests alone: it puts or takes
   away a rule that has these tests, or that lets through fewer packets than they do;
2. for these packets the chain as it is loaded does what the chain of the list does, as both
   stand after the update: the exact engine compares the two, without the rules and branches
   whose addresses, protocol or interfaces say that no such packet comes to them.

With the law before the update this gives the law after it.  Chains that the two jump to are
compared by themselves (they are chains of the list, too), so here each stands for something
unknown that writes what it writes.  What cannot be shown so is proved as a whole.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from hitables.analyse.callgraph import writes as written_by
from hitables.emit.chain_writer import goto
from hitables.ir.fields import Family, Field
from hitables.ir.program import Chain, Program, Table
from hitables.ir.rule import Ends, Kind, Match, Role, Rule, Target
from hitables.ir.rule import State as What
from hitables.verify import exact
from hitables.verify.question import Equal, Undecided

from .edits import Edit, Op, jumps_to, rule_key
from .layout import Names, Place, Served, Strategy, section_lists
from .planner import Plan, plan
from .region import Region
from .rule_index import Listing, fields_written, hull
from .state import Hulls, State, prove, verify

# Seconds.  A rule without addresses concerns rules that cross wildly, which cutting regions takes long for
# (40 s in fw1_10K); the proof of the whole knows groups, and takes 0.5 s there while no entry is among them.
LONGEST = 2.0

_PLAIN = frozenset({Field.SRC, Field.DST, Field.PROTO, Field.IIF, Field.OIF})
_ENTERED = "the list, or what is loaded for it"  # longer than the name of a chain may be


def prove_patch(made: Plan) -> bool:
    """NotEquivalent, with a packet, unless the law holds after *made* as it held before; whether it was
    enough to look at what the updates concern."""
    if holds(made):
        return True
    prove(made.after)
    return False


def proved_plan(
    state: State, updates: Sequence[Edit], strategy: Strategy | None = None, proving: bool = True
) -> Plan:
    """A plan of *updates* that is proved; without *proving* one that takes no rules out where they stand."""
    made = plan(state, updates, strategy, taking=proving)
    return proved(made, strategy) if proving else made


def proved(made: Plan, strategy: Strategy | None = None) -> Plan:
    """*made*, once it is proved; NotEquivalent, with a packet, where the law does not hold after it.

    Whether rules may be taken out where they stand is for the proof to say: if not, there are entries.
    """
    found = shown(made)
    if not made.taken:
        if not found:
            prove(made.after)
        return made
    if found is None:
        found = isinstance(verify(made.after), Equal)
    return made if found else proved(plan(made.before, made.updates, strategy))


def holds(made: Plan) -> bool:
    """Whether it can be shown, by what the updates concern alone, that the law still holds."""
    return shown(made) is True


def shown(made: Plan) -> bool | None:
    """As `holds`; None when that takes longer than LONGEST."""
    if any(strategy is Strategy.FOLD for _, _, strategy in made.chosen):
        return False
    concerned: dict[Place, list[Rule]] = {}
    updated = _updated(made)
    for place, rules in updated.items():
        if place in made.before.served:
            concerned[place] = rules
        elif not _alike(made.after, place):
            return False
    regions = {
        place: [Region.around(rule, made.after.master.family, made.after.backends) for rule in rules]
        for place, rules in concerned.items()
    }
    for edit in made.edits:
        place = edit.table, edit.chain
        if place in updated and place not in concerned:
            continue  # it was found to be as it is listed
        tests = [region for (at, _), found in regions.items() if at == edit.table for region in found]
        if not _is_inside(edit, made, tests):
            return False
    for place, found in regions.items():
        for region in _distinct(found):
            equal = _is_equal(made.after, place, region)
            if not equal:
                return equal
    return True


def _updated(made: Plan) -> dict[Place, list[Rule]]:
    """The rules that came or went, by chain."""
    found: dict[Place, list[Rule]] = {}
    lists: dict[Place, list[Rule]] = {}
    for edit in made.updates:
        place = edit.table, edit.chain
        rules = found.setdefault(place, [])
        if edit.op in (Op.NEW, Op.REMOVE, Op.POLICY):
            continue
        if place not in lists:
            held = made.before.master
            known = any(table.name == edit.table and edit.chain in table for table in held)
            lists[place] = list(held.table(edit.table)[edit.chain].rules) if known else []
        listed = lists[place]
        if edit.op is Op.FLUSH:
            rules += listed
            listed.clear()
        if edit.op in (Op.DELETE, Op.REPLACE):
            rules.append(listed.pop(edit.at))
        if edit.rule is not None:
            rules.append(edit.rule)
            listed.insert(edit.at, edit.rule)
    return found


def _alike(state: State, place: Place) -> bool:
    """Whether a chain without a tree is loaded as it is listed."""
    one, other = (
        next((each[place[1]] for each in program if each.name == place[0] and place[1] in each), None)
        for program in (state.master, state.loaded)
    )
    if one is None or other is None:
        return one is other
    return one.policy == other.policy and [*map(rule_key, one.rules)] == [*map(rule_key, other.rules)]


def _distinct(regions: Iterable[Region]) -> list[Region]:
    return list({region.matches: region for region in regions}.values())


def _is_inside(edit: Edit, made: Plan, regions: list[Region]) -> bool:
    """Whether *edit* changes nothing for packets outside of *regions*."""
    before, after = (program.table(edit.table) for program in (made.before.loaded, made.after.loaded))
    if edit.op is Op.NEW or edit.chain not in before:
        return edit.chain not in before
    if edit.chain not in after:
        return True  # the kernel removes no chain that a rule enters
    if edit.op in (Op.FLUSH, Op.REMOVE):
        return False
    rules = [] if edit.rule is None else [edit.rule]
    if edit.op in (Op.DELETE, Op.REPLACE):
        # Several edits of one chain move what stands behind them: any rule that is gone is looked at.
        kept = {id(rule) for rule in after[edit.chain].rules}
        rules += [rule for rule in before[edit.chain].rules if id(rule) not in kept]
    return all(any(_lets_in(region, rule) for region in regions) for rule in rules)


def _lets_in(region: Region, rule: Rule) -> bool:
    """Whether what *rule* does anything to is in the region."""
    if set(region.matches) <= set(_leading(rule)):
        return True
    return Region(_leading(rule), region.family, region.backends).touched().passes(region.matches)


def _leading(rule: Rule) -> list[Match]:
    """The header options of a rule, which the kernel tests first."""
    return [match for match in rule.matches if not match.name and match.role is Role.SPACE]


# The two sides.


def _is_equal(state: State, place: Place, region: Region) -> bool | None:
    """Whether the list and what is loaded treat packets of *region* alike, in the chain of *place*; None
    when that takes longer than LONGEST."""
    table, chain = place
    served = state.served[place]
    listed, loaded = state.master.table(table), state.loaded.table(table)
    listings = _listings(state, place, served)
    states: Mapping[str, frozenset[What]] = {}
    if any(listing.acts.any() for listing in listings):
        states = written_by(listed)
    fields = _PLAIN
    for listing in listings:
        for at in listing.acts.nonzero()[0]:
            rule = listing.rules[at]
            entered = states.get(rule.target.name, frozenset()) if rule.target is not None else frozenset()
            fields -= fields_written(rule.writes | entered)
    rules: list[Rule] = []
    start = 0
    for listing, section in zip(listings, served.sections, strict=True):
        near = (at + start for at in listing.near(region, _PLAIN - fields).tolist() if at < section.size)
        rules += [listed[chain].rules[at] for at in near]
        start += section.size
    names = Names(state.settings.prefix, ())
    parts = _reached(loaded, chain, names, region, fields, state.master.family, state.hulls)
    policy = listed[chain].policy
    sides = []
    for root, others in ((tuple(rules), {}), (parts.pop(chain), parts)):
        front = Chain(chain, policy, (Rule(region.matches, goto(_ENTERED)),))
        made = {_ENTERED: root, **others}
        called = {name for each in made.values() for rule in each if (name := jumps_to(rule))} - made.keys()
        unknown = {name: (Rule((), _unknown(name, states.get(name, frozenset()))),) for name in called}
        chains = [Chain(name, None, each) for name, each in {**made, **unknown}.items()]
        sides.append(Program(state.master.family, (Table(table, (front, *chains)),)))
    question = replace(state.question(timeout=LONGEST), chains=frozenset({chain}))
    both = frozenset(each.name for side in sides for each in side.table(table).chains)
    sides = [_with_chains(side, table, both) for side in sides]
    answer = exact.check(sides[0], sides[1], question)
    return None if isinstance(answer, Undecided) else isinstance(answer, Equal)


def _with_chains(program: Program, table: str, names: frozenset[str]) -> Program:
    """*program* with empty chains of those of *names* that it lacks, which nobody enters."""
    held = program.table(table)
    more = [Chain(name, None) for name in sorted(names) if name not in held]
    return replace(program, tables=(replace(held, chains=(*held.chains, *more)),))


def _unknown(name: str, states: frozenset[What]) -> Target:
    """What stands for a chain that is not looked into."""
    return Target(f"chain-{name}", Kind.VERDICT, f"chain-{name}", ends=Ends.MAYBE, writes=states)


def _listings(state: State, place: Place, served: Served) -> list[Listing]:
    """The list of each section."""
    keys = [(place[0], section.name) for section in served.sections]
    if all(key in state.listings for key in keys):
        return [state.listings[key] for key in keys]
    lists = section_lists(state.master.table(place[0])[place[1]], served)
    return [Listing.of(listed, state.master.family) for listed in lists]


def _reached(
    table: Table,
    root: str,
    names: Names,
    region: Region,
    fields: frozenset[Field],
    family: Family,
    hulls: Hulls,
) -> dict[str, tuple[Rule, ...]]:
    """The generated chains that packets of *region* may come to from *root*, without rules that are not
    for them."""
    compared = {at for at, field in enumerate(Listing.FIELDS) if field in fields}
    whole = hull(Rule(region.matches, None), family)
    ends = [(column, *value) for column, value in whole.items() if column in compared]
    found: dict[str, tuple[Rule, ...]] = {}
    todo = [root]
    while todo:
        name = todo.pop()
        if name in found:
            continue
        kept = []
        rules = table[name].rules
        known = hulls.get((table.name, name))
        if known is None or known[0] is not rules:
            known = hulls[table.name, name] = rules, [hull(rule, family) for rule in rules]
        for rule, own in zip(rules, known[1], strict=True):
            for column, first, last in ends:
                if column in own and (own[column][0] > last or own[column][1] < first):
                    break
            else:
                kept.append(rule)
                to = jumps_to(rule)
                if names.is_made(to):
                    todo.append(to)
        found[name] = tuple(kept)
    return found
