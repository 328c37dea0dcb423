"""Lists: selectors, pages that show one moment, and which moment a client asks for."""

from __future__ import annotations

import base64
import binascii
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from hami.domain.kubernetes.selectors import Selector, holds
from hami_lab.api.objects.fields import supported
from hami_lab.api.objects.refusals import Cause, Refusal, bad_request, expired, invalid_option
from hami_lab.api.objects.request import Request
from hami_lab.api.objects.selectors import field_selector, label_selector
from hami_lab.api.objects.storage import Item, Key, Storage

_MOST_SNAPSHOTS = 64
_VERSION = "meta.k8s.io/v1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """Which objects of a collection a list or a watch is about."""

    namespace: str
    name: str
    labels: Selector
    fields: Selector

    @property
    def selects(self) -> bool:
        return bool(self.labels or self.fields)

    def takes(self, item: Item) -> bool:
        if self.namespace and item.key[0] != self.namespace:
            return False
        if self.labels and not holds(self.labels, item.labels):
            return False
        return not self.fields or holds(self.fields, item.fields)


def filter_of(request: Request) -> Filter:
    """The request's selectors.

    Raises:
        Refusal: 400.
    """
    return Filter(
        namespace=request.namespace,
        name=request.name,
        labels=label_selector(request.query.get("labelSelector", "")),
        fields=field_selector(translated(request), supported(request.storage)),
    )


def translated(request: Request) -> str:
    """events.k8s.io selects by its own names of the same fields."""
    text = request.query.get("fieldSelector", "")
    if request.kind.group == "events.k8s.io":
        text = text.replace("regarding.", "involvedObject.")
        text = text.replace("reportingController", "reportingComponent")
    return text


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """Part of a list; ``remaining`` is None where nobody counted."""

    items: Sequence[Item]
    version: int
    next: str = ""
    remaining: int | None = None


class Listing:
    """Answers lists; keeps what longer lists looked like for their later pages."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._snapshots: OrderedDict[tuple[str, ...], tuple[int, list[Item]]] = OrderedDict()

    def page(self, request: Request) -> Page:
        """One page of a list, or all of it where no limit is asked.

        Raises:
            Refusal: 400, 410 where a page's moment is gone, 504 for a version of the future.
        """
        limit = request.number("limit")
        token = request.query.get("continue", "")
        chosen = filter_of(request)
        if token:
            return self._later(request, chosen, limit, token)
        self._check_version(request)
        version = self._storage.version
        items = [i for i in self._items(request) if chosen.takes(i)]
        if not limit or len(items) <= limit:
            return Page(items=items, version=version)
        self._snapshots[self._key(request, version)] = (version, items)
        while len(self._snapshots) > _MOST_SNAPSHOTS:
            self._snapshots.popitem(last=False)
        return _cut(items, 0, limit, version, counted=not chosen.selects)

    def _later(self, request: Request, chosen: Filter, limit: int, token: str) -> Page:
        version, start = _decode(token)
        found = self._snapshots.get(self._key(request, version))
        if found is None:
            raise expired(
                "The provided continue parameter is too old to display a consistent list result. "
                "You must start a new list without the continue parameter."
            )
        items = found[1]
        first = bisect_right(items, start, key=lambda item: item.key)
        return _cut(items, first, limit or len(items), version, counted=not chosen.selects)

    def _items(self, request: Request) -> list[Item]:
        return self._storage.collection(request.storage).within(request.namespace)

    def _key(self, request: Request, version: int) -> tuple[str, ...]:
        query = request.query
        return (
            *request.storage,
            request.namespace,
            query.get("labelSelector", ""),
            query.get("fieldSelector", ""),
            str(version),
        )

    def _check_version(self, request: Request) -> None:
        """Whether the moment that the client asks for can be shown."""
        text, match = (
            request.query.get(k, "") for k in ("resourceVersion", "resourceVersionMatch")
        )
        if match and not text:
            cause = Cause.forbidden(
                "resourceVersionMatch",
                "resourceVersionMatch is forbidden unless resourceVersion is provided",
            )
            raise invalid_option("ListOptions", [cause])
        version = version_of(text)
        current = self._storage.version
        if version > current:
            raise too_large(version, current)
        if match == "Exact" and version != current:
            changed = self._storage.collection(request.storage).log
            if version < changed.forgotten or changed.after(version) != changed.end:
                raise expired(f"The resourceVersion for the provided list is too old: {version}")


def version_of(text: str) -> int:
    """A resourceVersion from a query; 0 where there is none.

    Raises:
        Refusal: 400.
    """
    if not text:
        return 0
    if not text.isascii() or not text.isdigit() or len(text) > 19:
        raise bad_request(
            f'invalid resource version: resourceVersion: Invalid value: "{text}": '
            f'strconv.ParseUint: parsing "{text}": invalid syntax'
        )
    return int(text)


def too_large(version: int, current: int) -> Refusal:
    return Refusal(
        504,
        "Timeout",
        f"Timeout: Too large resource version: {version}, current: {current}",
        details={
            "causes": [
                {"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}
            ]
        },
        retry_after=1,
    )


def _cut(items: list[Item], first: int, limit: int, version: int, *, counted: bool) -> Page:
    end = first + limit
    rest = len(items) - end
    if rest <= 0:
        return Page(items=items[first:], version=version)
    return Page(
        items=items[first:end],
        version=version,
        next=_encode(version, items[end - 1].key),
        remaining=rest if counted else None,
    )


def _encode(version: int, last: Key) -> str:
    body = msgspec.json.encode({"v": _VERSION, "rv": version, "start": "/".join(last)})
    return base64.urlsafe_b64encode(body).decode().rstrip("=")


def _decode(token: str) -> tuple[int, Key]:
    try:
        padded = token + "=" * (-len(token) % 4)
        body = msgspec.json.decode(base64.urlsafe_b64decode(padded))
        namespace, _, name = str(body["start"]).partition("/")
        return int(body["rv"]), (namespace, name)
    except (binascii.Error, msgspec.DecodeError, KeyError, TypeError, ValueError) as error:
        raise bad_request(f"invalid continue token: continue key is not valid: {error}") from error
