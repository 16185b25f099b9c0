"""A figure of matplotlib as SVG text: the same data give the same text; no setting of matplotlib changes."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def svg(figure: Figure, *, letters: str = "path", tight: bool = False) -> str:
    """The text of an SVG file.

    letters   "path": as curves, alike in all viewers; "none": as text, which can be searched and copied
    tight     cut the margins off
    """
    import matplotlib

    out = io.StringIO()
    with matplotlib.rc_context({"svg.hashsalt": "hitables", "svg.fonttype": letters}):
        figure.savefig(out, format="svg", bbox_inches="tight" if tight else None, metadata={"Date": None})
    return out.getvalue()
