"""Critical errors by their numbers: which say something of the GPU, and which need a reset.

The numbers and what must be done are in NVIDIA's catalogue of XIDs.
"""

from __future__ import annotations

from dataclasses import dataclass

PROGRAMS_FAULT = frozenset({13, 31, 43, 45, 68, 109})
"""A program did something wrong and was ended; the GPU is well. As in HAMi's plugin."""

NEEDS_RESET = frozenset(
    {46, 48, 54, 62, 64, 74, 79, 95, 110, 119, 120, 136, 140, 143, 149, 151, 155, 156, 158}
)
"""The GPU cannot be trusted until it is reset, however quiet it is.

Memory errors that were not contained (48, 64, 95, 140), a GPU that is not reachable or does not
run (46, 54, 62, 79, 110, 143), its system processor (119, 120), its links (74, 149) and others.
"""

_ALL = frozenset({"all", "xids"})


@dataclass(frozen=True, slots=True, kw_only=True)
class XidFilter:
    """Which errors count: a number that is enabled does, whatever is disabled."""

    disabled: frozenset[int] = PROGRAMS_FAULT
    enabled: frozenset[int] = frozenset()
    all_disabled: bool = False
    all_enabled: bool = False

    def counts(self, xid: int) -> bool:
        if self.all_enabled or xid in self.enabled:
            return True
        return not self.all_disabled and xid not in self.disabled


def xid_filter(disable: str, enable: str) -> XidFilter:
    """From the texts of ``DP_DISABLE_HEALTHCHECKS`` and ``DP_ENABLE_HEALTHCHECKS``.

    Each is ``all`` (also ``xids`` in the first) or a comma list of numbers; anything else in it is
    ignored, as in HAMi. There, disabling all leaves nothing that could be enabled; here it does.
    """
    disabled, enabled = _words(disable), _words(enable)
    return XidFilter(
        disabled=PROGRAMS_FAULT | _numbers(disabled),
        enabled=_numbers(enabled),
        all_disabled=bool(disabled & _ALL),
        all_enabled="all" in enabled,
    )


def _words(text: str) -> frozenset[str]:
    return frozenset(word.strip().lower() for word in text.split(","))


def _numbers(words: frozenset[str]) -> frozenset[int]:
    return frozenset(int(word) for word in words if word.isascii() and word.isdigit())
