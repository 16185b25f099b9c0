"""What `benchmarks.failing_malloc` asks of the engine while allocations are refused, and how that may end."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import cache, partial

import numpy as np
import numpy.typing as npt

import hitables
from hitables import engine
from hitables.core.flows import SCHEMES
from hitables.engine import Layout, Rules
from hitables.engine.filters import Action, Filter, Filters, Monitor
from hitables.engine.flows import FlowTable
from hitables.engine.layout import Range
from hitables.engine.storm import Storm
from hitables.errors import OutOfMemory
from hitables.ir.choices import Equivalence
from hitables.verify import exact
from hitables.verify.question import Answer, Equal, Question, Undecided
from sflgen import proof
from sflgen.commands import read_commands
from sflgen.planner import start_unproved
from sflgen.settings import Settings, Strategy

from . import writes

RIGHT, NO_MEMORY = "right", "no memory"

# What is asked, with allocations refused inside the context; RIGHT, NO_MEMORY, or what went wrong.
Trial = Callable[[AbstractContextManager[None]], str]


# ---- proofs ----


def answer(before: str, after: str) -> Answer:
    return exact.check(hitables.read(before), hitables.read(after), Question())


def compared(before: str, after: str, refusing: AbstractContextManager[None]) -> str:
    """`check` of two rule sets that are known to be alike, or not to be."""
    right = answer(before, after)
    with refusing:
        found = answer(before, after)
    if isinstance(found, Undecided):
        return NO_MEMORY
    return RIGHT if isinstance(found, type(right)) else f"check says {type(found).__name__}"


def listed(before: str, after: str, refusing: AbstractContextManager[None]) -> str:
    """`diff` of two rule sets."""
    right = hitables.diff(before, after)
    with refusing:
        found = hitables.diff(before, after)
    return NO_MEMORY if not found.complete else RIGHT if found == right else "diff lists other regions"


def linted(text: str, refusing: AbstractContextManager[None]) -> str:
    right = hitables.lint(text)
    with refusing:
        found = hitables.lint(text)
    return NO_MEMORY if found.undecided else RIGHT if found == right else "lint lists other rules"


def compiled(text: str, equivalence: Equivalence, refusing: AbstractContextManager[None]) -> str:
    """`compile`: a tree that did not fit may be another one, but not one that does something else."""
    with refusing:
        output = hitables.compile(text, equivalence=equivalence)
    if output.faults:
        return f"compile found a fault: {output.faults[0].why}"
    return RIGHT if isinstance(answer(text, output.text), Equal) else "compile prints what is not equal"


def planned(text: str, refusing: AbstractContextManager[None]) -> str:
    """Updates by sflgen, proved; one that lacked memory is planned again from the state before it."""
    state = start_unproved(hitables.read(text), Settings(delta=3)).after
    ended = RIGHT
    with refusing:
        for number in range(6):
            command = f"-I FORWARD {9 * number + 1} -s 10.{number}.0.0/14 -p tcp -j DROP"
            updates = read_commands(command, state.master)
            try:
                state = proof.plan(state, updates, Strategy.OVERLAY).after
            except MemoryError:
                ended = NO_MEMORY
                state = proof.plan(state, updates, Strategy.OVERLAY).after
    return ended if isinstance(proof.verify(state), Equal) else "the state is not equal to its rules"


# ---- classifiers ----

PLANS = [name for name, algorithm in engine.ALGORITHMS.items() if not algorithm.wraps]
PLANS += [f"{name}(tss)" for name, algorithm in engine.ALGORITHMS.items() if algorithm.wraps]
PLANS += [
    "sfl(rfc, delta=2, background=2)",
    "checked(classic(hypersplit))",
    "flows(tss, scheme=4, buckets=3)",
]
PLANS += [
    "storm(tss, cache=3, window=5, every=1, publish=1)",
    "storm(sfl(rfc), window=200, every=1, publish=3)",
]
PLANS += ["pacars(list=1)", "pacars(cascade=0, list=2)", "tss_tries(table=1)", "tss(vector=0)"]


def layout_of(plan: str) -> Layout:
    """Of five dimensions, or of two where the plan takes no more, and of few bits."""
    read: engine.AlgorithmSpec | None = engine.AlgorithmSpec.read(plan)
    most = 5
    while read:
        most, read = min(most, read.algorithm.dims[1]), read.inner
    return Layout((4, 4, 3, 3, 2)) if most == 5 else Layout((6, 6))


def drawn_rule(layout: Layout, rng: random.Random) -> list[Range]:
    """A prefix in each dimension."""
    free = [rng.choice((0, width // 2, width)) for width in layout.widths]
    starts = [
        rng.randrange(1 << width) >> bits << bits for width, bits in zip(layout.widths, free, strict=True)
    ]
    return [(start, start | (1 << bits) - 1) for start, bits in zip(starts, free, strict=True)]


@cache
def some_packets(layout: Layout) -> npt.NDArray[np.uint32]:
    """Every 37th of all packets."""
    packets = layout.headers(list(itertools.product(*(range(1 << width) for width in layout.widths)))[::37])
    packets.setflags(write=False)
    return packets


def opened(plan: str, rules: dict[int, list[Range]], layout: Layout) -> engine.Database:
    return engine.open(plan, Rules.of_ranges(list(rules.values()), layout, list(rules)))


def answers_rightly(db: engine.Database, rules: dict[int, list[Range]], layout: Layout) -> bool:
    """Whether it answers some of all packets as linear search does."""
    packets = some_packets(layout)
    with opened("linear", rules, layout) as read_in_order:
        return len(db) == len(rules) and bool((db.search(packets) == read_in_order.search(packets)).all())


def built(plan: str, refusing: AbstractContextManager[None]) -> str:
    layout, rng = layout_of(plan), random.Random(5)
    rules = {priority: drawn_rule(layout, rng) for priority in rng.sample(range(30), 12)}
    with refusing:
        db = opened(plan, rules, layout)
    with db:
        return RIGHT if answers_rightly(db, rules, layout) else "it answers wrongly after it was built"


def updated(plan: str, refusing: AbstractContextManager[None]) -> str:
    """Some updates are refused; the classifier then has the others, and takes further ones."""
    layout, rng = layout_of(plan), random.Random(7)
    rules = {priority: drawn_rule(layout, rng) for priority in rng.sample(range(30), 12)}
    refused = 0
    with opened(plan, rules, layout) as db:
        with refusing:
            for _ in range(24):
                refused += not is_updated(db, rules, rng.randrange(30), layout, rng)
        if not answers_rightly(db, rules, layout):
            return "it answers wrongly after a refused update"
        for priority in range(30):
            is_updated(db, rules, priority, layout, rng)
        if not answers_rightly(db, rules, layout):
            return "it answers wrongly after further updates"
    return NO_MEMORY if refused else RIGHT


def is_updated(
    db: engine.Database, rules: dict[int, list[Range]], priority: int, layout: Layout, rng: random.Random
) -> bool:
    """Remove the rule of this priority, or insert one where there is none; False: memory is lacking."""
    rule = drawn_rule(layout, rng)
    try:
        if priority in rules:
            db.remove(priority)
            del rules[priority]
        else:
            db.insert(rule, priority)
            rules[priority] = rule
    except OutOfMemory:
        return False
    return True


# ---- what stands around classifiers ----

FILTERED = ("tss", "sfl(rfc)")
PARTITIONS = ("1-1-1", "2-1-1")


def filtered(plan: str, refusing: AbstractContextManager[None]) -> str:
    """Filters with actions; some changes are refused."""
    layout, rng = layout_of(plan), random.Random(11)
    held: dict[int, Filter] = {}
    refused = 0
    with refusing:
        filters = Filters(plan, layout=layout, room=8)
        monitor = filters.monitor()
        for _ in range(24):
            refused += not is_changed(filters, held, rng.randrange(12), layout, rng)
            refused += not is_read(monitor, filters, layout)
    with filters, monitor:
        rules = {priority: list(each.ranges) for priority, each in held.items()}
        packets = some_packets(layout)
        found = filters.classify(packets)
        with opened("linear", rules, layout) as read_in_order:
            best = read_in_order.search(packets)
    actions = [held[priority].action if priority >= 0 else Action.DENY for priority in best.tolist()]
    if not (found.priorities == best).all() or not (found.actions == actions).all():
        return "filters decide wrongly after a refused change"
    return NO_MEMORY if refused else RIGHT


def is_changed(
    filters: Filters, held: dict[int, Filter], priority: int, layout: Layout, rng: random.Random
) -> bool:
    """Insert a filter, or give it another action, or remove it; False: memory is lacking."""
    added = Filter(priority, tuple(drawn_rule(layout, rng)), rng.choice(list(Action)))
    try:
        if priority not in held:
            filters.insert(added)
            held[priority] = added
        elif rng.random() < 0.5:
            filters.change(priority, added.action)
            held[priority] = replace(held[priority], action=added.action)
        else:
            filters.remove(priority)
            del held[priority]
    except MemoryError:
        return False
    return True


def is_read(monitor: Monitor, filters: Filters, layout: Layout) -> bool:
    """Whether there was memory for some verdicts and their events."""
    try:
        filters.classify(some_packets(layout)[:5])
        monitor.read(0)
    except MemoryError:
        return False
    return True


def remembered(scheme: str, refusing: AbstractContextManager[None]) -> str:
    """A flow table; the packets of a block that lacked memory are sent again."""
    rng = np.random.default_rng(13)
    headers = rng.integers(0, 2, (600, 5), dtype=np.uint32) * np.array([9, 5, 3, 7, 17], np.uint32)
    values = headers.sum(axis=1, dtype=np.uint32)
    ended = RIGHT
    with refusing:
        table = FlowTable(scheme, buckets=3, purge_at=4, purge=2, history=True)
        for block in range(0, 600, 50):
            part = slice(block, block + 50)
            try:
                table.replay(headers[part], values=values[part])
            except MemoryError:
                ended = NO_MEMORY
    out = np.zeros(len(headers), np.uint32)
    with table:
        table.replay(headers, values=values, out=out)
    return ended if (out == values).all() else "a flow table gives the answer of another flow"


def piped(partition: str, refusing: AbstractContextManager[None]) -> str:
    """Storm's threads; a run that lacked memory is made again."""
    layout, rng = layout_of("linear"), random.Random(17)
    drawn = {priority: drawn_rule(layout, rng) for priority in range(12)}
    rules = Rules.of_ranges(list(drawn.values()), layout, list(drawn))
    packets = some_packets(layout)
    with opened("linear", drawn, layout) as read_in_order:
        best = read_in_order.search(packets)
    ended = RIGHT
    with refusing:
        pipeline = Storm("tss", rules, partition=partition, cache=3, window=20, rings=40)
        try:
            answers = pipeline.run(packets).answers
        except MemoryError:
            ended = NO_MEMORY
    with pipeline:
        if ended == NO_MEMORY:
            answers = pipeline.run(packets).answers
    return ended if (answers == best).all() else "Storm answers wrongly"


