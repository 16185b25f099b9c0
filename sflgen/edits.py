"""Updates: what is done to the chains of a program, one edit each.

The same edits say what happens to the master list (read from iptables commands) and to what
the kernel holds (a patch); `apply` does them to a Program, `text` prints them for
`iptables-restore --noflush`.  Invariant: `apply` of edits that were read against a program
never fails on that program, and changes no other.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from hitables.emit.text import rule_text
from hitables.errors import HitablesError, ParseError, Unsupported
from hitables.ir.program import BUILT_IN, Chain, Program, Table
from hitables.ir.rule import Match, Role, Rule
from hitables.parse import iptables
from hitables.parse.lines import quote, split, unquote
from hitables.parse.named_memory import mixed_memories, named_memory
from hitables.parse.set_counters import as_counted, counts, rules_of, set_of

from .lcs import gaps


class Op(enum.Enum):
    """What an edit does; the value is the iptables command."""

    APPEND = "-A"
    INSERT = "-I"
    DELETE = "-D"
    REPLACE = "-R"
    NEW = "-N"
    FLUSH = "-F"
    REMOVE = "-X"
    POLICY = "-P"


@dataclass(frozen=True, slots=True)
class Edit:
    """One edit of one chain.  *at*: the rule's place, from 0, where the operation has one."""

    op: Op
    table: str
    chain: str
    at: int = 0
    rule: Rule | None = None
    policy: str = ""


Key = tuple[tuple[Hashable, ...], str]


def rule_key(rule: Rule) -> Key:
    """Equal for rules that say the same, however they are spelt; counters and comment lines apart."""
    said = tuple([match_key(match) for match in rule.matches if not _says_nothing(match)])
    return said, rule.target.key if rule.target else ""


def match_key(match: Match) -> Hashable:
    """Equal for matches that say the same: of header fields that is known, of others their spelling is."""
    if match.role is Role.SPACE and match.tests:
        return match.name, match.tests, match.either, match.native, match.needs, match.option
    return match.key


def _says_nothing(match: Match) -> bool:
    """Whether the kernel forgets it: -s 0.0.0.0/0, -i +."""
    return not match.name and not match.tests and match.words[-2:-1] in _FORGOTTEN


_FORGOTTEN = (("-s",), ("-d",), ("-i",), ("-o",))


def empty_table(name: str) -> Table:
    """A table as the kernel has it before anybody said anything about it."""
    return Table(name, tuple(Chain(chain, "ACCEPT", counters=(0, 0)) for chain in BUILT_IN[name]))


def apply(program: Program, edits: Iterable[Edit]) -> Program:
    """*program* after *edits*; a table that it does not have yet is made."""
    tables = {table.name: table for table in program}
    chains: dict[str, dict[str, Chain]] = {}
    rules: dict[tuple[str, str], list[Rule]] = {}
    for edit in edits:
        if edit.table not in chains:
            table = tables.setdefault(edit.table, empty_table(edit.table))
            chains[edit.table] = table.by_name()
        _apply_one(edit, chains[edit.table], rules)
    for (where, name), changed in rules.items():
        if name in chains[where]:
            chains[where][name] = chains[where][name].with_rules(tuple(changed))
    for name, held in chains.items():
        tables[name] = tables[name].of(held)
    return replace(program, tables=tuple(tables.values()))


def with_memory(program: Program, edits: Sequence[Edit]) -> Sequence[Edit]:
    """*edits*, whose matches of ipsets have memory where a rule reads counters of one.

    Unsupported when they bring the first rule that reads counters, or other parameters for a memory that
    rules share by its name.
    """
    rules = [edit.rule for edit in edits if edit.rule is not None]
    asked = [match for rule in rules for match in rule.matches]
    if any(named_memory(match) for match in asked):
        before = list(rules_of(program))
        if mixed_memories([*before, *rules]) != mixed_memories(before):
            raise Unsupported(
                "rules of one --hashlimit-name or recent --name with other parameters than those that are "
                "there: the kernel takes those of the rule that it loads first; give it a name of its own"
            )
    if not any(set_of(match) for match in asked):
        return edits
    if not counts(rules_of(program)):
        if not counts(rules):
            return edits
        for rule in rules_of(program):
            for match in rule.matches:
                if set_of(match) is not None:
                    raise Unsupported(
                        f"no rule read counters of ipsets so far, and the trees ask ipset {set_of(match)} "
                        "more often than the list does: begin a new state with the new rule set (sflgen init)"
                    )
    return [edit if edit.rule is None else replace(edit, rule=as_counted(edit.rule)) for edit in edits]


