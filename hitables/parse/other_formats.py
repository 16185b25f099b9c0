"""Texts that are not iptables-save text but are often taken for it, and the command that gives the right one.

A text is examined only after it turned out to be none, so the words below need not be exact.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from ..ir.fields import Family

_EXAMINED = 400  # lines at the start of the text


@dataclass(frozen=True, slots=True)
class OtherFormat:
    """What the text is, from which *line* (from 1) this is known, and what to do."""

    line: int
    reason: str
    hint: str


# By the line that shows it: what the text is, and what to do; {tool} is iptables or ip6tables.
_SAVE = "give the output of {tool}-save"
_NFT = r"table (ip|ip6|inet|arp|bridge|netdev) \S+ \{|(add|flush|create) (table|ruleset|chain|rule)\b"
_SHELL = r"#! ?/\S*/(ba|da|a|k|z)?sh\b|#! ?/usr/bin/env (ba|da|z)?sh\b"
_CALL = r'(sudo |exec )*(/\S*/)?ip6?tables(-legacy|-nft)? (-w |--wait )?-|"?\$\{?\w*(IPT|ipt)\w*\}?"? +-'
_FORMATS = (
    (r"Chain \S+ \((policy|\d+ references)", "output of {tool} -L, which leaves out matches", _SAVE),
    (
        r"-[PN] \S+( (ACCEPT|DROP))?$",
        "output of {tool} -S, which does not say its table",
        f"{_SAVE}, or put a line like *filter before it and COMMIT behind it",
    ),
    (_NFT, "a rule set of nft", f"{_SAVE}, which has the rules of iptables-nft, and no native rules of nft"),
    (r'\{"nftables"', "output of nft -j", f"{_SAVE}, which has the rules of iptables-nft"),
    (r"create \S+ (hash|bitmap|list):", "output of ipset save", f"{_SAVE}; sets need not be given"),
    (r"@[0-9A-Fa-f.:]+/\d+\s", "a list of ClassBench filters", "hitables convert makes rules of it"),
    (r"<(\?xml|iptables-rules|zone|policy|ipset)\b", "XML", _SAVE),
    (
        f"{_SHELL}|{_CALL}",
        "a script that calls {tool}",
        "run it where it does no harm, and give what it loads: unshare -n sh -c 'sh SCRIPT; {tool}-save'",
    ),
)


def recognise(text: str, family: Family) -> OtherFormat | None:
    """What *text* is, if no line opens a table of iptables-save."""
    if re.search(r"^\*\w", text, flags=re.MULTILINE):
        return None
    tool = family.tool
    for number, line in enumerate(text.split("\n", _EXAMINED)[:_EXAMINED], 1):
        for pattern, what, hint in _FORMATS:
            if re.match(pattern, line.strip()):
                return OtherFormat(number, f"this is {what.format(tool=tool)}", hint.format(tool=tool))
    return None
