"""The public names of hitables: documented, typed, with the options of the commands, and never replaced."""

from __future__ import annotations

import concurrent.futures
import gzip
import importlib
import inspect
import math
import multiprocessing
import os
import pickle
import pkgutil
import re
import subprocess
import sys
import typing
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any, cast

import pytest
from support.hitables_command import run

import hitables
import sflgen
from hitables import engine, errors
from hitables.cli.main import main
from hitables.compare import ENGINES

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/library.md").read_text()
OFFICE = (ROOT / "docs/example/office.rules").read_text()
CHANGED = OFFICE.replace("--dport 22 ", "--dport 23 ")
FUNCTIONS = (
    "check",
    "compile",
    "compile_unproved",
    "diff",
    "lint",
    "read",
    "read_file",
    "stats",
    "trace",
    "write",
)
PACKET = "src=10.1.2.3 dst=10.1.4.10 proto=tcp sport=1024 dport=80"


# ---- names ----


def test_every_public_name_is_documented() -> None:
    documented = set(re.findall(r"`(?:hitables\.)?(\w+)", PAGE))
    assert set(hitables.__all__) <= documented, set(hitables.__all__) - documented


def annotated(named: object) -> Iterator[Any]:
    """A public class or function, and the public methods and properties of the class."""
    if inspect.isclass(named) or inspect.isfunction(named):
        yield named
    for name, member in vars(named).items() if inspect.isclass(named) else ():
        of_class = getattr(member, "__func__", None) or getattr(member, "fget", None)
        function = of_class or getattr(member, "func", member)  # of a cached property
        if inspect.isfunction(function) and (name == "__init__" or not name.startswith("_")):
            yield function


@pytest.mark.parametrize("package", [hitables, sflgen, engine], ids=lambda each: str(each.__name__))
def test_the_types_of_every_public_name_can_be_looked_up(package: ModuleType) -> None:
    """By typing.get_type_hints, as tools do that call functions by their signatures."""
    of_all = [each for name in package.__all__ for each in annotated(getattr(package, name))]
    assert len(of_all) > len(package.__all__) and all(
        typing.get_type_hints(each) is not None for each in of_all
    )


def test_every_public_name_exists_and_no_other_name_does() -> None:
    for name in hitables.__all__:
        assert getattr(hitables, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'compile_rules'"):
        hitables.compile_rules  # type: ignore[attr-defined]  # noqa: B018


@pytest.mark.parametrize("package", [hitables, sflgen])
def test_a_public_name_stays_what_it_is(package: ModuleType) -> None:
    for name in package.__all__:
        assert getattr(package, name) is getattr(package, name) and name in dir(package)


def test_text_that_no_file_can_have_is_a_mistake_in_the_text() -> None:
    text = OFFICE.replace("COMMIT", '-A INPUT -m comment --comment "a\ud800b" -j DROP\nCOMMIT')
    for function in (hitables.read, hitables.compile, hitables.lint, hitables.stats):
        with pytest.raises(hitables.ParseError, match="is half of a pair, and no text") as caught:
            function(text)
        assert caught.value.column == 33 and str(caught.value).encode()
    with pytest.raises(hitables.ParseError):
        hitables.check(OFFICE, text)
    hitables.read(text.replace("\ud800", "\udc80"))  # a byte that is not UTF-8


def test_updates_of_a_wrong_type_are_refused() -> None:
    program = hitables.read(OFFICE)
    for call in (
        lambda: sflgen.read_commands(cast(Any, None), program),
        lambda: sflgen.read_commands("-F INPUT", cast(Any, OFFICE)),
        lambda: sflgen.start(cast(Any, OFFICE), sflgen.Settings()),
        lambda: sflgen.plan(sflgen.start_unproved(program, sflgen.Settings()).after, cast(Any, [1])),
    ):
        with pytest.raises(hitables.InvalidOption):
            call()


def test_no_import_of_a_module_replaces_a_public_name() -> None:
    modules = {module.name for module in pkgutil.iter_modules(hitables.__path__)}
    assert not modules & set(hitables.__all__)
    for name in modules - {"__main__"}:
        importlib.import_module(f"hitables.{name}")
    importlib.import_module("hitables.compiler.compile")
    assert all(inspect.isfunction(getattr(hitables, name)) for name in FUNCTIONS)


def test_every_error_is_public_and_has_a_line_in_the_module_head_and_the_page() -> None:
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, Exception)]
    for kind in kinds:
        assert getattr(hitables, kind.__name__) is kind and issubclass(kind, hitables.HitablesError)
        assert not issubclass(kind, KeyError | OSError)
        assert kind.__name__ in (errors.__doc__ or "") and f"| `{kind.__name__}` |" in PAGE


