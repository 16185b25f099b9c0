"""Extensions without a row whose names resemble those of others: misspelt, perhaps."""

from __future__ import annotations

import difflib
from collections.abc import Iterator

from ..ir.program import Program
from ..ir.rule import Kind
from ..syntax.extensions import MATCHES, TARGETS
from ..syntax.options import FOREIGN_TARGETS
from ..syntax.other_packages import OTHER_MATCHES

# Names that are less alike are names of other packages (tls, dns, condition).
_ALIKE = 0.75


def near_names(program: Program) -> Iterator[tuple[str, str, str]]:
    """Option (-m, -j), name, and the known name that it resembles, of each such extension of *program*."""
    rules = list(program.rules())
    matches = {match.name for rule in rules for match in rule.matches if match.name}
    targets = {rule.target.name for rule in rules if rule.target and rule.target.kind is Kind.VERDICT}
    kinds = ("-m", matches, MATCHES, str.lower), ("-j", targets, TARGETS, str.upper)
    for option, names, known, in_its_case in kinds:
        for name in sorted(names - known.keys() - FOREIGN_TARGETS - OTHER_MATCHES.keys()):
            for near in difflib.get_close_matches(in_its_case(name), known, 1, _ALIKE):
                yield option, name, near
