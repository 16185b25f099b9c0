"""Small random programs and packets for any test.

`make_program` draws from any `random.Random`, so the same code serves Hypothesis
(`programs()`, which shrinks) and plain seeds.  Chains jump to later chains only, so no
chain reaches itself.  With *tiny*, most fields take the values 0 to 7 only.
"""

from __future__ import annotations

import random
from dataclasses import replace

from hypothesis import strategies as st

from hitables.ir.fact import Assignment, Fact
from hitables.ir.fields import (
    ICMP,
    ICMPV6,
    INTERFACES,
    OPTIONAL,
    PORT_PROTOCOLS,
    STATES,
    TCP,
    UDP,
    Family,
    Field,
    Fragment,
    interface_number,
    top,
)
from hitables.ir.intervals import Values
from hitables.ir.packet import Backend, Packet
from hitables.ir.program import BUILT_IN, Chain, Program, Table
from hitables.ir.rule import EVERYTHING, Ends, Kind, Match, Metadata, Role, Rule, Target
from hitables.ir.rule import Test as FieldTest

FINAL = ("ACCEPT", "DROP", "REJECT --reject-with icmp-port-unreachable", "DNAT --to-destination 10.0.0.1")
WRITERS = {
    "MARK --set-xmark 0x1/0xffffffff": {Metadata.MARK},
    "CT --notrack": {Metadata.CT},
    "TOS --set-tos 0x10/0x3f": {Metadata.TOS},
    "SET --add-set s src": {Metadata.SETS},
    "DNPT": {Metadata.ADDRESSES},
    "TCPMSS --clamp-mss-to-pmtu": {Metadata.TCP, Metadata.LENGTH, Metadata.CHECKSUM},
    "UNKNOWN": EVERYTHING,
}
NAMES = ("eth0", "eth1", "eth10", "lo", "wg0", "br-lan")


def programs(family: Family | None = None, *, tiny: bool | None = None) -> st.SearchStrategy[Program]:
    """Programs of one or two tables, with up to some twenty rules."""
    return st.randoms(use_true_random=False).map(lambda rng: make_program(rng, family, tiny=tiny))


def packets(family: Family, *, tiny: bool = True) -> st.SearchStrategy[Packet]:
    """Any combination of values, including some that no real packet has."""
    return st.randoms(use_true_random=False).map(lambda rng: make_packet(rng, family, tiny=tiny))


backends = st.sampled_from(Backend)


def make_program(
    rng: random.Random, family: Family | None = None, *, tiny: bool | None = None, rules: int = 8
) -> Program:
    """A program of *rules* rules or less in each built-in chain, and in up to three user chains."""
    family = rng.choice(list(Family)) if family is None else family
    tiny = rng.random() < 0.5 if tiny is None else tiny
    names = ["filter"] if rng.random() < 0.7 else ["mangle", "filter"]
    return Program(family, tuple(_table(rng, name, family, tiny, rules) for name in names))


def make_packet(rng: random.Random, family: Family, *, tiny: bool = True) -> Packet:
    values = {field: _value(rng, field, family, tiny) for field in Field}
    for field in OPTIONAL:
        if rng.random() < 0.25:
            del values[field]
    values[Field.FRAG] = rng.choice([Fragment.WHOLE, Fragment.WHOLE, Fragment.FIRST, Fragment.LATER])
    raw = {}
    if values[Field.FRAG] == Fragment.LATER:
        for field in (Field.SPORT, Field.DPORT, Field.FLAGS):
            if rng.random() < 0.7:
                raw[field] = _value(rng, field, family, tiny)
    return Packet(
        family,
        values,
        raw,
        l4_bytes=rng.choice([0, 2, 5, 10, 30, 64, 64, 64]),
        bad_offset=rng.random() < 0.1,
        offset_one=rng.random() < 0.2,
        cut_short=rng.random() < 0.1,
    )


