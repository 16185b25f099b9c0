"""Rule sets that differ by one edit: the mistakes of a typist, or of a compiler.

A `Sheet` is a text with the program read from it.  A kind of mutation finds the rules of a sheet to which
it applies, and changes the text at one of them.  It changes text, so that words, meaning and key of a rule
stay consistent: the compared program is read from the text that is loaded.

Invariant: the lines of a mutant are those of the sheet except for one edit.  Other modules decide whether
it can be read, and whether it has the same meaning.
"""

from __future__ import annotations

import ipaddress
import random
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from hitables.emit.text import chain_text, rule_text
from hitables.ir.fields import Field
from hitables.ir.program import Chain, Program, Table
from hitables.ir.rule import Kind as Does
from hitables.ir.rule import Match, Metadata, Role, Rule, Target


@dataclass(frozen=True, slots=True)
class RuleRef:
    """One rule: its table, its chain, its index there.  (Of a chain as such: index 0.)"""

    table: Table
    chain: Chain
    at: int

    @property
    def rule(self) -> Rule:
        return self.chain.rules[self.at]


@dataclass(frozen=True)
class Sheet:
    """A rule set as text and as a program read from it: each rule has the number of its line."""

    text: str
    program: Program

    @cached_property
    def lines(self) -> list[str]:
        return self.text.splitlines()

    @cached_property
    def places(self) -> tuple[RuleRef, ...]:
        return tuple(
            RuleRef(table, chain, at)
            for table in self.program
            for chain in table.chains
            for at in range(len(chain.rules))
        )

    @cached_property
    def interfaces(self) -> tuple[str, ...]:
        """The names of interfaces that rules test."""
        words = (match.words for place in self.places for match in place.rule.matches if not match.name)
        return tuple(dict.fromkeys(each[-1] for each in words if each[-2:-1] in (("-i",), ("-o",))))

    def with_lines(self, changes: Mapping[int, Sequence[str]]) -> str:
        """The text with other lines in the place of those numbered, from 1."""
        out: list[str] = []
        for number, line in enumerate(self.lines, 1):
            out += changes.get(number, (line,))
        return "\n".join(out) + "\n"

    def with_rule(self, place: RuleRef, rule: Rule) -> str:
        return self.with_lines({place.rule.line: [rule_text(rule, place.chain.name)]})


Edit = Callable[[Sheet, RuleRef, random.Random], str | None]


@dataclass(frozen=True, slots=True)
class Mutation:
    """One kind.

    places    where it can act
    edit      the text with one of these changed; None when chance has it that nothing changes
    compiled  it is about trees: for compiled rule sets only
    """

    name: str
    places: Callable[[Sheet], Sequence[RuleRef]]
    edit: Edit
    compiled: bool = False


def mutate(sheet: Sheet, mutation: Mutation, rng: random.Random) -> str | None:
    """A mutant of *sheet*; None when there is no place for it, or nothing changed."""
    places = mutation.places(sheet)
    text = mutation.edit(sheet, rng.choice(places), rng) if places else None
    return None if text == "\n".join(sheet.lines) + "\n" else text


# -- whole rules --------------------------------------------------------------------------------------


def _line(sheet: Sheet, place: RuleRef) -> str:
    return sheet.lines[place.rule.line - 1]


def _removed(sheet: Sheet, place: RuleRef, rng: random.Random) -> str:
    return sheet.with_lines({place.rule.line: []})


def _doubled(sheet: Sheet, place: RuleRef, rng: random.Random) -> str:
    """Once more: behind itself, or at the end of its chain."""
    line = _line(sheet, place)
    last = place.chain.rules[-1].line
    if rng.random() < 0.5 or last == place.rule.line:
        return sheet.with_lines({place.rule.line: [line, line]})
    return sheet.with_lines({last: [sheet.lines[last - 1], line]})


def _moved(sheet: Sheet, place: RuleRef, rng: random.Random) -> str | None:
    """Elsewhere in its chain: to a neighbour's place, or anywhere."""
    rules, at = place.chain.rules, place.at
    near = [other for other in (at - 1, at + 1) if 0 <= other < len(rules)]
    other = rng.choice(near) if near and rng.random() < 0.5 else rng.randrange(len(rules))
    return None if other == at else _moved_to(sheet, place, other)


def _moved_to(sheet: Sheet, place: RuleRef, other: int) -> str:
    line, there = _line(sheet, place), place.chain.rules[other].line
    moved = sheet.lines[there - 1]
    pair = [line, moved] if other < place.at else [moved, line]
    return sheet.with_lines({place.rule.line: [], there: pair})


def _rules(fits: Callable[[RuleRef], bool]) -> Callable[[Sheet], list[RuleRef]]:
    return lambda sheet: [place for place in sheet.places if fits(place)]


