"""The plugin object: it names the two vendors and leaves the rest to the core's defaults."""

from __future__ import annotations

from collections.abc import Sequence

from hami.domain.profile import NodeAnnotations, PodAnnotations, VendorProfile
from hami.domain.units import WHOLE_DEVICE, VendorKey
from hami.hookspecs import PluginConfig, hookimpl
from hami_hygon.settings import Generation, HygonSettings, read_settings

HAMI_API = 1


@hookimpl
def hami_vendors(config: PluginConfig) -> Sequence[VendorProfile]:
    """``DCU`` (HAMi up to 2.10 and its own device plugin) and ``HCU`` (Hygon's device plugin).

    Both are offered always, because a cluster may be migrating node by node; a node belongs to
    the one whose register annotation it carries.

    Raises:
        ConfigError: a value of the section ``hygon`` cannot be used.
    """
    settings = read_settings(config)
    return (_profile("dcu", settings), _profile("hcu", settings))


def _profile(word: Generation, settings: HygonSettings) -> VendorProfile:
    """One of the two generations; they differ in names, and in what happens above 100 % cores.

    A request without cores asks for all of them: sharing a device needs ``<word>cores``.
    """
    return VendorProfile(
        key=VendorKey(word.upper()),
        resources=settings.names_of(word),
        node_annotations=NodeAnnotations(
            register=f"hami.io/node-{word}-register", handshake=f"hami.io/node-handshake-{word}"
        ),
        pod_annotations=PodAnnotations(
            to_allocate=f"hami.io/{word}-devices-to-allocate",
            allocated=f"hami.io/{word}-devices-allocated",
            use_type=(f"hygon.com/use-{word}type",),
            nouse_type=(f"hygon.com/nouse-{word}type",),
            use_uuid=("hygon.com/use-gpuuuid",),
            nouse_uuid=("hygon.com/nouse-gpuuuid",),
        ),
        register_codec="csv",
        memory_factor=settings.factor,
        default_cores=WHOLE_DEVICE,
        cores_excess="refuse" if word == "hcu" else "clamp",
        liveness="handshake",
        lock="mutex",
    )