def _apply_one(edit: Edit, chains: dict[str, Chain], rules: dict[tuple[str, str], list[Rule]]) -> None:
    place = edit.table, edit.chain
    if edit.op is Op.NEW:
        chains[edit.chain] = Chain(edit.chain, None, counters=(0, 0))
        rules.pop(place, None)
        return
    chain = chains[edit.chain]
    if edit.op is Op.REMOVE:
        del chains[edit.chain]
        rules.pop(place, None)
        return
    if edit.op is Op.POLICY:
        chains[edit.chain] = replace(chain, policy=edit.policy, kept=False, declared=True)
        return
    listed = rules.get(place)
    if listed is None:
        listed = rules[place] = list(chain.rules)
    if edit.op is Op.FLUSH:
        listed.clear()
    elif edit.op is Op.DELETE:
        del listed[edit.at]
    else:
        assert edit.rule is not None
        if edit.op is Op.APPEND:
            listed.append(edit.rule)
        elif edit.op is Op.INSERT:
            listed.insert(edit.at, edit.rule)
        else:
            listed[edit.at] = edit.rule


def line(edit: Edit) -> str:
    """The edit as an iptables command, without the table."""
    chain = quote(edit.chain)
    if edit.op in (Op.NEW, Op.FLUSH, Op.REMOVE):
        return f"{edit.op.value} {chain}"
    if edit.op is Op.POLICY:
        return f"-P {chain} {edit.policy}"
    if edit.op is Op.DELETE:
        return f"-D {chain} {edit.at + 1}"
    assert edit.rule is not None
    said = rule_text(edit.rule._replace(counters=None), edit.chain)
    if edit.op is Op.APPEND:
        return said
    place = "" if edit.op is Op.INSERT and edit.at == 0 else f" {edit.at + 1}"
    return f"{edit.op.value} {chain}{place}{said[len(f'-A {chain}') :]}"


def text(edits: Iterable[Edit]) -> str:
    """The edits as text for `iptables-restore --noflush`; "" when there are none."""
    by_table: dict[str, list[str]] = {}
    for edit in edits:
        by_table.setdefault(edit.table, []).append(line(edit))
    return "".join(f"*{table}\n" + "\n".join(lines) + "\nCOMMIT\n" for table, lines in by_table.items())


# Reading commands.


def read_commands(said: str, program: Program, source: str = "-") -> list[Edit]:
    """The edits that the iptables commands in *said*, one a line, make to *program* one after the other.

    ParseError says which line cannot be done and why; then none is.  A line may begin with the
    name of the tool and `-t TABLE`; a text for iptables-restore (`*filter`, `COMMIT`) is read too.
    """
    reader = CommandReader(program, source)
    made: list[Edit] = []
    for number, command in enumerate(said.split("\n"), 1):
        made += reader.line(command, number)
    return made


class CommandReader:
    """Reads commands against a program that changes as they are read."""

    def __init__(self, program: Program, source: str = "-") -> None:
        self.program, self.source = program, source
        self.table = "filter"

    def line(self, command: str, number: int = 1) -> list[Edit]:
        """The edits of one line; they are done to `program`."""
        bare = command.strip()
        if not bare or bare.startswith("#") or bare == "COMMIT":
            return []
        if bare.startswith("*"):
            self.table = bare[1:].strip()
            if self.table not in BUILT_IN:
                raise ParseError(
                    f"unknown table {self.table!r}", source=self.source, line=number, column=1, text=command
                )
            return []
        made = _Line(self, command, number).read()
        self.program = apply(self.program, made)
        return made


