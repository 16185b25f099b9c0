"""Every JSON document of a command names its format and version, fits its schema, and is in docs/json.md."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from click.testing import CliRunner

from hitables import diff, read
from hitables.apply.in_force import InForce
from hitables.apply.records import CONFIRMED, WAITING, ApplyState, Half, Record, Waiting
from hitables.apply.request import ApplyResult
from hitables.apply.status import Compared, Level, Status
from hitables.cli.main import main
from hitables.costs import default
from hitables.ir.fields import Family
from hitables.ir.packet import Backend
from hitables.kernel.user_bench import Line, Measured
from hitables.report.firewall import FamilyDifference, apply_report, history_document, status_report
from hitables.report.formats import FORMATS, dump

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/json.md").read_text()
SCHEMAS = {path.stem: json.loads(path.read_text()) for path in (ROOT / "hitables/schema").glob("*.json")}
ROWS = re.findall(r"^\| `hitables ([^`]*)` \| `hitables-([\w-]+)` \| (\d+) \| \[(.*?)\]", PAGE, re.MULTILINE)

BEFORE = "*filter\n:INPUT DROP [0:0]\n-A INPUT -p tcp --dport 22 -j ACCEPT\n-A INPUT -p tcp -j DROP\nCOMMIT\n"
AFTER = BEFORE.replace("--dport 22", "--dport 23")
RULES = (
    "@10.0.0.0/8 0.0.0.0/0 0 : 65535 80 : 80 0x06/0xFF\n@0.0.0.0/0 0.0.0.0/0 0 : 65535 0 : 65535 0x00/0x00\n"
)
TRACE = "167772161 1 1 80 6\n1 1 1 1 6\n"

PACKET = "IN=eth0 OUT= SRC=10.0.0.1 DST=10.0.0.2 PROTO=TCP SPT=9 DPT=22 SYN URGP=0"

# The arguments of each command, but for those that measure in the kernel.
COMMANDS = {
    "check": ["check", "--format", "json", "before", "after"],
    "diff": ["diff", "--format", "json", "before", "after"],
    "lint": ["lint", "--format", "json", "before"],
    "map": ["compile", "before", "--min-length", "1", "-o", "compiled", "--map", "-"],
    "counters": ["counters", "compiled", "--map", "source.map", "--format", "json"],
    "trace": ["trace", "--format", "json", "--packet", PACKET, "--map", "source.map", "compiled"],
    "reach": ["reach", "--format", "json", "--to", "10.0.0.1:22", "--dropped", "before"],
    "stats": ["stats", "--format", "json", "before"],
    "algorithms": ["algorithms", "--format", "json"],
    "classify": ["classify", "--format", "json", "--check", "--time", "--work", "rules", "trace"],
    "traffic": ["traffic", "--format", "json", "--rules", "rules", "trace"],
    "bench-classify": [
        "bench",
        "classify",
        "--format",
        "json",
        "--algorithms",
        "linear;rfc",
        "rules",
        "trace",
    ],
}


def measured() -> dict[str, Any]:
    lines = Line("as it is", 40, 812.5, 3.0, 800.0), Line("nft -o", why="nft is missing")
    return Measured("INPUT", Backend.NFT, 2000, 400.0, lines, ("compile it",)).as_data()


def of_apply() -> dict[str, str]:
    """Documents of the commands that need a kernel, from values: tests/apply/test_json.py has those of runs."""
    changes, names = diff(read(BEFORE), read(AFTER)), ("the kernel", "after")
    assert changes.regions
    record = Record(2, 1.0, "nft", ("DOCKER*",), {Family.IPV4: Half({}, {}, AFTER, "after")}, before=1)
    state = ApplyState(3, 2, Waiting(3, 2, 5.0, "boot"), {2: CONFIRMED, 3: WAITING})
    compared = Compared(
        Family.IPV4, 2, "after", ("filter",), ["table filter"], changes, "", names, ["docker"]
    )
    status = Status(2, Level.DRIFT, [compared], ["a note"])
    difference = FamilyDifference(Family.IPV4, Backend.NFT, "after", changes, "", names, 2, 3, 1, 1, 0)
    write = FORMATS["json"]
    return {
        "apply": write([apply_report(ApplyResult.WOULD_CHANGE, [difference], state, ["a message"], 0.1)]),
        "status": write([status_report(status, state, InForce(record, (record,)), 0, (), 0.1)]),
        "history": dump(history_document(state, [record])),
    }


@pytest.fixture(scope="module")
def documents(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """By name of the schema: a document that a command writes.  The tests run in the folder of its files."""
    tmp_path = tmp_path_factory.mktemp("documents")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path)
        yield written(tmp_path)


def written(tmp_path: Path) -> dict[str, Any]:
    for name, text in (("before", BEFORE), ("after", AFTER), ("rules", RULES), ("trace", TRACE)):
        (tmp_path / name).write_text(text)
    map_files = ["-o", "compiled", "--map", "source.map"]
    assert CliRunner().invoke(main, ["compile", "before", "--min-length", "1", *map_files]).exit_code == 0
    outputs = {name: CliRunner().invoke(main, words).stdout for name, words in COMMANDS.items()}
    return {
        **{name: json.loads(text) for name, text in outputs.items()},
        **{name: json.loads(text) for name, text in of_apply().items()},
        "costs": json.loads(json.dumps(default().as_data())),
        "bench-kernel": json.loads(json.dumps(measured())),
    }


def test_every_document_fits_its_schema_and_names_its_format(documents: dict[str, Any]) -> None:
    assert documents.keys() == SCHEMAS.keys()
    for name, document in documents.items():
        jsonschema.Draft202012Validator.check_schema(SCHEMAS[name])
        jsonschema.validate(document, SCHEMAS[name])
        version = SCHEMAS[name]["properties"]["version"]["const"]
        assert (document["format"], document["version"]) == (f"hitables-{name}", version)


@pytest.mark.parametrize("command", ["check", "lint", "stats"])
def test_several_rule_sets_give_an_array_of_documents(command: str, documents: dict[str, Any]) -> None:
    files = ["--against", "before", "after", "after"] if command == "check" else ["before", "after"]
    several = json.loads(CliRunner().invoke(main, [command, "--format", "json", *files]).stdout)
    assert len(several) == 2
    for document in several:
        jsonschema.validate(document, SCHEMAS[command])


def test_every_schema_demands_format_and_version(documents: dict[str, Any]) -> None:
    for name, document in documents.items():
        for spoilt in ({**document, "format": "x"}, {**document, "version": 0}):
            with pytest.raises(jsonschema.ValidationError):
                jsonschema.validate(spoilt, SCHEMAS[name])
        for key in ("format", "version"):
            with pytest.raises(jsonschema.ValidationError):
                jsonschema.validate({k: v for k, v in document.items() if k != key}, SCHEMAS[name])


def test_the_page_lists_every_format_with_its_version() -> None:
    listed = {name: (int(version), schema) for _, name, version, schema in ROWS}
    expected = {
        name: (schema["properties"]["version"]["const"], f"{name}.json") for name, schema in SCHEMAS.items()
    }
    assert listed == expected


def test_every_command_of_the_page_exists() -> None:
    for words, *_ in ROWS:
        command: Any = main
        for word in words.split():
            if word in getattr(command, "commands", {}):
                command = command.commands[word]
        assert command is not main
        (option,) = re.findall(r"--[\w-]+", words) or ["--output"]
        assert any(option in parameter.opts for parameter in command.params), words


def test_texts_for_people_are_keys_of_the_schemas() -> None:
    (table,) = re.findall(r"\| `format` \| texts for people \|\n(.*?)\n\n", PAGE, re.DOTALL)
    for name, cell in re.findall(r"^\| `hitables-([\w-]+)` \| (.*) \|$", table, re.MULTILINE):
        for key in re.findall(r"`(\w+)`", cell):
            assert f'"{key}"' in json.dumps(SCHEMAS[name]), (name, key)
