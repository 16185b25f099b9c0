"""Rule sets as iptables-save prints them: chains of rule texts, with counters.

A rollback must not depend on what the parser understands, so tables are loaded and compared as text.  A rule
is the text after `-A CHAIN`; equal rules have equal texts if one tool printed them.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from ..emit.text import rule_text
from ..ir.program import BUILT_IN, Program
from ..parse.lines import PRINTED_NAME, quote, unquote

Count = tuple[int, int]  # packets, bytes
NO_COUNT: Count = (0, 0)
# Lines of rules that are in no file, because they are the kernel's: above those of any file.
LINES_OF_KERNEL = 1_000_000_000

_RULE = re.compile(rf"(?:\[(\d+):(\d+)\] )?-A ({PRINTED_NAME}) ?(.*)", re.DOTALL)
_HEAD = re.compile(r":(\S+) (\S+)(?: \[(\d+):(\d+)\])?")
_CALL = re.compile(rf"(?:^|.* )-([jg]) ({PRINTED_NAME})", re.DOTALL)


# One text is asked many times: while a change is planned, and after each reading.
@lru_cache(maxsize=1 << 18)
def _entered(body: str) -> str:
    call = _CALL.fullmatch(body)
    return unquote(call[2]) if call else ""


@dataclass(frozen=True, slots=True)
class TextRule:
    """*body*: the rule without `-A CHAIN`.  *line*: where a file has it; 0: nowhere.

    *key*: the rule of the source of which it is a copy (counts.py); "": it only leads to other rules.
    """

    body: str
    count: Count = NO_COUNT
    line: int = 0
    key: str = ""

    @property
    def enters(self) -> str:
        """The chain or target that the rule ends with, if it has no options behind; else ""."""
        return _entered(self.body)

    @property
    def goes(self) -> bool:
        """Whether packets do not come back from what it enters (-g)."""
        call = _CALL.fullmatch(self.body)
        return call is not None and call[1] == "g"

    def with_names(self, names: Mapping[str, str]) -> TextRule:
        """The rule with the chain that it enters renamed by *names*."""
        new = names.get(self.enters)
        if new is None:
            return self
        call = _CALL.fullmatch(self.body)
        assert call is not None
        return TextRule(self.body[: call.start(2)] + quote(new), self.count, self.line, self.key)

    def with_key(self, key: str) -> TextRule:
        return self if key == self.key else TextRule(self.body, self.count, self.line, key)


@dataclass(frozen=True, slots=True)
class TextChain:
    """*policy*: of a built-in chain ("": the present one stays); "-" for user chains."""

    policy: str = "-"
    rules: tuple[TextRule, ...] = ()
    count: Count = NO_COUNT

    @property
    def bodies(self) -> list[str]:
        return [rule.body for rule in self.rules]

    def differs_from(self, other: TextChain) -> bool:
        """Whether the rules or the policies differ, but for counters."""
        return self.policy != other.policy or self.bodies != other.bodies


Chains = dict[str, TextChain]  # by name, in order
Tables = dict[str, Chains]


def parse(text: str) -> Tables:
    """The tables in the output of iptables-save."""
    tables: Tables = {}
    rules: dict[str, list[TextRule]] = {}
    chains: Chains = {}

    def finish() -> None:
        for name, of_chain in rules.items():
            chains[name] = replace(chains[name], rules=tuple(of_chain))
        rules.clear()

    for line in text.split("\n"):
        if line.startswith("*"):
            finish()
            chains = tables.setdefault(line[1:].strip(), {})
        elif line.startswith(":"):
            head = _HEAD.match(line)
            if head:
                count = (int(head[3]), int(head[4])) if head[3] else NO_COUNT
                chains[unquote(head[1])] = TextChain(head[2], (), count)
        else:
            rule = _RULE.fullmatch(line)
            if rule:
                count = (int(rule[1]), int(rule[2])) if rule[1] else NO_COUNT
                rules.setdefault(unquote(rule[3]), []).append(TextRule(rule[4], count))
    finish()
    return tables


def of_program(program: Program) -> Tables:
    """*program* as text, with the lines and counters of its rules; each table has its built-in chains."""
    tables: Tables = {}
    for table in program:
        chains = tables.setdefault(table.name, {})
        for name in BUILT_IN.get(table.name, ()):
            chains[name] = TextChain("")
        for chain in table.chains:
            start = len(f"-A {quote(chain.name)} ")
            rules = (
                TextRule(
                    rule_text(rule._replace(counters=None), chain.name)[start:],
                    rule.counters or NO_COUNT,
                    rule.line,
                )
                for rule in chain.rules
            )
            policy = "" if chain.kept or not chain.declared else chain.policy
            chains[chain.name] = TextChain("-" if policy is None else policy, tuple(rules))
    return tables


def with_lines(program: Program, tables: Tables) -> Program:
    """*program*, which was read from the text of *tables*, with the lines and counters that these have."""
    return replace(
        program,
        tables=tuple(
            replace(
                table,
                chains=tuple(
                    chain.with_rules(
                        tuple(
                            rule._replace(line=text.line, counters=text.count if any(text.count) else None)
                            for rule, text in zip(
                                chain.rules, tables[table.name][chain.name].rules, strict=True
                            )
                        )
                    )
                    for chain in table.chains
                ),
            )
            for table in program
        ),
    )


# Text for iptables-restore.


def rule_line(chain: str, rule: TextRule) -> str:
    count = "" if rule.count == NO_COUNT else f"[{rule.count[0]}:{rule.count[1]}] "
    return f"{count}-A {quote(chain)} {rule.body}".rstrip(" ") + "\n"


def head_line(name: str, chain: TextChain) -> str:
    return f":{name} {chain.policy} [{chain.count[0]}:{chain.count[1]}]\n"


def table_text(name: str, chains: Chains) -> str:
    """One table for iptables-restore."""
    heads = "".join(head_line(chain, content) for chain, content in chains.items())
    rules = "".join(rule_line(chain, rule) for chain, content in chains.items() for rule in content.rules)
    return f"*{name}\n{heads}{rules}COMMIT\n"


def write(tables: Tables) -> str:
    """The tables for iptables-restore (with --counters)."""
    return "".join(table_text(name, chains) for name, chains in tables.items())


# Changes of whole rule sets.


def empty(table: str) -> Chains:
    """A table as the kernel creates it."""
    return {chain: TextChain("ACCEPT") for chain in BUILT_IN[table]}


def without_counts(tables: Tables) -> Tables:
    return {
        name: {
            chain: TextChain(content.policy, tuple(TextRule(body) for body in content.bodies))
            for chain, content in chains.items()
        }
        for name, chains in tables.items()
    }


def renamed(chains: Chains, names: Mapping[str, str]) -> Chains:
    """*chains* with other *names*, also where rules enter them."""
    return {
        names.get(name, name): replace(chain, rules=tuple(rule.with_names(names) for rule in chain.rules))
        for name, chain in chains.items()
    }


def fresh_names(used: Iterable[str], prefix: str = "ht") -> Iterator[str]:
    """Names for generated chains that no chain of *used* has: the prefix and a number."""
    taken = set(used)
    return (name for number in itertools.count(1) if (name := f"{prefix}{number}") not in taken)


def callees(chains: Chains, start: Sequence[str]) -> set[str]:
    """The chains of *chains* that packets reach from *start*, itself included."""
    reached, waiting = set(start), list(start)
    while waiting:
        for rule in chains[waiting.pop()].rules:
            name = rule.enters
            if name in chains and name not in reached:
                reached.add(name)
                waiting.append(name)
    return reached