# ---- options ----

# Options of commands that concern files, the terminal, or weights from files.
OF_COMMANDS_ONLY = {
    "compile": {"file", "output", "trace_file", "pcap_file", "through", "map_file", "summary", "report", "quiet",
                "no_prove"},
    "check": {"files", "against", "replay", "output", "form", "map_file", "folder"},
    "diff": {"before", "after", "limit", "output", "form"},
    "lint": {"files", "output", "form"},
    "trace": {"file", "packet", "map_file", "folder", "form", "as_json"},
    "stats": {"files", "trace_file", "through", "form", "as_json"},
}  # fmt: skip
RENAMED = {"costs_file": "costs", "verdict_only": "equivalence"}


def keywords(name: str) -> set[str]:
    parameters = inspect.signature(getattr(hitables, name)).parameters.values()
    names = {each.name for each in parameters if each.kind is each.KEYWORD_ONLY}
    return names | (set(hitables.CompileOptions.__annotations__) if name == "compile" else set())


@pytest.mark.parametrize("command", OF_COMMANDS_ONLY)
def test_a_function_takes_the_options_of_its_command(command: str) -> None:
    options = {each.name: each for each in main.commands[command].params if each.name}
    taken = {RENAMED.get(name, name) for name in options.keys() - OF_COMMANDS_ONLY[command]}
    assert taken <= keywords(command), taken - keywords(command)


@pytest.mark.parametrize("command", ["check", "diff", "lint", "trace", "stats"])
def test_a_function_has_the_defaults_of_its_command(command: str) -> None:
    parameters = inspect.signature(getattr(hitables, command)).parameters
    for option in main.commands[command].params:
        if option.name in parameters and option.name not in OF_COMMANDS_ONLY[command] and not option.multiple:  # type: ignore[attr-defined]
            default = option.to_info_dict()["default"]
            assert parameters[option.name].default == default, option.name


def test_the_page_has_the_defaults_of_compile() -> None:
    table = dict(re.findall(r"^\| `(\w+)` \| `([^`]*)` \|", PAGE, re.MULTILINE))
    for option in main.commands["compile"].params:
        if option.name in table:
            default = option.to_info_dict()["default"]
            expected = {"algorithm": "auto"}.get(option.name, default)
            assert table[option.name] in (repr(expected), f'"{expected}"'), option.name


@pytest.mark.parametrize(
    "options",
    [
        {"backend": "nftables"}, {"malformed": "some"}, {"equivalence": "half"}, {"scheme": "bush"},
        {"cuts": "crooked"}, {"effort": "none"}, {"leaf_size": -1}, {"max_expansion": 0.5}, {"timeout": 0},
        {"timeout": float("nan")}, {"max_memory": 1}, {"family": 5}, {"depth": 3},
        {"scheme": "paper", "equivalence": "verdict"},
    ],
    ids=repr,
)  # fmt: skip
def test_an_argument_without_meaning_is_an_invalid_option(options: dict[str, Any]) -> None:
    with pytest.raises(hitables.InvalidOption):
        hitables.compile(OFFICE, **options)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"engine": "bdd"}, "unknown engine"),
        ({"packets": 5}, "draws no"),
        ({"engine": "sample", "max_memory": 1 << 30}, "no bound"),
    ],
)
def test_an_argument_that_the_engine_does_not_take_is_an_invalid_option(
    options: dict[str, Any], words: str
) -> None:
    with pytest.raises(hitables.InvalidOption, match=words):
        hitables.check(OFFICE, OFFICE, **options)


# ---- what the functions return ----


