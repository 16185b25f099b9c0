"""Which algorithms there are, and how they are composed: "sfl(rfc, delta=20)".

A plan is written as a call: the algorithm, in brackets the one that it wraps, then parameters by name.
"""

from __future__ import annotations

import ast
import difflib
import itertools
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

from ..core._engine import ffi, lib
from ..errors import DatabaseError


@dataclass(frozen=True, slots=True)
class Param:
    name: str
    meaning: str
    usual: int
    least: int
    most: int


@dataclass(frozen=True, slots=True)
class Algorithm:
    """What the registry says of one algorithm.

    *updates*: rules go in and out without building anew.  *prefix_dims*: so many dimensions, from the
    first, are cut into prefixes for it.  *wraps*: it takes another algorithm.
    """

    name: str
    title: str
    dims: tuple[int, int]
    prefix_dims: int
    updates: bool
    wraps: bool
    params: tuple[Param, ...]
    ops: Any = field(repr=False, compare=False)

    def as_data(self) -> dict[str, Any]:
        """All of it, for JSON."""
        names = ("name", "title", "dims", "prefix_dims", "updates", "wraps")
        params = [asdict(param) for param in self.params]
        return {name: getattr(self, name) for name in names} | {"params": params}


@dataclass(frozen=True, slots=True)
class Plan:
    """An algorithm with its parameters, and what it wraps."""

    algorithm: Algorithm
    values: tuple[int, ...]
    inner: Plan | None = None

    @classmethod
    def read(cls, text: str) -> Plan:
        """The plan that *text* says; DatabaseError names what is wrong with it."""
        try:
            tree = ast.parse(text.strip(), mode="eval").body
        except (SyntaxError, ValueError):
            raise DatabaseError(f"{text!r} is no algorithm; write it as rfc or sfl(rfc, delta=20)") from None
        return _read(tree, text)

    def __str__(self) -> str:
        said = [str(self.inner)] if self.inner else []
        for param, value in zip(self.algorithm.params, self.values, strict=True):
            if value != param.usual:
                said.append(f"{param.name}={value}")
        return self.algorithm.name + (f"({', '.join(said)})" if said else "")

    def check_dims(self, dims: int) -> None:
        """DatabaseError unless every part takes rules of so many dimensions."""
        least, most = self.algorithm.dims
        if not least <= dims <= most:
            takes = f"{least}" if least == most else f"{least} to {most}"
            raise DatabaseError(f"{self.algorithm.name} takes {takes} dimensions; the rules have {dims}")
        if self.inner:
            self.inner.check_dims(dims)

    def in_c(self, kept: list[Any]) -> Any:
        """struct vfdb_plan *; what must outlive it goes to *kept*."""
        inner = self.inner.in_c(kept) if self.inner else ffi.NULL
        plan = ffi.new("struct vfdb_plan *", {"ops": self.algorithm.ops, "inner": inner})
        for number, value in enumerate(self.values):
            plan.value[number] = value
        kept.append(plan)
        return plan


def _text(chars: Any) -> str:
    return str(ffi.string(chars).decode())


def _registered() -> Iterator[Algorithm]:
    for number in itertools.count():
        ops = lib.vfdb_algorithm(number)
        if not ops:
            return
        params = tuple(
            Param(_text(param.name), _text(param.meaning), param.usual, param.least, param.most)
            for param in itertools.takewhile(lambda param: param.name, ops.param)
        )
        yield Algorithm(
            _text(ops.name),
            _text(ops.title),
            (ops.least_dims, ops.most_dims),
            ops.prefix_dims,
            bool(ops.insert) and bool(ops.remove),
            ops.wraps,
            params,
            ops,
        )


ALGORITHMS: dict[str, Algorithm] = {algorithm.name: algorithm for algorithm in _registered()}


def _algorithm(name: str) -> Algorithm:
    if name in ALGORITHMS:
        return ALGORITHMS[name]
    near = difflib.get_close_matches(name, ALGORITHMS, 1)
    hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(ALGORITHMS)}"
    raise DatabaseError(f"no algorithm is called {name}; {hint}")


def _read(tree: ast.expr, text: str) -> Plan:
    if isinstance(tree, ast.Name):
        tree = ast.Call(tree, [], [])
    if not isinstance(tree, ast.Call) or not isinstance(tree.func, ast.Name):
        raise DatabaseError(f"{text!r} is no algorithm; write it as rfc or sfl(rfc, delta=20)")
    algorithm = _algorithm(tree.func.id)
    if len(tree.args) != algorithm.wraps:
        wanted = "wraps one other algorithm" if algorithm.wraps else "wraps no other algorithm"
        raise DatabaseError(f"{algorithm.name} {wanted}; {text!r} gives it {len(tree.args)}")
    values = {param.name: param.usual for param in algorithm.params}
    for keyword in tree.keywords:
        if keyword.arg not in values:
            known = ", ".join(values) or "none"
            raise DatabaseError(f"{algorithm.name} has no parameter {keyword.arg}; it has {known}")
        if not isinstance(keyword.value, ast.Constant) or type(keyword.value.value) is not int:
            raise DatabaseError(f"{algorithm.name}: {keyword.arg} must be a whole number")
        values[keyword.arg] = keyword.value.value
    for param in algorithm.params:
        value = values[param.name]
        if not param.least <= value <= param.most:
            allowed = f"{param.least}..{param.most}"
            raise DatabaseError(f"{algorithm.name}: {param.name} must lie in {allowed}, not {value}")
    inner = _read(tree.args[0], text) if tree.args else None
    return Plan(algorithm, tuple(values.values()), inner)
