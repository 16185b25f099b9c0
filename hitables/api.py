"""The functions of the library: what the commands do, as calls.

Each function takes rule sets as iptables-save text or as a `Program`, and keyword arguments with the names
and defaults of the command's options.  Words ("nft", "exact") and enums (`Backend.NFT`) are both accepted.

Invariant: no function but `read_file` touches a file, and none touches the running system.
Every error is a HitablesError (errors.py).  docs/library.md has an example of each function.

Cost: importing this module is cheap; each function imports what it needs when it is called.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypedDict, Unpack

from . import signatures
from .errors import InvalidOption, UnknownName
from .ir.choices import Equivalence, Malformed, backend_choice, backends_of, choose
from .ir.fields import Family
from .ir.foreign import aside, entered_by_foreign, hide, is_foreign, patterns_of
from .ir.packet import Backend, Packet
from .ir.program import Program

if TYPE_CHECKING:
    from .compiler.options import Options
    from .verify.question import Question

Rules: TypeAlias = str | Program
Names: TypeAlias = str | Iterable[str]  # of tables or chains; one name may be written as a str
IPVersion: TypeAlias = Family | Literal[4, 6]
Progress: TypeAlias = Callable[[str], None]

SMALLEST_MEMORY = 1 << 20  # bytes; less than that is too little for any proof
LARGEST_MEMORY = 1 << 62
LONGEST = 1e9  # seconds


def _ignore(stage: str) -> None:
    """The default of *progress*."""


# ---- reading and writing ----


def read(text: str, *, family: IPVersion | None = None, name: str = "-") -> Program:
    """Read iptables-save or ip6tables-save text; *name* is the source that errors and reports name.

    Without *family* it is guessed from the text and the name.  ParseError for text that iptables-restore
    would refuse, and for chains that jump in a circle.
    """
    from . import reader

    if not isinstance(text, str):
        raise InvalidOption(f"read takes a text, not {type(text).__name__}")
    return reader.read(text, family=_family(family), name=name)


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


class CompileOptions(TypedDict, total=False):
    """The keyword arguments of `compile`, as the options of `hitables compile`; the default is named first.

    backend        "any", "legacy", "nft": the iptables that loads the result; any: right and loadable in both
    scheme         "tree": whole chains, any rule; "paper": the transformation of CoNEXT 2014
    algorithm      "auto", or another tree builder (`hitables algorithms`)
    leaf_size      rules that a leaf may hold before it is split: 8 (scheme paper: 16)
    spfac          4.0: space factor of HiCuts and HyperCuts
    cuts           "equal", "unequal": scheme paper cuts in equal parts or between rules
    dispatch       "paper", "tool": scheme paper enters a lone child at once, or as its tool of 2014
    runs           "tool", "paper": scheme paper takes rules of tcp and udp, or all of five fields
    dim_choice     "max-dist", "least-max": scheme paper cuts where most rules lie apart, or where the largest
                   part is least
    min_length     8: chains (paper: runs) of fewer rules stay as they are
    max_expansion  4.0: rules printed over rules read, per chain, at most; a rule of several ports
                   (multiport) counts as one for each two of them
    max_depth      None (as the backend takes): chains nested below a compiled one, at most
    effort         "normal", "fast", "best": how hard to look for the cheapest tree
    malformed      "stricter", "exact": packets with cut-off headers may be dropped, or not
    equivalence    "full", "verdict": every rule stays, or rules that change no verdict are removed
    tables, chains (): compile these only; () means all
    costs          None (as shipped): a profile of `hitables calibrate`, as its JSON text
    hot            0: most copies, in front of a tree, of the rules that decide most packets, where they pay;
                   needs counters
    uniform        False: True gives all rules the same weight, whatever their counters are
    leave          (): chains that other programs manage, as patterns (DOCKER*) or presets (docker): they are
                   printed as they are, with the jumps to them, and nothing is assumed of their rules
    """

    backend: Backend | str
    scheme: str
    algorithm: str
    leaf_size: int | None
    spfac: float
    cuts: str
    dispatch: str
    runs: str
    dim_choice: str
    min_length: int
    max_expansion: float
    max_depth: int | None
    effort: str
    malformed: Malformed | str
    equivalence: Equivalence | str
    tables: Names
    chains: Names
    costs: signatures.Costs | str | None
    hot: int
    uniform: bool
    leave: Names


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
    _check_budget(timeout, max_memory)
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

    chosen = _compiler_options(options)
    scheme = options.get("scheme", "tree")
    _check_rules(rules, family)
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
        family=_family(family),
        name=name,
        scheme=scheme,
        prove=prove,
        timeout=timeout,
        max_memory=max_memory,
        tell=progress,
        weigh=weigh,
    )


def _compiler_options(options: CompileOptions) -> Options:
    """The compiler's options; InvalidOption for one that is unknown, or out of its range."""
    from .compiler.options import LEAF_SIZE, PAPER_CHOICES, Options, check_paper_choice

    unknown = options.keys() - CompileOptions.__annotations__.keys()
    if unknown:
        raise InvalidOption(f"compile has no option {', '.join(sorted(unknown))}")
    _check_numbers(options)
    scheme = options.get("scheme", "tree")
    paper = {name: str(options.get(name, words[0])) for name, words in PAPER_CHOICES.items()}
    for choice, word in paper.items():
        check_paper_choice(choice, word)
    leaf_size = options.get("leaf_size")
    if leaf_size is None:
        leaf_size = LEAF_SIZE.get(scheme, LEAF_SIZE["tree"])
    return Options(
        backend=backend_choice(options.get("backend", "any")),
        malformed=choose(Malformed, options.get("malformed", "stricter")),
        algorithm=options.get("algorithm", "auto"),
        leaf_size=leaf_size,
        spfac=options.get("spfac", 4.0),
        min_length=options.get("min_length", 8),
        max_expansion=options.get("max_expansion", 4.0),
        max_depth=options.get("max_depth"),
        effort=options.get("effort", "normal"),
        costs=_costs(options.get("costs")),
        unequal_cuts=paper["cuts"] == "unequal",
        dispatch=paper["dispatch"],
        runs=paper["runs"],
        dim_choice=paper["dim_choice"],
        equivalence=choose(Equivalence, options.get("equivalence", "full")),
        tables=_names(options.get("tables", ())),
        chains=_names(options.get("chains", ())),
        hot=options.get("hot", 0),
        leave=_patterns(options.get("leave", ())),
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
    names: tuple[str, str] = ("before", "after"),
    progress: Progress = _ignore,
) -> signatures.Comparison:
    """Prove that two rule sets treat every packet alike, or find packets that they do not.

    engine         "exact": a proof; "diagrams": another proof, slower; "sample": drawn packets, no proof
    packets, seed  of engine sample: packets drawn for each chain (20,000), and the seed (0)
    names          the sources that the result and errors name, where a rule set is text
    leave          chains that other programs manage (as of `compile`): they and the rules that enter them are
                   not compared; chains that they enter are, each by itself

    NotComparable when a table or chain, or the family, prevents a comparison.
    """
    from . import compare

    _check_sources(names)
    question = _question(backend, malformed, equivalence, tables, chains, timeout, max_memory)
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
    programs, question = _aside(before, after, family, names, leave, question)
    return compare.check(
        *programs,
        question,
        engine=engine,
        sampling=compare.Sampling(**drawn),
        tell=progress,
    )


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
    names: tuple[str, str] = ("before", "after"),
    progress: Progress = _ignore,
) -> signatures.Changes:
    """All packets that two rule sets treat differently, as regions of headers, the largest first.

    The result is complete unless its *complete* is False.  *leave* and errors are those of `check`.
    """
    from .verify.diff import changes

    _check_sources(names)
    question = _question(backend, malformed, equivalence, tables, chains, timeout, max_memory)
    programs, question = _aside(before, after, family, names, leave, question)
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

    All rules that the flaws name may be removed together: of the rules for which the kernel tracks
    connections or reassembles fragments, one remains, and so do rules that configure what others read by
    being loaded (`Lint.kept`).  *leave*: chains that other programs
    manage (as of `compile`); the result does not name them, and nothing is assumed of their rules.
    """
    from .analyse.configuring import makers_of_estimators, rules_that_set_parameters
    from .analyse.tracking import rules_that_reassemble, rules_that_track
    from .verify import lint as linter

    question = _question(backend, "stricter", "full", tables, chains, timeout, None)
    patterns, program = _patterns(leave), _program(rules, family, name)
    _refuse_left(question, patterns)
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

    program = _program(rules, family, name)
    (read_as,) = backends_of(_one_backend(backend))
    for word in (table, chain):
        if word is not None and not isinstance(word, str):
            raise InvalidOption(f"a table and a chain are names, not {word!r}")
    told: tuple[str, str] | None = None
    if isinstance(packet, str):
        parsed = read_packet(packet, program.family, table or "filter")
        answer_surely(parsed.answers, program)
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
        raise UnknownName(f"{program.name}: table {table} has no chain {chain}")
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

    figures = _costs(costs) or default()
    (read_as,) = backends_of(_one_backend(backend))
    return chain_statistics(_program(rules, family, name), read_as, figures)


# ---- arguments ----


def _check_sources(names: object) -> None:
    """InvalidOption unless *names* are the names of two sources."""
    is_row = isinstance(names, tuple | list)
    if not is_row or [type(each) for each in names] != [str, str]:  # type: ignore[attr-defined]
        raise InvalidOption(f"names: the names of two sources, not {names!r}")


def _check_rules(rules: object, family: IPVersion | None) -> None:
    if not isinstance(rules, str | Program):
        raise InvalidOption(f"a rule set is a text or a Program, not {type(rules).__name__}")
    if isinstance(rules, Program) and _family(family) not in (None, rules.family):
        raise InvalidOption(f"family {family}: the rule set is of IPv{int(rules.family)}")


_WHOLE, _REAL = ("leaf_size", "min_length", "max_depth", "hot"), ("spfac", "max_expansion")


def _check_numbers(options: CompileOptions) -> None:
    for name, value in options.items():
        if name in _WHOLE and value is not None and type(value) is not int:
            raise InvalidOption(f"{name} is a whole number, not {value!r}")
        if name == "uniform" and type(value) is not bool:
            raise InvalidOption(f"uniform is True or False, not {value!r}")
        if name in _REAL and not (isinstance(value, int | float) and math.isfinite(value)):
            raise InvalidOption(f"{name} is a number, not {value!r}")


def _costs(costs: signatures.Costs | str | None) -> signatures.Costs | None:
    from .costs import profile

    if isinstance(costs, str):
        return profile.read(costs, "costs")
    if costs is not None and not isinstance(costs, profile.Costs):
        raise InvalidOption(f"costs: a profile or its JSON text, not {type(costs).__name__}")
    return costs


def _program(rules: Rules, family: IPVersion | None, name: str) -> Program:
    _check_rules(rules, family)
    return rules if isinstance(rules, Program) else read(rules, family=family, name=name)


def _family(family: IPVersion | None) -> Family | None:
    try:
        return None if family is None else Family(family)
    except ValueError:
        raise InvalidOption(f"unknown family {family!r}; use 4 or 6") from None


def _one_backend(backend: Backend | str) -> Backend:
    choice = backend_choice(backend)
    if choice == "any":
        raise InvalidOption("backend any: a packet is read by one backend, legacy or nft")
    return choice


def _names(names: Names) -> frozenset[str]:
    if isinstance(names, str):
        return frozenset({names})
    row = list(() if names is None else names)
    if names is None or not all(isinstance(each, str) for each in row):
        raise InvalidOption(f"tables and chains are names, not {names!r}; () means all")
    return frozenset(row)


def _patterns(leave: Names) -> tuple[str, ...]:
    """The patterns of foreign chains, in their order."""
    if leave is None:
        raise InvalidOption("leave: patterns of chains; () means none")
    return patterns_of((leave,) if isinstance(leave, str) else leave)


def _aside(
    before: Rules,
    after: Rules,
    family: IPVersion | None,
    names: tuple[str, str],
    leave: Names,
    question: Question,
) -> tuple[tuple[Program, Program], Question]:
    """Two rule sets without foreign chains, and the question with the chains that these enter."""
    patterns = _patterns(leave)
    _refuse_left(question, patterns)
    programs = _program(before, family, names[0]), _program(after, family, names[1])
    entered = [entered_by_foreign(program, patterns) for program in programs]
    one, other = (aside(program, patterns) for program in programs)
    return (one, other), replace(question, entered=entered[0] | entered[1])


def _refuse_left(question: Question, patterns: Sequence[str]) -> None:
    for chain in sorted(question.chains):
        if is_foreign(chain, patterns):
            raise InvalidOption(
                f"chain {chain} is left to another program (leave), so it cannot be asked for, too (chains)"
            )


def _check_budget(timeout: float | None, max_memory: int | None) -> None:
    if timeout is not None:
        if not isinstance(timeout, int | float):
            raise InvalidOption(f"a timeout is a number of seconds, not {timeout!r}")
        if not 0 < timeout <= LONGEST:
            raise InvalidOption(f"a timeout of {timeout} is not above 0 seconds, or above {LONGEST:.0f}")
    if max_memory is not None:
        if not isinstance(max_memory, int):
            raise InvalidOption(f"max_memory is a number of bytes, not {max_memory!r}")
        if not SMALLEST_MEMORY <= max_memory <= LARGEST_MEMORY:
            raise InvalidOption(
                f"a max_memory of {max_memory} is below {SMALLEST_MEMORY} bytes, or above {LARGEST_MEMORY}"
            )


def _question(
    backend: Backend | str,
    malformed: Malformed | str,
    equivalence: Equivalence | str,
    tables: Names,
    chains: Names,
    timeout: float | None,
    max_memory: int | None,
) -> Question:
    from .verify.question import Question

    _check_budget(timeout, max_memory)
    return Question(
        backends_of(backend_choice(backend)),
        choose(Malformed, malformed),
        equivalence=choose(Equivalence, equivalence),
        tables=_names(tables),
        chains=_names(chains),
        timeout=timeout,
        max_memory=max_memory,
    )
