"""Makes texts that anybody may have written safe for a terminal."""

from __future__ import annotations

import re

_CONTROLS = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
"""C0, DEL, C1, line separators, characters that change the writing direction, half characters."""


def visible(text: str) -> str:
    """The text with control characters escaped, because manifests come from anyone."""
    return _CONTROLS.sub(lambda found: repr(found.group())[1:-1], text)
