"""The JSON documents of apply, status and history fit their schemas, and say what the texts say."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from support.firewall import Firewall

pytestmark = [pytest.mark.needs_kernel, pytest.mark.either_backend]
SCHEMAS = Path(__file__).parents[2] / "hitables" / "schema"

RULES = "*filter\n:INPUT DROP [0:0]\n" + "".join(
    f"-A INPUT -s 10.{n}.0.0/16 -p tcp -m tcp --dport {n} -j ACCEPT\n" for n in range(1, 41)
) + "COMMIT\n"  # fmt: skip
RULES6 = "*filter\n:INPUT DROP [0:0]\n-A INPUT -s 2001:db8::/32 -j ACCEPT\nCOMMIT\n"


def document(firewall: Firewall, *arguments: object, status: int = 0) -> dict[str, Any]:
    done = firewall.hitables(*arguments, "--format", "json", status=status)
    result: dict[str, Any] = json.loads(done.stdout)
    jsonschema.validate(result, json.loads((SCHEMAS / f"{arguments[0]}.json").read_text()))
    return result


def test_the_life_of_a_rule_set_as_documents(firewall: Firewall) -> None:
    files = firewall.file(RULES), firewall.file(RULES6, "office6.rules")
    would = document(firewall, "apply", *files, "--dry-run", status=1)
    assert (would["result"], would["confirmed"], would["waiting"]) == ("would change", 0, None)
    assert [(each["family"], each["rules"]) for each in would["families"]] == [(4, 40), (6, 1)]
    assert {finding["family"] for finding in would["findings"]} == {4, 6}
    loaded = document(firewall, "apply", *files, "--confirm", 600)
    assert (loaded["result"], loaded["waiting"]["number"]) == ("waiting", 2)
    assert loaded["waiting"]["guarded"]
    before = document(firewall, "status")
    assert before["rule_set"] == 2 and before["waiting"]["number"] == 2
    firewall.hitables("confirm")
    assert document(firewall, "apply", *files)["result"] == "nothing to do"
    history = document(firewall, "history")
    assert [each["status"] for each in history["rule_sets"]] == ["found", "confirmed"]
    assert history["confirmed"] == 2 and history["waiting"] is None
    assert history["rule_sets"][1]["families"][1] == {
        "family": 6, "file": str(files[1]), "rules": 1,
    }  # fmt: skip
    assert [each["answer"] for each in document(firewall, "status")["families"]] == ["same", "same"]


def test_drift_is_a_finding_with_its_lines_and_the_repair_is_named(firewall: Firewall) -> None:
    firewall.apply(firewall.file(RULES))
    firewall.iptables("-A", "INPUT", "-s", "10.50.0.0/16", "-j", "DROP")
    equal = document(firewall, "status", status=1)
    assert equal["families"][0]["answer"] == "equal" and not equal["findings"]
    assert "is new: " in equal["families"][0]["differing"][0]
    firewall.iptables("-I", "INPUT", "-s", "10.5.0.0/16", "-j", "ACCEPT")
    changed = document(firewall, "status", status=1)
    assert changed["families"][0]["answer"] == "different"
    assert {finding["kind"] for finding in changed["findings"]} == {"different-verdict"}
    assert all(finding["places"][0]["line"] for finding in changed["findings"])
    repaired = document(firewall, "status", "--repair")
    assert (repaired["status"], repaired["repaired"], repaired["families"][0]["answer"]) == (
        0,
        2,
        "different",
    )
    assert document(firewall, "status")["families"][0]["answer"] == "same"
