"""The arguments of the library's functions: what they may be, and what is made of them.

Every error is an InvalidOption that names the argument.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Literal, TypeAlias, TypedDict

from . import signatures
from .errors import InvalidOption
from .ir.choices import Equivalence, Malformed, backend_choice, backends_of, choose
from .ir.fields import Family
from .ir.foreign import aside, entered_by_foreign, is_foreign, patterns_of
from .ir.packet import Backend
from .ir.program import Program

if TYPE_CHECKING:
    from .compiler.options import Options
    from .verify.question import Question

Rules: TypeAlias = str | Program
Names: TypeAlias = str | Iterable[str]  # of tables or chains; one name may be written as a str
IPVersion: TypeAlias = Family | Literal[4, 6]

SMALLEST_MEMORY = 1 << 20  # bytes; less than that is too little for any proof
LARGEST_MEMORY = 1 << 62
LONGEST = 1e9  # seconds


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


def compiler_options(options: CompileOptions) -> Options:
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
        costs=costs_of(options.get("costs")),
        unequal_cuts=paper["cuts"] == "unequal",
        dispatch=paper["dispatch"],
        runs=paper["runs"],
        dim_choice=paper["dim_choice"],
        equivalence=choose(Equivalence, options.get("equivalence", "full")),
        tables=names_of(options.get("tables", ())),
        chains=names_of(options.get("chains", ())),
        hot=options.get("hot", 0),
        leave=patterns_given(options.get("leave", ())),
    )


def check_sources(names: object) -> None:
    """InvalidOption unless *names* are the names of two sources."""
    is_row = isinstance(names, tuple | list)
    if not is_row or [type(each) for each in names] != [str, str]:  # type: ignore[attr-defined]
        raise InvalidOption(f"names: the names of two sources, not {names!r}")


def check_rules(rules: object, family: IPVersion | None) -> None:
    """InvalidOption unless *rules* are a text, or a Program of *family*."""
    if not isinstance(rules, str | Program):
        raise InvalidOption(f"a rule set is a text or a Program, not {type(rules).__name__}")
    if isinstance(rules, Program) and family_of(family) not in (None, rules.family):
        raise InvalidOption(f"family {family}: the rule set is of IPv{int(rules.family)}")


_WHOLE, _REAL = ("leaf_size", "min_length", "max_depth", "hot"), ("spfac", "max_expansion")


def _check_numbers(options: CompileOptions) -> None:
    for name, value in options.items():
        if name in _WHOLE and value is not None and type(value) is not int:
            raise InvalidOption(f"{name} is a whole number, not {value!r}")
        if name == "uniform" and type(value) is not bool:
            raise InvalidOption(f"uniform is True or False, not {value!r}")
        if name in _REAL and not (isinstance(value, int | float) and abs(value) <= sys.float_info.max):
            raise InvalidOption(f"{name} is a number, not {value!r}")


def costs_of(costs: signatures.Costs | str | None) -> signatures.Costs | None:
    """The profile that *costs* is, or is the JSON text of; None: that of the package."""
    from .costs import profile

    if isinstance(costs, str):
        return profile.read(costs, "costs")
    if costs is not None and not isinstance(costs, profile.Costs):
        raise InvalidOption(f"costs: a profile or its JSON text, not {type(costs).__name__}")
    return costs


def program_of(rules: Rules, family: IPVersion | None, name: str) -> Program:
    """The rule set *rules*; where it is text, *name* is its source.  ParseError as `api.read`."""
    from . import reader

    check_rules(rules, family)
    return rules if isinstance(rules, Program) else reader.read(rules, family=family_of(family), name=name)


def family_of(family: IPVersion | None) -> Family | None:
    """The family of the number 4 or 6; None: guess it."""
    try:
        return None if family is None else Family(family)
    except ValueError:
        raise InvalidOption(f"unknown family {family!r}; use 4 or 6") from None


def one_backend(backend: Backend | str) -> Backend:
    """The backend of this name, which is not "any"."""
    choice = backend_choice(backend)
    if choice == "any":
        raise InvalidOption("backend any: a packet is read by one backend, legacy or nft")
    return choice


def names_of(names: Names) -> frozenset[str]:
    """The names of tables or chains."""
    if isinstance(names, str):
        return frozenset({names})
    row = list(() if names is None else names)
    if names is None or not all(isinstance(each, str) for each in row):
        raise InvalidOption(f"tables and chains are names, not {names!r}; () means all")
    return frozenset(row)


def patterns_given(leave: Names) -> tuple[str, ...]:
    """The patterns of foreign chains, in their order."""
    if leave is None:
        raise InvalidOption("leave: patterns of chains; () means none")
    return patterns_of((leave,) if isinstance(leave, str) else leave)


def pairs_given(across_families: bool, pairs: Names) -> tuple[str, ...]:
    """The pairs of networks, in their order; InvalidOption where one family alone is compared."""
    given = (pairs,) if isinstance(pairs, str) else tuple(pairs)
    if not all(isinstance(pair, str) for pair in given):
        raise InvalidOption(f"pairs are texts as 10.0.0.0/8=fd00::/8, not {pairs!r}")
    if given and not across_families:
        raise InvalidOption("pairs of networks are for a comparison across families (across_families)")
    return given


def without_foreign(
    before: Rules,
    after: Rules,
    family: IPVersion | None,
    names: tuple[str, str],
    leave: Names,
    question: Question,
) -> tuple[tuple[Program, Program], Question]:
    """Two rule sets without foreign chains, and the question with the chains that these enter."""
    patterns = patterns_given(leave)
    refuse_left(question, patterns)
    programs = program_of(before, family, names[0]), program_of(after, family, names[1])
    entered = [entered_by_foreign(program, patterns) for program in programs]
    one, other = (aside(program, patterns) for program in programs)
    return (one, other), replace(question, entered=entered[0] | entered[1])


def refuse_left(question: Question, patterns: Sequence[str]) -> None:
    """InvalidOption if *question* asks for a chain that is left to another program."""
    for chain in sorted(question.chains):
        if is_foreign(chain, patterns):
            raise InvalidOption(
                f"chain {chain} is left to another program (leave), so it cannot be asked for, too (chains)"
            )


def check_budget(timeout: float | None, max_memory: int | None) -> None:
    """InvalidOption unless a proof can be bounded by *timeout* seconds and *max_memory* bytes."""
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


def question_of(
    backend: Backend | str,
    malformed: Malformed | str,
    equivalence: Equivalence | str,
    tables: Names,
    chains: Names,
    timeout: float | None,
    max_memory: int | None,
) -> Question:
    """What a comparison asks, of the arguments of `check`."""
    from .verify.question import Question

    check_budget(timeout, max_memory)
    return Question(
        backends_of(backend_choice(backend)),
        choose(Malformed, malformed),
        equivalence=choose(Equivalence, equivalence),
        tables=names_of(tables),
        chains=names_of(chains),
        timeout=timeout,
        max_memory=max_memory,
    )
