"""Tables and chains while they are read, and the commands that change them: -A -I -D -R -F -X -P -E -Z."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from ..ir.meaning import meaning
from ..ir.program import BUILT_IN
from ..ir.rule import Kind, Rule
from ..syntax.extensions import TARGETS
from .line_templates import LineTemplate
from .lines import Fault
from .rule_parts import check_chain_name

POLICIES = ("ACCEPT", "DROP")


@dataclass(slots=True)
class ChainDraft:
    name: str
    policy: str | None
    counters: tuple[int, int] | None
    line: int
    notes: tuple[str, ...]
    declared: bool
    rules: list[Rule] = field(default_factory=list)
    kept: bool = False


@dataclass(slots=True)
class TableDraft:
    name: str
    line: int
    notes: tuple[str, ...]
    chains: dict[str, ChainDraft] = field(default_factory=dict)
    dropping: dict[str, int] = field(default_factory=dict)  # chain -> line of DROP in an earlier table
    replaced: tuple[tuple[int, int], ...] = ()  # as in Table


def for_all(command: str, table: TableDraft) -> None:
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
    template: LineTemplate, words: list[str], table: TableDraft, chain: ChainDraft, rules: list[Rule]
) -> None:
    """The commands that change a chain which exists."""
    number, count = template.number, len(chain.rules)
    if template.command == "-A":
        chain.rules += rules
    elif template.command == "-I":
        place = 1 if number is None else number
        if not 1 <= place <= count + 1:
            raise Fault(
                f"position {place} is out of range: chain {chain.name} has {count} rules", template.chain + 1
            )
        chain.rules[place - 1 : place - 1] = rules[::-1]
    elif template.command in ("-D", "-R", "-C"):
        if number is None and template.command == "-R":
            raise Fault("-R needs a position", template.chain)
        if number is None:
            looked_for = meaning(rules[0])
            place_of = (at for at, rule in enumerate(chain.rules, 1) if meaning(rule) == looked_for)
            number = next(place_of, None)
            if number is None:
                raise Fault(f"no such rule in chain {chain.name}", template.chain)
        if not 1 <= number <= count:
            raise Fault(
                f"position {number} is out of range: chain {chain.name} has {count} rules", template.chain + 1
            )
        if template.command != "-C":
            chain.rules[number - 1 : number] = rules if template.command == "-R" else []
    elif template.command == "-F":
        chain.rules.clear()
    elif template.command == "-X":
        if chain.rules or chain.policy is not None:
            raise Fault(f"chain {chain.name} is not an empty user chain", template.chain)
        del table.chains[chain.name]
    elif template.command == "-P":
        policy = words[template.chain + 1]
        if chain.name not in BUILT_IN[table.name]:
            raise Fault(f"chain {chain.name} is not built in, so it has no policy", template.chain)
        if policy == "-":
            raise Fault("-P needs a policy", template.chain + 1, f"use one of {', '.join(POLICIES)}")
        chain.policy = policy_of(chain.name, policy, template.chain + 1, table)
        chain.declared, chain.kept = True, False
        chain.counters = chain.counters and (0, 0)
    elif template.command == "-E":
        new = words[template.chain + 1] if template.chain + 1 < len(words) else ""
        check_chain_name(new, template.chain + 1)
        if chain.policy is not None or new in table.chains:
            raise Fault(f"chain {chain.name} cannot be renamed to {new}", template.chain)
        if chain.name in TARGETS or new in TARGETS:
            raise Fault(
                f"a chain called as a target is not renamed: {chain.name} to {new}",
                template.chain,
                "write the rules with the name that the chain has in the end",
            )
        table.chains = {(new if key == chain.name else key): value for key, value in table.chains.items()}
        for each in table.chains.values():
            each.rules = [_renamed(rule, chain.name, new) for rule in each.rules]
        chain.name = new


def policy_of(chain: str, policy: str, at: int, table: TableDraft) -> str | None:
    if chain not in BUILT_IN[table.name]:
        return None  # iptables-nft passes over any word in this place
    if policy == "-":
        return "ACCEPT"
    if policy not in POLICIES:
        raise Fault(f"unknown policy {policy!r}", at, f"use one of {', '.join(POLICIES)}")
    return policy


def _renamed(rule: Rule, old: str, new: str) -> Rule:
    """The rule with its jump to the chain *old* going to *new*."""
    target = rule.target
    if target is None or target.name != old or not target.enters:
        return rule
    key = f"-g {new}" if target.kind is Kind.GOTO else f"-j {new}"
    return rule._replace(target=replace(target, name=new, key=key))