def _has_memory(place: RuleRef) -> bool:
    """A match whose copies share memory or chance: recent, statistic random."""
    matches = place.rule.matches
    return any(match.name in ("recent", "statistic") and match.role is Role.NAMED for match in matches)


# -- words of one match ------------------------------------------------------------------------------

Reworded = tuple[str, ...] | None
Change = Callable[[Match, Sheet, random.Random], Reworded]


def _reworded(change: Change, fits: Callable[[Match], bool]) -> tuple[Callable[[Sheet], list[RuleRef]], Edit]:
    """Places and edit of a mutation that gives one match other words."""

    def edit(sheet: Sheet, place: RuleRef, rng: random.Random) -> str | None:
        matches = list(place.rule.matches)
        at = rng.choice([at for at, match in enumerate(matches) if fits(match)])
        words = change(matches[at], sheet, rng)
        if words is None:
            return None
        matches[at] = matches[at]._replace(words=words)
        return sheet.with_rule(place, place.rule._replace(matches=tuple(matches)))

    return _rules(lambda place: any(map(fits, place.rule.matches))), edit


_PORT_OPTIONS = ("--sport", "--dport", "--sports", "--dports", "--ports")
_STATES = ("INVALID", "NEW", "ESTABLISHED", "RELATED", "UNTRACKED")


def _option(match: Match, *names: str) -> int:
    """Where one of the options *names* has its value; 0 when there is none."""
    return next((at + 1 for at, word in enumerate(match.words[:-1]) if word in names), 0)


def _changed(words: tuple[str, ...], at: int, word: str) -> tuple[str, ...]:
    return (*words[:at], word, *words[at + 1 :])


def _port(match: Match, sheet: Sheet, rng: random.Random) -> Reworded:
    """One port to its neighbour, or to another."""
    at = _option(match, *_PORT_OPTIONS)
    ports = list(re.finditer(r"[^,:]+", match.words[at]))
    one = rng.choice(ports)
    was = int(one[0]) if one[0].isdigit() else 1000
    now = rng.choice([was - 1, was + 1, rng.randrange(1, 65536)])
    if not 0 <= now <= 65535:
        return None
    value = match.words[at]
    return _changed(match.words, at, f"{value[: one.start()]}{now}{value[one.end() :]}")


def _prefix(match: Match, sheet: Sheet, rng: random.Random) -> Reworded:
    """A bit shorter, a bit longer, or the network beside it."""
    at = _option(match, "-s", "-d")
    try:
        net = ipaddress.ip_network(match.words[at], strict=False)
    except ValueError:  # a mask that is no prefix
        return None
    around: list[ipaddress.IPv4Network | ipaddress.IPv6Network] = []
    if net.prefixlen:
        around += [net.supernet()]
        around += [each for each in net.supernet().subnets() if each != net]
    if net.prefixlen < net.max_prefixlen:
        around += net.subnets()
    return _changed(match.words, at, str(rng.choice(around)))


def _protocol(sheet: Sheet, place: RuleRef, rng: random.Random) -> str | None:
    """Another protocol; matches of the old protocol's ports are removed with it."""
    rule = place.rule
    (at,) = (at for at, match in enumerate(rule.matches) if match.is_protocol)
    words = rule.matches[at].words
    named = words[-1]
    if any(match.name == named for match in rule.matches):
        now = "udp" if named == "tcp" else "tcp"
    else:
        now = rng.choice([name for name in ("tcp", "udp", "sctp", "gre", "esp") if name != named])
    matches = [match._replace(name=now) if match.name == named else match for match in rule.matches]
    matches[at] = matches[at]._replace(words=(*words[:-1], now))
    return sheet.with_rule(place, rule._replace(matches=tuple(matches)))


def _interface(match: Match, sheet: Sheet, rng: random.Random) -> Reworded:
    """Another interface name of this rule set, a longer name, or a wildcard."""
    name = match.words[-1]
    others = [other for other in sheet.interfaces if other != name]
    others += [name[:-1] if name.endswith("+") else f"{name[:13]}+", f"{name.rstrip('+')[:13]}9"]
    return _changed(match.words, len(match.words) - 1, rng.choice(others))


def _state(match: Match, sheet: Sheet, rng: random.Random) -> Reworded:
    """One state more, or one less."""
    at = _option(match, "--state", "--ctstate")
    states = match.words[at].split(",")
    state = rng.choice(_STATES)
    now = [each for each in states if each != state] if state in states else [*states, state]
    return _changed(match.words, at, ",".join(now)) if now else None


def _negated(match: Match, sheet: Sheet, rng: random.Random) -> Reworded:
    words = match.words
    if "!" in words:
        at = words.index("!")
        return (*words[:at], *words[at + 1 :])
    at = rng.choice([at for at, word in enumerate(words) if word.startswith("-")])
    return (*words[:at], "!", *words[at:])