def test_compile_returns_the_text_of_the_command() -> None:
    for options, words in (
        ({}, []),
        ({"backend": "nft", "equivalence": "verdict"}, ["--backend", "nft", "--equivalence", "verdict"]),
        ({"malformed": hitables.Malformed.EXACT}, ["--malformed", "exact"]),
        ({"scheme": "paper", "min_length": 2}, ["--scheme", "paper", "--min-length", "2"]),
        ({"tables": "filter", "chains": ["FORWARD"]}, ["--table", "filter", "--chain", "FORWARD"]),
    ):
        output = hitables.compile(OFFICE, **options)
        assert output.proved and output.text == run("compile", *words, text=OFFICE).stdout
        assert hitables.compile(hitables.read(OFFICE), **options).text == output.text


def test_compile_unproved_says_that_it_proves_nothing() -> None:
    output = hitables.compile_unproved(OFFICE)
    assert not output.proved and "NOT PROVED" in output.text.splitlines()[0]
    assert output.text == run("compile", "--no-prove", text=OFFICE).stdout
    assert output.program == hitables.compile(OFFICE).program


def test_compile_raises_when_the_budget_ends_the_proof() -> None:
    with pytest.raises(hitables.OutOfBudget, match="out of time"):
        hitables.compile(OFFICE, timeout=1e-9)


def test_counters_are_the_weights_of_rules_unless_weights_are_uniform() -> None:
    counted = "".join(
        f"[{10**at}:0] {line}\n" if line.startswith("-A") else f"{line}\n"
        for at, line in enumerate(OFFICE.splitlines())
    )
    assert hitables.compile(counted, name="saved").weighed == "the counters of saved"
    assert hitables.compile(counted, uniform=True).weighed == ""


def test_text_and_programs_are_compared_alike() -> None:
    for after, result in ((OFFICE, hitables.Result.EQUAL), (CHANGED, hitables.Result.DIFFERENT)):
        for pair in ((OFFICE, after), (hitables.read(OFFICE), hitables.read(after))):
            comparison = hitables.check(*pair)
            assert comparison.result is result and comparison.proved == (result is hitables.Result.EQUAL)
            assert bool(comparison) == (result is hitables.Result.EQUAL)
            assert bool(hitables.diff(*pair).regions) == bool(comparison.differences) == (after == CHANGED)


@pytest.mark.parametrize("engine", ENGINES)
def test_each_engine_finds_the_difference(engine: str) -> None:
    comparison = hitables.check(OFFICE, CHANGED, engine=engine, names=("reviewed", "deployed"))
    assert comparison.result is hitables.Result.DIFFERENT
    assert (comparison.before.name, comparison.after.name) == ("reviewed", "deployed")


def test_equivalence_verdict_leaves_logs_aside() -> None:
    other_log = OFFICE.replace("lab ", "lap ")
    assert hitables.check(OFFICE, other_log).result is hitables.Result.DIFFERENT
    assert hitables.check(OFFICE, other_log, equivalence="verdict").result is hitables.Result.EQUAL


def test_rule_sets_of_two_families_are_not_comparable() -> None:
    for function in (hitables.check, hitables.diff):
        with pytest.raises(hitables.NotComparable, match="IPv4"):
            function(OFFICE, hitables.read("*filter\n:INPUT DROP [0:0]\nCOMMIT\n", family=6))


def test_lint_names_what_the_command_names(tmp_path: Path) -> None:
    twice = OFFICE.replace("COMMIT\n", "-A FORWARD -s 10.1.0.9/32 -j DROP\nCOMMIT\n")
    (tmp_path / "rules").write_text(twice)
    flaws = hitables.lint(twice, chains="FORWARD").flaws
    told = run("lint", tmp_path / "rules", "--chain", "FORWARD", status=1).stdout
    assert flaws and all(f"rules:{flaw.line}:" in told for flaw in flaws)


