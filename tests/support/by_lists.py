"""Whether programs are proved equal by the lists of their groups alone, and lists that are printed in groups."""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest

import hitables
from hitables.core.prover import ProveStatus
from hitables.generate import rules as generated
from hitables.generate import seed as seeds
from hitables.parse import classbench
from hitables.verify import group_lists, merged_classes, third_program
from hitables.verify.deadline import Deadline
from hitables.verify.encoding import Encoding
from hitables.verify.question import Question

SEEDS = Path(__file__).parents[2] / "rulesets/seeds"


def proved_by_lists(before: str, after: str, monkeypatch: pytest.MonkeyPatch) -> bool | None:
    """Whether lists of groups alone prove all classes; None: *after* is not read as groups."""
    question = Question()
    monkeypatch.setattr(merged_classes.MergedClasses, "_compare_regions", lambda *_: ProveStatus.TOO_DEEP)
    # Versions of few rules are built on smaller ones, too.
    monkeypatch.setattr(third_program, "SMALLEST_VERSION", 1)
    one, two = hitables.read(before), hitables.read(after)
    encoding = Encoding((one.table("filter"), two.table("filter")), one.family, question.backends[0])
    lists = group_lists.group_lists(encoding)
    if lists.chains is None or lists.why:
        return None
    merged = merged_classes.MergedClasses(encoding, question, Deadline(), ["FORWARD"])
    _, proved = merged.proved("FORWARD")
    return all(
        (backend, packets) in proved
        for backend, reading in merged.readings.items()
        for packets in reading.classes()
    )


def crossing_rules(count: int) -> str:
    """Rules of FORWARD drawn from the seed fw, each ACCEPT or DROP: many cross."""
    drawn = seeds.parse((SEEDS / "fw.seed").read_text(), "fw.seed")
    rng, text = random.Random(1), classbench.to_text(generated.rules(drawn, count))
    return re.sub("ACCEPT$", lambda _: rng.choice(("ACCEPT", "DROP")), text, flags=re.MULTILINE).replace(
        "FORWARD DROP [0:0]", "FORWARD ACCEPT [0:0]"
    )
