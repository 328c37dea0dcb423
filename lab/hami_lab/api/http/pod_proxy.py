"""A GET that the API server passes on to a pod's own HTTP server.

https://kubernetes.io/docs/tasks/access-application-cluster/access-cluster-services/
The laboratory's pods answer on this machine: a real server would not go to a loopback address.
"""

from __future__ import annotations

from dataclasses import dataclass

import aiohttp

from hami_lab.api.objects.kinds import Kinds
from hami_lab.api.objects.refusals import Refusal, bad_request, method_not_allowed, not_found
from hami_lab.api.objects.storage import Storage

PATIENCE = aiohttp.ClientTimeout(total=30)


@dataclass(frozen=True, slots=True)
class ProxyPath:
    """``/api/v1/namespaces/NAMESPACE/pods/[http:]NAME:PORT/proxy/PATH``."""

    namespace: str
    name: str
    port: str
    path: str


@dataclass(frozen=True, slots=True)
class Passed:
    """The pod's own answer, whatever it says."""

    status: int
    type: str
    body: bytes


def proxy_path(path: str) -> ProxyPath | None:
    match path.split("/", 8):
        case ["", "api", "v1", "namespaces", namespace, "pods", named, "proxy", *rest]:
            name, _, port = named.removeprefix("http:").removesuffix(":").partition(":")
            return ProxyPath(namespace, name, port, "/" + "".join(rest))
        case _:
            return None


async def passed_on(
    method: str, asked: ProxyPath, query: str, kinds: Kinds, storage: Storage
) -> Passed:
    """Ask the pod.

    Raises:
        Refusal: there is no such pod, it has no address, or nobody answers there.
    """
    if method != "GET":
        raise method_not_allowed()
    kind = kinds.named("pods")
    item = storage.get(kind.storage, asked.namespace, asked.name)
    if item is None:
        raise not_found(kind, asked.name)
    address = (item.object().get("status") or {}).get("podIP")
    if not address:
        raise bad_request("address not allowed")
    host = f"[{address}]" if ":" in address else address
    url = f"http://{host}:{asked.port or 80}{asked.path}{'?' if query else ''}{query}"
    try:
        async with (
            aiohttp.ClientSession(timeout=PATIENCE) as session,
            session.get(url, allow_redirects=False) as answer,
        ):
            type = answer.headers.get("content-type", "")
            return Passed(answer.status, type, await answer.read())
    except (aiohttp.ClientError, TimeoutError, ValueError) as error:
        text = f"error trying to reach service: {error}"
        raise Refusal(503, "ServiceUnavailable", text) from error