def test_a_packet_is_traced_from_its_words_and_as_a_value() -> None:
    walk = hitables.trace(OFFICE, f"chain=FORWARD {PACKET}", backend="nft")
    assert walk.verdict == "ACCEPT" and walk.steps
    packet = hitables.Packet(hitables.Family.IPV4, {})
    assert hitables.trace(OFFICE, packet, chain="INPUT").verdict == "ACCEPT"
    with pytest.raises(hitables.InvalidOption, match="chain"):
        hitables.trace(OFFICE, packet)
    with pytest.raises(hitables.InvalidOption, match="legacy or nft"):
        hitables.trace(OFFICE, packet, chain="INPUT", backend="any")


@pytest.mark.parametrize("options", [{"chain": "WEB"}, {"table": "nat", "chain": "INPUT"}])
def test_an_unknown_table_or_chain_is_an_unknown_name(options: dict[str, str]) -> None:
    with pytest.raises(hitables.UnknownName):
        hitables.trace(OFFICE, f"chain=INPUT {PACKET}", **options)
    for function in (hitables.compile, hitables.lint):
        with pytest.raises(hitables.UnknownName):
            function(
                OFFICE, tables=options.get("table", ()), chains=options["chain"] if len(options) == 1 else ()
            )


def test_stats_are_those_of_the_command(tmp_path: Path) -> None:
    figures = hitables.stats(OFFICE, name="office")
    assert (figures["format"], figures["source"], len(figures["chains"])) == ("hitables-stats", "office", 3)
    with pytest.raises(hitables.ParseError, match="not a profile of costs"):
        hitables.stats(OFFICE, costs="{}")


def test_a_file_is_read_plain_and_packed_under_its_name(tmp_path: Path) -> None:
    packed = tmp_path / "office.rules.gz"
    packed.write_bytes(gzip.compress(OFFICE.encode()))
    for path in (packed, str(packed), ROOT / "docs/example/office.rules"):
        program = hitables.read_file(path)
        assert program.name == str(path) and program.tables == hitables.read(OFFICE).tables
    with pytest.raises(hitables.FileError, match="none"):
        hitables.read_file(tmp_path / "none")
    with pytest.raises(hitables.FileError, match="no file can have this name"):
        hitables.read_file("\ud800")


# ---- types, processes ----


def results(number: int) -> tuple[str, hitables.Result, int]:
    after = OFFICE if number % 2 else CHANGED
    return (
        hitables.compile(OFFICE).text,
        hitables.check(OFFICE, after).result,
        len(hitables.lint(OFFICE).flaws),
    )


def test_threads_and_forked_processes_get_the_same_results() -> None:
    expected = [results(0), results(1)] * 3
    fork = multiprocessing.get_context("fork")
    with ThreadPoolExecutor(3) as threads, ProcessPoolExecutor(2, fork) as processes:
        assert list(threads.map(results, range(6))) == expected
        assert list(processes.map(results, range(6))) == expected


USER = """
import hitables
from hitables import Backend, Comparison, Output, Program

program: Program = hitables.read_file("office.rules")
output: Output = hitables.compile(program, backend=Backend.NFT, effort="best", chains=["FORWARD"], timeout=2.5)
comparison: Comparison = hitables.check(output.text, program, malformed="exact")
text: str = hitables.compile_unproved(hitables.write(program), uniform=True).text
verdict: str = hitables.trace(program, "chain=INPUT", backend="nft").verdict
lines: list[int] = [flaw.line for flaw in hitables.lint(program).flaws]
headers: int = sum(change.headers for change in hitables.diff(program, text).regions)
"""
WRONG = """
import hitables
hitables.compile("", backnd="nft")
hitables.compile("", timeout="soon")
hitables.compile_rules("")
number: int = hitables.compile("").text
"""


def test_a_strict_checker_accepts_right_calls_and_finds_wrong_ones(tmp_path: Path) -> None:
    (tmp_path / "user.py").write_text(USER)
    (tmp_path / "wrong.py").write_text(WRONG)
    files = [tmp_path / "user.py", tmp_path / "wrong.py", *sorted((ROOT / "examples").glob("*.py"))]
    # make check looks at the package itself, which takes three times as long.
    options = ["--strict", "--no-error-summary", "--follow-imports=silent"]
    command = [sys.executable, "-m", "mypy", *options, *map(str, files)]
    environment = {**os.environ, "MYPYPATH": str(ROOT)}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    found = re.findall(r"^(\S+):(\d+): error", done.stdout, re.MULTILINE)
    assert {Path(file).name for file, _ in found} == {"wrong.py"}, done.stdout
    assert sorted({int(line) for _, line in found}) == [3, 4, 5, 6]


