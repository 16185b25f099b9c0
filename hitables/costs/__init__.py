"""What reading rules costs, in nanoseconds: profiles of kernels, and what a rule set costs by them."""

from .table import Costs, Reading, default, load
from .walks import Spent, spent

__all__ = ["Costs", "Reading", "Spent", "default", "load", "spent"]
