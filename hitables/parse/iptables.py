"""iptables-save and ip6tables-save text to a Program.

Lines of one shape are parsed once (see words.py): a `Plan` says how the literals
of a line fill its matches, and equal matches are shared between rules.
"""

from __future__ import annotations

import gc
import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from ..errors import ParseError
from ..ir.fields import Family
from ..ir.program import BUILT_IN, Chain, Program, Table
from ..ir.rule import Kind, Match, Rule, Target
from ..syntax import limits
from ..syntax.options import TARGETS
from .lines import LITERAL, Fault, NeedsWords, parse, shapes, split, unquote
from .named_memory import with_first_parameters
from .rule_parts import (
    Layout,
    Part,
    as_jump,
    check_chain_name,
    check_protocols,
    cut,
    extension_match,
    find_header,
    header_match,
    plain_address,
    target_of,
)
from .set_counters import with_counted_sets

COMMANDS = {
    "-A": "-A", "--append": "-A", "-I": "-I", "--insert": "-I", "-N": "-N", "--new-chain": "-N",
    "-P": "-P", "--policy": "-P", "-D": "-D", "--delete": "-D", "-R": "-R", "--replace": "-R",
    "-F": "-F", "--flush": "-F", "-X": "-X", "--delete-chain": "-X", "-E": "-E", "--rename-chain": "-E",
    "-Z": "-Z", "--zero": "-Z", "-L": "-L", "--list": "-L", "-S": "-S", "--list-rules": "-S", "-C": "-C",
    "--check": "-C",
}  # fmt: skip

# --name=value stands for two words.
_SET_OPTION = re.compile(r"(--[A-Za-z][\w-]*)=(.+)", re.DOTALL)

# Commands that may do without a chain: they are for all of them then.
FOR_ALL = ("-F", "-X", "-Z", "-L", "-S")

# A command with the name of its chain attached, as in -AINPUT.
_ATTACHED = re.compile(r"(-[AIDRCNFXEPZLS])([^-].*)", re.DOTALL)

# What iptables-restore has room for: words of a line, bytes of a word, bytes of a line.
MOST_WORDS, LONGEST_WORD, LONGEST_LINE = 251, 1023, 10_239

POLICIES = ("ACCEPT", "DROP")

# A chain sees one side only; iptables refuses the other interface there.
NO_INPUT_INTERFACE = frozenset({"OUTPUT", "POSTROUTING"})
NO_OUTPUT_INTERFACE = frozenset({"INPUT", "PREROUTING"})


@dataclass(slots=True)
class Slot:
    """One match or the target of a shape: which literals it takes, and those already made.

    may_list  its literal may be a list of addresses
    address   "-s" or "-d" when it is that, IPv4 and not negated, else ""
    """

    part: Part
    literals: tuple[int, ...]
    made: dict[object, Match | Target] = field(default_factory=dict)
    may_list: bool = False
    address: str = ""

    def look(self, literals: Sequence[str]) -> object:
        """What the slot's match depends on."""
        at = self.literals
        return literals[at[0]] if len(at) == 1 else tuple([literals[index] for index in at])


@dataclass(slots=True)
class Plan:
    """What all lines of one shape have in common.

    words    with LITERAL where a literal stands; literal_of maps their index to the literal's
    target   whether the last slot is the target
    plain    whether a line only appends a rule: -A, no counters
    row      matches and target that need no literal, None where one is to be filled in
    single   (place in row, those already made, literal) where one literal is needed
    several  slots that need more
    chain_name, chain_literal  the chain, or the literal that names it
    """

    command: str
    chain: int
    number: int | None
    words: list[str]
    literal_of: dict[int, int]
    layout: Layout
    slots: list[Slot]
    target: bool
    counters: int | None  # index of the word [packets:bytes] before the command
    plain: bool = False
    order: tuple[int, ...] = ()  # the place in the line of each word, where they differ
    chain_name: str = ""
    chain_literal: int | None = None
    row: list[Match | Target | None] = field(default_factory=list)
    single: list[tuple[int, dict[object, Match | Target], int]] = field(default_factory=list)
    several: list[tuple[int, Slot]] = field(default_factory=list)


@dataclass(slots=True)
class _ChainDraft:
    name: str
    policy: str | None
    counters: tuple[int, int] | None
    line: int
    notes: tuple[str, ...]
    declared: bool
    rules: list[Rule] = field(default_factory=list)
    kept: bool = False


@dataclass(slots=True)
class _TableDraft:
    name: str
    line: int
    notes: tuple[str, ...]
    chains: dict[str, _ChainDraft] = field(default_factory=dict)
    dropping: dict[str, int] = field(default_factory=dict)  # lines of DROP policies, where it stood before


def _count(word: str, at: int) -> int:
    """A counter as sscanf reads it: digits, what stands behind them is passed over; -1 is the largest."""
    found = re.match(r"[ \t]*([+-]?)([0-9]+)", word)
    if found is None:
        raise Fault(f"{word!r} is no counter", at, "write a number of packets and a number of bytes")
    value = min(int(found[2]), LARGEST_COUNT)
    return -value & LARGEST_COUNT if found[1] == "-" else value


