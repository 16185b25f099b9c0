"""Memory that several rules share: named hash tables of hashlimit and recent, counters of ipsets.

Rules that share memory through a name must agree on its parameters, and a match of an ipset has
memory as soon as any rule reads the counters of that set.  An update may therefore change what the
rules of the master list mean to the compiler; the planner calls `with_set_counters` first.
"""

from __future__ import annotations

from collections.abc import Sequence

from hitables.errors import Unsupported
from hitables.ir.program import Program
from hitables.ir.set_counters import counts, set_of
from hitables.parse.named_memory import mixed_memories, named_memory

from .edits import Edit, counted_edits


def with_set_counters(program: Program, loaded: Program, edits: Sequence[Edit]) -> Sequence[Edit]:
    """*edits*, whose matches of ipsets have memory if *program* counts sets, or *edits* read set counters.

    Unsupported if they add the first rule that reads counters of a set that *program* matches, or the rules
    *loaded* for it, or other parameters for a named memory.
    """
    rules = [edit.rule for edit in edits if edit.rule is not None]
    matches = [match for rule in rules for match in rule.matches]
    if any(named_memory(match) for match in matches):
        before = list(program.rules())
        if mixed_memories([*before, *rules]) != mixed_memories(before):
            raise Unsupported(
                "rules of one --hashlimit-name or recent --name with other parameters than those of the "
                "present rules: the kernel uses the parameters of the rule that it loads first; choose "
                "another name"
            )
    if not any(set_of(match) for match in matches):
        return edits
    if not program.counts_sets:
        if not counts(rules):
            return edits
        for rules_there, remedy in (
            (program.rules(), "begin a new state with the new rule set (sflgen init)"),
            (loaded.rules(), "grow the trees anew without the deleted rules that tested it (sflgen fold)"),
        ):
            names = (set_of(match) for rule in rules_there for match in rule.matches)
            name = next(filter(None, names), None)
            if name is not None:
                raise Unsupported(
                    "this is the first rule that reads counters of ipsets, and the trees test ipset "
                    f"{name} more often than the rule list does: {remedy}"
                )
    return counted_edits(edits)
