"""A figure of matplotlib as SVG text: the same data give the same text; no setting of matplotlib changes."""

from __future__ import annotations

import io
import warnings
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def svg(figure: Figure, *, letters: str = "path", tight: bool = False) -> str:
    """The text of an SVG file.

    letters   "path": as curves, alike in all viewers, unless the font lacks one, which a viewer may have;
              "none": as text, which can be searched and copied
    tight     cut the margins off
    """
    import matplotlib

    out = io.StringIO()
    with (
        matplotlib.rc_context({"svg.hashsalt": "hitables", "svg.fonttype": letters}),
        warnings.catch_warnings(record=True) as warned,
    ):
        warnings.simplefilter("always")
        figure.savefig(out, format="svg", bbox_inches="tight" if tight else None, metadata={"Date": None})
    missing = [each for each in warned if _tells_of_a_missing_letter(each)]
    if missing and letters != "none":
        return svg(figure, letters="none", tight=tight)
    for each in warned:
        if each not in missing:
            warnings.warn_explicit(each.message, each.category, each.filename, each.lineno)
    return out.getvalue()


def _tells_of_a_missing_letter(warning: warnings.WarningMessage) -> bool:
    text = str(warning.message)
    return text.startswith("Glyph ") and "missing from" in text
