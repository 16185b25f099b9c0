"""A list whose kinds of rules are told apart first, written as the chains that the second program enters.

A compiled program tells which kinds of rules a packet matches before it reads any (ir/crossing.py).  Compared
with the list, its trees would cut the header space into the product of their fields.  So the list is written
in the same way: chains of the rules of each kind, chains of their tests, which go to the list, and the list.
Each has the name that the second program gives it, and the prover compares chains of one name once.

Law: that of ir/crossing.py.  Which chains have these parts is a guess, read off the jumps of the second
program; a wrong guess proves nothing.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Sequence

from hitables.ir.crossing import Crossing
from hitables.ir.program import Chain, Table
from hitables.ir.rule import Kind, Rule, Target, leaves_chain


def told_apart(
    rules: Sequence[Rule], crossing: Crossing, root: str, start: int, then: str | None, entered: Entered
) -> tuple[list[Rule], list[Chain]] | None:
    """*rules*, which *crossing* parts into kinds, as the second program reads them from chain *root* on.

    The rules in place of them, and the chains that these enter; None where they are not told apart.
    start  how many rules of *root* are read before
    then   the chain that follows; None where packets come back, or are at the end of a chain
    """
    if not entered.may_have(rules, then):
        return None
    leaves = any(map(leaves_chain, rules))
    for places in itertools.permutations(crossing.by_kind()):
        order = [[rules[at] for at in kind] for kind in places]
        found = None
        if then is None and not leaves and all(map(entered.decides, itertools.chain(*order[:-1]))):
            if len(order) == 2:
                found = _asked(rules, order, root, entered)
                found = found or _asked_in_halves(rules, places, root, entered)
            else:
                found = _asked_in_turn(rules, order, root, start, entered)
        if found is None and len(order) == 2:
            found = _told(rules, order, root, then, entered)
        if found is not None:
            return found
    return None


_Found = tuple[list[Rule], list[Chain]]


def _asked(
    rules: Sequence[Rule], kinds: Sequence[Sequence[Rule]], root: str, entered: Entered
) -> _Found | None:
    """Where each rule of the first kind, which decides its packets, asks for the second before it does."""
    one, two = kinds
    below = (root, *entered.by_tests(root))
    asks = entered.of_rules(below, one, Kind.JUMP)
    reads_two = _only(entered.by_rules_without_tests(below))
    whole = None if asks is None else entered.list_of(rules, asks)
    if asks is None or reads_two is None or whole is None:
        return None
    chains = [(asks, [_entering(rule, whole) for rule in two]), (whole, rules), (reads_two, two)]
    return _found([*_asking(one, asks), going_to(reads_two)], chains)


def _asked_in_halves(
    rules: Sequence[Rule], kinds: Sequence[Sequence[int]], root: str, entered: Entered
) -> _Found | None:
    """As `_asked`; packets whose rule of the second kind is in the second half of the list read that alone.

    Of the first half only rules of the first kind can match them, and these decide: they are read before it.
    """
    half = len(rules) // 2
    one, two = ([rules[at] for at in kind] for kind in kinds)
    early = [rules[at] for at in kinds[0] if at < half]
    below = (root, *entered.by_tests(root))
    asks = entered.of_rules(below, one, Kind.JUMP)
    reads_two = _only(entered.by_rules_without_tests(below))
    if asks is None or reads_two is None:
        return None
    rest = entered.list_behind(rules[:half], asks)
    whole = None if rest is None else entered.list_of([*rules[:half], going_to(rest)], asks)
    turns = [each for each in entered.by_tests(asks) if entered.in_turn(each)[1:] == [rest]]
    later = _only(turns)
    if rest is None or whole is None or later is None:
        return None
    chains: list[tuple[str, Sequence[Rule]]] = [
        (asks, [_entering(rules[at], whole if at < half else later) for at in kinds[1]]),
        (whole, [*rules[:half], going_to(rest)]),
        (rest, rules[half:]),
        (later, [calling(entered.in_turn(later)[0]), going_to(rest)]),
        (entered.in_turn(later)[0], early),
        (reads_two, two),
    ]
    return _found([*_asking(one, asks), going_to(reads_two)], chains)


def _asked_in_turn(
    rules: Sequence[Rule], kinds: Sequence[Sequence[Rule]], root: str, start: int, entered: Entered
) -> _Found | None:
    """Where trees over several kinds are called in turn, and each rule of all but the last asks."""
    *called, last = entered.in_turn(root, start) or [""]
    if len(called) + 1 != len(kinds):
        return None
    chains: list[tuple[str, Sequence[Rule]]] = [(last, kinds[-1])]
    tells: list[str] = []  # the chains of the tests of the kinds behind the one that is looked at
    wholes: set[str | None] = set()
    for at in reversed(range(len(called))):
        below = (called[at], *entered.by_tests(called[at]))
        asks = entered.of_rules(below, kinds[at], Kind.JUMP)
        if asks is None:
            return None
        told = entered.in_turn(asks) if tells else [asks]
        if not told or told[1:] != tells:
            return None
        if tells:
            chains.append((asks, [*map(calling, told[:-1]), going_to(told[-1])]))
        tells = told
        chains.append((called[at], _asking(kinds[at], asks)))
        wholes.add(entered.list_of(rules, tells[0]))
    whole = _only(wholes)
    if whole is None:
        return None
    chains.append((whole, rules))
    chains += [
        (name, [_entering(each, whole) for each in kind]) for name, kind in zip(tells, kinds[1:], strict=True)
    ]
    return _found([*map(calling, called), going_to(last)], chains)


def _asking(rules: Sequence[Rule], asks: str) -> list[Rule]:
    """Each of *rules* behind one that enters chain *asks* for its packets."""
    return [each for rule in rules for each in (_entering(rule, asks, Kind.JUMP), rule)]


def _told(
    rules: Sequence[Rule],
    kinds: Sequence[Sequence[Rule]],
    root: str,
    then: str | None,
    entered: Entered,
) -> _Found | None:
    """Where a third tree reads the rules of the first kind."""
    one, two = kinds
    below = (root, *entered.by_tests(root))
    end = [] if then is None else [going_to(then)]
    whole = entered.list_of([*rules, *end], root)
    tells = None if whole is None else entered.of_rules(below, one, Kind.GOTO)
    if whole is None or tells is None or tells == whole:
        return None
    own = entered.by_rules_without_tests((tells, *entered.by_tests(tells))) - {then}
    reads_one, reads_two = _only(own), _only(entered.by_rules_without_tests(below) - own - {then})
    if reads_one is None or reads_two is None:
        return None
    chains = [
        (tells, [*(_entering(rule, whole) for rule in two), going_to(reads_one)]),
        (whole, [*rules, *end]),
        (reads_one, [*one, *end]),
        (reads_two, [*two, *end]),
    ]
    return _found([*(_entering(rule, tells) for rule in one), going_to(reads_two)], chains)


def _found(inline: list[Rule], chains: Sequence[tuple[str, Sequence[Rule]]]) -> _Found | None:
    """The law is one of as many chains as there are names; None where a name stands for two of them."""
    if len({name for name, _ in chains}) < len(chains):
        return None
    return inline, [Chain(name, None, tuple(rules)) for name, rules in chains]


class Entered:
    """The new chains that chains of the second program enter."""

    def __init__(self, second: Table, first: Table) -> None:
        self.second, self.first = second, first
        self._enters: dict[str, list[tuple[Rule, Target]]] = {}
        self._ends: dict[str, bool] = {}

    def enters(self, name: str, kind: Kind) -> list[tuple[Rule, str]]:
        """The rules of a chain that enter a new chain by -j, or by -g, and that chain."""
        if name not in self._enters:
            self._enters[name] = [
                (rule, rule.target)
                for rule in self.second[name].rules
                if rule.target is not None
                and rule.target.enters
                and rule.target.name in self.second
                and rule.target.name not in self.first
            ]
        return [(rule, target.name) for rule, target in self._enters[name] if target.kind is kind]

    def by_tests(self, name: str) -> list[str]:
        """The chains that packets reach from chain *name* by -g of rules with tests, without itself."""
        found: dict[str, None] = {}
        waiting = [name]
        while waiting:
            for rule, target in self.enters(waiting.pop(), Kind.GOTO):
                if rule.matches and target not in found and target != name:
                    found[target] = None
                    waiting.append(target)
        return list(found)

    def by_rules_without_tests(self, names: Sequence[str]) -> set[str]:
        """The chains that *names* go to whatever the packet."""
        return {target for name in names for rule, target in self.enters(name, Kind.GOTO) if not rule.matches}

    def in_turn(self, name: str, start: int = 0) -> list[str]:
        """The new chains that all rules of chain *name* from *start* on enter; [] if some do not.

        Rules without a target may stand in front: they drop packets whose headers are cut off.
        """
        rules = list(itertools.dropwhile(lambda rule: rule.target is None, self.second[name].rules[start:]))
        entered = [rule.enters or "" for rule in rules if not rule.matches]
        found = [each for each in entered if each in self.second and each not in self.first]
        return found if len(found) == len(rules) else []

    def of_rules(self, names: Sequence[str], rules: Sequence[Rule], kind: Kind) -> str | None:
        """The chain that *names* enter by the matches of *rules*; None where there are none, or several."""
        known = {_matches(rule) for rule in rules}
        return _only(
            {
                target
                for name in names
                for rule, target in self.enters(name, kind)
                if rule.matches and _matches(rule) in known
            }
        )

    def may_have(self, rules: Sequence[Rule], then: str | None) -> bool:
        """Whether some new chain has as many rules as the list, or as its first half and a jump behind it."""
        counts = len(rules) + (then is not None), len(rules) // 2 + 1
        return any(len(each.rules) in counts and each.name not in self.first for each in self.second.chains)

    def list_of(self, rules: Sequence[Rule], name: str) -> str | None:
        """The chain with just these rules among those that chain *name* leads to."""
        wanted = keys(rules)
        alike = (each for each in self.by_tests(name) if len(self.second[each].rules) == len(rules))
        return _only({each for each in alike if keys(self.second[each].rules) == wanted})

    def list_behind(self, rules: Sequence[Rule], name: str) -> str | None:
        """Of the one chain of these rules and a jump to another, among those below *name*: that other."""
        alike = [each for each in self.by_tests(name) if len(self.second[each].rules) == len(rules) + 1]
        return _only(self.by_rules_without_tests([each for each in alike if self._has(each, rules)]))

    def rest(self, name: str, rules: Sequence[Rule]) -> str | None:
        """The chain that a tree over *rules*, in chain *name*, goes on to; None where that is not clear."""
        below = self.by_tests(name)
        lists = [each for each in below if len(self.second[each].rules) == len(rules) + 1]
        found = self.by_rules_without_tests([each for each in lists if self._has(each, rules)])
        return _only(found or self.by_rules_without_tests([name, *below]))

    def _has(self, name: str, rules: Sequence[Rule]) -> bool:
        return keys(self.second[name].rules[: len(rules)]) == keys(rules)

    def decides(self, rule: Rule) -> bool:
        """Whether the rule of the first program surely ends the way of each packet that it matches."""
        return rule.is_final or (rule.enters is not None and self.ends(rule.enters))

    def ends(self, name: str) -> bool:
        """Whether no packet comes back from the chain of the first program."""
        if name not in self._ends:
            self._ends[name] = False
            self._ends[name] = self._finds_end(name)
        return self._ends[name]

    def _finds_end(self, name: str) -> bool:
        for rule in self.first[name].rules if name in self.first else ():
            if rule.returns or (rule.target is not None and rule.target.kind is Kind.GOTO):
                return False
            if not rule.matches and self.decides(rule):
                return True
        return False


def going_to(chain: str) -> Rule:
    """A rule by which all packets go to *chain*."""
    return _entering(Rule((), None), chain)


def calling(chain: str) -> Rule:
    """A rule by which all packets enter *chain*, and come back."""
    return _entering(Rule((), None), chain, Kind.JUMP)


def _entering(rule: Rule, chain: str, kind: Kind = Kind.GOTO) -> Rule:
    """A rule that enters *chain* for the packets that *rule* matches."""
    word = "-j" if kind is Kind.JUMP else "-g"
    return Rule(rule.matches, Target(chain, kind, f"{word} {chain}"))


def _only(names: Collection[str | None]) -> str | None:
    """The one name; None where there are none, or several."""
    return next(iter(names)) if len(names) == 1 else None


def _matches(rule: Rule) -> tuple[str, ...]:
    return tuple(match.key for match in rule.matches)


def keys(rules: Sequence[Rule]) -> list[tuple[tuple[str, ...], str]]:
    """By rule: equal keys, equal rules."""
    return [(_matches(rule), "" if rule.target is None else rule.target.key) for rule in rules]