def _counters(word: str, at: int) -> tuple[int, int] | None:
    """Counters in front of a rule; None for what iptables-restore, without -c, does not read."""
    found = re.fullmatch(r"\[([^:]+):([^\]]+)\]", word)
    if found is None:
        raise Fault(f"{word!r} are no counters", at, "write [PACKETS:BYTES]")
    try:
        return _count(found[1], at), _count(found[2], at)
    except Fault:
        return None


def _chain_counters(word: str) -> tuple[int, int] | None:
    """Counters of a chain; None for what iptables-restore, without -c, does not read."""
    found = re.fullmatch(r"\[([0-9]{1,20}):([0-9]{1,20})\]", word)
    return (min(int(found[1]), LARGEST_COUNT), min(int(found[2]), LARGEST_COUNT)) if found else None


LARGEST_COUNT = (1 << 64) - 1


@dataclass(slots=True)
class Vocabulary:
    """The shapes of lines and the spellings met so far, for texts of one family that say the same things.

    What is read does not depend on it; equal matches of texts read with one are one object.
    """

    plans: dict[str, Plan] = field(default_factory=dict)
    parts: dict[object, dict[object, Match | Target]] = field(default_factory=dict)
    family: Family | None = None
    placed: bool = False  # whether a match or target was met that only some tables or chains may have


class _ForOthers(Exception):
    """The line is for the other family."""


# What makes a named tuple without a look at its arguments.
_new = tuple.__new__