def _table(rng: random.Random, name: str, family: Family, tiny: bool, rules: int) -> Table:
    built_in = [chain for chain in BUILT_IN[name] if rng.random() < 0.6] or ["INPUT"]
    user = [f"chain{number}" for number in range(rng.randint(0, 3))]
    matches = [make_match(rng, family, tiny, number) for number in range(rng.randint(3, 10))]
    matches = _related(rng, matches)
    chains = []
    for chain in built_in:
        policy = rng.choice(["ACCEPT", "DROP"])
        chains.append(Chain(chain, policy, _rules(rng, matches, user, rng.randint(1, rules))))
    for at, chain in enumerate(user):
        chains.append(Chain(chain, None, _rules(rng, matches, user[at + 1 :], rng.randint(0, rules))))
    rng.shuffle(chains)
    return Table(name, tuple(chains))


def _related(rng: random.Random, matches: list[Match]) -> list[Match]:
    """The matches, some of which compare one number of three bits, and the last may be a negation."""
    matches = list(matches)
    constant = [at for at, match in enumerate(matches) if match.role is Role.CONSTANT and not match.tests]
    if rng.random() < 0.6:
        masks = rng.sample(range(1, 8), rng.choice([1, 1, 2]))
        for at in constant:
            values = Values.only(*rng.sample(range(8), rng.choice([1, 1, 2, 4])))
            fact = Fact("number", values, rng.choice([7, *masks]))
            key = f"number {fact.values.pairs} {fact.mask}"
            matches[at] = matches[at]._replace(key=key, number=fact, reads=frozenset({Metadata.MARK}))
    if constant and constant[0] < len(matches) - 1:
        plain = matches[constant[0]]
        number = plain.number.negation if plain.number is not None else None
        matches[-1] = plain._replace(key=f"! {plain.key}", negates=plain.key, number=number)
    return matches


def _rules(rng: random.Random, matches: list[Match], user: list[str], count: int) -> tuple[Rule, ...]:
    return tuple(
        Rule(
            tuple(rng.choice(matches) for _ in range(rng.choice([0, 1, 1, 1, 2, 2, 3]))),
            make_target(rng, user),
            line=number + 1,
        )
        for number in range(count)
    )


def make_target(rng: random.Random, user: list[str]) -> Target | None:
    """Any kind of target; jumps go to the chains in *user*."""
    kind = rng.choice(["final", "final", "jump", "jump", "goto", "return", "log", "writer", "none", "maybe"])
    if kind in ("jump", "goto") and user:
        name = rng.choice(user)
        return Target(name, Kind.JUMP if kind == "jump" else Kind.GOTO, f"{kind} {name}")
    if kind == "return":
        return Target("RETURN", Kind.RETURN, "RETURN")
    if kind == "log":
        words = ("--log-prefix", rng.choice(["a", "b"]))
        return Target("LOG", Kind.VERDICT, " ".join(("LOG", *words)), words, Ends.NEVER)
    if kind == "writer":
        if rng.random() < 0.5:  # makes the number that `_related` matches compare
            keep, flip = rng.choice([~7, ~7, ~1, ~3, ~6, -1]), rng.randrange(8)
            makes = Assignment("number", keep, flip)
            key = f"NUMBER {keep} {flip}"
            return Target("NUMBER", Kind.VERDICT, key, (), Ends.NEVER, frozenset({Metadata.MARK}), makes)
        key = rng.choice(list(WRITERS))
        name, *words = key.split()
        return Target(name, Kind.VERDICT, key, tuple(words), Ends.NEVER, frozenset(WRITERS[key]))
    if kind == "none":
        return None
    if kind == "maybe":
        return Target("TARPIT", Kind.VERDICT, "TARPIT", (), Ends.MAYBE)
    key = rng.choice(FINAL)
    name, *words = key.split()
    return Target(name, Kind.VERDICT, key, tuple(words))