# ---- all ----


def subjects(programs: int, plans: Sequence[str]) -> Iterator[tuple[str, Trial]]:
    """What is tried, by name."""
    for number in range(programs):
        drawn = writes.draw(random.Random(f"refused {number}"))
        yield "check", partial(compared, drawn.before, drawn.after)
        yield "diff", partial(listed, drawn.before, drawn.after)
        yield "lint", partial(linted, drawn.before)
        for equivalence in Equivalence:
            yield f"compile --equivalence {equivalence}", partial(compiled, addresses(number), equivalence)
        yield "plan an update", partial(planned, addresses(number))
    for plan in plans:
        yield f"build {plan}", partial(built, plan)
        yield f"update {plan}", partial(updated, plan)
    for plan in FILTERED:
        yield f"filters {plan}", partial(filtered, plan)
    for scheme in SCHEMES:
        yield f"flow table {scheme}", partial(remembered, scheme)
    for partition in PARTITIONS:
        yield f"Storm {partition}", partial(piped, partition)


def addresses(number: int) -> str:
    """A rule set that gets a tree."""
    rng = random.Random(number)
    rules = (
        f"-A FORWARD -s 10.{rng.randrange(8)}.{rng.randrange(256)}.0/{rng.choice((16, 24))} "
        f"-p tcp -m tcp --dport {rng.choice((22, 80, 443))} -j {rng.choice(('ACCEPT', 'DROP'))}\n"
        for _ in range(60)
    )
    return f"*filter\n:FORWARD DROP [0:0]\n{''.join(rules)}COMMIT\n"
