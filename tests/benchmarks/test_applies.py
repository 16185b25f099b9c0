"""The campaign of cut applies: it runs, and it fails where the kernel or the packets say otherwise."""

from __future__ import annotations

import pytest
from support.small_namespace import Namespace

from benchmarks import applies
from benchmarks.applies import GUARD, Found, cuts
from benchmarks.probes import Seen
from benchmarks.visible_changes import TABLES, Watch
from hitables.errors import HitablesError
from hitables.ir.fields import Family
from hitables.ir.packet import Backend
from hitables.kernel.namespace import run

OLD, NEW = 8000, 9001


@pytest.mark.needs_kernel
@pytest.mark.parametrize("backend", list(Backend), ids=lambda backend: backend.value)
def test_cut_applies_end_in_the_confirmed_or_the_old_rules(
    backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`make apply-campaign` cuts 200."""
    monkeypatch.setattr(applies, "WAYS", ["SIGKILL" if backend is Backend.LEGACY else "closed terminal"])
    found = cuts(backend, 1, seed=3)
    assert sum(found["ends"].values()) == 1
    assert found["commands_of_others"] > 0


def measured(seen: list[Seen], present: int, confirmed_at: float | None = None) -> Found:
    found = Found()
    applies._measure(found, seen, present, confirmed_at)
    return found


def test_rules_count_as_unconfirmed_until_the_old_ones_are_back() -> None:
    seen = [Seen(OLD, 0, 0.9, 9), Seen(0, 1.0, 1.0, 1), Seen(NEW, 1.01, 3, 9), Seen(OLD, 3.5, 5, 9)]
    found = measured(seen, OLD)
    assert found.between == [2.5]
    assert found.mixed == [pytest.approx(10)]


def test_rules_count_as_unconfirmed_until_they_are_confirmed() -> None:
    assert measured([Seen(OLD, 0, 1, 9), Seen(NEW, 2, 5, 9)], NEW, confirmed_at=4).between == [2]
    assert measured([Seen(OLD, 0, 1, 9)], OLD).between == [0]


@pytest.mark.parametrize(
    "seen",
    [
        [Seen(OLD, 0, 1, 9), Seen(NEW, 2, 3, 9)],
        [Seen(OLD, 0, 1, 9), Seen(0, 2, 3, 9)],
        [Seen(OLD, 0, 1, 9), Seen(NEW, 2, 3, 9), Seen(OLD, 3 + GUARD, 4 + GUARD, 9)],
    ],
)
def test_rules_that_stay_unconfirmed_fail_the_campaign(seen: list[Seen]) -> None:
    with pytest.raises(HitablesError):
        measured(seen, OLD)


def restored(backend: Backend, families: tuple[Family, ...]) -> dict[tuple[Family, str], float]:
    rules = "".join(f"*{table}\n-A OUTPUT -j ACCEPT\nCOMMIT\n" for table in TABLES)
    with Watch(backend, families) as watch:
        run([f"iptables-{backend.value}-restore"], rules)
    return watch.times


@pytest.mark.needs_kernel
@pytest.mark.parametrize("backend", list(Backend), ids=lambda backend: backend.value)
def test_the_changes_of_two_tables_are_seen_in_their_order(backend: Backend) -> None:
    with Namespace() as namespace:
        times = namespace.call(restored, backend, (Family.IPV4, Family.IPV6))
    assert list(times) == [(Family.IPV4, table) for table in TABLES]
    # Equal if the machine stood still between both.
    assert times[Family.IPV4, "nat"] <= times[Family.IPV4, "filter"]


@pytest.mark.needs_kernel
def test_a_table_that_does_not_change_has_no_gap() -> None:
    with Namespace() as namespace, pytest.raises(HitablesError, match=r"did not change: \['nat', 'filter'\]"):
        namespace.call(gap_of_nothing)


def gap_of_nothing() -> float:
    with Watch(Backend.NFT, (Family.IPV4,)) as watch:
        pass
    return watch.milliseconds()
