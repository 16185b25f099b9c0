"""iptables commands read as edits: `-A -I -D -R -N -F -X -P`, one a line.

Commands are read against a program that changes with each of them, so positions and chains mean
what they mean to iptables.  A rule is parsed by the parser of hitables, within a table that declares
the chains it needs.  Every error is a ParseError with the line and column of the command.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise

from hitables.errors import InvalidOption, ParseError
from hitables.ir.fields import Family
from hitables.ir.program import BUILT_IN, Chain, Program, Table
from hitables.ir.rule import Rule
from hitables.nouns import counted
from hitables.parse import iptables
from hitables.parse.lines import Fault, quote, split, unquote
from hitables.parse.rule_parts import check_chain_name

from .edits import Edit, Op, apply, empty_table, jumps_to, rule_key


def read_commands(text: str, program: Program, source: str = "-", taken: Sequence[Edit] = ()) -> list[Edit]:
    """The edits that the iptables commands in *text* make to *program*, one after the other.

    *taken*: edits of *program* that the author of *text* may not know of (see CommandReader).

    ParseError names the first command that cannot be performed, and why.  A line may begin with
    the name of the tool and `-t TABLE`; text for iptables-restore (`*filter`, `COMMIT`) is read too.
    """
    if not isinstance(text, str) or not isinstance(program, Program):
        types = type(text).__name__, type(program).__name__
        raise InvalidOption(f"commands are a text, for a Program, not {' and '.join(types)}")
    reader = CommandReader(program, source, taken)
    edits: list[Edit] = []
    for number, command in enumerate(text.split("\n"), 1):
        edits += reader.line(command, number)
    return edits


class CommandReader:
    """Reads commands against `program`, which every command changes.

    taken  edits that other programs made just before: in their chains no command may name a rule by a number,
           which may be that of another rule now; but for an insertion in front of all
    """

    def __init__(self, program: Program, source: str = "-", taken: Sequence[Edit] = ()) -> None:
        self.program, self.source, self.taken = program, source, taken
        self.table = "filter"

    def line(self, command: str, number: int = 1) -> list[Edit]:
        """The edits of one line, after which `program` includes them."""
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
        edits = _Line(self, command, number).read()
        self.program = apply(self.program, edits)
        return edits


class _Line:
    """One command: its words, and the index `at` of the next one to read."""

    def __init__(self, reader: CommandReader, command: str, number: int) -> None:
        self.reader, self.command, self.number = reader, command, number
        self.words = [(unquote(word), column) for word, column in split(command)]
        self.at = 0
        self.table = reader.table

    def error(self, reason: str, at: int | None = None, hint: str = "") -> ParseError:
        """An error at word *at*, the next one by default."""
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

    def next(self, kind: str) -> str:
        if self.at == len(self.words):
            raise self.error(f"{kind} is missing")
        word = self.words[self.at][0]
        self.at += 1
        return word

    def read(self) -> list[Edit]:
        self.skip_tool_and_table()
        command = iptables.COMMANDS.get(self.next("a command"), "")
        try:
            op = Op(command)
        except ValueError:
            supported = ", ".join(each.value for each in Op)
            word = self.words[self.at - 1][0]
            raise self.error(
                f"{word} is not among the updates", self.at - 1, f"there are {supported}"
            ) from None
        name = self.next("a chain")
        if op is Op.NEW:
            edits = self.read_new_chain(name)
            self.check_end()
            return edits
        chain = self.find_chain(name)
        if op in (Op.FLUSH, Op.REMOVE, Op.POLICY):
            return self.read_chain_operation(op, chain)
        return self.read_rule_operation(op, chain)

    def skip_tool_and_table(self) -> None:
        first = self.words[0][0]
        if first.startswith(("iptables", "ip6tables")) and not first.endswith(("-save", "-restore")):
            self.at += 1
            family = self.reader.program.family
            if first.startswith("ip6tables") != (family is Family.IPV6):
                raise self.error(f"a command of {first}, but the rules are of IPv{int(family)}", 0)
        while self.at < len(self.words) and self.words[self.at][0] in (*_TABLE, *_WAIT):
            if self.next("a command") in _WAIT:
                self.skip_seconds()
            else:
                self.table = self.next("the name of a table")
                if self.table not in BUILT_IN:
                    raise self.error(
                        f"unknown table {self.table!r}", self.at - 1, f"there are {', '.join(BUILT_IN)}"
                    )

    def skip_wait(self) -> None:
        """Skip -w behind a command that takes no rule."""
        while self.at < len(self.words) and self.words[self.at][0] in _WAIT:
            self.at += 1
            self.skip_seconds()

    def skip_seconds(self) -> None:
        """Skip the seconds of -w."""
        if self.at < len(self.words) and _NUMBER.fullmatch(self.words[self.at][0]):
            self.at += 1

    def check_end(self) -> None:
        """Refuse words behind a command that takes no rule, as iptables does: -t means another table."""
        self.skip_wait()
        if self.at < len(self.words):
            word = self.words[self.at][0]
            raise self.error(f"{word} is not expected here", hint=self.front_hint(self.at))

    def front_hint(self, at: int) -> str:
        """A hint if the word *at* is an option that belongs in front of the command, else ""."""
        word = self.words[at][0]
        if word in _WAIT:
            return f"write {word} in front of the command, or leave it out"
        if word not in _TABLE:
            return ""
        name = self.words[at + 1][0] if at + 1 < len(self.words) else "TABLE"
        return f"write {word} {name} in front of the command"

    def current_table(self) -> Table:
        return self.reader.program.find(self.table) or empty_table(self.table)

    def find_chain(self, name: str) -> Chain:
        table = self.current_table()
        if name not in table:
            chains = [chain.name for chain in table.chains]
            shown = ", ".join(chains[:12]) + (" …" if len(chains) > 12 else "")
            behind = range(self.at, len(self.words))
            hint = next(filter(None, map(self.front_hint, behind)), f"there are {shown}")
            raise self.error(f"there is no chain {name} in table {self.table}", self.at - 1, hint)
        return table[name]

    # Operations on chains.

    def read_new_chain(self, name: str) -> list[Edit]:
        table = self.current_table()
        if name in table:
            raise self.error(f"chain {name} exists already", self.at - 1)
        try:
            check_chain_name(name, 0)
        except Fault as fault:
            raise self.error(fault.reason, self.at - 1, fault.hint) from None
        self.parse(table, f":{name} -\n", [], self.words[self.at - 1][1])
        return [Edit(Op.NEW, self.table, name)]

    def read_chain_operation(self, op: Op, chain: Chain) -> list[Edit]:
        if op is Op.FLUSH:
            self.check_end()
            return [Edit(Op.FLUSH, self.table, chain.name)]
        if op is Op.POLICY:
            policy = self.next("a policy")
            if chain.policy is None or policy not in ("ACCEPT", "DROP"):
                reason = f"user chain {chain.name} has no policy"
                if chain.policy is not None:
                    reason = f"{policy!r} is no policy"
                raise self.error(reason, self.at - 1, "a built-in chain has ACCEPT or DROP")
            self.check_end()
            return [Edit(Op.POLICY, self.table, chain.name, policy=policy)]
        self.check_end()
        self.check_removable(chain)
        return [Edit(Op.REMOVE, self.table, chain.name)]

    def check_removable(self, chain: Chain) -> None:
        if chain.policy is not None:
            raise self.error(f"{chain.name} is built in and cannot be deleted", self.at - 1)
        if chain.rules:
            count = counted(len(chain.rules), "rule")
            raise self.error(f"chain {chain.name} has {count}", self.at - 1, "flush it first (-F)")
        for other in self.current_table().chains:
            for position, rule in enumerate(other.rules, 1):
                if jumps_to(rule) == chain.name:
                    raise self.error(f"rule {position} of {other.name} jumps to {chain.name}", self.at - 1)

    # Operations on rules.

    def read_rule_operation(self, op: Op, chain: Chain) -> list[Edit]:
        number = self.read_position(op, chain)
        name, count = chain.name, len(chain.rules)
        if op is Op.DELETE and number is not None:
            self.skip_wait()
            if self.at < len(self.words):
                raise self.error("-D takes a position or a rule, not both")
            return [Edit(Op.DELETE, self.table, name, number - 1)]
        if op is Op.REPLACE and number is None:
            raise self.error("-R needs a position")
        rules = self.parse_rules(chain)
        if op is Op.APPEND:
            return [Edit(Op.APPEND, self.table, name, count + at, rule) for at, rule in enumerate(rules)]
        if op is Op.INSERT:
            # iptables inserts the rules of a list of addresses each in front of the one before.
            return [Edit(Op.INSERT, self.table, name, (number or 1) - 1, rule) for rule in rules]
        if op is Op.REPLACE:
            assert number is not None
            if len(rules) != 1:
                raise self.error("-R takes one rule, and a list of addresses means several", 0)
            return [Edit(Op.REPLACE, self.table, name, number - 1, rules[0])]
        return self.deletions(chain, rules)

    def read_position(self, op: Op, chain: Chain) -> int | None:
        """The position, from 1, that the command gives; None if it gives none."""
        if op is Op.APPEND or self.at >= len(self.words) or not _NUMBER.fullmatch(self.words[self.at][0]):
            return None
        count = len(chain.rules)
        digits = self.next("a position").lstrip("0")
        number = int(digits or "0") if len(digits) <= _MOST_DIGITS else count + 2
        last = count + 1 if op is Op.INSERT else count
        if not 1 <= number <= last:
            shown = digits[:_MOST_DIGITS] or "0"
            raise self.error(
                f"position {shown} is out of range: chain {chain.name} has {counted(count, 'rule')}",
                self.at - 1,
            )
        is_moved = any((each.table, each.chain) == (self.table, chain.name) for each in self.reader.taken)
        if is_moved and (op is not Op.INSERT or number > 1):
            raise self.error(
                f"position {number} may be that of another rule now, as other programs have changed jumps "
                f"in chain {chain.name}",
                self.at - 1,
                "see the rules (sflgen print), and give the command again",
            )
        return number

    def deletions(self, chain: Chain, rules: Sequence[Rule]) -> list[Edit]:
        """Deletions of *rules*; of equal rules in the chain the first is deleted."""
        remaining = list(chain.rules)
        edits = []
        for rule in rules:
            at = _index_of(remaining, rule)
            if at is None:
                raise self.error(f"there is no such rule in chain {chain.name}", 0)
            del remaining[at]
            edits.append(Edit(Op.DELETE, self.table, chain.name, at))
        return edits

    def parse_rules(self, chain: Chain) -> tuple[Rule, ...]:
        """The rules that the rest of the line specifies."""
        tail = self.words[self.at :]
        table = self.current_table()
        start = tail[0][1] if tail else len(self.command)
        head = f"-A {quote(chain.name)} "
        targets = [after for (word, _), (after, _) in pairwise(tail) if word in _JUMPS]
        append = head + self.command[start:] + "\n"
        program = self.parse(table, append, [chain.name, *targets], start - len(head))
        return program.table(self.table)[chain.name].rules

    def parse(self, table: Table, text: str, chains: Sequence[str], shift: int = 0) -> Program:
        """*text* parsed as a line of a table that declares those of *chains* which *table* has.

        *shift* turns a column of *text* into a column of the command.
        """
        declared = {name for name in chains if name in table and table[name].policy is None}
        lead = "".join(f":{name} -\n" for name in sorted(declared))
        family, source = self.reader.program.family, self.reader.source
        try:
            return iptables.read(f"*{self.table}\n{lead}{text}COMMIT\n", family=family, name=source)
        except ParseError as error:
            column = max(1, error.column + shift)
            at = next((at for at, (_, start) in enumerate(self.words) if start + 1 == column), None)
            raise ParseError(
                error.reason,
                source=source,
                line=self.number,
                column=column,
                text=self.command,
                length=error.length,
                hint=(at is not None and self.front_hint(at)) or error.hint,
            ) from None


_TABLE, _WAIT = ("-t", "--table"), ("-w", "--wait")
_NUMBER = re.compile(r"[0-9]+")
_MOST_DIGITS = 10
_JUMPS = frozenset({"-j", "--jump", "-g", "--goto"})


def _index_of(rules: Sequence[Rule], wanted: Rule) -> int | None:
    key = rule_key(wanted)
    matches, target = len(key[0]), key[1]
    for at, rule in enumerate(rules):
        # Comparing targets first is faster: most rules differ there.
        similar = len(rule.matches) >= matches and (rule.target.key if rule.target else "") == target
        if similar and rule_key(rule) == key:
            return at
    return None
