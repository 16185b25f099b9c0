"""iptables-save and ip6tables-save text to a Program.

A reader goes through the lines once.  A rule of a known shape is filled into its template
(line_templates.py); the commands of other lines change the open table (drafts.py); COMMIT binds its names
(resolve.py).  `read` is the only entry; a text that iptables would refuse raises ParseError, with the word
and what was expected.
"""

from __future__ import annotations

import gc
import itertools
import re
from collections.abc import Sequence

from ..errors import ParseError
from ..ir.fields import Family
from ..ir.foreign import preset_of
from ..ir.program import BUILT_IN, Chain, Program, Table
from ..ir.rule import Match, Rule, Target
from ..ir.set_counters import may_read_counters, with_counted_sets
from ..syntax.extensions import TARGETS
from ..syntax.options import RESERVED
from .counter_words import chain_counters, count, rule_counters
from .drafts import ChainDraft, TableDraft, edit, for_all, policy_of
from .guess_family import guess_family, of_both_families
from .line_templates import (
    COMMANDS,
    NO_INTERFACE,
    ForOtherFamily,
    LineTemplate,
    LineTemplates,
    Vocabulary,
    fill,
    has_list,
)
from .lines import Fault, NeedsWords, parse, pieces, split
from .named_memory import with_first_parameters
from .other_formats import recognise
from .part_meaning import plain_address
from .resolve import Resolver
from .rule_columns import RuleColumns
from .rule_parts import check_chain_name
from .shell_habits import command_hint
from .text_checks import refuse_binary, too_long, without_windows_ends
from .typographic import hint_at, hint_before

__all__ = ["COMMANDS", "Vocabulary", "guess_family", "read"]

# Makes a named tuple without a look at its arguments.
_new = tuple.__new__

_PLAIN_CHAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,27}")

MOST_MISTAKES = 100  # that are looked for; a text of another kind may have one in every line


