"""A command's client for the scheduler's API."""

from __future__ import annotations

import http.client
import ipaddress
import json
import ssl
import urllib.error
import urllib.request
from collections.abc import Mapping
from typing import TypeVar
from urllib.parse import quote, urlencode, urlsplit

from pydantic import BaseModel, ValidationError

from hami.domain.errors import ConfigError

DEFAULT = "http://127.0.0.1:9395"
"""The address of a scheduler on this machine, or of a forwarded port."""

_PATIENCE = 10.0
_LONG_PATIENCE = 30.0
"""For a change, which waits for the API server and its watch."""
_FORWARD = "kubectl -n NAMESPACE port-forward POD 9395"

Answer = TypeVar("Answer", bound=BaseModel)


class Api:
    """The API of one scheduler."""

    def __init__(self, server: str) -> None:
        """``server`` is ``http://HOST:PORT``.

        Raises:
            ConfigError: the text is no such address.
        """
        self._server = server.rstrip("/")
        if "@" in server:  # It may hold a password, so it is not repeated.
            raise ConfigError("--server or HAMI_SERVER names a user; write http://HOST:PORT")
        if not is_address(self._server):
            raise ConfigError(
                f"--server or HAMI_SERVER is {server!r}, which is no address; write "
                f"http://HOST:PORT"
            )
        # No proxy from the environment: it could not reach a forwarded port on this machine.
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    def get(self, shape: type[Answer], *path: str, **query: str) -> Answer | None:
        """The answer of ``/api/v1/PATH``; None for a thing that the scheduler does not know.

        Raises:
            ConfigError: no server answers, or a server other than hami's scheduler does.
        """
        where = "/".join(quote(part, safe="") for part in path)
        asked = f"?{urlencode(query)}" if query else ""
        try:
            with self._opener.open(
                f"{self._server}/api/v1/{where}{asked}", timeout=_PATIENCE
            ) as answer:
                body = answer.read()
            return shape.model_validate_json(body)
        except urllib.error.HTTPError as error:
            with error:
                if error.code == 404 and _is_ours(error.read()):
                    return None
            raise self._stranger(f"HTTP {error.code} {error.reason}") from error
        except ValidationError as error:
            problem = f"{error.error_count()} fields of {shape.__name__} cannot be read"
            raise self._stranger(problem) from error
        except (OSError, http.client.HTTPException) as error:
            raise self._silent(error) from error

    def post(self, body: bytes, authorization: str, *path: str) -> tuple[int, bytes]:
        """Ask for a change; the status and the body of the answer, whatever it is.

        ``authorization`` is a header, and sent where nobody on the way can read it.

        Raises:
            ConfigError: no server answers, or the way to it is open to others.
        """
        parts = urlsplit(self._server)
        if parts.scheme != "https" and not _is_this_machine(parts.hostname or ""):
            raise ConfigError(
                f"--server or HAMI_SERVER is {self._server}: a token is sent over HTTPS, or to a "
                f"forwarded port of this machine: {_FORWARD}"
            )
        where = "/".join(quote(part, safe="") for part in path)
        headers = {"Authorization": authorization, "Content-Type": "application/json"}
        request = urllib.request.Request(  # noqa: S310 -- http or https, see __init__
            f"{self._server}/api/v1/{where}", body, headers, method="POST"
        )
        try:
            with self._opener.open(request, timeout=_LONG_PATIENCE) as answer:
                return answer.status, answer.read()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read()
        except (OSError, http.client.HTTPException) as error:
            raise self._silent(error) from error

    def _silent(self, error: Exception) -> ConfigError:
        return ConfigError(
            f"{self._server} does not answer: {_reason(error)}; name the scheduler's metrics "
            f"address with --server or HAMI_SERVER, or forward its port: {_FORWARD}"
        )

    def _stranger(self, what: str) -> ConfigError:
        return ConfigError(
            f"{self._server} does not answer as a hami scheduler of this version ({what}); name "
            f"its metrics address with --server or HAMI_SERVER"
        )


def is_address(server: str) -> bool:
    """Whether the text is ``http://HOST[:PORT][/PATH]``, without characters that cannot be sent."""
    try:
        parts = urlsplit(server)
        named = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        return False
    return bool(named) and not set(server) & set("?# ") and server.isprintable()


def _is_this_machine(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _reason(error: Exception) -> str:
    """The error's text without its number; never empty."""
    inner = error.reason if isinstance(error, urllib.error.URLError) else error
    if isinstance(inner, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted ({inner.verify_message})"
    if isinstance(inner, ssl.SSLError):
        return "it does not speak HTTPS"
    said = inner.strerror if isinstance(inner, OSError) and inner.strerror else str(inner)
    return said or type(inner).__name__


def _is_ours(body: bytes) -> bool:
    """Whether a 404 is ours: it says what is not known; other servers' that no path is there."""
    try:
        said = json.loads(body)
    except ValueError:
        return False
    detail = said.get("detail") if isinstance(said, Mapping) else None
    return isinstance(detail, str) and detail.endswith("is known")
