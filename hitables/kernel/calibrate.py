"""Measure a cost profile of the running kernel: `hitables calibrate`.

For each kind of test, two rule sets: equal rules whose test fails, and equal rules whose test holds and
that have no target, so that the packet continues.  For memory, trees of several sizes under as many flows
as they have leaves. All are measured in scratch namespaces, in turn, above an empty rule set; it takes
half a minute.
"""

from __future__ import annotations

import random
import statistics
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from ..costs import test_kinds
from ..costs.packet_cost import MemoryUse, cached_cost, program_of
from ..costs.profile import CacheMiss, Costs, Figures, MatchCost
from ..errors import LiveError
from ..ir.fields import Family, Field
from ..ir.packet import Backend
from ..parse.iptables import read as read_rules
from ..simulate.five_tuple import batch_of, set_interface
from .stopwatch import DEVICE, EMPTY, Stopwatch

RULES = 500  # of one kind in a row: enough to measure a nanosecond, few enough to stay cached
RUNS, PIECE = 5, 0.025  # of each rule set in turn, seconds each
TREE_RUNS, TREE_PIECE = 13, 0.025
PATIENCE = 5.0  # seconds for each half of a backend, without loading: under a minute in all on a busy machine
FLOWS, HOLDING = 256, 0.25  # flows for branch misses, and the share of them for which a rule's test holds
# Leaves of a tree, and rules in each: from trees that stay cached to trees that do not.
TREES = (
    (16, 0), (64, 0), (64, 8), (64, 32), (256, 0), (256, 8), (512, 32), (1024, 0), (1024, 8),
    (4096, 0), (4096, 8),
)  # fmt: skip
# Rules read since the last use: those that fit the first cache, the second, and neither.
KNOTS = (64, 1024, 4096, 16384)

_SOURCE, _TARGET, _SPORT, _DPORT, _UDP = 0x01020304, 0x0A630001, 1000, 2000, 17
_FIRST_LEAF, _ELSEWHERE = 0x0A000000, 0x64000000


@dataclass(frozen=True, slots=True)
class _Sample:
    """The spellings of a test that fails and of one that holds, and the kinds of tests that precede it."""

    kind: str
    fails: str
    holds: str
    before: tuple[str, ...] = ()
    only: Backend | None = None


_P = ("protocol",)
_SAMPLES = (
    _Sample("address", "-s {host}/30", "-s 1.2.3.4/30", only=Backend.LEGACY),
    _Sample("address/x", "-s {host}/30", "-s 1.2.3.4/30", only=Backend.NFT),
    _Sample("address/8", "-s {host}/8", "-s 1.2.3.4/8", only=Backend.NFT),
    _Sample("address/16", "-s {host}/16", "-s 1.2.3.4/16", only=Backend.NFT),
    _Sample("address/24", "-s {host}/24", "-s 1.2.3.4/24", only=Backend.NFT),
    _Sample("address/32", "-s {host}", "-s 1.2.3.4", only=Backend.NFT),
    _Sample("interface", "-o eth0", f"-o {DEVICE}"),
    _Sample("protocol", "-p tcp", "-p udp"),
    _Sample("fragment", "-f", "! -f"),
    _Sample("port", "-p udp -m udp --dport {port}", "-p udp -m udp --dport 2000", _P, Backend.NFT),
    _Sample("ports", "-p udp -m udp --dport {port}:{port}9", "-p udp -m udp --dport 9:2000", _P, Backend.NFT),
    _Sample("-m udp", "-p udp -m udp --dport {port}", "-p udp -m udp --dport 2000", _P, Backend.LEGACY),
    _Sample("-m udp", "", "-p udp -m udp", _P, Backend.NFT),
    _Sample("-m multiport", "-p udp -m multiport --dports 1,2,3", "-p udp -m multiport --dports 1,2000", _P),
    _Sample("-m iprange", "-m iprange --src-range 9.1.1.1-9.1.1.9", "-m iprange --src-range 1.1.1.1-9.1.1.9"),
    _Sample("-m conntrack", "-m conntrack --ctstate INVALID", "-m conntrack ! --ctstate INVALID"),
    _Sample("-m state", "-m state --state INVALID", "-m state ! --state INVALID"),
    _Sample("-m mark", "-m mark --mark 7", "-m mark --mark 0"),
    _Sample("-m comment", "", "-m comment --comment rule"),
    _Sample("-m addrtype", "-m addrtype --dst-type LOCAL", "-m addrtype ! --dst-type LOCAL"),
    _Sample("-m set", "-m set --match-set empty src", "-m set ! --match-set empty src"),
)  # fmt: skip
# Kinds without which there is no profile.
_NEEDED = {"address", "address/x", "interface", "protocol", "fragment", "-m udp", "-m iprange"}
# An xtables match without a figure of its own costs the median of these.
_XTABLES = ("-m iprange", "-m multiport", "-m conntrack", "-m comment", "-m addrtype")
# The match tcp does what udp does; its flags are loaded and compared as an address with a mask is.
_ALIKE = (("-m tcp", "-m udp"), ("flags", "address/x"))