class _Reader:
    """Reads one text.  State: the table that is open, and the comments before the next line.

    After a mistake it reads on; a mistake should not make right lines look wrong.
    """

    def __init__(self, family: Family, name: str, known: Vocabulary) -> None:
        self.family, self.name, self.known = family, name, known
        self.templates = LineTemplates(family, known)
        self.tables: list[Table] = []
        self.open: TableDraft | None = None
        self.notes: list[str] = []
        self.line = 0
        self.mistakes: list[ParseError] = []
        self.is_lost = False  # behind a mistake that makes the lines up to the next table look wrong

    def plain_line(self, template: LineTemplate, literals: Sequence[str]) -> bool:
        """Append a rule if its shape and all its words are known; False for any other line."""
        if not template.plain or self.notes or self.open is None:
            return False
        name = template.chain_name if template.chain_literal is None else literals[template.chain_literal]
        draft = self.open.chains.get(name)
        if draft is None or name in template.unfit:
            return False
        row = template.row.copy()
        try:
            for place, results, index in template.single:
                row[place] = results[literals[index]]
            for place, slot in template.several:
                row[place] = slot.results[slot.key(literals)]
        except KeyError:
            return False
        target = row.pop() if template.target else None
        draft.rules.append(_new(Rule, (tuple(row), target, self.line, None, ())))
        return True

    def rule_line(self, line: str, key: str, literals: Sequence[str]) -> None:
        """One rule; *key* is the line's shape."""
        template = self.known.templates.get(key)
        if template is None:
            if line.startswith(("-6", "--ipv6", "-4", "--ipv4")) and self.skips(line):
                return
            try:
                template = self.known.templates[key] = self.templates.of_shape(key)
            except (NeedsWords, Fault, ForOtherFamily):
                self.odd_line(line)
                return
        self.rule_of(template, line, literals)

    def odd_line(self, line: str) -> None:
        """One rule whose structure depends on its literals, or is unusual: read without a template of its
        shape.
        """
        try:
            template = self.templates.of_line(line)
        except ForOtherFamily:
            self.notes.append(f"# not for this family: {line}")
            return
        try:
            self.rule_of(template, line, ())
        except Fault as fault:
            if template.order and fault.word < len(template.order):
                fault.word = template.order[fault.word]
            raise

    def rule_of(self, template: LineTemplate, line: str, literals: Sequence[str]) -> None:
        """The rule, or rules, of a line."""
        row = template.row.copy()
        try:
            for place, results, index in template.single:
                row[place] = results[literals[index]]
            for place, slot in template.several:
                row[place] = slot.results[slot.key(literals)]
        except KeyError:
            if not self.make_row(template, literals, row):
                return
        target = row.pop() if template.target else None
        rule = Rule(tuple(row), target, self.line)  # type: ignore[arg-type]
        if template.plain and not self.notes and self.open is not None:
            name = template.chain_name if template.chain_literal is None else literals[template.chain_literal]
            draft = self.open.chains.get(name)
            if draft is not None and name not in template.unfit:
                draft.rules.append(rule)
                return
        self.command(template, fill(template, literals), [rule])

    def make_row(
        self, template: LineTemplate, literals: Sequence[str], row: list[Match | Target | None]
    ) -> bool:
        """Fill *row*, reading matches that are new; False if the line has become several rules."""
        for place, results, index in template.single:
            literal = literals[index]
            result = results.get(literal)
            if result is None:
                slot = template.slots[place]
                if slot.may_list and "," in literal:
                    self.expand(template, fill(template, literals))
                    return False
                result = plain_address(slot.address, literal) if slot.address else None
                result = results[literal] = result or self.templates.result(slot, fill(template, literals))
            row[place] = result
        for place, slot in template.several:
            key = slot.key(literals)
            result = slot.results.get(key)
            if result is None:
                words = fill(template, literals)
                if has_list(slot, words):
                    self.expand(template, words)
                    return False
                result = slot.results[key] = self.templates.result(slot, words)
            row[place] = result
        return True

    def skips(self, line: str) -> bool:
        """Whether the line is for the other family: skipped, as by iptables-restore, with a note."""
        mine = ("-4", "--ipv4") if self.family is Family.IPV4 else ("-6", "--ipv6")
        if line.split(None, 1)[0] in mine:
            return False
        self.notes.append(f"# not for this family: {line}")
        return True

    def expand(self, template: LineTemplate, words: list[str]) -> None:
        """`-s a,b -d c,d` is four rules, sources outermost, as iptables makes them."""
        lists: dict[str, tuple[int, list[str]]] = {}
        for slot in template.slots:
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
            row = [self.templates.result(slot, each) for slot in template.slots]
            target = row.pop() if template.target else None
            rules.append(Rule(tuple(row), target, self.line))  # type: ignore[arg-type]
        if template.command == "-R" and len(rules) > 1:
            raise Fault("-R takes one address, not a list", next(iter(lists.values()))[0])
        self.command(template, words, rules)

    def command(self, template: LineTemplate, words: list[str], rules: list[Rule]) -> None:
        """Execute the command of a line on the open table."""
        table = self.open
        if table is None:
            self.is_lost = True
            raise Fault("a rule outside of any table", 0, "a line like *filter must come first")
        if template.chain >= len(words):
            for_all(template.command, table)
            return
        name = words[template.chain]
        if template.command == "-P" and template.chain + 1 >= len(words):
            raise Fault("-P needs a chain and a policy", template.chain - 1)
        if template.command == "-N":
            check_chain_name(name, template.chain)
            if name in TARGETS:
                raise Fault(f"-N cannot make a chain called {name}: a target has that name", template.chain)
            if name in table.chains:
                raise Fault(f"chain {name} exists already", template.chain)
            table.chains[name] = ChainDraft(name, None, None, self.line, self.take_notes(), True)
            return
        chain = table.chains.get(name)
        if chain is None:
            # A jump to it in front of this is told of here, too: no line declares it.
            table.chains[name] = ChainDraft(name, None, None, 0, (), True)
            raise Fault(
                f"chain {name} is not declared in table {table.name}",
                template.chain,
                _undeclared_hint(name, table.name),
            )
        if "-i" in template.parts.interfaces and name in NO_INTERFACE["-i"]:
            raise Fault(f"-i cannot be used in {name}: packets have no input interface there", template.chain)
        if "-o" in template.parts.interfaces and name in NO_INTERFACE["-o"]:
            raise Fault(
                f"-o cannot be used in {name}: packets have no output interface there", template.chain
            )
        counters = None
        if template.counters is not None:
            counters = rule_counters(words[template.counters], template.counters)
        elif template.parts.counters is not None:
            first, second = template.parts.counters
            texts = words[first].split(",", 1) if first == second else (words[first], words[second])
            counters = count(texts[0], first), count(texts[1], second)
        if counters is not None or self.notes:
            notes = self.take_notes()
            rules = [
                Rule(rule.matches, rule.target, rule.line, counters, notes if at == 0 else ())
                for at, rule in enumerate(rules)
            ]
        edit(template, words, table, chain, rules)

    def take_notes(self) -> tuple[str, ...]:
        notes, self.notes = tuple(self.notes), []
        return notes

    def table_line(self, name: str) -> None:
        still_open, self.open = self.open, None
        if name not in BUILT_IN:
            self.is_lost = True
            raise Fault(f"unknown table {name!r}", 0, f"use one of {', '.join(BUILT_IN)}")
        notes = self.take_notes()
        dropping: dict[str, int] = {}
        replaced: tuple[tuple[int, int], ...] = ()
        for table in self.tables:
            if table.name == name:  # iptables-restore replaces the rules; the comments stay
                notes = (*table.notes, *table.closing, *notes)
                dropping = {chain.name: chain.line for chain in table.chains if chain.policy == "DROP"}
                lost = table.rule_count()
                replaced = (*table.replaced, (table.line, lost)) if lost else table.replaced
        self.tables = [table for table in self.tables if table.name != name]
        self.open = TableDraft(name, self.line, notes, dropping=dropping, replaced=replaced)
        for chain in BUILT_IN[name]:
            self.open.chains[chain] = ChainDraft(chain, "ACCEPT", None, 0, (), False)
        if still_open is not None:
            raise Fault(
                f"table {still_open.name} (line {still_open.line}) is still open", 0, "COMMIT is missing"
            )

    def new_chain(self, line: str) -> bool:
        """Declare a user chain by a line ":NAME -"; False for any other line.

        As `chain_line` does, in a fraction of its time: a compiled rule set declares thousands of chains.
        """
        name, _, policy = line[1:].partition(" ")
        if policy != "-" or self.open is None or name in self.open.chains or name in RESERVED:
            return False
        if not _PLAIN_CHAIN.fullmatch(name):
            return False
        self.open.chains[name] = ChainDraft(name, None, None, self.line, self.take_notes(), True)
        return True

    def chain_line(self, words: list[str]) -> None:
        if self.open is None:
            raise Fault("a chain outside of any table", 0, "a line like *filter must come first")
        name = words[0]
        counters = chain_counters(words[2]) if len(words) > 2 else None
        built_in = name in BUILT_IN[self.open.name]
        if not built_in:
            check_chain_name(name, 0, declared=True)
        known = self.open.chains.get(name)
        policy = policy_of(name, words[1], 1, self.open)
        # Built-in chains, too, are in the order in which the text declares them.
        self.open.chains.pop(name, None)
        # A user chain that is declared again is emptied (iptables-nft; iptables-legacy refuses it).
        rules = known.rules if known is not None and built_in else []
        kept = built_in and words[1] == "-"
        if kept and known is not None and known.declared:  # the earlier policy of the text stays
            policy, kept = known.policy, known.kept
        notes, line = self.take_notes(), self.line
        if known is not None and known.declared:
            notes, line = (*known.notes, *notes), known.line
        draft = ChainDraft(name, policy, counters, line, notes, True, rules, kept)
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
        resolver = Resolver(draft, self.error_at, self.note)
        if self.known.scoped:
            resolver.check_scopes()
        chains = []
        is_bound = resolver.is_bound()
        for chain in draft.chains.values():
            rules = tuple(chain.rules) if is_bound else resolver.rules(chain)
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
        self.tables.append(Table(draft.name, tuple(chains), draft.line, draft.notes, closing, draft.replaced))

    def error_at(self, line: int, reason: str, word: str, hint: str = "") -> ParseError:
        text = self.lines[line - 1] if line else ""
        match = re.search(rf"(?<!\S){re.escape(word)}(?!\S)", text)
        column = match.start() + 1 if match else 1
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
            hint=hint_at(word) or fault.hint or hint_before([each for each, _ in words[: fault.word]]),
        )

    def read(self, text: str) -> Program:
        self.text = text
        self.lines = lines = text.split("\n")
        long = too_long(lines)
        if long is not None:
            self.line = long[0]
            raise self.error(long[1], lines[long[0] - 1])
        cut = pieces(text)
        assert len(cut.shapes.numbers) == len(lines), "a literal reaches over the end of a line"
        shapes = cut.shapes.texts()
        literals = cut.literals.texts(text if len(cut.literals.data) == len(text) else None)
        columns = RuleColumns(self.templates, cut, shapes, literals)
        numbers = cut.shapes.numbers.tolist()
        for start, end, chain in columns.runs():
            for at in range(start, end):
                draft = (
                    self.open.chains.get(literals[chain]) if chain >= 0 and self.open is not None else None
                )
                if draft is not None and not self.notes:
                    draft.rules += columns.rules[at:end]  # type: ignore[arg-type]
                    break
                self.line = at + 1
                try:
                    self.one_line(lines[at], shapes[numbers[at]], columns.literals_of(at))
                except ParseError as mistake:
                    self.note(mistake)
        if self.mistakes:
            raise ParseError.of_all(self.mistakes)
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
            self.refuse_other_formats()
            raise ParseError(
                "no table in this text", source=self.name, line=1, hint="a line like *filter must come first"
            )
        return Program(self.family, tuple(self.tables), self.name, self.take_notes())

    def note(self, mistake: ParseError) -> None:
        """Add a mistake to those that are told at the end, unless it shows that the text is no rule set."""
        if any(mistake is known for known in self.mistakes):
            raise mistake  # it tells of all of them already
        if not self.mistakes:
            self.refuse_other_formats()
            self.refuse_both_families()
        self.mistakes.append(mistake)
        name = self.lines[self.line - 1][1:].partition(" ")[0]
        if self.open is not None and self.lines[self.line - 1][:1] == ":" and name not in self.open.chains:
            self.open.chains[name] = ChainDraft(name, None, None, self.line, (), True)
        if len(self.mistakes) >= MOST_MISTAKES:
            raise ParseError.of_all(self.mistakes)

    def refuse_other_formats(self) -> None:
        other = recognise(self.text, self.family)
        if other is not None:
            line = self.lines[other.line - 1]
            raise ParseError(
                other.reason, source=self.name, line=other.line, column=1, text=line, length=len(line),
                hint=other.hint,
            )  # fmt: skip

    def refuse_both_families(self) -> None:
        both = of_both_families(self.text)
        if both is not None:
            raise ParseError(
                f"this is of IPv{4 if both.line == both.ipv4_line else 6}, and line "
                f"{min(both.ipv4_line, both.ipv6_line)} of IPv{6 if both.line == both.ipv4_line else 4}",
                source=self.name, line=both.line, column=both.column, text=self.lines[both.line - 1],
                length=both.length,
                hint="each family needs a file of its own: the output of iptables-save in one, that of "
                "ip6tables-save in the other",
            )  # fmt: skip

    def one_line(self, line: str, shape: str, literals: Sequence[str]) -> None:
        """Read a line by itself."""
        if self.is_lost:
            self.is_lost = line[:1] != "*" and line != "COMMIT"
            if line[:1] != "*":
                return
        template = self.known.templates.get(shape)
        if template is not None and self.plain_line(template, literals):
            return
        start = line[:1]
        try:
            if start == "-" or start == "[":
                self.rule_line(line, shape, literals)
            elif start == "#":
                self.notes.append(line.rstrip())
            elif start == ":" and self.new_chain(line):
                return
            elif line:
                if not line.strip(" \t"):
                    raise Fault("a line of blanks, which iptables refuses", 0, "leave it empty")
                self.other_line(line, shape, literals)
        except Fault as fault:
            raise self.error(fault, line) from None

    def other_line(self, line: str, key: str, literals: Sequence[str]) -> None:
        stripped = line.strip(" \t")
        words = [word for word in stripped.replace("\t", " ").split(" ") if word]
        if line[0] in " \t" and stripped[0] in "*:#C[":
            raise Fault("a blank at the start of the line, which iptables does not take here", 0)
        if line.startswith("COMMIT") and line != "COMMIT":
            raise Fault("words behind COMMIT, or a blank", 0, "the line must be COMMIT alone")
        if line[0] == "*":
            self.table_line(words[0][1:] or "".join(words[1:2]))
            return
        if line[0] == ":" and len(words) > 1 and words[0] == ":":
            words[:2] = [":" + words[1]]
        if line[0] == ":" and len(words) > 1:  # words behind the counters are not read
            self.chain_line([words[0][1:], *words[1:3]])
            return
        if words[0] == line and line[0] == ":":
            raise Fault(
                "a chain line needs a name and a policy", 0, f"write {line} - [0:0] or {line} ACCEPT [0:0]"
            )
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
            hint = command_hint(words) or "a line starts with *, :, -, [ or #, or is COMMIT"
            raise Fault(f"unknown command {words[0]!r}", 0, hint)