def make_match(rng: random.Random, family: Family, tiny: bool, number: int = 0) -> Match:
    """A match as the parser would make it, or one whose guards and readings are drawn freely.

    *number* tells the match's key from those of others.
    """
    free = rng.random() < 0.3
    name, role, fields = rng.choice(_SHAPES)
    tests = tuple(_test(rng, field, family, tiny) for field in fields if not free or rng.random() < 0.8)
    key = f"{name}{number}"
    if role is Role.CONSTANT:
        kind = rng.random()
        some = frozenset(
            rng.sample([Metadata.MARK, Metadata.CT, Metadata.SETS, Metadata.LENGTH], rng.choice([1, 1, 2]))
        )
        reads = some if kind < 0.6 else EVERYTHING if kind < 0.7 else frozenset[Metadata]()
        return Match(name, ("--some", "thing"), role, key, tests, reads=reads)
    if role is not Role.SPACE:
        # The key of a match decides what it writes, as in the parser.
        writes = _ASKING_WRITES.get(number % 5, frozenset())
        return Match(name, ("--some", "thing"), role, key, tests, writes=writes)
    if free:
        return Match(
            name,
            (),
            role,
            key,
            tests,
            either=rng.random() < 0.3,
            native=rng.random() < 0.5,
            needs=rng.choice([0, 0, 4, 8, 20]),
            strict=rng.random() < 0.3,
            option=rng.random() < 0.2,
        )
    native = name in ("", "tcp", "udp", "state") and rng.random() < 0.8
    return Match(
        name,
        (),
        role,
        key,
        tests,
        either=name == "multiport" and len(tests) > 1,
        native=native,
        needs={"tcp": 20, "udp": 8, "icmp": 4, "multiport": 4}.get(name, 0),
        strict=name == "tcp",
        option=name == "tcp" and rng.random() < 0.1,
    )


_ASKING_WRITES = {2: frozenset({Metadata.LABELS, Metadata.MARK}), 3: EVERYTHING, 4: frozenset({Metadata.CT})}
_SHAPES: list[tuple[str, Role, tuple[Field, ...]]] = [
    ("", Role.SPACE, (Field.SRC,)),
    ("", Role.SPACE, (Field.DST,)),
    ("", Role.SPACE, (Field.PROTO,)),
    ("", Role.SPACE, (Field.IIF,)),
    ("", Role.SPACE, (Field.OIF,)),
    ("physdev", Role.SPACE, (Field.PHYSIN,)),
    ("physdev", Role.SPACE, (Field.PHYSIN, Field.PHYSOUT)),
    ("", Role.SPACE, (Field.FRAG,)),
    ("tcp", Role.SPACE, (Field.PROTO, Field.DPORT)),
    ("tcp", Role.SPACE, (Field.SPORT, Field.DPORT)),
    ("tcp", Role.SPACE, (Field.FLAGS,)),
    ("tcp", Role.SPACE, ()),
    ("udp", Role.SPACE, (Field.PROTO, Field.DPORT)),
    ("udp", Role.SPACE, (Field.SPORT,)),
    ("multiport", Role.SPACE, (Field.SPORT, Field.DPORT)),
    ("icmp", Role.SPACE, (Field.ICMP,)),
    ("mac", Role.SPACE, (Field.MAC,)),
    ("state", Role.SPACE, (Field.STATE,)),
    ("comment", Role.CONSTANT, ()),
    ("mark", Role.CONSTANT, ()),
    ("set", Role.CONSTANT, (Field.SRC,)),
    ("recent", Role.NAMED, ()),
    ("limit", Role.ONCE, ()),
]


def _test(rng: random.Random, field: Field, family: Family, tiny: bool) -> FieldTest:
    limit = top(field, family)
    pairs = []
    for _ in range(rng.choice([0, 1, 1, 1, 1, 1, 2, 3]) if rng.random() < 0.3 else 1):
        low, high = _value(rng, field, family, tiny), _value(rng, field, family, tiny)
        if field in (Field.SRC, Field.DST) and not tiny:
            free = (1 << rng.choice([0, 8, 16, 24])) - 1
            low, high = low & ~free, low | free
        if field in INTERFACES and rng.random() < 0.6:
            high = low | ((1 << 104) - 1 if rng.random() < 0.5 else 0)
        if rng.random() < 0.3:
            high = low
        pairs.append((min(low, high), min(max(low, high), limit)))
    values = Values.of(*pairs)
    return FieldTest(field, values.complement(limit) if rng.random() < 0.2 else values)


