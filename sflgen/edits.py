"""Edits: changes of single chains, one operation each.

The same edits describe an update of the master list (read from iptables commands, commands.py) and
a patch of the loaded rule set.  `apply` performs them on a Program, `text` prints them for
`iptables-restore --noflush`, and `read_edits` reads that text again.

Invariant: edits that were read against a program can be applied to that program, and change only
the chains that they name.  `apply` costs one copy of each edited chain; other chains are shared.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from hitables.emit.chain_writer import goto, jump
from hitables.emit.text import rule_text
from hitables.errors import ParseError
from hitables.ir.fields import Field
from hitables.ir.meaning import is_any
from hitables.ir.program import BUILT_IN, Chain, Program, Table
from hitables.ir.rule import Kind, Match, Role, Rule, Test
from hitables.ir.set_counters import as_counted, counting, counts
from hitables.parse import iptables
from hitables.parse.lines import PRINTED_NAME, quote, split, unquote
from hitables.rule_lines import lines_of

T = TypeVar("T")


class Op(enum.Enum):
    """The operation of an edit; the value is the iptables command."""

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
    """One operation on one chain.  *at*: the position of the rule, from 0, if the operation has one."""

    op: Op
    table: str
    chain: str
    at: int = 0
    rule: Rule | None = None
    policy: str = ""


# Equality of rules.

Key = tuple[tuple[Hashable, ...], str]
Count = tuple[int, int]  # packets, bytes


def rule_key(rule: Rule) -> Key:
    """Equal for rules with the same matches and target in any spelling; counters and comments are ignored."""
    matches = tuple([match_key(match) for match in rule.matches if not _is_unconditional(match)])
    return matches, rule.target.key if rule.target else ""


def match_key(match: Match) -> Hashable:
    """Equal for equal matches: header fields are compared by value, other matches by spelling."""
    if match.role is not Role.SPACE or not match.tests:
        return match.key
    tests = match.tests
    if match.name in _NOT_PRINTED_IF_ANY:
        tests = tuple([test for test in tests if not is_any(*test)])
        if not tests:
            return match.name
    if len(tests) > 1:
        tests = tuple(sorted(tests, key=_by_field))
    return match.name, tests, match.either, match.native, match.needs, match.option


def _by_field(test: Test) -> Field:
    return test.field


def _is_unconditional(match: Match) -> bool:
    """Whether the kernel does not store the match: -s 0.0.0.0/0, -i +.

    An address under a mask with gaps has no tests either, but it is no SPACE: it selects packets.
    """
    is_open = match.role is Role.SPACE and not match.name and not match.tests
    return is_open and match.words[-2:-1] in _OMITTED


_OMITTED = (("-s",), ("-d",), ("-i",), ("-o",))
_NOT_PRINTED_IF_ANY = ("tcp", "udp")  # sctp, dccp and multiport print --dport 0:65535


def jumps_to(rule: Rule) -> str:
    """The chain that the rule enters; "" if it enters none, so that the result may look up any name."""
    return rule.enters or ""


def with_renamed_callee(rule: Rule, names: Mapping[str, str]) -> Rule:
    """The rule, entering chain ``names[NAME]`` in place of NAME."""
    name = names.get(jumps_to(rule))
    if name is None or rule.target is None:
        return rule
    return rule._replace(target=jump(name) if rule.target.kind is Kind.JUMP else goto(name))


# Edits applied.


def empty_table(name: str) -> Table:
    """A table as the kernel creates it: built-in chains without rules, policy ACCEPT."""
    return Table(name, tuple(Chain(chain, "ACCEPT", counters=(0, 0)) for chain in BUILT_IN[name]))


def apply(program: Program, edits: Iterable[Edit]) -> Program:
    """*program* after *edits*; tables that it lacks are added.

    It counts sets afterwards if it did before, or if a rule of *edits* reads the counters of ipsets.
    """
    edits = list(edits)
    if program.counts_sets or counts(edit.rule for edit in edits if edit.rule is not None):
        program, edits = counting(program), counted_edits(edits)
    tables = {table.name: table for table in program}
    chains: dict[str, dict[str, Chain]] = {}
    rules: dict[tuple[str, str], list[Rule]] = {}
    for edit in edits:
        if edit.table not in chains:
            table = tables.setdefault(edit.table, empty_table(edit.table))
            chains[edit.table] = table.by_name()
        _apply_one(edit, chains[edit.table], rules)
    for (table_name, name), edited in rules.items():
        if name in chains[table_name]:
            chains[table_name][name] = chains[table_name][name].with_rules(tuple(edited))
    for name, by_name in chains.items():
        tables[name] = tables[name].of(by_name)
    return replace(program, tables=tuple(tables.values()))


def counted_edits(edits: Iterable[Edit]) -> list[Edit]:
    """*edits*, whose matches of ipsets have memory."""
    return [edit if edit.rule is None else _with_rule(edit, as_counted(edit.rule)) for edit in edits]


def _with_rule(edit: Edit, rule: Rule) -> Edit:
    return edit if rule is edit.rule else replace(edit, rule=rule)


def _apply_one(edit: Edit, chains: dict[str, Chain], rules: dict[tuple[str, str], list[Rule]]) -> None:
    chain_id = edit.table, edit.chain
    if edit.op is Op.NEW:
        chains[edit.chain] = Chain(edit.chain, None, counters=(0, 0))
        rules.pop(chain_id, None)
        return
    chain = chains[edit.chain]
    if edit.op is Op.REMOVE:
        del chains[edit.chain]
        rules.pop(chain_id, None)
        return
    if edit.op is Op.POLICY:
        chains[edit.chain] = replace(chain, policy=edit.policy, kept=False, declared=True)
        return
    edited = rules.get(chain_id)
    if edited is None:
        edited = rules[chain_id] = list(chain.rules)
    if edit.op is Op.FLUSH:
        edited.clear()
    elif edit.op is Op.DELETE:
        del edited[edit.at]
    else:
        assert edit.rule is not None
        if edit.op is Op.APPEND:
            edited.append(edit.rule)
        elif edit.op is Op.INSERT:
            edited.insert(edit.at, edit.rule)
        else:
            edited[edit.at] = edit.rule


def replaceable(program: Program, edits: Sequence[Edit]) -> tuple[list[Edit], list[int]]:
    """*edits* of *program*, in which no row is replaced that they have inserted; and where each is in them.

    iptables-nft-restore crashes at -R of a rule that the same text inserts; it takes -D and -I.
    """
    found: list[Edit] = []
    places: list[int] = []
    rows: dict[tuple[str, str], list[bool]] = {}  # by chain that is edited: whether each row is new
    for edit in edits:
        new = _rows_of(rows, program, edit, False)
        if edit.op is Op.REPLACE and new[edit.at]:
            found.append(Edit(Op.DELETE, edit.table, edit.chain, edit.at))
            edit = replace(edit, op=Op.INSERT)
        elif edit.op is Op.REPLACE:
            new[edit.at] = True
        else:
            _follow(new, edit, True)
        places.append(len(found))
        found.append(edit)
    return found, places


def without_undone(program: Program, edits: Sequence[Edit]) -> tuple[list[Edit], list[int | None]]:
    """*edits* of *program* without the rows that they insert and delete again; and where each is in them, if
    it still is.  No row may be replaced that they insert (`replaceable`).

    iptables-nft-restore leaves out a row that the same text deletes, and the kernel then refuses the rows
    that were inserted in front of it.
    """
    undone: set[int] = set()
    inserted: dict[tuple[str, str], list[int]] = {}  # by chain: the edit that inserted each row, or -1
    for number, edit in enumerate(edits):
        by = _rows_of(inserted, program, edit, -1)
        if edit.op is Op.DELETE and by[edit.at] >= 0:
            undone |= {by[edit.at], number}
        _follow(by, edit, number)
    if not undone:
        return list(edits), list(range(len(edits)))
    found: list[Edit] = []
    places: list[int | None] = []
    stays_by_chain: dict[tuple[str, str], list[bool]] = {}  # whether each row is not one of these
    for number, edit in enumerate(edits):
        stays = _rows_of(stays_by_chain, program, edit, True)
        at = sum(stays[: edit.at])
        _follow(stays, edit, number not in undone)
        places.append(None if number in undone else len(found))
        if number not in undone:
            found.append(replace(edit, at=at))
    return found, places


def staying(program: Program, edits: Sequence[Edit]) -> set[int]:
    """The numbers of the *edits* of *program* whose rules are there when all are done."""
    inserted: dict[tuple[str, str], list[int]] = {}  # by chain: the edit that inserted each row, or -1
    for number, edit in enumerate(edits):
        by = _rows_of(inserted, program, edit, -1)
        if edit.op is Op.REPLACE:
            by[edit.at] = number
        _follow(by, edit, number)
    return {number for by in inserted.values() for number in by if number >= 0}


def _rows_of(rows: dict[tuple[str, str], list[T]], program: Program, edit: Edit, value: T) -> list[T]:
    """The list of *rows* for the chain of *edit*: at first *value* for each of its rules in *program*."""
    chain_id = edit.table, edit.chain
    if chain_id not in rows:
        rows[chain_id] = [value] * len(program.rules_of(*chain_id))
    return rows[chain_id]


def _follow(rows: list[T], edit: Edit, value: T) -> None:
    """Insert *value* into the *rows* of a chain, or delete from them, as *edit* does with rules."""
    if edit.op in (Op.NEW, Op.FLUSH, Op.REMOVE):
        rows.clear()
    elif edit.op is Op.DELETE:
        del rows[edit.at]
    elif edit.op in (Op.APPEND, Op.INSERT):
        rows.insert(len(rows) if edit.op is Op.APPEND else edit.at, value)


# Edits printed, and read again.


def line(edit: Edit) -> str:
    """The edit as an iptables command, without the table and the counters of its rule."""
    chain = quote(edit.chain)
    if edit.op in (Op.NEW, Op.FLUSH, Op.REMOVE):
        return f"{edit.op.value} {chain}"
    if edit.op is Op.POLICY:
        return f"-P {chain} {edit.policy}"
    if edit.op is Op.DELETE:
        return f"-D {chain} {edit.at + 1}"
    assert edit.rule is not None
    append = rule_text(edit.rule._replace(counters=None), edit.chain)
    if edit.op is Op.APPEND:
        return append
    position = "" if edit.op is Op.INSERT and edit.at == 0 else f" {edit.at + 1}"
    return f"{edit.op.value} {chain}{position}{append[len(f'-A {chain}') :]}"


def text(edits: Iterable[Edit], counts: Mapping[int, Count] | None = None) -> str:
    """The edits as text for `iptables-restore --noflush`; "" if there are none.

    *counts*: by index in *edits*, the count with which its rule begins; that of others is zero.
    """
    by_table: dict[str, list[str]] = {}
    for number, edit in enumerate(edits):
        count = counts.get(number) if counts else None
        printed = f"{line(edit)} -c {count[0]} {count[1]}" if count else line(edit)
        by_table.setdefault(edit.table, []).append(printed)
    return "".join(f"*{table}\n" + "\n".join(lines) + "\nCOMMIT\n" for table, lines in by_table.items())


_PRINTED = re.compile(rf"-([AIR]) ({PRINTED_NAME})(?: ([0-9]+))?(?: (.*))?")
_CALLEE = re.compile(rf"(?<!\S)-[jg] ({PRINTED_NAME})")
_HOLDER = "sflgen"  # the chain in which the rules of all edits are parsed; no edit names it


def read_edits(printed: str, program: Program, source: str = "-") -> list[Edit]:
    """The edits that `text` printed for *program*; ParseError for any other text.

    The rules of a table are parsed in one call, so long journals are read fast.
    """
    edits: list[Edit] = []
    rules_of: dict[str, list[tuple[int, str]]] = {}  # by table: index of the edit, text of its rule
    made: dict[str, set[str]] = {}  # by table: chains that the edits make
    table = ""
    for number, printed_line in enumerate(lines_of(printed), 1):
        if printed_line.startswith("*"):
            table = printed_line[1:]
            rules_of.setdefault(table, [])
            made.setdefault(table, set())
            continue
        if table not in rules_of and printed_line:
            raise ParseError("no edit of a table", source=source, line=number, column=1, text=printed_line)
        with_rule = _PRINTED.fullmatch(printed_line)
        if with_rule is not None:
            rules_of[table].append((len(edits), with_rule[4] or ""))
            at = int(with_rule[3]) - 1 if with_rule[3] else 0
            edits.append(Edit(Op(f"-{with_rule[1]}"), table, unquote(with_rule[2]), at))
        elif printed_line != "COMMIT" and printed_line:
            edit = _read_without_rule(printed_line, table, source, number)
            if edit.op is Op.NEW:
                made[table].add(edit.chain)
            edits.append(edit)
    for table, rules in rules_of.items():
        # Of thousands of chains a patch names few.
        named = {unquote(name) for _, rule in rules for name in _CALLEE.findall(rule)}
        chains = {name for name in named if name in made[table] or _has_user_chain(program, table, name)}
        lines = [f":{name} -" for name in sorted(chains - {_HOLDER})]
        lines += [f":{_HOLDER} -", *(f"-A {_HOLDER} {rule}" for _, rule in rules)]
        whole = "\n".join([f"*{table}", *lines, "COMMIT", ""])
        parsed = iptables.read(whole, family=program.family, name=source).table(table)[_HOLDER].rules
        for (index, _), rule in zip(rules, parsed, strict=True):
            edits[index] = replace(edits[index], rule=rule._replace(line=0))
    return edits


def _has_user_chain(program: Program, table: str, name: str) -> bool:
    chain = program.find_chain(table, name)
    return chain is not None and chain.policy is None


def _read_without_rule(printed_line: str, table: str, source: str, number: int) -> Edit:
    words = [unquote(word) for word, _ in split(printed_line)]
    try:
        edit = Edit(Op(words[0]), table, words[1])
        if edit.op is Op.DELETE:
            return replace(edit, at=int(words[2]) - 1)
        if edit.op is Op.POLICY:
            return replace(edit, policy=words[2])
    except (ValueError, IndexError):
        raise ParseError("no edit", source=source, line=number, column=1, text=printed_line) from None
    return edit