def _is(*names: str) -> Callable[[Match], bool]:
    """Whether a match has one of these options."""
    return lambda match: bool(_option(match, *names))


_CAN_BE_NEGATED = (
    "", "tcp", "udp", "state", "conntrack", "mac", "set", "multiport", "icmp", "addrtype", "mark",
)  # fmt: skip


# -- targets ------------------------------------------------------------------------------------------


def _with_target(sheet: Sheet, place: RuleRef, name: str, *words: str, goto: bool = False) -> str:
    kind = Does.GOTO if goto else Does.VERDICT
    return sheet.with_rule(place, place.rule._replace(target=Target(name, kind, name, words)))


def _target(sheet: Sheet, place: RuleRef, rng: random.Random) -> str | None:
    """Another target that the table knows."""
    target = place.rule.target
    assert target is not None
    if target.name in ("LOG", "NFLOG", "ULOG"):
        return _with_target(sheet, place, "LOG", "--log-prefix", f"seen {rng.randrange(100)}: ")
    others = ["ACCEPT", "RETURN"] if place.table.name == "nat" else ["ACCEPT", "DROP", "RETURN"]
    return _with_target(sheet, place, rng.choice([name for name in others if name != target.name]))


def _to_goto(sheet: Sheet, place: RuleRef, rng: random.Random) -> str:
    assert place.rule.target is not None
    return _with_target(sheet, place, place.rule.target.name, goto=True)


def _to_accept(sheet: Sheet, place: RuleRef, rng: random.Random) -> str:
    return _with_target(sheet, place, "ACCEPT")


def _dnat(sheet: Sheet, place: RuleRef, rng: random.Random) -> str | None:
    """DNAT to another address."""
    target = place.rule.target
    assert target is not None
    at = target.words.index("--to-destination") + 1
    address = re.match(r"(\[?[0-9a-fA-F.:]*?)([0-9a-fA-F]+)(\]?(?:[-:]\S*)?)$", target.words[at])
    if "." in target.words[at]:
        address = re.match(r"(\d+\.\d+\.\d+\.)(\d+)(.*)$", target.words[at])
    if address is None:
        return None
    last = int(address[2]) if "." in target.words[at] else int(address[2], 16)
    now = last + 1 if last < 250 else last - 1
    spelt = str(now) if "." in target.words[at] else f"{now:x}"
    return _with_target(sheet, place, "DNAT", *_changed(target.words, at, f"{address[1]}{spelt}{address[3]}"))


def _does(place: RuleRef, kind: Does) -> bool:
    return place.rule.target is not None and place.rule.target.kind is kind


def _policies(sheet: Sheet) -> list[RuleRef]:
    """Built-in chains with policy ACCEPT or DROP, except those of nat, which allows no DROP."""
    return [
        RuleRef(table, chain, 0)
        for table in sheet.program
        if table.name != "nat"
        for chain in table.chains
        if chain.policy is not None and chain.declared and not chain.kept
    ]


def _policy(sheet: Sheet, place: RuleRef, rng: random.Random) -> str:
    chain = place.chain
    flipped = Chain(chain.name, "DROP" if chain.policy == "ACCEPT" else "ACCEPT", (), chain.counters)
    return sheet.with_lines({chain.line: [chain_text(flipped)]})


# -- what a compiler could do wrong --------------------------------------------------------------


def _shared(sheet: Sheet, place: RuleRef) -> Rule | None:
    """The rule with memory that is alone in the chain that the rule at *place* enters."""
    target = place.rule.target
    if target is None or target.kind not in (Does.JUMP, Does.GOTO):
        return None
    entered = place.table[target.name].rules
    if len(entered) != 1 or all(match.role < Role.NAMED for match in entered[0].matches):
        return None
    return entered[0]


def _entrances(sheet: Sheet) -> list[RuleRef]:
    """Where rules with memory are entered from more than one place."""
    entrances = [place for place in sheet.places if _shared(sheet, place) is not None]
    names = [(place.table.name, place.rule.target.name) for place in entrances if place.rule.target]
    return [place for place, name in zip(entrances, names, strict=True) if names.count(name) > 1]


def _copied(sheet: Sheet, place: RuleRef, rng: random.Random) -> str | None:
    """The shared rule itself in the place of the jump to it."""
    shared = _shared(sheet, place)
    return None if shared is None else sheet.with_rule(place, shared)


def _behind_branches(sheet: Sheet) -> list[RuleRef]:
    """Rules that test ports behind a decision by ports in their chain."""
    places = []
    for table in sheet.program:
        for chain in table.chains:
            decided = False
            for at, rule in enumerate(chain.rules):
                ported = any(map(_is(*_PORT_OPTIONS), rule.matches))
                if decided and ported:
                    places.append(RuleRef(table, chain, at))
                decided |= ported and rule.target is not None and rule.target.kind is Does.GOTO
    return places