class _Reader:
    """Reads one text.  State: the table that is open, the shapes met so far."""

    def __init__(self, family: Family, name: str, known: Vocabulary) -> None:
        assert known.family in (None, family), "a vocabulary of another family"
        known.family = family
        self.family, self.name = family, name
        self.known = known
        self.plans, self.parts = known.plans, known.parts
        self.tables: list[Table] = []
        self.open: _TableDraft | None = None
        self.notes: list[str] = []
        self.line = 0

    # Shapes.

    def slot(self, part: Part, words: list[str], literal_of: dict[int, int]) -> Slot:
        indexes = part.word_indexes()
        if part.kind in ("-j", "-g"):
            indexes = [part.at, *indexes]
        literals = tuple(literal_of[index] for index in indexes if index in literal_of)
        look = (
            part.kind,
            part.name,
            tuple((use.option.name, use.inverted, tuple(words[i] for i in use.values)) for use in part.uses),
            tuple(words[i] for i in part.kept),
        )
        may_list = part.kind == "header" and part.name in ("-s", "-d")
        plain = may_list and not part.uses[0].inverted and self.family is Family.IPV4
        return Slot(part, literals, self.parts.setdefault(look, {}), may_list, part.name if plain else "")

    def plan(self, line: str) -> Plan:
        """The plan of a shape."""
        kind, tokens = parse(line)
        if kind != "rule":
            raise Fault("this does not belong here", 0)
        words = [str(token) for token in tokens if token is not None]
        if any(_SET_OPTION.fullmatch(word) for word in words):
            raise NeedsWords
        places = [index for index, word in enumerate(words) if word == LITERAL]
        return self.plan_of(words, {index: number for number, index in enumerate(places)})

    def plan_of_line(self, line: str) -> Plan:
        """A plan for this line alone, where the structure depends on a literal, or is an odd one."""
        words: list[str] = []
        for word, _ in split(line):
            if word == '"':
                raise Fault("a quote that is never closed", len(words))
            found = _SET_OPTION.fullmatch(unquote(word))
            option = find_header(found[1]) if found and "policy" not in words else ""
            if found and option:
                raise Fault(f"iptables does not read {found[1]}=", len(words), f"write {option} {found[2]}")
            words += found.groups() if found else [unquote(word)]
        if len(words) > MOST_WORDS:
            raise Fault(f"more than {MOST_WORDS} words; iptables-restore takes no more", MOST_WORDS)
        order = _command_first(words)
        if order == [(at, word) for at, word in enumerate(words)]:
            return self.plan_of(words, {})
        places = tuple(place for place, _ in order)
        try:
            plan = self.plan_of([word for _, word in order], {})
        except Fault as fault:
            fault.word = places[fault.word] if fault.word < len(places) else len(words)
            raise
        plan.order = places
        return plan

    def plan_of(self, words: list[str], literal_of: dict[int, int]) -> Plan:
        """The plan of a line of *words*, of which those in *literal_of* are literals."""
        counters = 0 if words[0].startswith("[") else None
        at = 0 if counters is None else 1
        while at < len(words) and words[at] in ("-4", "--ipv4", "-6", "--ipv6"):
            at += 1
        if at == len(words):
            raise Fault("a rule without a command", 0)
        if words[at] not in COMMANDS:
            shown = "" if words[at] == LITERAL else f" {words[at]!r}"
            expected = f"expected one of {', '.join(sorted(set(COMMANDS.values())))}"
            raise Fault(f"unknown command{shown}", at, expected)
        command, chain = COMMANDS[words[at]], at + 1
        if chain >= len(words) and command not in FOR_ALL:
            raise Fault(f"{command} needs a chain", at)
        at = chain + 1
        number = None
        if command in ("-I", "-D", "-R", "-Z", "-L", "-S") and at < len(words):
            if words[at] == LITERAL:
                raise NeedsWords
            if re.fullmatch(r"[0-9]+|0[xX][0-9a-fA-F]+", words[at]):
                number, at = int(words[at], 16 if words[at][:2] in ("0x", "0X") else 10), at + 1
        if command in ("-P", "-E"):
            at += 1
        plain = command not in ("-A", "-I", "-D", "-R", "-C")
        if plain and at < len(words) and not words[at].startswith("-"):
            shown = "this" if words[at] == LITERAL else repr(words[at])
            raise Fault(f"{shown} belongs to no option", at)
        layout = Layout([], None, None, frozenset())
        if command in ("-A", "-I", "-D", "-R", "-C"):
            layout = cut(words, at)
            if ("-6" if self.family is Family.IPV4 else "-4") in layout.families:
                raise _ForOthers
        if any(index in literal_of for index in (layout.counters or ())):
            raise NeedsWords
        check_protocols(layout, words, self.family)
        return self.finished(Plan(command, chain, number, words, literal_of, layout, [], False, counters))

    def finished(self, plan: Plan) -> Plan:
        """The plan with its slots; those without literals are made at once."""
        layout = plan.layout
        parts = [*layout.matches, *([layout.target] if layout.target else [])]
        plan.target = layout.target is not None
        plan.chain_name = plan.words[plan.chain] if plan.chain < len(plan.words) else ""
        plan.chain_literal = plan.literal_of.get(plan.chain)
        plan.slots = [self.slot(part, plan.words, plan.literal_of) for part in parts]
        plan.plain = (
            plan.command == "-A"
            and plan.counters is None
            and layout.counters is None
            and not layout.interfaces
        )
        for place, slot in enumerate(plan.slots):
            plan.row.append(None)
            if len(slot.literals) == 1:
                plan.single.append((place, slot.made, slot.literals[0]))
            elif slot.literals or self.has_list(slot, plan.words):
                plan.several.append((place, slot))
            else:
                made = slot.made.get(())
                if made is None:
                    made = slot.made[()] = self.make(slot, plan.words)
                plan.row[place] = made
        return plan

    def make(self, slot: Slot, words: list[str]) -> Match | Target:
        part = slot.part
        if part.name in limits.PLACED:
            self.known.placed = True
        if part.kind == "header":
            return header_match(part, words, self.family)
        if part.kind == "match":
            return extension_match(part, words, self.family)
        return target_of(part, words, self.family)

    # Lines.

    def plain_line(self, plan: Plan, literals: Sequence[str]) -> bool:
        """A rule whose shape and words were all met before; False for any other."""
        if not plan.plain or self.notes or self.open is None:
            return False
        name = plan.chain_name if plan.chain_literal is None else literals[plan.chain_literal]
        draft = self.open.chains.get(name)
        if draft is None:
            return False
        row = plan.row.copy()
        try:
            for place, made, index in plan.single:
                row[place] = made[literals[index]]
            for place, slot in plan.several:
                row[place] = slot.made[slot.look(literals)]
        except KeyError:
            return False
        target = row.pop() if plan.target else None
        draft.rules.append(_new(Rule, (tuple(row), target, self.line, None, ())))
        return True

    def rule_line(self, line: str, key: str, literals: Sequence[str]) -> None:
        """One rule; *key* is the line's shape."""
        plan = self.plans.get(key)
        if plan is None:
            if line.startswith(("-6", "--ipv6", "-4", "--ipv4")) and self.skips(line):
                return
            try:
                plan = self.plans[key] = self.plan(key)
            except (NeedsWords, Fault, _ForOthers):
                self.odd_line(line)
                return
        self.rule_of(plan, line, literals)

    def odd_line(self, line: str) -> None:
        """One rule whose words must be looked at one by one."""
        try:
            plan = self.plan_of_line(line)
        except _ForOthers:
            self.notes.append(f"# not for this family: {line}")
            return
        try:
            self.rule_of(plan, line, ())
        except Fault as fault:
            if plan.order and fault.word < len(plan.order):
                fault.word = plan.order[fault.word]
            raise

    def rule_of(self, plan: Plan, line: str, literals: Sequence[str]) -> None:
        """The rule, or rules, of a line."""
        row = plan.row.copy()
        try:
            for place, made, index in plan.single:
                row[place] = made[literals[index]]
            for place, slot in plan.several:
                row[place] = slot.made[slot.look(literals)]
        except KeyError:
            if not self.make_row(plan, line, literals, row):
                return
        target = row.pop() if plan.target else None
        rule = Rule(tuple(row), target, self.line)  # type: ignore[arg-type]
        if plan.plain and not self.notes and self.open is not None:
            name = plan.chain_name if plan.chain_literal is None else literals[plan.chain_literal]
            draft = self.open.chains.get(name)
            if draft is not None:
                draft.rules.append(rule)
                return
        self.command(plan, self.fill(plan, literals), [rule])

    def make_row(
        self, plan: Plan, line: str, literals: Sequence[str], row: list[Match | Target | None]
    ) -> bool:
        """Fill *row*, making what was not met before; False when the line made several rules."""
        for place, made, index in plan.single:
            literal = literals[index]
            found = made.get(literal)
            if found is None:
                slot = plan.slots[place]
                if slot.may_list and "," in literal:
                    self.expand(plan, self.fill(plan, literals))
                    return False
                found = plain_address(slot.address, literal) if slot.address else None
                found = made[literal] = found or self.make(slot, self.fill(plan, literals))
            row[place] = found
        for place, slot in plan.several:
            look = slot.look(literals)
            found = slot.made.get(look)
            if found is None:
                words = self.fill(plan, literals)
                if self.has_list(slot, words):
                    self.expand(plan, words)
                    return False
                found = slot.made[look] = self.make(slot, words)
            row[place] = found
        return True

    def skips(self, line: str) -> bool:
        """Whether the line is for the other family: passed over, as by iptables-restore, with a note."""
        mine = ("-4", "--ipv4") if self.family is Family.IPV4 else ("-6", "--ipv6")
        if line.split(None, 1)[0] in mine:
            return False
        self.notes.append(f"# not for this family: {line}")
        return True

    def fill(self, plan: Plan, literals: Sequence[str]) -> list[str]:
        words = list(plan.words)
        for index, literal in plan.literal_of.items():
            words[index] = unquote(literals[literal])
        return words

    @staticmethod
    def has_list(slot: Slot, words: list[str]) -> bool:
        part = slot.part
        return part.kind == "header" and part.name in ("-s", "-d") and "," in words[part.uses[0].values[0]]

    def expand(self, plan: Plan, words: list[str]) -> None:
        """`-s a,b -d c,d` is four rules, sources outermost, as iptables makes them."""
        lists: dict[str, tuple[int, list[str]]] = {}
        for slot in plan.slots:
            if slot.part.kind == "header" and slot.part.name in ("-s", "-d"):
                use = slot.part.uses[0]
                index = use.values[0]
                lists[slot.part.name] = (index, words[index].split(","))
                if use.inverted and "," in words[index]:
                    raise Fault(
                        f"! with a list of addresses at {slot.part.name}", index, "write one rule each"
                    )
        rules = []
        for chosen in itertools.product(*(parts for _, parts in lists.values())):
            each = list(words)
            for (index, _), word in zip(lists.values(), chosen, strict=True):
                each[index] = word
            row = [self.make(slot, each) for slot in plan.slots]
            target = row.pop() if plan.target else None
            rules.append(Rule(tuple(row), target, self.line))  # type: ignore[arg-type]
        if plan.command == "-R" and len(rules) > 1:
            raise Fault("-R takes one address, not a list", next(iter(lists.values()))[0])
        self.command(plan, words, rules)

    def command(self, plan: Plan, words: list[str], rules: list[Rule]) -> None:
        """Do what the line's command says to the open table."""
        table = self.open
        if table is None:
            raise Fault("a rule outside of any table", 0, "a line like *filter must come first")
        if plan.chain >= len(words):
            self.for_all(plan.command, table)
            return
        name = words[plan.chain]
        if plan.command == "-N":
            check_chain_name(name, plan.chain)
            if name in TARGETS:
                raise Fault(f"-N cannot make a chain called {name}: a target has that name", plan.chain)
            if name in table.chains:
                raise Fault(f"chain {name} exists already", plan.chain)
            table.chains[name] = _ChainDraft(name, None, None, self.line, self.take_notes(), True)
            return
        chain = table.chains.get(name)
        if chain is None:
            built_in = ", ".join(BUILT_IN[table.name])
            raise Fault(
                f"chain {name} is not declared in table {table.name}",
                plan.chain,
                f"declare it by a line :{name} - [0:0]; the built-in chains are {built_in}",
            )
        if "-i" in plan.layout.interfaces and name in NO_INPUT_INTERFACE:
            raise Fault(f"-i cannot be used in {name}: packets have no input interface there", plan.chain)
        if "-o" in plan.layout.interfaces and name in NO_OUTPUT_INTERFACE:
            raise Fault(f"-o cannot be used in {name}: packets have no output interface there", plan.chain)
        counters = None
        if plan.counters is not None:
            counters = _counters(words[plan.counters], plan.counters)
        elif plan.layout.counters is not None:
            first, second = plan.layout.counters
            said = words[first].split(",", 1) if first == second else (words[first], words[second])
            counters = _count(said[0], first), _count(said[1], second)
        if counters is not None or self.notes:
            notes = self.take_notes()
            rules = [
                Rule(rule.matches, rule.target, rule.line, counters, notes if at == 0 else ())
                for at, rule in enumerate(rules)
            ]
        self.edit(plan, words, table, chain, rules)

    def for_all(self, command: str, table: _TableDraft) -> None:
        """A command without a chain: for all of the table's."""
        if command == "-F":
            if any(chain.rules for chain in table.chains.values()):
                raise Fault(
                    "-F behind rules: iptables-legacy empties all chains, iptables-nft keeps these rules",
                    0,
                    "leave out the rules in front of it, or name the chains",
                )
        elif command == "-X":
            for name, chain in list(table.chains.items()):
                if name not in BUILT_IN[table.name]:
                    if chain.rules:
                        raise Fault(f"-X: chain {name} is not empty", 0)
                    del table.chains[name]
        elif command == "-Z":
            for chain in table.chains.values():
                chain.counters = chain.counters and (0, 0)
                chain.rules = [rule._replace(counters=None) for rule in chain.rules]

    def edit(
        self, plan: Plan, words: list[str], table: _TableDraft, chain: _ChainDraft, rules: list[Rule]
    ) -> None:
        """The commands that change a chain which exists."""
        number, count = plan.number, len(chain.rules)
        if plan.command == "-A":
            chain.rules += rules
        elif plan.command == "-I":
            place = 1 if number is None else number
            if not 1 <= place <= count + 1:
                raise Fault(
                    f"position {place} is out of range: chain {chain.name} has {count} rules", plan.chain + 1
                )
            chain.rules[place - 1 : place - 1] = rules[::-1]
        elif plan.command in ("-D", "-R", "-C"):
            if number is None and plan.command == "-R":
                raise Fault("-R needs a position", plan.chain)
            if number is None:
                looked_for = rules[0]
                places = [
                    at
                    for at, rule in enumerate(chain.rules)
                    if [m.key for m in rule.matches] == [m.key for m in looked_for.matches]
                    and (rule.target and rule.target.key) == (looked_for.target and looked_for.target.key)
                ]
                if not places:
                    raise Fault(f"no such rule in chain {chain.name}", plan.chain)
                number = places[0] + 1
            if not 1 <= number <= count:
                raise Fault(
                    f"position {number} is out of range: chain {chain.name} has {count} rules", plan.chain + 1
                )
            if plan.command != "-C":
                chain.rules[number - 1 : number] = rules if plan.command == "-R" else []
        elif plan.command == "-F":
            chain.rules.clear()
        elif plan.command == "-X":
            if chain.rules or chain.policy is not None:
                raise Fault(f"chain {chain.name} is not an empty user chain", plan.chain)
            del table.chains[chain.name]
        elif plan.command == "-P":
            policy = words[plan.chain + 1] if plan.chain + 1 < len(words) else ""
            if policy == "-":
                raise Fault("-P needs a policy", plan.chain + 1, f"there are {', '.join(POLICIES)}")
            chain.policy = self.policy(chain.name, policy, plan.chain + 1, table)
            chain.declared, chain.kept = True, False
            chain.counters = chain.counters and (0, 0)
        elif plan.command == "-E":
            new = words[plan.chain + 1] if plan.chain + 1 < len(words) else ""
            check_chain_name(new, plan.chain + 1)
            if chain.policy is not None or new in table.chains:
                raise Fault(f"chain {chain.name} cannot be renamed to {new}", plan.chain)
            if chain.name in TARGETS or new in TARGETS:
                raise Fault(
                    f"a chain called as a target is not renamed: {chain.name} to {new}",
                    plan.chain,
                    "write the rules with the name that the chain has in the end",
                )
            table.chains = {(new if key == chain.name else key): value for key, value in table.chains.items()}
            for each in table.chains.values():
                each.rules = [_renamed(rule, chain.name, new) for rule in each.rules]
            chain.name = new

    def take_notes(self) -> tuple[str, ...]:
        notes, self.notes = tuple(self.notes), []
        return notes

    def policy(self, chain: str, policy: str, at: int, table: _TableDraft) -> str | None:
        built_in = chain in BUILT_IN[table.name]
        if policy == "-":
            return "ACCEPT" if built_in else None
        if policy not in POLICIES:
            raise Fault(f"unknown policy {policy!r}", at, f"there are {', '.join(POLICIES)}")
        return policy if built_in else None  # iptables-nft passes over the policy of a user chain

    def table_line(self, name: str) -> None:
        if self.open is not None:
            raise Fault(
                f"table {self.open.name} (line {self.open.line}) is still open", 0, "COMMIT is missing"
            )
        if name not in BUILT_IN:
            raise Fault(f"unknown table {name!r}", 0, f"there are {', '.join(BUILT_IN)}")
        notes = self.take_notes()
        dropping: dict[str, int] = {}
        for table in self.tables:
            if table.name == name:  # what was loaded before is replaced; what was said stays
                notes = (*table.notes, *table.closing, *notes)
                dropping = {chain.name: chain.line for chain in table.chains if chain.policy == "DROP"}
        self.tables = [table for table in self.tables if table.name != name]
        self.open = _TableDraft(name, self.line, notes, dropping=dropping)
        for chain in BUILT_IN[name]:
            self.open.chains[chain] = _ChainDraft(chain, "ACCEPT", None, 0, (), False)

    def chain_line(self, words: list[str]) -> None:
        if self.open is None:
            raise Fault("a chain outside of any table", 0, "a line like *filter must come first")
        name = words[0]
        counters = _chain_counters(words[2]) if len(words) > 2 else None
        built_in = name in BUILT_IN[self.open.name]
        if not built_in:
            check_chain_name(name, 0, declared=True)
        known = self.open.chains.get(name)
        policy = self.policy(name, words[1], 1, self.open)
        # Built-in chains too stand in the order in which the text declares them.
        self.open.chains.pop(name, None)
        # A user chain that is declared again is emptied (iptables-nft; iptables-legacy refuses it).
        rules = known.rules if known is not None and built_in else []
        kept = built_in and words[1] == "-"
        if kept and known is not None and known.declared:  # it keeps what the text gave it before
            policy, kept = known.policy, known.kept
        notes, line = self.take_notes(), self.line
        if known is not None and known.declared:
            notes, line = (*known.notes, *notes), known.line
        draft = _ChainDraft(name, policy, counters, line, notes, True, rules, kept)
        self.open.chains[name] = draft

    def commit(self) -> None:
        if self.open is None:
            raise Fault("COMMIT outside of any table", 0)
        draft, self.open = self.open, None
        for name, line in draft.dropping.items():
            if not draft.chains[name].declared or draft.chains[name].kept:
                raise self.error_at(
                    draft.line,
                    f"chain {name} has policy DROP in line {line}, and none where table {draft.name} is "
                    "given again: iptables-legacy keeps it, iptables-nft does not",
                    draft.name,
                    f"declare it again, as in :{name} DROP [0:0]",
                )
        if self.known.placed:
            self.check_places(draft)
        chains = []
        for chain in draft.chains.values():
            rules = self.resolve(chain, draft)
            chains.append(
                Chain(
                    chain.name,
                    chain.policy,
                    rules,
                    chain.counters,
                    chain.line,
                    chain.notes,
                    chain.declared,
                    chain.kept,
                )
            )
        closing = self.take_notes()
        self.tables.append(Table(draft.name, tuple(chains), draft.line, draft.notes, closing))

    def resolve(self, chain: _ChainDraft, table: _TableDraft) -> tuple[Rule, ...]:
        """Bind targets to chains: a declared chain wins over a target extension of its name."""
        checked: set[str] = set()
        rules = []
        for rule in chain.rules:
            target = rule.target
            if target is not None and target.enters and target.name not in checked:
                self.check_jump(target, rule, table)
                checked.add(target.name)
            elif target is not None and target.kind is Kind.VERDICT and target.name in table.chains:
                if target.words:
                    word = target.words[0]
                    raise self.error_at(rule.line, f"unknown option {word}: {target.name} is a chain", word)
                declared = table.chains[target.name].line
                if declared > rule.line:
                    raise self.error_at(
                        rule.line,
                        f"{target.name} is a target here and a chain from line {declared} on",
                        target.name,
                        "declare the chain in front of the rule, or give it another name",
                    )
                rule = Rule(rule.matches, as_jump(target), rule.line, rule.counters, rule.notes)
            rules.append(rule)
        return tuple(rules)

    def check_jump(self, target: Target, rule: Rule, table: _TableDraft) -> None:
        chain = table.chains.get(target.name)
        if chain is None:
            from .rule_parts import _nearest

            hint = (
                _nearest(target.name, [*table.chains, *TARGETS])
                or f"declare it by a line :{target.name} - [0:0]"
            )
            raise self.error_at(
                rule.line,
                f"{target.name} is neither a chain of table {table.name} nor a known target",
                target.name,
                hint,
            )
        if chain.policy is not None:
            raise self.error_at(rule.line, f"cannot jump to the built-in chain {target.name}", target.name)
        if chain.line > rule.line:
            raise self.error_at(
                rule.line,
                f"chain {target.name} is declared behind this, in line {chain.line}",
                target.name,
                "declare chains in front of the rules",
            )

    def check_places(self, table: _TableDraft) -> None:
        """Refuse matches and targets that the kernel does not take in this table, or below these chains."""
        bound = [
            (chain.name, rule, name, place)
            for chain in table.chains.values()
            for rule in chain.rules
            for name, words in _named(rule)
            if name in limits.PLACED and name not in table.chains
            for place in limits.places(name, words)
        ]
        if not bound:
            return
        below = _below(table)
        for chain, rule, name, place in bound:
            if place.tables and table.name not in place.tables:
                raise self.error_at(
                    rule.line,
                    f"{name} cannot stand in table {table.name}",
                    name,
                    f"it belongs to {' or '.join(sorted(place.tables))}",
                )
            wrong = sorted(below[chain] - place.chains) if place.chains else []
            if wrong:
                raise self.error_at(
                    rule.line,
                    f"{name}, with these options, cannot stand below {wrong[0]}",
                    name,
                    f"it may stand below {', '.join(sorted(place.chains))}",
                )

    # Errors.

    def error_at(self, line: int, reason: str, word: str, hint: str = "") -> ParseError:
        text = self.lines[line - 1] if line else ""
        found = re.search(rf"(?<!\S){re.escape(word)}(?!\S)", text)
        column = found.start() + 1 if found else 1
        return ParseError(
            reason, source=self.name, line=line, column=column, text=text, length=len(word), hint=hint
        )

    def error(self, fault: Fault, line: str) -> ParseError:
        words: list[tuple[str, int]] = []
        for word, column in split(line):
            option, equals, value = word.partition("=")
            if equals and value and re.fullmatch(r"--[A-Za-z][\w-]*", option):
                words += [(option, column), (value, column + len(option) + 1)]
            else:
                words.append((word, column))
        word, column = words[fault.word] if fault.word < len(words) else ("", len(line))
        return ParseError(
            fault.reason,
            source=self.name,
            line=self.line,
            column=column + 1,
            text=line,
            length=len(word),
            hint=fault.hint,
        )

    def read(self, text: str) -> Program:
        self.lines = lines = text.split("\n")
        self.check_sizes(lines)
        keys, literals = shapes(text)
        assert len(keys) == len(lines), "a literal reaches over the end of a line"
        literals_read = 0
        known = self.plans
        for number, (line, key) in enumerate(zip(lines, keys, strict=True), 1):
            first = literals_read
            literals_read += key.count(LITERAL)
            self.line = number
            plan = known.get(key)
            if plan is not None and self.plain_line(plan, literals[first:literals_read]):
                continue
            start = line[:1]
            try:
                if start == "-" or start == "[":
                    self.rule_line(line, key, literals[first:literals_read])
                elif start == "#":
                    self.notes.append(line.rstrip())
                elif line:
                    if not line.strip(" \t"):
                        raise Fault("a line of blanks, which iptables refuses", 0, "leave it empty")
                    self.other_line(line, key, literals[first:literals_read])
            except Fault as fault:
                raise self.error(fault, line) from None
        if self.open is not None:
            raise ParseError(
                f"table {self.open.name} (line {self.open.line}) has no COMMIT",
                source=self.name,
                line=len(lines),
                column=1,
                text=lines[-1] if lines else "",
                hint="the text may be cut off",
            )
        if not self.tables:
            raise ParseError(
                "no table in this text", source=self.name, line=1, hint="a line like *filter must come first"
            )
        return Program(self.family, tuple(self.tables), self.name, self.take_notes())

    def check_sizes(self, lines: Sequence[str]) -> None:
        """Refuse lines of words that iptables-restore has no room for."""
        enough = LONGEST_WORD // 4  # characters that can be no word, nor so many words, that are too much
        if max(map(len, lines)) <= enough:
            return
        for number, line in enumerate(lines, 1):
            if len(line) <= enough:
                continue
            size = len(line.encode("utf-8", "surrogateescape"))
            if size > LONGEST_LINE:
                self.line = number
                reason = f"a line of {size} bytes; iptables reads {LONGEST_LINE}"
                raise self.error(Fault(reason, 0, "it takes the rest for another line"), line)
            if line[0] not in "-[ \t":
                continue
            words = split(line)
            for at, (word, _) in enumerate(words):
                size = len(unquote(word).encode("utf-8", "surrogateescape"))
                if size > LONGEST_WORD:
                    self.line = number
                    fault = Fault(f"a word of {size} bytes; iptables takes {LONGEST_WORD}", at)
                    raise self.error(fault, line)
            if len(words) > MOST_WORDS:
                self.line = number
                fault = Fault(f"{len(words)} words; iptables takes {MOST_WORDS} in a line", MOST_WORDS)
                raise self.error(fault, line)

    def other_line(self, line: str, key: str, literals: Sequence[str]) -> None:
        stripped = line.strip(" \t")
        words = [word for word in _BLANKS.split(stripped) if word]
        if line[0] in " \t" and stripped[0] in "*:#C[":
            raise Fault("a blank at the start of the line, which iptables does not take here", 0)
        if line.startswith("COMMIT") and line != "COMMIT":
            raise Fault("words behind COMMIT, or a blank", 0, "the line must be COMMIT alone")
        if line[0] == "*":
            self.table_line(words[0][1:] or "".join(words[1:2]))
            return
        if line[0] == ":" and len(words) > 1 and words[0] == ":":
            words[:2] = [":" + words[1]]
        if line[0] == ":" and len(words) > 1:
            # A compiled rule set declares thousands of chains.  Words behind the counters are not read.
            self.chain_line([words[0][1:], *words[1:3]])
            return
        kind, tokens = parse(stripped)
        words = [str(token) for token in tokens if token is not None]
        if kind == "table":
            self.table_line(words[0][1:])
        elif kind == "chain":
            self.chain_line([words[0][1:], *words[1:]])
        elif kind == "commit":
            self.commit()
        elif line[:1] in " \t":
            self.rule_line(stripped, key.strip(), literals)
        else:
            raise Fault(
                f"unknown command {words[0]!r}", 0, "a line starts with *, :, -, [ or #, or is COMMIT"
            )


