"""What reading rules costs, in nanoseconds: profiles of kernels, and what a rule set costs by them."""

from .packet_cost import Spent, spent
from .profile import Costs, Reading, default, load

__all__ = ["Costs", "Reading", "Spent", "default", "load", "spent"]
