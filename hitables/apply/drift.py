"""Whether the kernel holds what was recorded: rule by rule, but for chains of others and jumps to them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from ..ir.foreign import is_foreign
from .steps import differ
from .store import Half
from .texts import Chains, Tables, TextChain, empty


def holds(present: Tables, half: Half, patterns: Sequence[str]) -> bool:
    """Whether the kernel, with tables *present*, has the rules of *half*."""
    return next(differences(present, half, patterns), None) is None


def differences(present: Tables, half: Half, patterns: Sequence[str]) -> Iterator[str]:
    """Where the kernel differs from *half*, as messages."""
    for table, recorded in half.tables.items():
        kernel = _own(present.get(table) or empty(table), patterns)
        if table not in present and not _is_idle(recorded):
            yield f"table {table} is missing"
            continue
        wanted = _own(recorded, patterns)
        for name, chain in wanted.items():
            if name not in kernel:
                yield f"table {table}, chain {name} is missing"
            elif differ(kernel[name], chain):
                yield f"table {table}, chain {name}: {_how(kernel[name], chain)}"
        for name in kernel:
            if name not in wanted:
                yield f"table {table}, chain {name} is new"


def _is_idle(chains: Chains) -> bool:
    return all(chain.policy in ("ACCEPT", "-") and not chain.rules for chain in chains.values())


def _own(chains: Chains, patterns: Sequence[str]) -> Chains:
    """*chains* without those of others, and without the rules that enter them."""
    return {
        name: replace(
            chain, rules=tuple(rule for rule in chain.rules if not is_foreign(rule.enters, patterns))
        )
        for name, chain in chains.items()
        if not is_foreign(name, patterns)
    }


def _how(present: TextChain, recorded: TextChain) -> str:
    if present.policy != recorded.policy:
        return f"policy {present.policy}, was {recorded.policy}"
    bodies, old = present.bodies, recorded.bodies
    at = next(
        (at for at, (one, other) in enumerate(zip(bodies, old, strict=False)) if one != other),
        min(len(bodies), len(old)),
    )
    now = f"rule {at + 1} is now {bodies[at]!r}" if at < len(bodies) else f"rule {at + 1} is gone"
    return f"{now}, was {old[at]!r}" if at < len(old) else f"{now}, which is new"