_BLANKS = re.compile(r"[ \t]+")


def _command_first(words: list[str]) -> list[tuple[int, str]]:
    """The words, each with its place, in the order that a line usually has: the command, its chain, the rest.

    iptables takes commands anywhere in the line, shortened, or with the chain attached.
    """
    begins = 1 if words and words[0].startswith("[") else 0
    placed = list(enumerate(words))
    for at in range(begins, len(words)):
        word = words[at]
        if word in COMMANDS:
            command = [(at, word)]
        elif (attached := _ATTACHED.fullmatch(word)) and at == begins:
            command = [(at, attached[1]), (at, attached[2])]
        elif len(found := {COMMANDS[name] for name in COMMANDS if name.startswith(word)}) == 1 and word[2:]:
            command = [(at, found.pop())]
        else:
            continue
        chain = 0 if len(command) > 1 else 1
        rest = placed[begins:at] + placed[at + 1 + chain :]
        return placed[:begins] + command + placed[at + 1 : at + 1 + chain] + rest
    return placed


def _renamed(rule: Rule, old: str, new: str) -> Rule:
    """The rule with its jump to the chain *old* going to *new*."""
    target = rule.target
    if target is None or target.name != old or not target.enters:
        return rule
    key = f"-g {new}" if target.kind is Kind.GOTO else f"-j {new}"
    return rule._replace(target=replace(target, name=new, key=key))


