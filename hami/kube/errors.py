"""The error of an API call, and the statuses that callers tell apart.

HamiError
└── ApiError           the API server refused, or did not answer; the caller must decide
"""

from __future__ import annotations

from hami.domain.errors import HamiError, shortened

NO_ANSWER = 0
GONE = 410
"""A resource version too old to watch from, or a page too old to go on from: list again."""
CONFLICT = 409
NOT_FOUND = 404
FORBIDDEN = 403
UNAUTHORIZED = 401
TOO_MANY_REQUESTS = 429
INVALID = 422
"""The server's own validation, or a test of a JSON patch that failed."""

_UNKNOWN_BELOW_500 = frozenset({NO_ANSWER, 408})


class ApiError(HamiError):
    """One call to the API server failed.

    ``call`` says which one (``GET pods default/a``). ``status`` is the HTTP status, 0 for no
    answer. ``reason`` is the server's word (``NotFound``) and ``message`` its sentence.
    ``retry_after`` is in seconds, where the server named a time.
    """

    def __init__(
        self,
        message: str,
        *,
        call: str = "",
        status: int = NO_ANSWER,
        reason: str = "",
        retry_after: float | None = None,
        sent: bool = True,
    ) -> None:
        super().__init__(message)
        self.call = call
        self.status = status
        self.reason = reason
        self.message = message
        self.retry_after = retry_after
        self.sent = sent

    @property
    def outcome_unknown(self) -> bool:
        """A write may or may not have happened: no answer, 408 or 5xx.

        429 and every other 4xx are definite, and so is a connection that could not be made.
        """
        return self.sent and (self.status in _UNKNOWN_BELOW_500 or self.status >= 500)

    def __str__(self) -> str:
        verdict = f"{self.status} {self.reason}".strip() if self.status else "no answer"
        text = f"{verdict}: {shortened(self.message, 500)}"
        return f"{self.call}: {text}" if self.call else text
