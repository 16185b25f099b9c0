"""The rule sets that the project ships, applied whole: nothing is found lost, and all is undone."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.firewall import Firewall, plain
from support.small_namespace import Namespace

from hitables.ir.fields import Family
from hitables.ir.packet import Backend

pytestmark = pytest.mark.needs_kernel
FOLDER = Path(__file__).parents[2] / "rulesets"


@pytest.mark.parametrize(
    ("name", "family", "backend"),
    [
        ("campus.rules.gz", Family.IPV4, Backend.NFT),
        ("containers.rules", Family.IPV4, Backend.LEGACY),
        ("campus6.rules", Family.IPV6, Backend.LEGACY),
    ],
)
def test_its_rules_are_confirmed_though_another_program_has_added_one(
    name: str, family: Family, backend: Backend, tmp_path: Path
) -> None:
    with Namespace() as namespace:
        firewall = Firewall(namespace, tmp_path, backend)
        before = plain(firewall.save(family))
        added = "-I INPUT -m comment --comment other -j DROP"
        command = f"{'iptables' if family is Family.IPV4 else 'ip6tables'}-{backend.value} {added}"
        firewall.hitables("apply", FOLDER / name, "--check", command)
        loaded = firewall.save(family)
        assert "\n:ht" in loaded
        assert "--comment other" in loaded
        firewall.hitables("rollback")
        assert plain(firewall.save(family)) == before