def calibrate(
    backends: Sequence[Backend] = tuple(Backend),
    progress: Callable[[str], None] = lambda stage: None,
    machine: dict[str, Any] | None = None,
) -> Costs:
    """A profile of the running kernel; LiveError if packets or rules cannot be tried here."""
    figures = {}
    try:
        for backend in backends:
            progress(f"{backend.value}: kinds of rules")
            plain = _plain(backend)
            progress(f"{backend.value}: trees")
            figures[backend] = _with_memory(plain, backend)
    except LiveError as error:
        raise LiveError(
            f"cannot measure here: {error}; calibrate needs root, or a user namespace that may load rules, "
            "and the iptables tools of the backend"
        ) from error
    return Costs(figures, "calibrate", machine or {})


# -- kinds of rules --------------------------------------------------------------------------------


def _packet(source: int = _SOURCE) -> bytes:
    udp = struct.pack("!HHHH", _SPORT, _DPORT, 8, 0)
    return struct.pack("!BBHHHBBHII", 0x45, 0, 28, 0, 0, 64, _UDP, 0, source, _TARGET) + udp


def _text(chains: dict[str, list[str]]) -> str:
    heads = "".join(f":{name} - [0:0]\n" for name in chains if name != "OUTPUT")
    rules = "".join(f"-A {name} {rule}\n" for name, listed in chains.items() for rule in listed)
    return f"*filter\n:OUTPUT ACCEPT [0:0]\n{heads}{rules}COMMIT\n"


def _many(spelt: str) -> str:
    """RULES rules of one spelling, each with an address and a port of its own."""
    rules = []
    for at in range(RULES):
        host = f"{11 + at % 200}.{at // 200 + 1}.{at % 250}.{4 * (at % 60)}"
        rules.append(spelt.format(host=host, port=3000 + at))
    return _text({"OUTPUT": rules})


def _entering(chains: dict[str, list[str]]) -> str:
    """RULES times `-j a`."""
    return _text({"OUTPUT": ["-j a"] * RULES, **chains})


_TARGET_SETS = {
    test_kinds.COUNT: _many(""),
    test_kinds.JUMP: _entering({"a": []}),
    test_kinds.GOTO: _entering({"a": ["-g b"], "b": []}),
    test_kinds.RETURN: _entering({"a": ["-j RETURN"]}),
    test_kinds.OTHER_TARGET: _many("-j CLASSIFY --set-class 1:1"),
}


