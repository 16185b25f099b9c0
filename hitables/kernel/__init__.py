"""The running kernel: scratch namespaces, loading and saving, packets, what became of them.

Nothing here touches the network namespace it is started in: whatever loads, configures or
sends does so inside a `Namespace`.
"""

from .load_save import ip_sets_named, load, make_ip_sets, save
from .namespace import Namespace

__all__ = ["Namespace", "ip_sets_named", "load", "make_ip_sets", "save"]
