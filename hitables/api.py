"""The functions of the library: what the commands do, as calls.

Each function takes rule sets as iptables-save text or as a `Program`, and keyword arguments with the names
and defaults of the command's options.  Words ("nft", "exact") and enums (`Backend.NFT`) are both accepted.

Invariant: no function but `read_file` touches a file, and none touches the running system.
Every error is a HitablesError (errors.py).  docs/library.md has an example of each function.

Cost: importing this module is cheap; each function imports what it needs when it is called.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeAlias, Unpack

from . import signatures
from .arguments import (
    CompileOptions,
    IPVersion,
    Names,
    Rules,
    check_budget,
    check_rules,
    check_sources,
    compiler_options,
    costs_of,
    family_of,
    one_backend,
    pairs_given,
    patterns_given,
    program_of,
    question_of,
    refuse_left,
    without_foreign,
)
from .errors import InvalidOption, UnknownName
from .ir.choices import Equivalence, Malformed, backends_of
from .ir.foreign import entered_by_foreign, hide, is_foreign
from .ir.packet import Backend, Packet
from .ir.program import Program, near_chain

Progress: TypeAlias = Callable[[str], None]


def _ignore(stage: str) -> None:
    """The default of *progress*."""


# ---- reading and writing ----


def read(text: str, *, family: IPVersion | None = None, name: str = "-") -> Program:
    """Read iptables-save or ip6tables-save text; *name* is the source that errors and reports name.

    Without *family* it is guessed from the text and the name; IPv6 rules without an address may be taken for
    IPv4 ones, so give it where you know it.  ParseError for text that iptables-restore would refuse, and for
    chains that jump in a circle.
    """
    from . import reader

    if not isinstance(text, str):
        raise InvalidOption(f"read takes a text, not {type(text).__name__}")
    return reader.read(text, family=family_of(family), name=name)


def read_file(path: str | os.PathLike[str], *, family: IPVersion | None = None) -> Program:
    """Read the rule set in the file *path*, plain or gzip; "-" is standard input.

    FileError when the file cannot be read, else as `read`.
    """
    from .files import read_text

    name = os.fspath(path)
    if not isinstance(name, str) or "\0" in name:
        raise InvalidOption(f"a path is a text without NUL, not {name!r}")
    return read(read_text(name), family=family, name=name)


def write(program: Program) -> str:
    """*program* as iptables-save text."""
    from .emit import text

    if not isinstance(program, Program):
        raise InvalidOption(f"write takes a Program, not {type(program).__name__}")
    return text.write(program)


# ---- compiling ----


def compile(
    rules: Rules,
    *,
    family: IPVersion | None = None,
    name: str = "-",
    timeout: float | None = None,
    max_memory: int | None = None,
    progress: Progress = _ignore,
    **options: Unpack[CompileOptions],
) -> signatures.Output:
    """Compile *rules* and prove the result equal to them; `CompileOptions` lists the options.

    *timeout* (seconds) and *max_memory* (bytes) bound the proof: OutOfBudget when they end it.
    NotEquivalent, with a packet, when the result differs.  A chain whose tree turns out wrong is printed as
    it was and listed in the output's *faults*.
    """
    check_budget(timeout, max_memory)
    return _compiled(rules, family, name, options, True, timeout, max_memory, progress)


def compile_unproved(
    rules: Rules,
    *,
    family: IPVersion | None = None,
    name: str = "-",
    progress: Progress = _ignore,
    **options: Unpack[CompileOptions],
) -> signatures.Output:
    """Compile *rules* without a proof; the first line of the output then contains "NOT PROVED"."""
    return _compiled(rules, family, name, options, False, None, None, progress)


def _compiled(
    rules: Rules,
    family: IPVersion | None,
    name: str,
    options: CompileOptions,
    prove: bool,
    timeout: float | None,
    max_memory: int | None,
    progress: Progress,
) -> signatures.Output:
    from .analyse.weights import counted
    from .compiler.pipeline import compile_program, compile_text

    chosen = compiler_options(options)
    scheme = options.get("scheme", "tree")
    check_rules(rules, family)
    if isinstance(rules, Program) and not rules.tables:
        raise InvalidOption(f"{rules.name}: the rule set has no table")
    weigh = None if scheme == "paper" or options.get("uniform") else counted
    if isinstance(rules, Program):
        return compile_program(
            rules,
            chosen,
            scheme=scheme,
            prove=prove,
            timeout=timeout,
            max_memory=max_memory,
            tell=progress,
            weigh=weigh,
        )
    return compile_text(
        rules,
        chosen,
        family=family_of(family),
        name=name,
        scheme=scheme,
        prove=prove,
        timeout=timeout,
        max_memory=max_memory,
        tell=progress,
        weigh=weigh,
    )


# ---- comparing and examining ----


def check(
    before: Rules,
    after: Rules,
    *,
    backend: Backend | str = "any",
    malformed: Malformed | str = "stricter",
    equivalence: Equivalence | str = "full",
    tables: Names = (),
    chains: Names = (),
    leave: Names = (),
    engine: str = "exact",
    packets: int | None = None,
    seed: int | None = None,
    timeout: float | None = None,
    max_memory: int | None = None,
    family: IPVersion | None = None,
    across_families: bool = False,
    pairs: Names = (),
    names: tuple[str, str] = ("before", "after"),
    progress: Progress = _ignore,
) -> signatures.Comparison:
    """Prove that two rule sets treat every packet alike, or find packets that they do not.

    engine         "exact": a proof; "diagrams": another proof, slower; "sample": drawn packets, no proof
    packets, seed  of engine sample: packets drawn for each chain (20,000), and the seed (0)
    names          the sources that the result and errors name, where a rule set is text
    leave          chains that other programs manage (as of `compile`): they and the rules that enter them are
                   not compared; chains that they enter are, each by itself

    across_families  one rule set is of IPv4 and the other of IPv6: their verdicts are compared for packets of
                     the Internet, and of the *pairs* of networks, each written as 10.0.0.0/8=fd00::/8
                     (`Comparison.scope`)

    NotComparable when a table or chain, or the family, prevents a comparison.
    """
    from . import compare
    from .across_families import AcrossFamilies

    check_sources(names)
    networks = pairs_given(across_families, pairs)
    question = question_of(backend, malformed, equivalence, tables, chains, timeout, max_memory)
    drawn = {key: value for key, value in (("packets", packets), ("seed", seed)) if value is not None}
    if engine not in compare.ENGINES:
        raise InvalidOption(f"unknown engine {engine!r}; use one of {', '.join(compare.ENGINES)}")
    if packets is not None and packets < 1:
        raise InvalidOption(f"packets: {packets} packets test nothing; draw at least 1")
    if seed is not None and seed < 0:
        raise InvalidOption(f"seed: {seed} is below 0")
    if drawn and engine != "sample":
        raise InvalidOption(f"{next(iter(drawn))}: engine {engine} draws no packets")
    if engine == "sample" and max_memory is not None:
        raise InvalidOption("max_memory: engine sample keeps no bound; draw fewer packets")
    programs, question = without_foreign(before, after, family, names, leave, question)
    sampling = compare.Sampling(**drawn)
    if across_families:
        return AcrossFamilies.of(*programs, networks, question).check(engine, sampling, progress)
    return compare.check(*programs, question, engine=engine, sampling=sampling, tell=progress)


def diff(
    before: Rules,
    after: Rules,
    *,
    backend: Backend | str = "any",
    malformed: Malformed | str = "stricter",
    equivalence: Equivalence | str = "full",
    tables: Names = (),
    chains: Names = (),
    leave: Names = (),
    timeout: float | None = None,
    max_memory: int | None = None,
    family: IPVersion | None = None,
    across_families: bool = False,
    pairs: Names = (),
    names: tuple[str, str] = ("before", "after"),
    progress: Progress = _ignore,
) -> signatures.Changes:
    """All packets that two rule sets treat differently, as regions of headers, the largest first.

    The result is complete unless its *complete* is False.  *leave*, *across_families*, *pairs* and errors are
    those of `check`.
    """
    from .across_families import AcrossFamilies
    from .verify.diff import changes

    check_sources(names)
    networks = pairs_given(across_families, pairs)
    question = question_of(backend, malformed, equivalence, tables, chains, timeout, max_memory)
    programs, question = without_foreign(before, after, family, names, leave, question)
    if across_families:
        return AcrossFamilies.of(*programs, networks, question).diff(progress)
    return changes(*programs, question, tell=progress)


def lint(
    rules: Rules,
    *,
    backend: Backend | str = "any",
    tables: Names = (),
    chains: Names = (),
    leave: Names = (),
    timeout: float | None = None,
    family: IPVersion | None = None,
    name: str = "-",
    progress: Progress = _ignore,
) -> signatures.Lint:
    """Rules that never match or change nothing, and chains that are empty or unreachable.

    All rules that the flaws name may be removed together (packets with broken headers may be treated
    otherwise without those of which `is_for_broken` holds): of the rules for which the kernel tracks
    connections or reassembles fragments, one remains, and so do rules that configure what others read by
    being loaded (`Lint.kept`).  *leave*: chains that other programs
    manage (as of `compile`); the result does not name them, and nothing is assumed of their rules.
    """
    from .analyse.configuring import makers_of_estimators, rules_that_set_parameters
    from .analyse.tracking import rules_that_reassemble, rules_that_track
    from .verify import lint as linter

    question = question_of(backend, "stricter", "full", tables, chains, timeout, None)
    patterns, program = patterns_given(leave), program_of(rules, family, name)
    refuse_left(question, patterns)
    question = replace(question, entered=entered_by_foreign(program, patterns))
    program = hide(program, patterns)
    one_remains = linter.OneRemains(
        (rules_that_track(program), rules_that_reassemble(program)),
        makers_of_estimators(program),
        rules_that_set_parameters(program),
    )
    found = linter.lint(program, question, tell=progress, one_remains=one_remains)
    found.flaws = [flaw for flaw in found.flaws if not is_foreign(flaw.chain, patterns)]
    return found


def trace(
    rules: Rules,
    packet: Packet | str,
    *,
    table: str | None = None,
    chain: str | None = None,
    backend: Backend | str = "legacy",
    family: IPVersion | None = None,
    name: str = "-",
) -> signatures.Walk:
    """Send *packet* into a chain: its verdict, its effects, and every rule that it reads (ir.semantics).

    At the end of a chain whose policy is `-` the verdict is verify.question.KERNEL_POLICY.

    A packet as text, as `hitables trace --packet` takes it, names its chain, and its table unless that is
    filter.  A `Packet` needs *chain*.  UnknownName for a table or chain that the rule set does not have.
    """
    from .ir.assumed_walk import run_assuming
    from .ir.packet_reader import read_packet
    from .ir.sure_answers import answer_surely
    from .verify.question import with_open_policies

    program = program_of(rules, family, name)
    (read_as,) = backends_of(one_backend(backend))
    for word in (table, chain):
        if word is not None and not isinstance(word, str):
            raise InvalidOption(f"a table and a chain are names, not {word!r}")
    told: tuple[str, str] | None = None
    if isinstance(packet, str):
        parsed = read_packet(packet, program.family, table or "filter")
        answer_surely(parsed.answers, program, parsed.packet)
        told = parsed.table, parsed.chain
        packet, table, chain = parsed.packet, table or parsed.table, chain or parsed.chain
    if not isinstance(packet, Packet):
        raise InvalidOption(f"a packet is a text or a Packet, not {type(packet).__name__}")
    if chain is None:
        raise InvalidOption("a Packet does not name its chain; name it, as in chain='INPUT'")
    table = table or "filter"
    if all(each.name != table for each in program):
        raise UnknownName(f"{program.name}: there is no table {table}")
    if chain not in program.table(table):
        hint = near_chain(chain, [program.table(table)])
        raise UnknownName(f"{program.name}: table {table} has no chain {chain}{hint}")
    if told is not None and told != (table, chain):
        raise InvalidOption(
            f"table {table}, chain {chain}: the packet is for table {told[0]}, chain {told[1]}"
        )
    return run_assuming(with_open_policies(program.table(table)), chain, packet, read_as).walk


def stats(
    rules: Rules,
    *,
    backend: Backend | str = "legacy",
    costs: signatures.Costs | str | None = None,
    family: IPVersion | None = None,
    name: str = "-",
) -> dict[str, Any]:
    """Per chain: rules, their roles, rules read per packet, modelled cost (hitables/schema/stats.json).

    *costs*: a profile of `hitables calibrate` as its JSON text; the shipped one when left out.
    """
    from .costs.profile import default
    from .costs.stats import profile as chain_statistics

    figures = costs_of(costs) or default()
    (read_as,) = backends_of(one_backend(backend))
    return chain_statistics(program_of(rules, family, name), read_as, figures)
