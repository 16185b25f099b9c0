"""Texts that are not iptables-save text but are often taken for it, and the command that gives the right one.

A text is examined only after it turned out to be none, so the words below need not be exact.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from ..ir.fields import Family
from .typographic import hint_at

_EXAMINED = 400  # lines at the start of the text


@dataclass(frozen=True, slots=True)
class OtherFormat:
    """What the text is, from which *line* (from 1) this is known, and what to do."""

    line: int
    reason: str
    hint: str


# By the line that shows it: what the text is, and what to do; {tool} is iptables or ip6tables.  For scripts:
# {called} is what they call, {run} the interpreter, {save} what prints the rules, {other} stands if they call
# both tools.
_SAVE = "give the output of {tool}-save"
_NFT = r"table (ip|ip6|inet|arp|bridge|netdev) \S+ \{|(add|flush|create) (table|ruleset|chain|rule)\b"
_SHELL = r"#! ?/\S*/(ba|da|a|k|z)?sh\b|#! ?/usr/bin/env (ba|da|z)?sh\b"
# Behind the tool, a hyphen or what web pages make of it.
_CALL = (
    r"(sudo |exec )*(/\S*/)?ip6?tables(-legacy|-nft)? (-w |--wait )?[-\u2013\u2014\u2212]"
    r'|"?\$\{?\w*(IPT|ipt)\w*\}?"? +-'
)
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
        "a script that calls {called}",
        # What the script itself prints must not get into the rules.
        "run it where it loads no rules of this host, and give what it loads there: "
        "unshare -n sh -c '{run} SCRIPT >&2; {save}'{other}; it may still write files, as "
        "/etc/iptables/rules.v4, and restart services",
    ),
)
# In a script: what is no call of iptables, and the calls, among them variables that hold its name.
_COMMENT = re.compile(r"(?:^|\s)#.*|\becho\b.*", re.MULTILINE)
_CALLED = re.compile(r"(?<![\w-])(ip6?tables)(-legacy|-nft)?(?![\w/.-])")
_INTERPRETER = re.compile(r"#! ?/(?:\S*/)?(?:env )?((?:ba|da|a|k|z)?sh(?: -[a-zA-Z]+)?)\s*$", re.MULTILINE)


def recognise(text: str, family: Family) -> OtherFormat | None:
    """What *text* is, if no line opens a table of iptables-save."""
    if re.search(r"^\*\w", text, flags=re.MULTILINE):
        return None
    words = _words_of_advice(text, family)
    for number, line in enumerate(text.split("\n", _EXAMINED)[:_EXAMINED], 1):
        for pattern, what, hint in _FORMATS:
            if re.match(pattern, line.strip()):
                hints = [*filter(None, map(hint_at, line.split(" ")))][:1] + [hint.format(**words)]
                return OtherFormat(number, f"this is {what.format(**words)}", "; then ".join(hints))
    return None


def _words_of_advice(text: str, family: Family) -> dict[str, str]:
    """What stands in _FORMATS for the names in braces."""
    backends: dict[str, set[str]] = {}
    for tool, backend in _CALLED.findall(_COMMENT.sub("", text)):
        backends.setdefault(tool, set()).add(backend)
    called = sorted(backends, reverse=True) or [family.tool]
    # The rules of the other backend are no part of what iptables-save prints.
    suffix = {tool: each.pop() for tool, each in backends.items() if len(each) == 1}
    saves = [f"{tool}{suffix.get(tool, '')}-save" for tool in called]
    interpreter = _INTERPRETER.match(text)
    other = f", then the same with {saves[1]}, as each family needs a file of its own" if saves[1:] else ""
    return {
        "tool": family.tool,
        "called": " and ".join(called),
        "run": interpreter[1] if interpreter else "bash",
        "save": saves[0],
        "other": other,
    }
