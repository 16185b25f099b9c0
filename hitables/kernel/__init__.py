"""The running kernel: scratch namespaces, loading and saving, sending packets and observing their results.

Everything that loads rules, configures interfaces or sends packets does so inside a `Namespace`; nothing
here changes the network namespace of the caller.
"""

from .load_save import ip_sets_named, load, make_ip_sets, save
from .namespace import Namespace

__all__ = ["Namespace", "ip_sets_named", "load", "make_ip_sets", "save"]