def _portless(sheet: Sheet, place: RuleRef, rng: random.Random) -> str:
    """One test of ports is left out, as if the decision that was not taken had implied it."""
    matches = list(place.rule.matches)
    at = rng.choice([at for at, match in enumerate(matches) if _option(match, *_PORT_OPTIONS)])
    value = _option(matches[at], *_PORT_OPTIONS)
    words = matches[at].words
    start = value - 1 - (words[value - 2 : value - 1] == ("!",))
    rest = (*words[:start], *words[value + 1 :])
    if rest or matches[at].name in ("tcp", "udp"):
        matches[at] = matches[at]._replace(words=rest)
    else:
        del matches[at]
    return sheet.with_rule(place, place.rule._replace(matches=tuple(matches)))


def _tests(rule: Rule, *fields: Field) -> bool:
    return any(test.field in fields for match in rule.matches for test in match.tests)


def _state_tests(sheet: Sheet) -> list[RuleRef]:
    """Rules that test the connection state in table raw, the only table that allows CT."""
    return [place for place in sheet.places if place.table.name == "raw" and _tests(place.rule, Field.STATE)]


def _untracked_first(sheet: Sheet, place: RuleRef, rng: random.Random) -> str:
    """CT before a state test."""
    line = rule_text(Rule((), Target("CT", Does.VERDICT, "CT", ("--notrack",))), place.chain.name)
    return sheet.with_lines({place.rule.line: [line, _line(sheet, place)]})


def _behind_writers(sheet: Sheet) -> list[RuleRef]:
    """Rules that test the state behind a rule of their chain that writes it."""
    places = []
    for place in _state_tests(sheet):
        writers = [at for at, rule in enumerate(place.chain.rules[: place.at]) if _writes_state(rule)]
        places += [place] * bool(writers)
    return places


def _writes_state(rule: Rule) -> bool:
    return rule.target is not None and Metadata.CT in rule.target.writes


def _before_writer(sheet: Sheet, place: RuleRef, rng: random.Random) -> str:
    """The state is tested before it is written, as if its place in the tree did not matter."""
    writers = [at for at, rule in enumerate(place.chain.rules[: place.at]) if _writes_state(rule)]
    return _moved_to(sheet, place, rng.choice(writers))


# -- the table ----------------------------------------------------------------------------------------


def _kinds() -> Iterator[Mutation]:
    def rules(name: str, edit: Edit, fits: Callable[[RuleRef], bool] = lambda place: True) -> Mutation:
        return Mutation(name, _rules(fits), edit)

    def words(name: str, change: Change, fits: Callable[[Match], bool]) -> Mutation:
        places, edit = _reworded(change, fits)
        return Mutation(name, places, edit)

    yield rules("rule removed", _removed)
    yield rules("rule moved", _moved, lambda place: len(place.chain.rules) > 1)
    yield rules("rule doubled", _doubled)
    yield words("port", _port, _is(*_PORT_OPTIONS))
    yield words("prefix", _prefix, _is("-s", "-d"))
    yield rules(
        "protocol", _protocol, lambda place: sum(match.is_protocol for match in place.rule.matches) == 1
    )
    yield words("interface", _interface, _is("-i", "-o"))
    yield words("state", _state, _is("--state", "--ctstate"))
    yield words("negation", _negated, lambda match: match.name in _CAN_BE_NEGATED and bool(match.words))
    yield rules("target", _target, lambda place: _does(place, Does.VERDICT))
    yield Mutation("policy", _policies, _policy)
    yield rules("jump to goto", _to_goto, lambda place: _does(place, Does.JUMP))
    yield rules("RETURN to ACCEPT", _to_accept, lambda place: _does(place, Does.RETURN))
    yield Mutation("shared rule with memory copied", _entrances, _copied, True)
    yield Mutation("port left out behind a branch", _behind_branches, _portless, True)
    yield rules("statistic or recent doubled", _doubled, _has_memory)
    yield rules(
        "statistic or recent moved", _moved, lambda place: _has_memory(place) and len(place.chain.rules) > 1
    )
    yield Mutation("CT before a state test", _state_tests, _untracked_first)
    yield Mutation("state asked for before it is written", _behind_writers, _before_writer, True)
    yield rules(
        "DNAT to another address",
        _dnat,
        lambda place: bool(
            place.rule.target
            and place.rule.target.name == "DNAT"
            and "--to-destination" in place.rule.target.words
        ),
    )


MUTATIONS = {mutation.name: mutation for mutation in _kinds()}