@pytest.mark.parametrize("package", ["hitables", "sflgen"])
def test_the_mark_for_checkers_is_installed_with_the_package(package: str) -> None:
    assert (ROOT / package / "py.typed").exists()
    build = (ROOT / "meson.build").read_text()
    assert "install_subdir(package" in build and f"'{package}'" in build and "py.typed" not in build


def test_the_package_runs_as_the_command() -> None:
    command = [sys.executable, "-m", "hitables", "lint", "-"]
    done = subprocess.run(command, input=OFFICE, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "") and done.stdout == run("lint", text=OFFICE).stdout
    usage = subprocess.run([*command[:3], "--help"], capture_output=True, text=True, check=True).stdout
    assert usage.startswith("Usage: python -m hitables ")
    sflgen = [sys.executable, "-m", "sflgen", "--help"]
    usage = subprocess.run(sflgen, capture_output=True, text=True, check=True).stdout
    assert usage.startswith("Usage: python -m sflgen ")


# Modules that take long to load, and that these commands do not need.
HEAVY = {"lint": {"networkx", "lark", "numpy.ma", "rich", "matplotlib", "xml.etree.ElementTree", "hitables.compiler.compile", "hitables.simulate.interpreter"},
         "--help": {"networkx", "rich", "matplotlib", "numpy", "lark", "hitables.parse.iptables"}}  # fmt: skip


@pytest.mark.parametrize("command", HEAVY)
def test_a_command_loads_no_heavy_module_that_it_does_not_need(command: str) -> None:
    words = [command, str(ROOT / "docs/example/office.rules")] if command == "lint" else [command]
    code = (
        "import atexit, sys\n"
        "atexit.register(lambda: print(*sys.modules, file=sys.stderr))\n"
        f"sys.argv = {['hitables', *words]!r}\n"
        "import hitables.start\nhitables.start.hitables()\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(done.stderr.split())
    assert "click" in loaded and not loaded & HEAVY[command]


@pytest.mark.parametrize("wrong", [None, b"*filter\nCOMMIT\n", 5, [OFFICE]])
def test_rules_of_a_wrong_type_are_refused(wrong: Any) -> None:
    for function in (hitables.compile, hitables.lint, hitables.stats, hitables.read):
        with pytest.raises(hitables.InvalidOption, match=r"not (NoneType|bytes|int|list)"):
            function(wrong)
    with pytest.raises(hitables.InvalidOption, match="a rule set is a text or a Program"):
        hitables.check(OFFICE, wrong)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"packets": 0, "engine": "sample"}, "0 packets test nothing"),
        ({"seed": -1, "engine": "sample"}, "below 0"),
        ({"timeout": "x"}, "number of seconds"),
        ({"max_memory": "2G"}, "number of bytes"),
        ({"chains": None}, "names"),
    ],
)
def test_arguments_out_of_range_or_of_a_wrong_type_are_refused(arguments: Any, message: str) -> None:
    with pytest.raises(hitables.InvalidOption, match=message):
        hitables.check(OFFICE, OFFICE, **arguments)


def test_a_leaf_of_no_rules_and_a_packet_that_is_none_are_refused() -> None:
    with pytest.raises(hitables.InvalidOption, match="leaf-size"):
        hitables.compile(OFFICE, leaf_size=0)
    with pytest.raises(hitables.InvalidOption, match="spfac is a number"):
        hitables.compile(OFFICE, spfac=10**400)  # more than a float can be
    with pytest.raises(hitables.InvalidOption, match="not NoneType"):
        hitables.trace(OFFICE, cast(Any, None), chain="INPUT")


def test_a_difference_can_be_pickled() -> None:
    comparison = hitables.check(OFFICE, OFFICE.replace("DROP", "ACCEPT"))
    copy = pickle.loads(pickle.dumps(comparison))
    assert copy.result is comparison.result and copy.result.value != 0
    assert copy.cases == comparison.cases and copy.differences


