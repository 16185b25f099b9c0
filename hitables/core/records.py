"""Structures of the C engine that hold numbers, as dictionaries."""

from __future__ import annotations

from typing import Any

from ._engine import ffi


def as_values(record: Any) -> dict[str, Any]:
    """The fields of a C structure of numbers and arrays of numbers."""
    fields = ffi.typeof(record).item.fields
    return {
        name: list(value) if field.type.kind == "array" else int(value)
        for name, field in fields
        for value in [getattr(record, name)]
    }