class _Line:
    def __init__(self, reader: CommandReader, command: str, number: int) -> None:
        self.reader, self.command, self.number = reader, command, number
        self.words = [(unquote(word), column) for word, column in split(command)]
        self.at = 0
        self.table = reader.table

    def fault(self, reason: str, at: int | None = None, hint: str = "") -> ParseError:
        at = self.at if at is None else at
        word, column = self.words[at] if at < len(self.words) else ("", len(self.command))
        return ParseError(
            reason,
            source=self.reader.source,
            line=self.number,
            column=column + 1,
            text=self.command,
            length=len(word),
            hint=hint,
        )

    def next(self, what: str) -> str:
        if self.at == len(self.words):
            raise self.fault(f"{what} is missing")
        word = self.words[self.at][0]
        self.at += 1
        return word

    def read(self) -> list[Edit]:
        first = self.words[0][0]
        if first.startswith(("iptables", "ip6tables")) and not first.endswith(("-save", "-restore")):
            self.at += 1
        while self.at < len(self.words) and self.words[self.at][0] in ("-t", "--table", "-w", "--wait"):
            if self.next("a command") in ("-t", "--table"):
                self.table = self.next("the name of a table")
                if self.table not in BUILT_IN:
                    raise self.fault(
                        f"unknown table {self.table!r}", self.at - 1, f"there are {', '.join(BUILT_IN)}"
                    )
        command = iptables.COMMANDS.get(self.next("a command"), "")
        try:
            op = Op(command)
        except ValueError:
            known = ", ".join(each.value for each in Op)
            said = self.words[self.at - 1][0]
            raise self.fault(f"{said} is not among the updates", self.at - 1, f"there are {known}") from None
        name = self.next("a chain")
        if op is Op.NEW:
            return self.new(name)
        chain = self.chain(name)
        if op in (Op.FLUSH, Op.REMOVE, Op.POLICY):
            return self.whole(op, chain)
        return self.rules(op, chain)

    def open_table(self) -> Table:
        for table in self.reader.program:
            if table.name == self.table:
                return table
        return empty_table(self.table)

    def chain(self, name: str) -> Chain:
        table = self.open_table()
        if name not in table:
            chains = [chain.name for chain in table.chains]
            shown = ", ".join(chains[:12]) + (" …" if len(chains) > 12 else "")
            raise self.fault(
                f"there is no chain {name} in table {self.table}", self.at - 1, f"there are {shown}"
            )
        return table[name]

    def new(self, name: str) -> list[Edit]:
        table = self.open_table()
        if name in table:
            raise self.fault(f"chain {name} exists already", self.at - 1)
        self.parsed(table, f":{name} -\n", [], self.words[self.at - 1][1])
        return [Edit(Op.NEW, self.table, name)]

    def whole(self, op: Op, chain: Chain) -> list[Edit]:
        if op is Op.FLUSH:
            return [Edit(Op.FLUSH, self.table, chain.name)]
        if op is Op.POLICY:
            policy = self.next("a policy")
            if chain.policy is None or policy not in ("ACCEPT", "DROP"):
                reason = f"user chain {chain.name} has no policy"
                if chain.policy is not None:
                    reason = f"{policy!r} is no policy"
                raise self.fault(reason, self.at - 1, "a built-in chain has ACCEPT or DROP")
            return [Edit(Op.POLICY, self.table, chain.name, policy=policy)]
        if chain.policy is not None:
            raise self.fault(f"{chain.name} is built in and cannot be deleted", self.at - 1)
        if chain.rules:
            count = len(chain.rules)
            raise self.fault(f"chain {chain.name} has {count} rules", self.at - 1, "flush it first (-F)")
        for other in self.open_table().chains:
            for place, rule in enumerate(other.rules, 1):
                if jumps_to(rule) == chain.name:
                    raise self.fault(f"rule {place} of {other.name} jumps to {chain.name}", self.at - 1)
        return [Edit(Op.REMOVE, self.table, chain.name)]

    def rules(self, op: Op, chain: Chain) -> list[Edit]:
        number = None
        if op is not Op.APPEND and self.at < len(self.words) and self.words[self.at][0].isdigit():
            number = int(self.next("a position"))
        count = len(chain.rules)
        last = count + 1 if op is Op.INSERT else count
        if number is not None and not 1 <= number <= last:
            raise self.fault(
                f"position {number} is out of range: chain {chain.name} has {count} rules", self.at - 1
            )
        name = chain.name
        if op is Op.DELETE and number is not None:
            if self.at < len(self.words):
                raise self.fault("-D takes a position or a rule, not both")
            return [Edit(Op.DELETE, self.table, name, number - 1)]
        if op is Op.REPLACE and number is None:
            raise self.fault("-R needs a position")
        rules = self.written(chain)
        if op is Op.APPEND:
            return [Edit(Op.APPEND, self.table, name, count + at, rule) for at, rule in enumerate(rules)]
        if op is Op.INSERT:
            # iptables puts the rules that a list of addresses stands for in front of each other.
            return [Edit(Op.INSERT, self.table, name, (number or 1) - 1, rule) for rule in rules]
        if op is Op.REPLACE:
            assert number is not None
            if len(rules) != 1:
                raise self.fault("-R takes one rule, and a list of addresses stands for several", 0)
            return [Edit(Op.REPLACE, self.table, name, number - 1, rules[0])]
        return self.found(chain, rules)

    def found(self, chain: Chain, rules: Sequence[Rule]) -> list[Edit]:
        """Deletions of *rules*, each the first of its like."""
        left = list(chain.rules)
        made = []
        for rule in rules:
            at = _find(left, rule)
            if at is None:
                raise self.fault(f"there is no such rule in chain {chain.name}", 0)
            del left[at]
            made.append(Edit(Op.DELETE, self.table, chain.name, at))
        return made

    def written(self, chain: Chain) -> tuple[Rule, ...]:
        """The rules that the rest of the line says."""
        tail = self.words[self.at :]
        table = self.open_table()
        start = tail[0][1] if tail else len(self.command)
        head = f"-A {quote(chain.name)} "
        targets = [after for (word, _), (after, _) in pairwise(tail) if word in _JUMPS]
        said = head + self.command[start:] + "\n"
        program = self.parsed(table, said, [chain.name, *targets], start - len(head))
        return program.table(self.table)[chain.name].rules

    def parsed(self, table: Table, said: str, needs: Sequence[str], shift: int = 0) -> Program:
        """*said* read as a line of a table that declares the chains of *needs*."""
        declared = {name for name in needs if name in table and table[name].policy is None}
        lead = "".join(f":{name} -\n" for name in sorted(declared))
        family, source = self.reader.program.family, self.reader.source
        try:
            return iptables.read(f"*{self.table}\n{lead}{said}COMMIT\n", family=family, name=source)
        except ParseError as error:
            column = max(1, error.column + shift)
            raise ParseError(
                error.reason,
                source=source,
                line=self.number,
                column=column,
                text=self.command,
                length=error.length,
                hint=error.hint,
            ) from None