def test_an_output_can_be_sent_to_another_process() -> None:
    output = hitables.compile(OFFICE)
    copy = pickle.loads(pickle.dumps(output))
    assert copy == output and copy.source_map == output.source_map
    with concurrent.futures.ProcessPoolExecutor(1) as pool:
        assert pool.submit(hitables.compile, OFFICE).result().text == output.text


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: hitables.check(OFFICE, OFFICE, leave=""), "an empty name"),
        (lambda: hitables.diff(OFFICE, OFFICE, leave=["docker", ""]), "an empty name"),
        (lambda: hitables.compile(OFFICE, leave="*"), "matches the built-in chain INPUT"),
        (lambda: hitables.check(OFFICE, OFFICE, leave=[5]), "not a name of chains"),
        (lambda: hitables.check(OFFICE, OFFICE, names=("a",)), "names of two sources"),
        (lambda: hitables.diff(OFFICE, OFFICE, names=cast(Any, [])), "names of two sources"),
        (lambda: hitables.diff(OFFICE, OFFICE, names=cast(Any, "ab")), "names of two sources"),
        (lambda: hitables.diff(OFFICE, OFFICE, names=cast(Any, {})), "names of two sources"),
        (lambda: hitables.compile(OFFICE, uniform=cast(Any, "no")), "uniform is True or False"),
        (lambda: hitables.compile(OFFICE, tables=cast(Any, b"filter")), "tables and chains are names"),
        (lambda: hitables.check(OFFICE, OFFICE, chains=cast(Any, [1])), "tables and chains are names"),
        (lambda: hitables.trace(OFFICE, f"chain=INPUT {PACKET}", table=cast(Any, {})), "are names, not {}"),
        (lambda: hitables.compile(replace(hitables.read(OFFICE), tables=())), "the rule set has no table"),
        (lambda: hitables.write(OFFICE), "write takes a Program"),
        (lambda: hitables.compile(OFFICE, costs=5), "a profile or its JSON text"),
        (lambda: hitables.stats(OFFICE, costs=5), "a profile or its JSON text"),
        (lambda: hitables.compile(OFFICE, max_memory=2**70), "or above"),
        (lambda: hitables.check(OFFICE, OFFICE, timeout=10**400), "or above"),
        (lambda: hitables.compile(OFFICE, min_length=math.nan), "min_length is a whole number"),
        (lambda: hitables.compile(OFFICE, max_expansion=math.inf), "max_expansion is a number"),
        (lambda: hitables.read_file("a\0b"), "a text without NUL"),
        (lambda: hitables.check(hitables.read(OFFICE), OFFICE, family=6), "the rule set is of IPv4"),
        (
            lambda: hitables.trace(OFFICE, f"chain=INPUT {PACKET}", chain="FORWARD"),
            "the packet is for table filter, chain INPUT",
        ),
    ],
)
def test_arguments_that_contradict_or_mean_nothing_are_refused(call: Any, message: str) -> None:
    with pytest.raises(hitables.InvalidOption, match=message):
        call()


def test_a_packet_that_names_no_table_may_be_sent_to_any() -> None:
    rules = f"{OFFICE}*nat\n:POSTROUTING ACCEPT [0:0]\n-A POSTROUTING -s 10.0.0.0/8 -j MASQUERADE\nCOMMIT\n"
    walk = hitables.trace(rules, f"chain=POSTROUTING {PACKET}", table="nat")
    assert walk.verdict == "MASQUERADE"
    with pytest.raises(hitables.InvalidOption, match="the packet is for table filter"):
        hitables.trace(rules, f"table=filter chain=FORWARD {PACKET}", table="nat", chain="POSTROUTING")


def test_the_memory_of_a_comparison_is_bounded() -> None:
    campus = gzip.decompress((ROOT / "rulesets/campus.rules.gz").read_bytes()).decode()
    changed = campus.replace("-A FORWARD -o wan+ -j to-wan\n", "")
    found = hitables.diff(
        campus, changed, max_memory=1 << 20, tables="filter", chains="FORWARD", backend="nft"
    )
    assert found.undecided[0].reason == "out of memory"
