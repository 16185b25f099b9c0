"""Random lives of a firewall, beside a model of which rules each table must hold and `status` must know."""

from __future__ import annotations

import json
import random
import re
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from support.firewall import Firewall
from support.scale import examples
from support.small_namespace import Namespace

from hitables.ir.fields import Family
from hitables.ir.packet import Backend

pytestmark = pytest.mark.needs_kernel

Place = tuple[Family, str]
Rules = frozenset[str]  # what tells the rules of a table: a port of each file, the address of each ban
CHAINS = {"filter": "INPUT", "nat": "POSTROUTING"}
PLACES: list[Place] = [(Family.IPV4, "filter"), (Family.IPV4, "nat"), (Family.IPV6, "filter")]
STEPS = 12


@dataclass
class Record:
    """*own*: what its tables hold; *force*: by table that is in force with it, the record that has it."""

    own: dict[Place, Rules]
    before: int
    force: dict[Place, int] = field(default_factory=dict)


class Life:
    """A firewall and its model."""

    def __init__(self, firewall: Firewall, seed: int) -> None:
        self.firewall, self.random = firewall, random.Random(seed)
        self.kernel: dict[Place, Rules] = dict.fromkeys(PLACES, frozenset())
        self.records: dict[int, Record] = {}
        self.confirmed = 0
        self.number = 0
        self.told: list[str] = []

    # ---- what happens ----

    def apply(self, confirmed: bool) -> None:
        places = self.random.sample(PLACES, self.random.randint(1, 2)) if self.told[1:] else PLACES
        wanted = {place: frozenset([self._name("1")]) for place in sorted(places)}
        files = []
        for family in Family:
            tables = {table: rules for (each, table), rules in wanted.items() if each is family}
            if tables:
                text = "".join(self._table(family, table, rules) for table, rules in tables.items())
                files.append(self.firewall.file(text, f"rules{int(family)}.{self.number}"))
        same = self.confirmed and all(
            place in self._force() and self._recorded(place) == self.kernel[place] for place in wanted
        )
        if same:
            before = self.confirmed
            for place in wanted:  # what is recorded gets new counters only
                assert self._recorded(place) == self.kernel[place]
        else:
            before = self._add({place: self.kernel[place] for place in wanted}, self.confirmed)
        number = self._add(wanted, before)
        options = ["--confirm", "0"] if confirmed else ["--check", "false"]
        self.firewall.hitables("apply", *files, *options, status=0 if confirmed else 2)
        if confirmed:
            self.confirmed = number
            self.kernel |= wanted

    def ban(self) -> None:
        family, table = place = self.random.choice(PLACES)
        name = self._name("2")
        address = f"203.0.113.{name[-2:]}" if family is Family.IPV4 else f"2001:db8::{name[-2:]}"
        tool = f"ip{'6' if family is Family.IPV6 else ''}tables-{self.firewall.backend.value}"
        rule = ["-s", address, "-m", "comment", "--comment", f"n{name}", "-j", "ACCEPT"]
        self.firewall.namespace.run([tool, "-t", table, "-I", CHAINS[table], *rule])
        self.kernel[place] |= {name}

    def roll_back(self, to_any: bool) -> None:
        """Load the rule set before the present one, or any."""
        number = self.records[self.confirmed].before if self.confirmed else 0
        if to_any:
            number = self.random.choice([each for each in self.records if each != self.confirmed] or [0])
        if not number or not self.confirmed:
            return
        now, then = self._force(), self.records[number].force
        self.records[number].force = now | then  # tables that it does not have stay as they are
        self.firewall.hitables("rollback", *([number] if to_any else []))
        for place, has in then.items():
            if now.get(place) != has:
                self.kernel[place] = self.records[has].own[place]
        self.confirmed = number

    def repair(self) -> None:
        if self.confirmed:
            self.firewall.hitables("status", "--repair")
            self.kernel |= {place: self._recorded(place) for place in self._force()}

    # ---- what must hold ----

    def check(self) -> None:
        assert {place: self._held(place) for place in PLACES} == self.kernel, self.told
        if not self.confirmed:
            return
        at_boot = {place: self._at_boot(place) for place in self._force()}
        assert at_boot == {place: self._recorded(place) for place in self._force()}, self.told
        differ = {place for place in self._force() if self._recorded(place) != self.kernel[place]}
        shown = self.firewall.hitables("status", "--format", "json", status=1 if differ else 0).stdout
        document = json.loads(shown)
        assert document["rule_set"] == self.confirmed, self.told
        found = {
            (Family(each["family"]), table): (each["rule_set"], each["answer"] != "same")
            for each in document["families"]
            for table in each["tables"] or [t for f, t in self._force() if f == each["family"]]
        }
        for place, number in self._force().items():
            assert found[place][0] == number, (place, self.told)
        for family, tables in ((each["family"], each["tables"]) for each in document["families"]):
            here = {
                place for place in self._force() if place[0] == family and (place[1] in tables or not tables)
            }
            assert any(found[place][1] for place in here) == bool(here & differ), self.told

    def _held(self, place: Place) -> Rules:
        return _rules_in(self.firewall.save(place[0]), place[1])

    def _at_boot(self, place: Place) -> Rules:
        name = "confirmed.rules" if place[0] is Family.IPV4 else "confirmed6.rules"
        return _rules_in((self.firewall.state / name).read_text(), place[1])

    def _force(self) -> dict[Place, int]:
        return self.records[self.confirmed].force if self.confirmed else {}

    def _recorded(self, place: Place) -> Rules:
        return self.records[self._force()[place]].own[place]

    def _add(self, own: dict[Place, Rules], before: int) -> int:
        self.number += 1
        force = {place: number for place, number in self._force().items() if place not in own}
        self.records[self.number] = Record(own, before, force | dict.fromkeys(own, self.number))
        return self.number

    def _name(self, first: str) -> str:
        return f"{first}{len(self.told):03}{self.random.randrange(10, 90)}"

    def _table(self, family: Family, table: str, rules: Rules) -> str:
        net, size = ("10.{0}.0.0/16", 40) if family is Family.IPV4 else ("2001:db8:{0}::/48", 40)
        many = range(1, size if self.random.random() < 0.5 else 1)
        lines = [f"-s {net.format(n)} -p tcp -m tcp --dport {n} -j ACCEPT" for n in many]
        lines += [f"-s {net.format(200)} -m comment --comment n{name} -j ACCEPT" for name in rules]
        return f"*{table}\n" + "".join(f"-A {CHAINS[table]} {line}\n" for line in lines) + "COMMIT\n"


def _rules_in(text: str, table: str) -> Rules:
    part = re.search(rf"^\*{table}\n.*?^COMMIT", text, re.MULTILINE | re.DOTALL)
    return frozenset(re.findall(r"--comment \"?n(\d+)", part[0])) if part else frozenset()


@pytest.mark.parametrize("seed", range(1, 1 + examples(8)))
def test_each_table_holds_what_the_model_says(seed: int, tmp_path: Path) -> None:
    backend = list(Backend)[seed % 2]
    with Namespace() as namespace:
        life = Life(Firewall(namespace, tmp_path, backend), seed)
        steps = {"apply": 5, "refuse": 2, "ban": 3, "roll back": 3, "roll back to any": 1, "repair": 1}
        for number in range(STEPS):
            step = life.random.choices(list(steps), list(steps.values()))[0] if number else "apply"
            life.told.append(step)
            if step in ("apply", "refuse"):
                life.apply(step == "apply")
            elif step == "ban":
                life.ban()
            elif step.startswith("roll back"):
                life.roll_back(step != "roll back")
            else:
                life.repair()
            life.check()