def _plain(backend: Backend) -> Figures:
    packet = _packet()
    samples = [sample for sample in _SAMPLES if sample.only in (None, backend)]
    with Stopwatch(backend, piece=PIECE) as watch:
        watch.add("empty", EMPTY, packet, 1)
        for name, text in _TARGET_SETS.items():
            text = text.replace("*filter", "*mangle") if "CLASSIFY" in text else text
            watch.add(name, text, packet, 1)
        watch.add("guessed", EMPTY, _flows(FLOWS), FLOWS)
        watch.add("unforeseen", _unforeseen(), _flows(FLOWS), FLOWS)
        accepted = []
        for sample in samples:
            try:
                for end in ("fails", "holds"):
                    if getattr(sample, end):
                        watch.add(f"{sample.kind} {end}", _many(getattr(sample, end)), packet, 1)
                accepted.append(sample)
            except LiveError:
                watch.forget(f"{sample.kind} fails")
                if sample.kind in _NEEDED:
                    raise
        median = {name: statistics.median(times) for name, times in watch.run(RUNS, PATIENCE).items()}
    each = {name: max(0.0, ns - median["empty"]) / RULES for name, ns in median.items()}
    targets = {kind: each[kind] for kind in (test_kinds.COUNT, test_kinds.JUMP, test_kinds.OTHER_TARGET)}
    for kind in (test_kinds.GOTO, test_kinds.RETURN):
        targets[kind] = max(0.0, each[kind] - each[test_kinds.JUMP])
    # A verdict costs what a rule without a target costs; the packet stops there.
    targets[test_kinds.VERDICT] = targets[test_kinds.COUNT]
    tests: dict[str, MatchCost] = {}
    for sample in accepted:
        before = sum(tests[kind].holds for kind in sample.before)
        holds = max(0.0, each[f"{sample.kind} holds"] - each[test_kinds.COUNT] - before)
        miss = max(0.0, each[f"{sample.kind} fails"] - before) if sample.fails else holds
        tests[sample.kind] = MatchCost(miss, holds)
    if backend is Backend.NFT:
        tests["address"] = tests["address/x"]
    else:
        tests["address/x"] = tests["address"]
    known = [tests[kind] for kind in _XTABLES if kind in tests]
    middle = MatchCost(*(statistics.median(costs) for costs in zip(*known, strict=True)))
    tests[test_kinds.OTHER_MATCH] = middle
    for kind, like in _ALIKE:
        tests[kind] = tests[like]
    rounded = {kind: MatchCost(round(cost.miss, 2), round(cost.holds, 2)) for kind, cost in tests.items()}
    unforeseen = (median["unforeseen"] - median["guessed"]) / RULES
    surprise = (unforeseen - tests["address/x"].miss) / HOLDING - tests["address/x"].holds
    targets = {kind: round(ns, 2) for kind, ns in targets.items()}
    return Figures(rounded, targets, 0.0, round(max(0.0, surprise), 2), ())


def _unforeseen() -> str:
    """Rules whose source test holds for a fourth of the flows, each for other ones, and whose second test
    fails.
    """
    rng = random.Random(1)
    rules = []
    for _ in range(RULES):
        bits = rng.sample(range(FLOWS.bit_length() - 1), 2)
        mask = sum(1 << bit for bit in bits)
        value = mask & rng.randrange(FLOWS)
        rules.append(f"-s {_dotted(value)}/{_dotted(mask)} -d {_dotted(_ELSEWHERE)}/30")
    return _text({"OUTPUT": rules})


# -- memory ----------------------------------------------------------------------------------------


def _tree(leaves: int, size: int) -> str:
    """A tree over as many sources; each leaf has *size* rules that miss."""
    rng = random.Random(size)
    chains: dict[str, list[str]] = {"OUTPUT": []}

    def write(first: int, bits: int, into: str) -> None:
        while bits:
            bits -= 1
            name = f"t{first:x}x{bits}"
            chains[into].append(f"-s {_dotted(first)}/{32 - bits} -g {name}")
            chains[name] = []
            write(first, bits, name)
            first += 1 << bits
        chains[into] += [f"-s {_dotted(_ELSEWHERE + 4 * rng.randrange(1 << 22))}/30" for _ in range(size)]

    write(_FIRST_LEAF, leaves.bit_length() - 1, "OUTPUT")
    return _text(chains)


def _dotted(number: int) -> str:
    return ".".join(str(byte) for byte in number.to_bytes(4, "big"))


def _list(size: int) -> str:
    """*size* ordinary rules that miss."""
    rules = []
    for at in range(size):
        ports = f"--sport {at % 60000}:{at % 60000 + 9} --dport {3000 + at % 50000}"
        rules.append(f"-s {_dotted(_ELSEWHERE + 4 * at)}/30 -p udp -m udp {ports} -j ACCEPT")
    return _text({"OUTPUT": rules})


