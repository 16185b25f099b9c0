"""Regions: the packets that pass some header tests of a rule, and the effect of other rules on them.

A region is the set of packets that an entry leads to its overlay.  It is written as matches of the
updated rule, in their order and spelling, so the entry reads a packet as that rule would: every
packet on which the rule has an effect (it matches, drops, or uses memory) is in the region.

Invariant: the questions below are answered conservatively.  "Yes" holds for every packet of the region;
"no" may mean that it is unknown, which makes an overlay longer and never wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Sequence, Set
from dataclasses import dataclass

from hitables.ir.fields import OPTIONAL, Family, Field, top
from hitables.ir.intervals import Values
from hitables.ir.packet import Backend
from hitables.ir.rule import Ends, Kind, Match, Role, Rule, Test

# Native matches of nf_tables read these from the payload (docs/semantics.md, "Two readings").
_RAW = frozenset({Field.SPORT, Field.DPORT, Field.FLAGS})
_NONE: frozenset[Field] = frozenset()


@dataclass(frozen=True, slots=True)
class _View:
    """What holds for a region's packets in one backend.

    values  by field: its possible values; a packet of the region has the field
    native  fields that only native matches have tested
    solid   bytes of layer 4 that are present, in a packet that is no later fragment; 0 if unknown
    walked  a -p has matched, so the chain of IPv6 headers is complete
    """

    values: dict[Field, Values]
    native: frozenset[Field]
    solid: int
    walked: bool


class Region:
    """The packets that pass *matches*, in every one of *backends*."""

    def __init__(self, matches: Iterable[Match], family: Family, backends: Iterable[Backend]) -> None:
        self.matches = tuple(matches)
        self.family = family
        self.backends = tuple(backends)
        self._views = {backend: self._view(backend) for backend in self.backends}

    @classmethod
    def of(
        cls, rule: Rule, dirty: Set[Field], exact: bool, family: Family, backends: Iterable[Backend]
    ) -> Region:
        """The smallest region, of tests of *rule*, that holds every packet on which *rule* has an effect.

        *dirty*: fields that an earlier rule may have written, so that the entry reads other values.
        With *exact* no test may drop a malformed packet.
        """
        matches = []
        for match in rule.matches:
            clean = all(test.field not in dirty for test in match.tests)
            drops = match.needs > 0 or match.option or (match.is_protocol and family is Family.IPV6)
            if match.role is Role.SPACE and clean and not (exact and drops):
                matches.append(match)
            elif drops or match.role in (Role.NAMED, Role.ONCE):
                break  # it has an effect whether or not later matches hold
        return cls(matches, family, backends)

    @classmethod
    def around(cls, rule: Rule, family: Family, backends: Sequence[Backend]) -> Region:
        """A region that holds every packet on which *rule* may have an effect, of those of its first tests
        that drop no packet in any of *backends*."""
        matches: list[Match] = []
        may_drop = False  # a header option that was left out
        for match in rule.matches:
            drops = any(_drops(match, family, backend) for backend in backends)
            if match.name and (drops or may_drop or match.role not in (Role.SPACE, Role.CONSTANT)):
                break
            if match.role is Role.SPACE and not drops:
                matches.append(match)
            may_drop |= drops
        return cls(matches, family, backends)

    def is_behind(self, earlier: Region) -> bool:
        """Whether *earlier*, tested first, matches or drops all packets that this region does."""
        if self.matches[: len(earlier.matches)] == earlier.matches:
            return True  # a packet that one of these drops is dropped by *earlier*, too
        return self.touched().passes(earlier.matches)

    def touched(self) -> Region:
        """This region, and the packets that its tests drop, or a larger one."""
        for at, match in enumerate(self.matches):
            if any(_drops(match, self.family, backend) for backend in self.backends):
                return Region(self.matches[:at], self.family, self.backends)
        return self

    def values(self, field: Field) -> Values | None:
        """The possible values of *field*; None if the region does not restrict it."""
        return next(iter(self._views.values())).values.get(field)

    @property
    def walked(self) -> bool:
        """Whether the chain of IPv6 headers is complete."""
        return all(view.walked for view in self._views.values())

    def escapes(self, rule: Rule, dirty: Set[Field] = _NONE) -> bool:
        """Whether *rule* has no effect on any packet of the region."""
        return all(self._escapes(rule, dirty, backend) for backend in self.backends)

    def escaped(self, rules: Iterable[Rule], dirty: Set[Field] = _NONE) -> Iterator[bool]:
        """`escapes` for each of *rules*; each match that they share is examined once."""
        return map(self.escaping(dirty), rules)

    def escaping(self, dirty: Set[Field] = _NONE) -> Callable[[Rule], bool]:
        """`escapes` as a function that examines each match once; the rules must live as long as it does."""
        readings: list[tuple[Backend, dict[int, bool | None]]] = [(backend, {}) for backend in self.backends]

        def escapes(rule: Rule) -> bool:
            return all([self._escapes(rule, dirty, backend, known) for backend, known in readings])

        return escapes

    def ends_in(self, rule: Rule, dirty: Set[Field] = _NONE, deciding: Container[str] = ()) -> bool:
        """Whether *rule* decides about every packet of the region; *deciding*: chains that surely decide."""
        target = rule.target
        if target is None or (target.kind is Kind.JUMP and target.name not in deciding):
            return False
        if target.kind is Kind.VERDICT and target.ends is not Ends.SURELY:
            return False
        return self.passes(rule.matches, dirty)

    def passes(self, matches: Iterable[Match], dirty: Set[Field] = _NONE) -> bool:
        """Whether every packet of the region matches *matches*, or is dropped by one of them."""
        return all(self._passes(match, dirty, backend) for match in matches for backend in self.backends)

    def may_be_dropped_by(self, matches: Iterable[Match]) -> bool:
        """Whether one of *matches* may drop a packet of the region."""
        return any(
            (match.option and match not in self.matches)
            or self._may_drop(match, self._views[backend], backend)
            for match in matches
            for backend in self.backends
        )

    def overlaps(self, other: Region) -> bool:
        """Whether a packet may be in both; never False if one is."""
        return not self.escapes(Rule(other.matches, None))

    def _view(self, backend: Backend) -> _View:
        values: dict[Field, Values] = {}
        only_native: dict[Field, bool] = {}
        solid = 0
        for match in self.matches:
            native = _native(match, backend)
            if match.needs and not native:
                solid = max(solid, match.needs)
            if match.either:
                continue
            for test in match.tests:
                before = values.get(test.field)
                values[test.field] = test.values if before is None else before.intersect(test.values)
                only_native[test.field] = native and only_native.get(test.field, True)
        native_fields = frozenset(field for field, only in only_native.items() if only)
        return _View(values, native_fields, solid, any(match.is_protocol for match in self.matches))

    def _escapes(
        self, rule: Rule, dirty: Set[Field], backend: Backend, known: dict[int, bool | None] | None = None
    ) -> bool:
        """*known*: by id of a match, its `_reading` for packets of the region."""
        known = {} if known is None else known
        for match in rule.matches:
            key = id(match)
            if key in known:
                reading = known[key]
            else:
                reading = known[key] = self._reading(match, dirty, backend)
            if reading is not None:
                return reading
        return False

    def _reading(self, match: Match, dirty: Set[Field], backend: Backend) -> bool | None:
        """True if the match fails for all packets of the region, False if it may have an effect on one by
        itself; None if later matches decide."""
        view = self._views[backend]
        if self._may_drop(match, view, backend):
            return False
        if self._fails(match, dirty, view, backend):
            return True
        return False if match.option or match.role in (Role.NAMED, Role.ONCE) else None

    def _may_drop(self, match: Match, view: _View, backend: Backend) -> bool:
        """Whether the match may drop a packet of the region instead of testing it."""
        if match.is_protocol and self.family is Family.IPV6 and backend is Backend.LEGACY:
            return not view.walked
        return not _native(match, backend) and match.needs > view.solid

    def _comparable(self, match: Match, field: Field, view: _View, backend: Backend) -> bool:
        """Whether the match reads the same bytes as the region's tests of *field*."""
        if field not in _RAW or backend is Backend.LEGACY or view.solid:
            return True
        return _native(match, backend) == (field in view.native)

    def _fails(self, match: Match, dirty: Set[Field], view: _View, backend: Backend) -> bool:
        """Whether no packet of the region matches."""

        def fails(test: Test) -> bool:
            if not test.values:
                return True
            known = view.values.get(test.field)
            if known is None or test.field in dirty or not self._comparable(match, test.field, view, backend):
                return False
            return _is_apart(known, test.values)

        if len(match.tests) == 1:
            return fails(match.tests[0])
        failing = [fails(test) for test in match.tests]
        return all(failing) if match.either else any(failing)

    def _passes(self, match: Match, dirty: Set[Field], backend: Backend) -> bool:
        if match.role is not Role.SPACE:
            return False
        if match in self.matches and all(test.field not in dirty for test in match.tests):
            return True
        view = self._views[backend]
        if match.needs and not _native(match, backend) and not view.solid:
            return False  # a later fragment does not match

        def holds(test: Test) -> bool:
            if test.field not in OPTIONAL and test.values.pairs == ((0, top(test.field, self.family)),):
                return True
            known = view.values.get(test.field)
            if known is None or test.field in dirty or not self._comparable(match, test.field, view, backend):
                return False
            return test.values.covers(known)

        holding = [holds(test) for test in match.tests]
        return any(holding) if match.either else all(holding)


def _is_apart(one: Values, other: Values) -> bool:
    """Whether no value is in both."""
    if len(one.pairs) == len(other.pairs) == 1:  # most tests
        ((low, high),), ((first, last),) = one.pairs, other.pairs
        return high < first or last < low
    return not one.intersect(other)


def _native(match: Match, backend: Backend) -> bool:
    return match.native and backend is Backend.NFT


def _drops(match: Match, family: Family, backend: Backend) -> bool:
    """Whether the match may drop a packet."""
    if match.is_protocol and family is Family.IPV6:
        return backend is Backend.LEGACY
    return match.option or (match.needs > 0 and not _native(match, backend))
