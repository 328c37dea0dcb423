"""What a node publishes: its devices with their MIG profiles, and how well they are linked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from hami.domain.devices import Device
from hami.domain.errors import Malformed, shortened
from hami.domain.extra import NO_EXTRA, Extra
from hami.domain.kubernetes.objects import Node
from hami.domain.profile import VendorProfile
from hami.domain.units import DeviceId
from hami.wire import codecs
from hami_nvidia.schedule.mig_placement import MIG_PROFILES, MigProfile
from hami_nvidia.schedule.topology import PAIR_SCORES, PairScore

SCORES_ANNOTATION = "hami.io/node-nvidia-score"
"""``[{"uuid":"GPU-a","score":{"GPU-b":120}}]``, higher is closer; absent without topology."""


class _DeviceScores(msgspec.Struct, frozen=True, kw_only=True):
    uuid: DeviceId
    score: dict[DeviceId, int] | None = None


def node_devices(profile: VendorProfile, node: Node) -> Sequence[Device] | Malformed:
    """The devices in the register annotation, each with its pair scores.

    JSON alone: HAMi's older colon format is for other vendors. A malformed score annotation
    makes the node's devices unusable, as in HAMi.
    """
    key = profile.node_annotations.register
    text = node.annotations.get(key)
    if text is None:
        return ()
    has_profiles = "migprofiles" in text.lower()
    devices = codecs.decode_register_json(
        text,
        annotation=key,
        vendor=profile.key,
        read_extra=_read_mig_profiles if has_profiles else None,
    )
    scores_text = node.annotations.get(SCORES_ANNOTATION)
    if isinstance(devices, Malformed) or scores_text is None:
        return devices
    scores = decode_pair_scores(scores_text)
    if isinstance(scores, Malformed):
        return scores
    return tuple(
        replace(device, extra=device.extra.with_(PAIR_SCORES, links))
        if (links := scores.get(device.id))
        else device
        for device in devices
    )


def node_annotations(profile: VendorProfile, devices: Sequence[Device]) -> Mapping[str, str]:
    """The inverse of :func:`node_devices`; no score annotation when no device has scores."""
    annotations = {
        profile.node_annotations.register: codecs.encode_register_json(
            devices, write_extra=_write_mig_profiles
        )
    }
    scores = {d.id: links for d in devices if (links := d.extra.get(PAIR_SCORES))}
    if scores:
        annotations[SCORES_ANNOTATION] = encode_pair_scores(scores)
    return annotations


def decode_pair_scores(text: str) -> Mapping[DeviceId, tuple[PairScore, ...]] | Malformed:
    """Each device's links by peer id; of two entries for one device the first counts."""
    try:
        entries = msgspec.json.decode(text, type=list[_DeviceScores] | None) or []
    except (msgspec.DecodeError, RecursionError, ValueError) as error:
        return Malformed(
            annotation=SCORES_ANNOTATION, position="", text=shortened(text), problem=str(error)
        )
    return {
        entry.uuid: tuple(
            PairScore(peer=peer, score=score) for peer, score in sorted((entry.score or {}).items())
        )
        for entry in reversed(entries)
    }


def encode_pair_scores(scores: Mapping[DeviceId, Sequence[PairScore]]) -> str:
    entries = [
        {"uuid": device, "score": {link.peer: link.score for link in links}}
        for device, links in scores.items()
    ]
    return msgspec.json.encode(entries).decode()


def _read_mig_profiles(published: Mapping[str, Any]) -> Extra:
    """``migProfiles`` of one device; raises ``msgspec.ValidationError`` for a wrong shape."""
    profiles = msgspec.convert(published.get("migprofiles"), tuple[MigProfile, ...] | None)
    return NO_EXTRA.with_(MIG_PROFILES, profiles) if profiles else NO_EXTRA


def _write_mig_profiles(device: Device) -> Mapping[str, Any]:
    profiles = device.extra.get(MIG_PROFILES)
    return {"migProfiles": msgspec.to_builtins(profiles)} if profiles else {}
