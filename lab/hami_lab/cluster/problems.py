"""What can go wrong with an embedded cluster.

HamiError
├── ServiceDied        the scheduler service or a node agent ended by itself; its last lines say why
└── NotInTime          something that was waited for did not come to be
"""

from __future__ import annotations

from hami.domain.errors import HamiError


class ServiceDied(HamiError):
    """A process of ours ended by itself."""


class NotInTime(HamiError):
    """Something did not come to be in time; says what, and what was seen instead."""
