"""`hitables counters` and `source`: from a compiled rule set back to its source.

The source is known by the map of `hitables compile --map` or by the state of `hitables apply`.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from ..errors import HitablesError
from ..nouns import counted
from .help import argument, command, option, section
from .inputs import family_of
from .options import backend_option, output_option, state_option
from .terminal import Printer

if TYPE_CHECKING:
    from ..ir.program import Program
    from ..sources.known import Known

map_option = option(
    "--map",
    "map_file",
    metavar="MAP",
    help='Find the source in this map of "hitables compile --map", not in the state of "hitables apply".',
)

# Of commands that print places in rule sets, which may be compiled.
source_options = (
    option(
        "--map",
        "map_file",
        metavar="MAP",
        help='Name the lines of the source too, by this map of "hitables compile --map".',
    ),
    option(
        "--state",
        "folder",
        metavar="DIR",
        help='Name the lines of the source too, by this state directory of "hitables apply".',
    ),
)

_rule_set = section(
    "Rule set",
    map_option,
    state_option,
    backend_option(
        "Read the kernel with this iptables (with --map); auto: the one that iptables-save is.",
        ("auto", "legacy", "nft"),
        "auto",
    ),
    option(
        "--family",
        type=click.Choice(["4", "6"]),
        help="Take the IPv4 or the IPv6 rules of the state; by default those that it has: both only in the "
        "formats json and prometheus. A map is of one family.",
    ),
)


@command(
    cls=Printer,
    short_help="Print the counters of the rules of the source.",
    examples=(
        (
            "Write the counters of the applied rules for Prometheus",
            "hitables counters --format prometheus -o firewall.prom",
        ),
        (
            "Count for the rules of a source that was compiled with --map",
            "iptables-save -c | hitables counters - --map office.map",
        ),
    ),
)
@argument("file", metavar="[FILE]", required=False)
@_rule_set
@section(
    "Output",
    option(
        "--format",
        "form",
        type=click.Choice(["save", "json", "prometheus"]),
        default="save",
        show_default=True,
        help="Print the source as text for iptables-restore -c, or JSON, or the text format of Prometheus.",
    ),
    output_option("Write the counters to FILE"),
)
def counters(
    file: str | None,
    map_file: str | None,
    folder: str,
    backend: str,
    family: str | None,
    form: str,
    output: str,
) -> None:
    """Print each rule of the source with the sum of the counters of its copies in the compiled rules.

    The compiled rules are those of the kernel, or FILE, the output of iptables-save -c.
    """
    from ..files import check_outputs, write_text
    from ..parse.guess_family import stating_family
    from ..report.counters import as_json, as_prometheus, as_saved

    check_outputs({"--output": output}, {"FILE": file, "--map": map_file})
    found = sources(file, map_file, folder, backend, family)
    if form == "save" and len(found) > 1:
        raise HitablesError("the rules are of two families: name one with --family 4 or 6")
    for known in found:
        _tell(known)
    if form == "save":
        text = stating_family(as_saved(found[0]), found[0].source.family)
    elif form == "json":
        documents = [as_json(known) for known in found]
        text = json.dumps(documents[0] if len(documents) == 1 else documents, indent=1) + "\n"
    else:
        text = as_prometheus(found)
    write_text(output, text)


@command(
    cls=Printer,
    short_help="Print the source of a compiled rule set.",
    examples=(
        ("Print the rules that were applied", "hitables source"),
        (
            "Print the source of a compiled rule set with its map",
            "hitables source office.compiled --map office.map",
        ),
    ),
)
@argument("file", metavar="[FILE]", required=False)
@_rule_set
@section("Output", output_option("Write the source to FILE"))
def source(
    file: str | None, map_file: str | None, folder: str, backend: str, family: str | None, output: str
) -> None:
    """Print the source of the compiled rules in FILE, or of those in the kernel, as it was given.

    The compiled rules are compared with the map, or with the state, rule by rule; a map of other rules is an
    error.
    """
    from ..files import check_outputs, write_text
    from ..parse.guess_family import stating_family

    check_outputs({"--output": output}, {"FILE": file, "--map": map_file})
    found = sources(file, map_file, folder, backend, family)
    if len(found) > 1:
        raise HitablesError("the rules are of two families: name one with --family 4 or 6")
    _tell_notes(found[0])
    write_text(output, stating_family(found[0].text, found[0].source.family))


def sources(
    file: str | None, map_file: str | None, folder: str, backend: str, family: str | None
) -> list[Known]:
    """The compiled rules of *file* (None: of the kernel) with their source, by family."""
    from ..sources.known import by_map, by_state
    from ..sources.map_file import read_map

    if map_file is None:
        return by_state(folder, family_of(family), None if file is None else _tables(file))
    mapped = read_map(map_file)
    return [by_map(mapped, _compiled(file, backend, mapped.source.family, mapped.leave))]


def known_source(program: Program, map_file: str | None, folder: str | None) -> Known | None:
    """*program* with its source by *map_file* or the state in *folder*; None if neither is given.

    Chains with other rules are named on standard error.
    """
    from ..sources.known import by_map, program_by_state
    from ..sources.map_file import read_map

    if map_file is not None and folder is not None:
        raise HitablesError("--map and --state exclude each other: give one of them")
    if map_file is not None:
        known = by_map(read_map(map_file), program, partial=True)
    elif folder is not None:
        known = program_by_state(folder, program)
    else:
        return None
    _tell_notes(known)
    return known


def _tables(file: str) -> Any:
    from ..apply import texts
    from ..files import read_text

    return texts.parse(read_text(file))


def _compiled(file: str | None, backend: str, family: Any, leave: tuple[str, ...]) -> Any:
    """The compiled rules in *file*, or those of the kernel."""
    from ..apply.kernel import Kernel
    from ..apply.prepare import find
    from ..files import read_text
    from ..ir.packet import Backend
    from ..reader import read

    if file is not None:
        return read(read_text(file), family=family, name=file)
    return find(Kernel(family, None if backend == "auto" else Backend(backend)), leave).program


def _tell(known: Known) -> None:
    """Name what the counts do not have: rules without a copy, and rules that are not of the source."""
    _tell_notes(known)
    gone = [each for each in known.counted() if each.count is None]
    for each in gone[:5]:
        click.echo(
            f"hitables: {known.file(each.table)}:{each.rule.line} has no counter: the compiled rules have no "
            f"copy of it (table {each.table}, chain {each.chain})",
            err=True,
        )
    if left := len(gone[5:]):
        verb = "has" if left == 1 else "have"
        click.echo(f"hitables: … and {counted(left, 'more rule')} {verb} no counter", err=True)


def _tell_notes(known: Known) -> None:
    for note in known.notes:
        click.echo(f"hitables: {note}", err=True)