def _named(rule: Rule) -> list[tuple[str, tuple[str, ...]]]:
    """The extensions of a rule, by name, with their words."""
    found = [(match.name, match.words) for match in rule.matches if match.name]
    if rule.target is not None and rule.target.kind is Kind.VERDICT:
        found.append((rule.target.name, rule.target.words))
    return found


def _below(table: _TableDraft) -> dict[str, set[str]]:
    """For each chain the built-in chains whose packets may come to it."""
    below: dict[str, set[str]] = {name: set() for name in table.chains}
    for name in BUILT_IN[table.name]:
        waiting, seen = [name], {name}
        while waiting:
            chain = waiting.pop()
            below[chain].add(name)
            for rule in table.chains[chain].rules:
                to = rule.target.name if rule.target is not None else ""
                if to in table.chains and to not in seen:
                    seen.add(to)
                    waiting.append(to)
    return below


# Written so that the search can skip from one "-" or "i" to the next.
_IPV6_SIGNS = re.compile(
    r"-(?:[sd]|-src|-dst|-source|-destination)\s+[0-9a-fA-F]{0,4}:"
    r"|icmp6-|icmpv6-type|# Generated by ip6tables"
)
_IPV6_NAME = re.compile(r"ip6tables|[._-]v6\b", re.IGNORECASE)
_CONTROL = bytes(1 if (code < 32 and chr(code) not in "\t\n\r") or code == 127 else 0 for code in range(256))