_JUMPS = frozenset({"-j", "--jump", "-g", "--goto"})


def jumps_to(rule: Rule) -> str:
    """The chain that the rule enters; "" when it enters none."""
    target = rule.target
    return target.name if target is not None and target.enters else ""


def _find(rules: Sequence[Rule], wanted: Rule) -> int | None:
    key = rule_key(wanted)
    target, count = key[1], len(wanted.matches)
    for at, rule in enumerate(rules):
        alike = len(rule.matches) == count and (rule.target.key if rule.target else "") == target
        if alike and rule_key(rule) == key:
            return at
    return None


# What `text` printed, read again.


_PRINTED = re.compile(r'-([AIR]) ((?:[^\s"]|"(?:[^"\\]|\\.)*")+)(?: ([0-9]+))?(?: (.*))?')
_HOLDER = "sflgen"  # no chain of an edit: rules are read in a chain of this name, and moved


def read_edits(said: str, program: Program, source: str = "-") -> list[Edit]:
    """The edits that `text` printed for *program*, many at once; ParseError for anything else."""
    made: list[Edit] = []
    waiting: dict[str, list[tuple[int, str]]] = {}
    fresh: dict[str, set[str]] = {}
    table = ""
    for number, each in enumerate(said.splitlines(), 1):
        if each.startswith("*"):
            table = each[1:]
            waiting.setdefault(table, [])
            names = fresh.setdefault(table, set())
            names.update(c.name for t in program if t.name == table for c in t.chains if c.policy is None)
            continue
        found = _PRINTED.fullmatch(each)
        if found is not None:
            op, chain = Op(f"-{found[1]}"), unquote(found[2])
            waiting[table].append((len(made), found[4] or ""))
            at = int(found[3]) - 1 if found[3] else 0
            made.append(Edit(op, table, chain, at))
        elif each != "COMMIT" and each:
            words = [unquote(word) for word, _ in split(each)]
            try:
                edit = Edit(Op(words[0]), table, words[1])
                if edit.op is Op.DELETE:
                    edit = replace(edit, at=int(words[2]) - 1)
                elif edit.op is Op.POLICY:
                    edit = replace(edit, policy=words[2])
            except (ValueError, IndexError):
                raise ParseError("no edit", source=source, line=number, column=1, text=each) from None
            if edit.op is Op.NEW:
                fresh[table].add(edit.chain)
            made.append(edit)
    for table, rules in waiting.items():
        lines = [f":{name} -" for name in sorted(fresh[table] - {_HOLDER})]
        lines += [f":{_HOLDER} -", *(f"-A {_HOLDER} {rule}" for _, rule in rules)]
        whole = "\n".join([f"*{table}", *lines, "COMMIT", ""])
        held = iptables.read(whole, family=program.family, name=source)
        for (place, _), rule in zip(rules, held.table(table)[_HOLDER].rules, strict=True):
            made[place] = replace(made[place], rule=rule._replace(line=0))
    return made


