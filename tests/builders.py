"""Short ways to make plugins: objects with only the hooks that a case is about."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from hami.domain.profile import NodeAnnotations, PodAnnotations, ResourceNames, VendorProfile
from hami.hookspecs import HAMI_API, hookimpl


def a_profile(key: str = "ACME", **fields: Any) -> VendorProfile:
    """A vendor whose names all derive from its key."""
    site = f"{key.lower()}.com"
    named = {
        "resources": ResourceNames(
            count=f"{site}/gpu", memory=f"{site}/mem", cores=f"{site}/cores", priority=f"{site}/pri"
        ),
        "node_annotations": NodeAnnotations(register=f"{site}/register"),
        "pod_annotations": PodAnnotations(
            to_allocate=f"{site}/to-allocate", allocated=f"{site}/allocated"
        ),
    }
    return VendorProfile(key=key, **(named | fields))


def a_plugin(
    *hooks: Callable[..., Any], vendors: Any = ("ACME",), api: Any = HAMI_API, **members: Any
) -> object:
    """A plugin object that carries these vendors (keys or profiles; None: no ``hami_vendors``).

    ``hooks`` are marked functions, named as the hooks are; ``members`` are set as they are.
    """
    found = {hook.__name__: staticmethod(hook) for hook in hooks} | members
    if vendors is not None:
        found["hami_vendors"] = staticmethod(naming(vendors))
    if api is not None:
        found["HAMI_API"] = api
    return type("Plugin", (), found)()


def naming(vendors: Any) -> Callable[..., Any]:
    """A ``hami_vendors`` hook that answers with these vendors; keys become profiles."""

    @hookimpl
    def hami_vendors() -> Any:
        if isinstance(vendors, BaseException):
            raise vendors
        if not isinstance(vendors, Sequence) or isinstance(vendors, str):
            return vendors
        return [a_profile(v) if isinstance(v, str) else v for v in vendors]

    return hami_vendors


def answering(hook: str, answer: Any, **options: Any) -> Callable[..., Any]:
    """A marked hook that always gives this answer, or raises it."""

    def call() -> Any:
        if isinstance(answer, BaseException):
            raise answer
        return answer

    call.__name__ = hook
    return hookimpl(**options)(call)
