"""HAMi's device plugin for NVIDIA, as far as pods can tell: HAMi 2.10's steps, on our own server.

It serves the pod that the node lock names, and without a lock the first pod that is being bound.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import grpc

from hami.node.kubelet.api import v1beta1_pb2 as api
from lab.tests.fake_plugin import FakePlugin

from .client import Client, Object, node_path, pods_path
from .worker import DEVICE_PLUGINS

REGISTER = "hami.io/node-nvidia-register"
LOCK, PHASE = "hami.io/mutex.lock", "hami.io/bind-phase"
TO_ALLOCATE = "hami.io/vgpu-devices-to-allocate"


class HamiPlugin(FakePlugin):
    """``register`` is what it publishes of its devices; for kubelet a device's slots are
    ``<id>-<n>``.
    """

    def __init__(self, admin: Client, node: str, register: str) -> None:
        ids = [f"{gpu['id']}-{n}" for gpu in json.loads(register) for n in range(gpu["count"])]
        super().__init__(DEVICE_PLUGINS, *ids, resource="nvidia.com/gpu", name="nvidia-gpu.sock")
        self.pre_start = False
        self._admin, self._node, self._register = admin, node, register
        self._one_at_a_time = asyncio.Lock()

    async def begin(self) -> None:
        await super().begin()
        self._annotate(node_path(self._node), {REGISTER: self._register})

    async def _allocate(self, request: Any, context: Any) -> Any:
        async with self._one_at_a_time:
            pod = await asyncio.to_thread(self._pending)
            if pod is None:
                await context.abort(grpc.StatusCode.UNKNOWN, "no binding pod found on node")
            asked = [len(one.devices_ids) for one in request.container_requests]
            try:
                answers = await asyncio.to_thread(self._serve, pod, asked)
            except LookupError as error:
                await asyncio.to_thread(self._over, pod, "failed")
                await context.abort(grpc.StatusCode.UNKNOWN, str(error))
        return api.AllocateResponse(container_responses=answers)

    def _pending(self) -> Object | None:
        """The pod with the lock, in any state; without a lock the first that is being bound here."""
        held = self._admin.get(node_path(self._node))["metadata"]["annotations"].get(LOCK, "")
        if held:
            _, namespace, name = held.split(",")
            return self._admin.get(pods_path(namespace, name))
        pods = self._admin.list("/api/v1/pods", fieldSelector=f"spec.nodeName={self._node}")
        return next((pod for pod in pods if self._is_bound(pod)), None)

    def _is_bound(self, pod: Object) -> bool:
        says = pod["metadata"].get("annotations", {})
        return (
            pod["status"]["phase"] == "Pending"
            and "hami.io/bind-time" in says
            and says.get(PHASE) in ("allocating", "success")
            and says.get("hami.io/vgpu-node") == self._node
        )

    def _serve(self, pod: Object, asked: list[int]) -> list[Any]:
        """Answer a call.

        Raises:
            LookupError: there is no pod to serve.
        """
        path = pods_path(pod["metadata"]["namespace"], pod["metadata"]["name"])
        slots = pod["metadata"]["annotations"][TO_ALLOCATE].split(";")
        answers = []
        for count in asked:
            at = next((n for n, slot in enumerate(slots) if slot), None)
            if at is None:
                raise LookupError("no pending device allocation found")
            grants = [part.split(",") for part in slots[at].split(":") if "," in part]
            if len(grants) != count:
                raise LookupError("device number not matched")
            slots[at] = ""
            answers.append(_answer(grants))
        self._annotate(path, {TO_ALLOCATE: ";".join(slots)})
        if not any(slots):
            self._over(pod, "success")
        return answers

    def _over(self, pod: Object, phase: str) -> None:
        namespace, name = pod["metadata"]["namespace"], pod["metadata"]["name"]
        self._annotate(pods_path(namespace, name), {PHASE: phase})
        held = self._admin.get(node_path(self._node))["metadata"]["annotations"].get(LOCK, "")
        if held.endswith(f",{namespace},{name}"):
            self._annotate(node_path(self._node), {LOCK: None})

    def _annotate(self, path: str, annotations: dict[str, str | None]) -> None:
        self._admin.merge(path, {"metadata": {"annotations": annotations}})


def _answer(grants: list[list[str]]) -> Any:
    limits = {f"CUDA_DEVICE_MEMORY_LIMIT_{n}": f"{grant[2]}m" for n, grant in enumerate(grants)}
    devices = ",".join(grant[0] for grant in grants)
    return api.ContainerAllocateResponse(envs={"NVIDIA_VISIBLE_DEVICES": devices, **limits})


@contextmanager
def serving(plugin: FakePlugin) -> Iterator[None]:
    """Serve as kubelet's plugin while the block runs."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        asyncio.run_coroutine_threadsafe(plugin.begin(), loop).result(30)
        yield
    finally:
        asyncio.run_coroutine_threadsafe(plugin.end(), loop).result(30)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
