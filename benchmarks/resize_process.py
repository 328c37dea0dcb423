"""Resizes bound pods at a steady rate, one after the other, as somebody with the right to.

``python -m benchmarks.resize_process API-SERVER SCHEDULER RATE`` prints a line once the first one
is in force, goes on until it reads a line, and prints how many were made.
"""

from __future__ import annotations

import json
import select
import sys
import time
import urllib.error
import urllib.request
from typing import Any

from benchmarks.population import NAMESPACE

ACCOUNT = "resizer"
SIGNED = 2
"""Every second bound pod is signed."""
PODS = 400
RBAC = "rbac.authorization.k8s.io"


def _post(url: str, body: Any, token: str = "") -> Any:
    headers = {"Content-Type": "application/json"}
    if token:
        headers["Authorization"] = f"Bearer {token}"
    request = urllib.request.Request(url, json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.loads(answer.read())


def _made(url: str, body: Any) -> None:
    """Create what may be there already, from the turn before."""
    try:
        _post(url, body)
    except urllib.error.HTTPError as error:
        with error:
            if error.code != 409:
                raise


def a_token(api: str) -> str:
    """Of an account that may resize every pod of the namespace."""
    core = f"{api}/api/v1/namespaces/{NAMESPACE}/serviceaccounts"
    roles = f"{api}/apis/{RBAC}/v1/namespaces/{NAMESPACE}"
    about = {"name": ACCOUNT}
    rule = {"apiGroups": [""], "resources": ["pods/resize"], "verbs": ["update"]}
    _made(core, {"metadata": about})
    _made(f"{roles}/roles", {"metadata": about, "rules": [rule]})
    binding = {
        "metadata": about,
        "roleRef": {"apiGroup": RBAC, "kind": "Role", "name": ACCOUNT},
        "subjects": [{"kind": "ServiceAccount", "name": ACCOUNT, "namespace": NAMESPACE}],
    }
    _made(f"{roles}/rolebindings", binding)
    return str(_post(f"{core}/{ACCOUNT}/token", {"spec": {}})["status"]["token"])


def main() -> None:
    api, scheduler, rate = sys.argv[1], sys.argv[2], float(sys.argv[3])
    token, done, begin = a_token(api), 0, time.monotonic()
    while not select.select([sys.stdin], [], [], max(0, begin + done / rate - time.monotonic()))[0]:
        name = f"bound-{done * SIGNED % PODS:05}"
        body = {
            "requestId": f"{time.time_ns()}",
            "containers": [{"memoryMiB": 4000 + time.time_ns() % 97, "cores": 5}],
        }
        _post(f"{scheduler}/api/v1/pods/{NAMESPACE}/{name}/resize", body, token)
        done += 1
        if done == 1:
            sys.stdout.write("it runs\n")
            sys.stdout.flush()
            begin = time.monotonic() - 1 / rate
    sys.stdout.write(f"{done}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
