"""One object of the files: its kind, its name, and where it stands, for messages."""

from __future__ import annotations

from dataclasses import dataclass

from hami.domain.errors import ConfigError
from hami.domain.kubernetes.objects import Metadata
from hami.simulate.documents import Document

CLUSTER_SCOPED = ("Node", "Namespace", "QuotaTree")


@dataclass(frozen=True, slots=True)
class FileObject:
    """A document of a file that is a Kubernetes object."""

    document: Document
    kind: str
    metadata: Metadata

    @property
    def namespace(self) -> str:
        return "" if self.kind in CLUSTER_SCOPED else self.metadata.namespace or "default"

    @property
    def key(self) -> tuple[str, str, str]:
        return (self.kind, self.namespace, self.metadata.name)

    @property
    def title(self) -> str:
        name = self.metadata.name
        return f"{self.kind} {self.namespace}/{name}" if self.namespace else f"{self.kind} {name}"

    def error(self, problem: str) -> ConfigError:
        return ConfigError(f"{self.document.place}: {self.title}: {problem}")