def _undeclared_hint(name: str, table: str) -> str:
    """What to do about a rule of a chain that no line declares."""
    built_in = ", ".join(BUILT_IN[table])
    homes = [each for each, chains in BUILT_IN.items() if name in chains]
    if homes:
        tables = f"table{'s' * (len(homes) > 1)} {', '.join(homes)}"
        return f"it is a chain of {tables}; those of {table} are {built_in}"
    hint = f"declare it by a line :{name} - [0:0]; the built-in chains are {built_in}"
    program = preset_of(name)
    if program == name:
        return hint
    return f"{program} makes this chain: read the rules of the host, which have it (hitables save), or {hint}"


def read(
    text: str, *, family: Family | None = None, name: str = "-", known: Vocabulary | None = None
) -> Program:
    """Read iptables-save text.  A ParseError has file, line and column of the first mistakes, and hints.

    family  None: `guess_family` decides
    known   the vocabulary of similar texts, read before
    """
    text = without_windows_ends(text)
    refuse_binary(text, name)
    reader = _Reader(family or guess_family(text, name), name, known or Vocabulary())
    # Hundreds of thousands of objects, of which none becomes garbage: the collector would walk them in vain.
    collecting = gc.isenabled()
    gc.disable()
    try:
        program = reader.read(text)
        if "hashlimit" in text or "recent" in text:
            program = with_first_parameters(program)
        return with_counted_sets(program) if may_read_counters(text) else program
    finally:
        if collecting:
            gc.enable()
