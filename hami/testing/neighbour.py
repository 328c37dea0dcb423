"""Another vendor beside the one under test: no vendor is ever alone in a cluster."""

from __future__ import annotations

from collections.abc import Sequence

from hami.domain.profile import NodeAnnotations, PodAnnotations, ResourceNames, VendorProfile
from hami.domain.units import VendorKey
from hami.hookspecs import HAMI_API, hookimpl

_DOMAIN = "neighbour.hami.io"

NEIGHBOUR = VendorProfile(
    key=VendorKey("NEIGHBOUR"),
    resources=ResourceNames(count=f"{_DOMAIN}/device", memory=f"{_DOMAIN}/memory"),
    node_annotations=NodeAnnotations(register=f"{_DOMAIN}/register"),
    pod_annotations=PodAnnotations(allocated=f"{_DOMAIN}/allocated"),
)


class Neighbour:
    """A plugin with one vendor that is nothing but its profile."""

    HAMI_API = HAMI_API

    @hookimpl
    def hami_vendors(self) -> Sequence[VendorProfile]:
        return (NEIGHBOUR,)
