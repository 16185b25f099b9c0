"""The cost of reading rules, in nanoseconds: profiles of kernels, and the cost of a rule set by a profile."""

from .packet_cost import Spent, spent
from .profile import Costs, Reading, default, load

__all__ = ["Costs", "Reading", "Spent", "default", "load", "spent"]
