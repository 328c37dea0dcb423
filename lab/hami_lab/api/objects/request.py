"""What a client asks, taken apart."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from hami_lab.api.objects.kinds import Kind
from hami_lab.api.objects.refusals import Cause, bad_request, invalid_option


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One call on a resource; ``verb`` in Kubernetes' words (list, watch, patch ...).

    ``warnings`` collects what the answer's Warning headers say.
    """

    verb: str
    kind: Kind
    namespace: str = ""
    name: str = ""
    subresource: str = ""
    query: Mapping[str, str] = field(default_factory=dict)
    user_agent: str = ""
    accept: str = ""
    warnings: list[str] = field(default_factory=list)

    @property
    def storage(self) -> tuple[str, str]:
        return self.kind.storage

    @property
    def dry_run(self) -> bool:
        return bool(self.query.get("dryRun"))

    @property
    def manager(self) -> str:
        """Who writes, for server-side apply."""
        return self.query.get("fieldManager") or self.user_agent.partition("/")[0]

    @property
    def options(self) -> str:
        """The kind of the verb's options, as messages and webhooks name it."""
        word = {"create": "Create", "update": "Update", "patch": "Patch", "delete": "Delete"}
        return f"{word.get(self.verb, 'Delete')}Options"

    def check_options(self) -> None:
        """Whether the query of a write can be.

        Raises:
            Refusal: 422.
        """
        dry_run = self.query.get("dryRun", "")
        if dry_run not in ("", "All"):
            cause = Cause(
                "dryRun",
                f'Unsupported value: ["{dry_run}"]: supported values: "All"',
                reason="FieldValueNotSupported",
            )
            raise invalid_option(self.options, [cause])

    def flag(self, name: str) -> bool:
        return self.query.get(name, "").lower() in ("1", "t", "true")

    def number(self, name: str) -> int:
        """A number from the query; 0 where there is none.

        Raises:
            Refusal: 400, it is no number.
        """
        text = self.query.get(name, "")
        if not text:
            return 0
        if not text.isascii() or not text.isdigit() or len(text) > 18:
            raise bad_request(f'strconv.ParseInt: parsing "{text}": invalid syntax')
        return int(text)
