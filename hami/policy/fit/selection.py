"""Which devices a pod's annotations allow: model, uuid, mode, and whether NUMA must match."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from hami.domain.kubernetes.objects import Pod
from hami.domain.profile import VendorProfile

_TRUE = frozenset({"1", "t", "T", "TRUE", "true", "True"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """A pod's demands on one vendor's devices, compiled once per pod.

    Each ``use_*`` entry is one annotation, and at least one of its tokens must match. A blank
    annotation is no constraint. ``nouse_*`` wins over ``use_*``.
    """

    use_models: tuple[tuple[str, ...], ...] = ()
    nouse_models: tuple[str, ...] = ()
    use_uuids: tuple[frozenset[str], ...] = ()
    nouse_uuids: frozenset[str] = frozenset()
    mode: str | None = None
    numa_bind: bool = False
    exact_models: bool = False

    @classmethod
    def of(cls, profile: VendorProfile, pod: Pod) -> Selection:
        annotations = pod.annotations
        if not annotations:
            return _ANY_EXACT if profile.type_match == "exact" else _ANY
        keys = profile.pod_annotations

        def token_lists(names: tuple[str, ...]) -> list[tuple[str, ...]]:
            lists = (_tokens(annotations.get(name, "")) for name in names)
            return [tokens for tokens in lists if tokens]

        return cls(
            use_models=tuple(_upper(tokens) for tokens in token_lists(keys.use_type)),
            nouse_models=_upper(sum(token_lists(keys.nouse_type), ())),
            use_uuids=tuple(frozenset(tokens) for tokens in token_lists(keys.use_uuid)),
            nouse_uuids=frozenset(sum(token_lists(keys.nouse_uuid), ())),
            mode=annotations.get(keys.mode) if keys.mode else None,
            numa_bind=bool(keys.numa_bind) and annotations.get(keys.numa_bind) in _TRUE,
            exact_models=profile.type_match == "exact",
        )

    def admits_model(self, model: str) -> bool:
        """Whether the pod admits this model.

        Case does not count; a token matches as a substring unless the profile is exact.
        """
        name = model.upper()

        def matches(token: str) -> bool:
            return token == name if self.exact_models else token in name

        return all(any(map(matches, tokens)) for tokens in self.use_models) and not any(
            map(matches, self.nouse_models)
        )

    def admits_mode(self, mode: str) -> bool:
        """Whether the annotation's text contains the device's mode (HAMi's rule; case counts)."""
        return self.mode is None or mode in self.mode

    def admits_uuid(self, uuid: str) -> bool:
        return all(uuid in wanted for wanted in self.use_uuids) and uuid not in self.nouse_uuids


_ANY = Selection()
_ANY_EXACT = Selection(exact_models=True)


def cordoned_ids(profile: VendorProfile, annotations: Mapping[str, str]) -> frozenset[str]:
    """Ids of the devices that the node's operator keeps from new pods."""
    text = annotations.get(profile.node_annotations.cordon, "")
    return frozenset(_tokens(text))


def _tokens(text: str) -> tuple[str, ...]:
    return tuple(token for part in text.split(",") if (token := part.strip()))


def _upper(tokens: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(token.upper() for token in tokens)