def _value(rng: random.Random, field: Field, family: Family, tiny: bool) -> int:
    if field is Field.FRAG:
        return rng.choice(list(Fragment))
    if field is Field.STATE:
        return rng.randrange(len(STATES))
    if field is Field.PROTO:
        icmp = ICMP if family is Family.IPV4 else ICMPV6
        return rng.choice([TCP, TCP, UDP, UDP, icmp, *sorted(PORT_PROTOCOLS), 47, 255])
    if field in INTERFACES:
        return rng.randrange(8) << 120 if tiny else interface_number(rng.choice(NAMES))
    if tiny:
        return rng.randrange(8)
    if field in (Field.SRC, Field.DST):
        return (10 << 24 | rng.randrange(1 << 18)) << (0 if family is Family.IPV4 else 96)
    return rng.randint(0, top(field, family))


def mutate(rng: random.Random, program: Program) -> Program:
    """*program* with one edit somewhere; some edits change nothing."""
    tables = list(program.tables)
    number = rng.randrange(len(tables))
    chains = list(tables[number].chains)
    at = rng.choice([n for n, chain in enumerate(chains) if chain.rules] or [0])
    chains[at] = _edit_chain(rng, chains[at], program.family)
    tables[number] = Table(tables[number].name, tuple(chains))
    return Program(program.family, tuple(tables))


def _edit_chain(rng: random.Random, chain: Chain, family: Family) -> Chain:
    rules = list(chain.rules)
    edits = ["drop", "swap", "edge", "edge", "edge", "match", "target", "policy"]
    edit = rng.choice(edits) if rules else "policy"
    at = rng.randrange(len(rules)) if rules else 0
    if edit == "policy":
        return replace(chain, policy=chain.policy and ("DROP" if chain.policy == "ACCEPT" else "ACCEPT"))
    if edit == "drop":
        del rules[at]
    elif edit == "swap":
        rules[at - 1], rules[at] = rules[at], rules[at - 1]
    elif edit == "match" and rules[at].matches:
        matches = list(rules[at].matches)
        del matches[rng.randrange(len(matches))]
        rules[at] = rules[at]._replace(matches=tuple(matches))
    elif edit == "edge":
        rules[at] = rules[at]._replace(matches=_edit_matches(rng, rules[at].matches, family))
    elif edit == "target":
        rules[at] = rules[at]._replace(target=_edit_target(rng, rules[at].target))
    return chain.with_rules(tuple(rules))


def _edit_matches(rng: random.Random, matches: tuple[Match, ...], family: Family) -> tuple[Match, ...]:
    """Move one end of one interval by one."""
    tests = [(m, t) for m, match in enumerate(matches) for t, test in enumerate(match.tests) if test.values]
    if not tests:
        return matches
    m, t = rng.choice(tests)
    match, test = matches[m], matches[m].tests[t]
    pairs = list(test.values.pairs)
    at = rng.randrange(len(pairs))
    low, high = pairs[at]
    step = 1 << 8 if test.field in (Field.IIF, Field.OIF) else 1
    ends = [(low + step, high), (low, high - step), (low - step, high), (low, high + step)]
    limit = top(test.field, family)
    pairs[at] = rng.choice([(a, b) for a, b in ends if a >= 0 and b <= limit] or [(low, high)])
    edited = (*match.tests[:t], FieldTest(test.field, Values.of(*pairs)), *match.tests[t + 1 :])
    return (*matches[:m], match._replace(tests=edited), *matches[m + 1 :])


def _edit_target(rng: random.Random, target: Target | None) -> Target | None:
    if target is not None and target.enters:
        return replace(target, kind=Kind.GOTO if target.kind is Kind.JUMP else Kind.JUMP)
    accept = Target("ACCEPT", Kind.VERDICT, "ACCEPT")
    return rng.choice(
        [each for each in (accept, Target("DROP", Kind.VERDICT, "DROP"), None) if each != target]
    )
