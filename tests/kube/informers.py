"""An informer under test, and a handler that checks its calls."""

from __future__ import annotations

from hami.kube.informer import Informer
from hami.kube.pace import Backoff
from hami.kube.resources import NODES


class Heard:
    """A handler whose notes replay to a store; a doubled or impossible note is an error."""

    def __init__(self) -> None:
        self.notes: list[str] = []
        self.store: dict[tuple[str, str], object] = {}
        self.wrong: list[str] = []

    def changed(self, new, old):
        key = (new.metadata.namespace, new.metadata.name)
        if self.store.get(key) is not old:
            self.wrong.append(f"{key}: changed from something else than was there")
        if old is not None and old.metadata.uid != new.metadata.uid:
            self.wrong.append(f"{key}: replaced without being gone")
        if old is not None and old.metadata.resource_version == new.metadata.resource_version:
            self.wrong.append(f"{key}: told twice")
        self.store[key] = new
        self.notes.append(f"{'~' if old else '+'}{new.metadata.name}")

    def gone(self, last):
        key = (last.metadata.namespace, last.metadata.name)
        if self.store.pop(key, None) is None:
            self.wrong.append(f"{key}: gone without having been there")
        self.notes.append(f"-{last.metadata.name}")


def an_informer(client, heard, problems, resource=NODES, **options):
    backoff = Backoff(first=0.01, most=0.05)
    return Informer(client, resource, heard, on_problem=problems.append, backoff=backoff, **options)


def versions(informer):
    return {key: o.metadata.resource_version for key, o in informer.objects.items()}


def stored(api, plural="nodes"):
    return {key: body["metadata"]["resourceVersion"] for key, body in api.objects[plural].items()}
