"""Filters with actions for other programs: a server on a Unix socket, and its clients.

`hitables.filters.Client` is the client; `hitables filters serve` is the server.
"""

from __future__ import annotations

from .client import Client
from .phase import Phase
from .text import Syntax

__all__ = ["Client", "Phase", "Syntax"]