def guess_family(text: str, name: str = "-") -> Family:
    """The family that a text seems to be of: IPV6 when its words or its name say so."""
    # Looking for the signs takes time that most texts can be spared.
    may_be = "::" in text or "icmp6-" in text or "icmpv6-" in text or "ip6tables" in text
    signs = may_be and _IPV6_SIGNS.search(text)
    return Family.IPV6 if signs or _IPV6_NAME.search(name) else Family.IPV4


def read(
    text: str, *, family: Family | None = None, name: str = "-", known: Vocabulary | None = None
) -> Program:
    """Read iptables-save text.  ParseError says file, line, column and what was expected.

    Without *family* it is guessed (`guess_family`).  *known*: of texts like it, read before.
    """
    if b"\1" in text.encode("utf-8", "surrogateescape").translate(_CONTROL):
        bad = next(re.finditer(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]", text))
        line = text.count("\n", 0, bad.start()) + 1
        column = bad.start() - text.rfind("\n", 0, bad.start())
        raise ParseError(
            f"binary data: a control character {bad.group()!r}",
            source=name,
            line=line,
            column=column,
            hint="is this iptables-save text?",
        )
    if "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", " ")
    reader = _Reader(family or guess_family(text, name), name, known or Vocabulary())
    # Hundreds of thousands of objects that all stay: the collector would only walk them.
    collecting = gc.isenabled()
    gc.disable()
    try:
        program = reader.read(text)
        if "hashlimit" in text or "recent" in text:
            program = with_first_parameters(program)
        return with_counted_sets(program) if "--packets-" in text or "--bytes-" in text else program
    finally:
        if collecting:
            gc.enable()
