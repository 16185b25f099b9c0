"""Regions: the packets that pass a few header tests of a rule, and what a rule may do to them.

A region is what a rule in front of a chain lets into its overlay.  It is said by matches of
the rule that was updated, in their order and their spelling, so the test in front reads a
packet as the rule itself would: whatever the rule does anything to (matches, drops, asks its
memory) is in the region.  The two questions below may answer "no" out of ignorance, which
makes an overlay longer; a "yes" holds for every packet of the region.
"""

from __future__ import annotations

from collections.abc import Iterable, Set
from dataclasses import dataclass

from hitables.ir.fields import OPTIONAL, Family, Field, top
from hitables.ir.intervals import Values
from hitables.ir.packet import Backend
from hitables.ir.rule import Ends, Kind, Match, Role, Rule, Test

# Read by nf_tables out of the payload when written natively (docs/semantics.md, "Two readings").
_RAW = frozenset({Field.SPORT, Field.DPORT, Field.FLAGS})
_NONE: frozenset[Field] = frozenset()


@dataclass(frozen=True, slots=True)
class _View:
    """What is known of a region's packets in one backend.

    values  by field: a test of it held, so the packet has it
    native  fields of which every test was read natively
    solid   bytes of layer 4 that are there for sure, and no later fragment; 0 when that is not known
    walked  a -p held, so the chain of IPv6 headers can be walked
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
        """A region, as small as its tests can say it, that holds every packet which *rule* touches.

        *dirty*: fields that a rule before may have written, so that the front sees another value.
        With *exact* no test may drop a malformed packet.
        """
        taken = []
        for match in rule.matches:
            clean = all(test.field not in dirty for test in match.tests)
            drops = match.needs > 0 or match.option or (match.is_protocol and family is Family.IPV6)
            if match.role is Role.SPACE and clean and not (exact and drops):
                taken.append(match)
            elif drops or match.role in (Role.NAMED, Role.ONCE):
                break  # it acts on packets whatever stands behind it
        return cls(taken, family, backends)

    @classmethod
    def around(cls, rule: Rule, family: Family, backends: Iterable[Backend]) -> Region:
        """A region that holds all packets to which *rule* may do anything: of its header options, which
        drop none."""
        taken = []
        for match in rule.matches:
            if match.name or match.role is not Role.SPACE:
                break
            if not (match.is_protocol and family is Family.IPV6):
                taken.append(match)
        return cls(taken, family, backends)

    def is_behind(self, front: Region) -> bool:
        """Whether *front*, tested before, takes or drops all packets that this region takes or drops."""
        if self.matches[: len(front.matches)] == front.matches:
            return True  # what one of these drops, it drops in front, too
        return self.touched().passes(front.matches)

    def touched(self) -> Region:
        """A region that holds, too, what the tests of this one drop."""
        for at, match in enumerate(self.matches):
            if any(self._drops(match, backend) for backend in self.backends):
                return Region(self.matches[:at], self.family, self.backends)
        return self

    def values(self, field: Field) -> Values | None:
        """The values of *field* that its packets have, as far as is known in every backend."""
        return next(iter(self._views.values())).values.get(field)

    @property
    def walked(self) -> bool:
        return all(view.walked for view in self._views.values())

    def escapes(self, rule: Rule, dirty: Set[Field] = _NONE) -> bool:
        """Whether *rule* does nothing at all to any packet of the region."""
        return all(self._escapes(rule, dirty, backend) for backend in self.backends)

    def ends_in(self, rule: Rule, dirty: Set[Field] = _NONE) -> bool:
        """Whether *rule* ends the way of every packet of the region."""
        target = rule.target
        if target is None or target.kind is Kind.JUMP:
            return False
        if target.kind is Kind.VERDICT and target.ends is not Ends.SURELY:
            return False
        return self.passes(rule.matches, dirty)

    def passes(self, matches: Iterable[Match], dirty: Set[Field] = _NONE) -> bool:
        """Whether every packet of the region passes *matches*, or is dropped by one of them."""
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
        """Whether a packet may be in both; never False when one is."""
        return not self.escapes(Rule(other.matches, None))

    def _view(self, backend: Backend) -> _View:
        values: dict[Field, Values] = {}
        natively: dict[Field, bool] = {}
        solid = 0
        for match in self.matches:
            native = _native(match, backend)
            if match.needs and not native:
                solid = max(solid, match.needs)
            if match.either:
                continue
            for test in match.tests:
                known = values.get(test.field)
                values[test.field] = test.values if known is None else known.intersect(test.values)
                natively[test.field] = native and natively.get(test.field, True)
        native_fields = frozenset(field for field, only in natively.items() if only)
        return _View(values, native_fields, solid, any(match.is_protocol for match in self.matches))

    def _escapes(self, rule: Rule, dirty: Set[Field], backend: Backend) -> bool:
        view = self._views[backend]
        for match in rule.matches:
            if self._may_drop(match, view, backend):
                return False
            if self._fails(match, dirty, view, backend):
                return True
            if match.option or match.role in (Role.NAMED, Role.ONCE):
                return False
        return False

    def _may_drop(self, match: Match, view: _View, backend: Backend) -> bool:
        """Whether the match may drop a packet of the region before it looks at its values."""
        if match.is_protocol and self.family is Family.IPV6 and backend is Backend.LEGACY:
            return not view.walked
        return not _native(match, backend) and match.needs > view.solid

    def _drops(self, match: Match, backend: Backend) -> bool:
        """Whether the match drops any packet at all."""
        if match.is_protocol and self.family is Family.IPV6:
            return backend is Backend.LEGACY
        return match.option or (match.needs > 0 and not _native(match, backend))

    def _comparable(self, match: Match, field: Field, view: _View, backend: Backend) -> bool:
        """Whether the match reads what the region's tests of *field* have read."""
        if field not in _RAW or backend is Backend.LEGACY or view.solid:
            return True
        return _native(match, backend) == (field in view.native)

    def _fails(self, match: Match, dirty: Set[Field], view: _View, backend: Backend) -> bool:
        """Whether no packet of the region passes the match's tests."""

        def fails(test: Test) -> bool:
            if not test.values:
                return True
            known = view.values.get(test.field)
            if known is None or test.field in dirty or not self._comparable(match, test.field, view, backend):
                return False
            return not known.intersect(test.values)

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


def _native(match: Match, backend: Backend) -> bool:
    return match.native and backend is Backend.NFT