def _with_memory(figures: Figures, backend: Backend) -> Figures:
    """*figures* with the cost of uncached rules, fitted to the time of trees above that of cached rules."""
    with Stopwatch(backend, piece=TREE_PIECE) as watch:
        for leaves in sorted({leaves for leaves, _ in TREES}):
            watch.add(f"empty {leaves}", EMPTY, _flows(leaves), leaves)
            for size in (size for each, size in TREES if each == leaves):
                watch.add(f"{leaves} {size}", _tree(leaves, size), _flows(leaves), leaves)
        for size in KNOTS:
            watch.add(f"list {size}", _list(size), _packet(), 1)
        watch.add("empty", EMPTY, _packet(), 1)
        times = watch.run(TREE_RUNS, PATIENCE)
    rows, rest, scale = [], [], []
    for leaves, size in TREES:
        above = difference(times[f"{leaves} {size}"], times[f"empty {leaves}"])
        near, way = _walked(_tree(leaves, size), leaves, figures, backend)
        rows.append(np.concatenate([[1.0], *_basis(way)]))
        rest.append(max(0.0, above - near))
        scale.append(1 / max(above, 100.0))  # below that it is mostly noise
    weights = np.array(scale)
    steps = non_negative(np.array(rows) * weights[:, None], np.array(rest) * weights)
    taken, read = (np.cumsum(part) for part in np.split(steps[1:], 2))
    missed = figures.tests["address/x"].miss
    if backend is Backend.NFT:
        missed += figures.tests["protocol"].holds
    lists = [difference(times[f"list {size}"], times["empty"]) / size - missed for size in KNOTS]
    ahead = np.maximum.accumulate([0.0, *lists[1:]])
    far = [
        CacheMiss(float(knot), *(round(float(ns), 2) for ns in each))
        for knot, *each in zip(KNOTS, taken, read, ahead, strict=True)
    ]
    return replace(figures, start=round(float(steps[0]), 1), cache_miss=tuple(far))


def difference(times: Sequence[float], empty: Sequence[float]) -> float:
    """The median difference of times measured in turn, so that disturbances of both cancel."""
    return statistics.median(one - other for one, other in zip(times, empty, strict=True))


def _flows(leaves: int) -> bytes:
    sources = list(range(_FIRST_LEAF, _FIRST_LEAF + leaves))
    random.Random(leaves).shuffle(sources)
    return b"".join(map(_packet, sources))


def _walked(text: str, leaves: int, figures: Figures, backend: Backend) -> tuple[float, MemoryUse]:
    headers = np.array([(_FIRST_LEAF + at, _TARGET, _SPORT, _DPORT, _UDP) for at in range(leaves)], np.uint32)
    batch = batch_of(headers)
    set_interface(batch, Field.OIF, DEVICE)
    program = program_of(read_rules(text, family=Family.IPV4), "filter", backend)
    return cached_cost(program, "filter", "OUTPUT", batch, figures, backend)


def _basis(way: MemoryUse) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """The contribution of each knot's rise over the previous knot: for rules taken, and for rules read."""
    at = np.log2(np.array(KNOTS, float))

    def share(times: npt.NDArray[np.float64], distance: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        place = np.log2(distance + 1)
        rises = []
        for knot in range(len(KNOTS)):
            curve = np.arange(len(KNOTS)) >= knot
            rises.append((times * np.interp(place, at, curve.astype(float))).sum())
        return np.array(rises)

    return share(way.taken, way.taken_distance), share(way.rules, way.rule_distance)


def non_negative(matrix: npt.NDArray[np.float64], values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """The non-negative least squares solution, by coordinate descent."""
    solution = np.zeros(matrix.shape[1])
    squares = (matrix**2).sum(0)
    for _ in range(5000):
        before = solution.copy()
        for at in np.flatnonzero(squares):
            rest = values - matrix @ solution + matrix[:, at] * solution[at]
            solution[at] = max(0.0, float(matrix[:, at] @ rest) / squares[at])
        if np.abs(solution - before).max(initial=0.0) < 1e-6:
            break
    return solution
