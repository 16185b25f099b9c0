"""What packets have at each built-in chain (netfilter hook): interfaces, and kinds of fragments."""

from __future__ import annotations

from hitables.ir.fields import Family, Field, Fragment, top
from hitables.ir.intervals import Values

Box = dict[Field, Values]  # a field left out may have any value


NO_OIF, NO_IIF = ("PREROUTING", "INPUT"), ("OUTPUT",)


def hook_box(chain: str, family: Family) -> Box:
    """The interfaces and the kinds of fragments that packets have at *chain*, as sets of values by field."""
    none, some = Values.only(0), Values(((1, top(Field.IIF, family)),))
    if chain == "INPUT" and family is Family.IPV4:
        # The kernel puts fragments together before, whether it tracks connections or not (ip_local_deliver).
        # In IPv6 it does so behind this hook, unless it tracks connections.
        return {Field.IIF: some, Field.OIF: none, Field.FRAG: Values.only(Fragment.WHOLE)}
    if chain in NO_OIF:
        return {Field.IIF: some, Field.OIF: none}
    if chain in NO_IIF:
        return {Field.IIF: none, Field.OIF: some}
    if chain == "FORWARD":
        return {Field.IIF: some, Field.OIF: some}
    if chain == "POSTROUTING":
        # Since Linux 5.7 a forwarded packet still has its input interface (measured).  iptables refuses -i in
        # this chain, but not in a user chain that is entered from here.
        return {Field.OIF: some}
    return {}
