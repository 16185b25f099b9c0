"""The algorithms of the C engine, and how they are composed: "sfl(rfc, delta=20)".

A composition is written as a call: the algorithm, in brackets the one that it wraps, then parameters by name.
`AlgorithmSpec.read` reads it and checks it against the registry of the engine.
"""

from __future__ import annotations

import ast
import difflib
from collections.abc import Callable
from dataclasses import dataclass

from ..core.classifiers import Algorithm, Composition, registered_algorithms
from ..errors import DatabaseError


@dataclass(frozen=True, slots=True)
class AlgorithmSpec:
    """An algorithm, the values of its parameters, and the algorithm that it wraps."""

    algorithm: Algorithm
    values: tuple[int, ...]
    inner: AlgorithmSpec | None = None

    @classmethod
    def read(cls, text: str) -> AlgorithmSpec:
        """The composition that *text* describes; DatabaseError names the mistake."""
        if not isinstance(text, str):
            raise DatabaseError(f'an algorithm is given by its text, such as "tss", not as {text!r}')
        try:
            tree = ast.parse(text.strip(), mode="eval").body
        except (SyntaxError, ValueError):
            raise DatabaseError(f"{text!r} is no algorithm; write it as rfc or sfl(rfc, delta=20)") from None
        return _read(tree, text)

    def __str__(self) -> str:
        arguments = [str(self.inner)] if self.inner else []
        for param, value in zip(self.algorithm.params, self.values, strict=True):
            if value != param.default:
                arguments.append(f"{param.name}={value}")
        return self.algorithm.name + (f"({', '.join(arguments)})" if arguments else "")

    def __reduce__(self) -> tuple[Callable[[str], AlgorithmSpec], tuple[str]]:
        """A copy, also a pickled one, is read from the text: functions of the engine cannot be copied."""
        return AlgorithmSpec.read, (str(self),)

    def check_dims(self, dims: int) -> None:
        """DatabaseError unless every algorithm of the composition takes rules of *dims* dimensions."""
        fewest, most = self.algorithm.dims
        if not fewest <= dims <= most:
            takes = f"{fewest}" if fewest == most else f"{fewest} to {most}"
            raise DatabaseError(f"{self.algorithm.name} takes {takes} dimensions; the rules have {dims}")
        if self.inner:
            self.inner.check_dims(dims)

    def composition(self) -> Composition:
        """The same for the engine."""
        return Composition(self.algorithm, self.values, self.inner.composition() if self.inner else None)


ALGORITHMS: dict[str, Algorithm] = {algorithm.name: algorithm for algorithm in registered_algorithms()}


def _algorithm(name: str) -> Algorithm:
    if name in ALGORITHMS:
        return ALGORITHMS[name]
    near = difflib.get_close_matches(name, ALGORITHMS, 1)
    hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(ALGORITHMS)}"
    raise DatabaseError(f"no algorithm is called {name}; {hint}")


def _read(tree: ast.expr, text: str) -> AlgorithmSpec:
    if isinstance(tree, ast.Name):
        tree = ast.Call(tree, [], [])
    if not isinstance(tree, ast.Call) or not isinstance(tree.func, ast.Name):
        raise DatabaseError(f"{text!r} is no algorithm; write it as rfc or sfl(rfc, delta=20)")
    algorithm = _algorithm(tree.func.id)
    if len(tree.args) != algorithm.wraps:
        rule = "wraps one other algorithm" if algorithm.wraps else "wraps no other algorithm"
        raise DatabaseError(f"{algorithm.name} {rule}; {text!r} gives it {len(tree.args)}")
    values = {param.name: param.default for param in algorithm.params}
    names = [keyword.arg for keyword in tree.keywords]
    for number, keyword in enumerate(tree.keywords):
        if keyword.arg in names[:number]:
            raise DatabaseError(f"{algorithm.name}: {keyword.arg} is given twice")
        if keyword.arg not in values:
            known = ", ".join(values) or "none"
            raise DatabaseError(f"{algorithm.name} has no parameter {keyword.arg}; it has {known}")
        if not isinstance(keyword.value, ast.Constant) or type(keyword.value.value) is not int:
            raise DatabaseError(f"{algorithm.name}: {keyword.arg} must be a whole number")
        values[keyword.arg] = keyword.value.value
    for param in algorithm.params:
        value = values[param.name]
        if not param.minimum <= value <= param.maximum:
            allowed = f"{param.minimum}..{param.maximum}"
            raise DatabaseError(f"{algorithm.name}: {param.name} must lie in {allowed}, not {value}")
    _check_pairs(algorithm.name, values)
    inner = _read(tree.args[0], text) if tree.args else None
    return AlgorithmSpec(algorithm, tuple(values.values()), inner)


def _check_pairs(name: str, values: dict[str, int]) -> None:
    """DatabaseError for parameters of which each is possible, and both together are not."""
    if name == "storm" and values["window"] < values["cache"]:
        raise DatabaseError(
            f"storm: a window of {values['window']} samples never fills a cache of {values['cache']} rules: "
            "widen it"
        )
