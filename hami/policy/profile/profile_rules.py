"""What a profile must be before anything trusts it: its kinds, key, names and numbers.

The registry refuses a vendor for each of these rules, and the conformance kit states them.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import Any, Literal, get_args, get_origin, get_type_hints

from hami.domain.errors import shortened
from hami.domain.profile import (
    SERVICE_ACCOUNT_AT,
    NodeAnnotations,
    PodAnnotations,
    ResourceNames,
    VendorProfile,
)
from hami.domain.units import MAX_DEVICE_MEMORY, WHOLE_DEVICE

_KEY = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9.]*[A-Za-z0-9])?", re.ASCII)
_LONGEST_KEY = 40
_WORD = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?", re.ASCII)
_DOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*", re.ASCII)
_LONGEST_DOMAIN = 253
_LONGEST_WORD = 63
_GUARDED = ("/run/", "/var/run/", "/etc/", "/usr/")
_ACCOUNT = f"{SERVICE_ACCOUNT_AT.removeprefix('/var')}/"
_QUOTA = "requests."
"""A ResourceQuota writes it before the name of a resource."""

_Named = tuple[str, str]
"""A field of the profile, and the name that it gives."""


def profile_problems(profile: VendorProfile) -> tuple[str, ...]:
    """The rules that ``profile`` breaks: field, value and what it must be. Empty: none.

    Where fields are of the wrong kind, only those are named: the other rules cannot be checked.
    """
    wrong = tuple(
        chain(
            _wrong_kinds("", profile, VendorProfile),
            _wrong_kinds("resources.", profile.resources, ResourceNames),
            _wrong_kinds("node_annotations.", profile.node_annotations, NodeAnnotations),
            _wrong_kinds("pod_annotations.", profile.pod_annotations, PodAnnotations),
        )
    )
    rules = (_of_key, _of_resources, _of_annotations, _of_paths, _ranges)
    return wrong or tuple(chain.from_iterable(rule(profile) for rule in rules))


def annotation_key_problem(key: str) -> str:
    """Why Kubernetes refuses this annotation key; empty when it does not."""
    domain, slash, word = key.rpartition("/")
    if slash and not (_DOMAIN.fullmatch(domain) and len(domain) <= _LONGEST_DOMAIN):
        return f"{shortened(domain)!r} is no domain in lower case"
    if not (_WORD.fullmatch(word) and len(word) <= _LONGEST_WORD):
        return f"{shortened(word)!r} is not 1 to {_LONGEST_WORD} letters, digits and '-_.'"
    return ""


def resource_name_problem(name: str) -> str:
    """Why Kubernetes takes no extended resource of this name; empty when it does."""
    domain, slash, _ = name.rpartition("/")
    if not slash:
        return "an extended resource has a domain, as in example.com/device"
    if "kubernetes.io/" in name:
        return "a domain that ends in kubernetes.io is not yours"
    if name.startswith(_QUOTA):
        return f"{_QUOTA!r} in front is for quotas"
    if len(_QUOTA + domain) > _LONGEST_DOMAIN:
        return f"a domain has at most {_LONGEST_DOMAIN - len(_QUOTA)} characters"
    return annotation_key_problem(name)


def _wrong_kinds(prefix: str, value: object, cls: type) -> Iterator[str]:
    """The fields of ``cls`` that hold another kind of value than they declare."""
    if not isinstance(value, cls):
        return
    for name, kind in get_type_hints(cls).items():
        field = getattr(value, name)
        if not _is_of(field, kind):
            yield f"{prefix}{name} is {shortened(repr(field))}, not {_words(kind)}"


def _is_of(value: object, kind: Any) -> bool:
    kind = getattr(kind, "__supertype__", kind)  # what a NewType is made of
    arguments = get_args(kind)
    match get_origin(kind):
        case None:
            return isinstance(value, kind) and not (kind is int and isinstance(value, bool))
        case origin if origin is Literal:
            return value in arguments
        case origin if origin is tuple:
            return isinstance(value, tuple) and all(_is_of(v, arguments[0]) for v in value)
        case _:
            return isinstance(value, Mapping) and all(
                _is_of(k, arguments[0]) and _is_of(v, arguments[1]) for k, v in value.items()
            )


def _words(kind: Any) -> str:
    kind = getattr(kind, "__supertype__", kind)
    if get_origin(kind) is Literal:
        return " or ".join(map(repr, get_args(kind)))
    plain = {str: "a text", int: "a whole number", bool: "True or False"}
    shape = {tuple: "a tuple of texts", Mapping: "a mapping of modes to ModeRules"}
    return plain.get(kind) or shape.get(get_origin(kind)) or f"{kind.__name__}"


def _of_key(profile: VendorProfile) -> Iterator[str]:
    """Paths and CDI names carry the key, in lower case."""
    key = profile.key
    if not (_KEY.fullmatch(key) and len(key) <= _LONGEST_KEY):
        yield f"key is {shortened(key)!r}, not 1 to {_LONGEST_KEY} letters, digits, '-' and '.'"


def _of_resources(profile: VendorProfile) -> Iterator[str]:
    names = profile.resources
    named: list[_Named] = [
        ("resources.count", names.count),
        ("resources.memory", names.memory),
        ("resources.memory_percentage", names.memory_percentage),
        ("resources.cores", names.cores),
        ("resources.priority", names.priority),
    ]
    if not names.count:
        yield "resources.count is empty, and without it nobody can ask for a device"
    for field, name in named:
        if name and (problem := resource_name_problem(name)):
            yield f"{field} is {shortened(name)!r}: {problem}"
    yield from _shared(named)


def _of_annotations(profile: VendorProfile) -> Iterator[str]:
    """What is written for the vendor is found again: present, valid, and shared with nothing."""
    node, pod = profile.node_annotations, profile.pod_annotations
    written: list[_Named] = [
        ("node_annotations.register", node.register),
        ("node_annotations.handshake", node.handshake),
        ("node_annotations.lock", node.lock),
        ("pod_annotations.to_allocate", pod.to_allocate),
        ("pod_annotations.allocated", pod.allocated),
        *(("pod_annotations.also_written", key) for key in pod.also_written),
        *(("node_annotations.also_written", key) for key in node.also_written),
    ]
    spelled = {
        "use_type": pod.use_type,
        "nouse_type": pod.nouse_type,
        "use_uuid": pod.use_uuid,
        "nouse_uuid": pod.nouse_uuid,
        "numa_bind": (pod.numa_bind,),
        "mode": (pod.mode,),
    }
    chosen = [(f"pod_annotations.{field}", key) for field, keys in spelled.items() for key in keys]
    chosen.append(("node_annotations.cordon", node.cordon))
    for field, key in (written[0], written[4]):
        if not key:
            yield f"{field} is empty, and without it nothing is found again"
    if profile.lock == "private" and not node.lock:
        yield "node_annotations.lock is empty, and a private lock is written there"
    for field, key in (*written, *chosen):
        if key and (problem := annotation_key_problem(key)):
            yield f"{field} is {shortened(key)!r}: {problem}"
    # Two choices may share a key; what is written may be nothing else as well.
    distinct = {key: field for field, key in chosen}
    yield from _shared((*written, *((field, key) for key, field in distinct.items())))


def _of_paths(profile: VendorProfile) -> Iterator[str]:
    """Guarded paths lie where the scheduler looks at a pod's mounts: it drops all others."""
    for path in profile.guarded_paths:
        if not path.startswith(_GUARDED) or posixpath.normpath(path) != path:
            folders = ", ".join(_GUARDED)
            yield f"guarded_paths has {shortened(path)!r}, not a plain path below {folders}"
        below_run = f"/{path.removeprefix('/var').strip('/')}/"
        if below_run.startswith(_ACCOUNT) or _ACCOUNT.startswith(below_run):
            mounted = "where Kubernetes mounts the service account of every pod"
            yield f"guarded_paths has {shortened(path)!r}, {mounted}"


def _shared(named: Iterable[_Named]) -> Iterator[str]:
    fields: dict[str, list[str]] = {}
    for field, name in named:
        fields.setdefault(name, []).append(field)
    for name, several in fields.items():
        if name and len(several) > 1:
            yield f"{' and '.join(several)} are both {shortened(name)!r}, and each needs its own"


def _ranges(profile: VendorProfile) -> Iterator[str]:
    p = profile
    for field, value in (("memory_factor", p.memory_factor), ("max_count", p.max_count)):
        if value < 1:
            yield f"{field} is {value}, not at least 1"
    for field, value, most in (
        ("default_count", p.default_count, p.max_count),
        ("default_memory_mib", p.default_memory_mib, MAX_DEVICE_MEMORY),
        ("default_cores", p.default_cores, WHOLE_DEVICE),
    ):
        if not 0 <= value <= most:
            yield f"{field} is {value}, not between 0 and {most}"
