"""`python -m hitables`: the command `hitables`."""

from __future__ import annotations

from .start import hitables

hitables()
