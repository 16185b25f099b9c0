"""Text that XML can hold."""

from __future__ import annotations

import re

# Characters that XML 1.0 cannot hold, even escaped; bytes that were no UTF-8 are among them.
_NO_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def xml_text(text: str) -> str:
    """The *text* with U+FFFD for each character that XML cannot hold."""
    return _NO_XML.sub("\ufffd", text)


def xml_name(text: str) -> str:
    """The *text* with \\xff for a byte that was no UTF-8, \\ufffe for another character that XML cannot hold.

    So different names stay different.
    """
    plain = text.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    return _NO_XML.sub(lambda found: found[0].encode("unicode_escape").decode("ascii"), plain)