# Least edits.


def sync(old: Program, new: Program, keep: Callable[[str], bool] = lambda chain: False) -> list[Edit]:
    """The least edits that make *new* of *old*: rules deleted and inserted, chains, policies.

    Chains that *keep* names stay as they are.
    """
    if old.family is not new.family:
        raise HitablesError(f"{new.name} is for IPv{int(new.family)}, the state for IPv{int(old.family)}")
    made: list[Edit] = []
    for name in dict.fromkeys([table.name for program in (old, new) for table in program]):
        was, now = (next((t for t in program if t.name == name), empty_table(name)) for program in (old, new))
        kept = {chain.name for chain in (*was.chains, *now.chains) if keep(chain.name)}
        gone = [chain.name for chain in was.chains if chain.name not in now and chain.name not in kept]
        fresh = [chain for chain in now.chains if chain.name not in was and chain.name not in kept]
        made += [Edit(Op.NEW, name, chain.name) for chain in fresh]
        for chain in now.chains:
            if chain.name in kept:
                continue
            before = was[chain.name] if chain.name in was else Chain(chain.name, chain.policy)
            if before is chain:
                continue
            if before.policy != chain.policy and chain.policy is not None and not chain.kept:
                made.append(Edit(Op.POLICY, name, chain.name, policy=chain.policy))
            made += rule_edits(name, chain.name, before.rules, chain.rules)
        made += [Edit(Op.FLUSH, name, chain) for chain in gone if was[chain].rules]
        made += [Edit(Op.REMOVE, name, chain) for chain in gone]
    return made


def rule_edits(table: str, chain: str, old: Sequence[Rule], new: Sequence[Rule]) -> list[Edit]:
    """The least edits of one chain; a deletion and an insertion in one place are a replacement."""
    made: list[Edit] = []
    at = 0
    if old is new:
        return made
    for gone, come in gaps([rule_key(rule) for rule in old], [rule_key(rule) for rule in new]):
        at = come.start  # all before is as in *new* already
        size = len(old) - gone.start + at  # rules of the chain at this time
        for rule in new[come.start : come.start + min(len(gone), len(come))]:
            made.append(Edit(Op.REPLACE, table, chain, at, rule))
            at += 1
        made += [Edit(Op.DELETE, table, chain, at) for _ in range(len(gone) - len(come))]
        for rule in new[at : come.stop]:
            made.append(Edit(Op.APPEND if at == size else Op.INSERT, table, chain, at, rule))
            at, size = at + 1, size + 1
    return made
