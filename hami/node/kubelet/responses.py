"""What a container needs, in the words of kubelet's device plugin API, and back.

kubelet has no words for ``pod_annotations`` and ``page``: those stay with the agent.
"""

from __future__ import annotations

from google.protobuf.message import DecodeError

from hami.domain.slices import ContainerEdits, DeviceNode, Mount
from hami.node.kubelet.api import v1beta1_pb2 as api


def encode(edits: ContainerEdits) -> api.ContainerAllocateResponse:
    """The answer for one container; lists keep their order."""
    return api.ContainerAllocateResponse(
        envs=edits.env,
        mounts=[
            api.Mount(
                container_path=mount.container_path,
                host_path=mount.host_path,
                read_only=mount.read_only,
            )
            for mount in edits.mounts
        ],
        devices=[
            api.DeviceSpec(
                container_path=node.container_path,
                host_path=node.host_path,
                permissions=node.permissions,
            )
            for node in edits.device_nodes
        ],
        annotations=edits.annotations,
        cdi_devices=[api.CDIDevice(name=name) for name in edits.cdi_devices],
    )


def decode(data: bytes) -> ContainerEdits | str:
    """What an answer says, as kubelet keeps it; or why it cannot be read."""
    try:
        response = api.ContainerAllocateResponse.FromString(data)
    except DecodeError as error:
        return f"no ContainerAllocateResponse: {error}"
    return ContainerEdits(
        env=dict(response.envs),
        mounts=tuple(
            Mount(
                host_path=mount.host_path,
                container_path=mount.container_path,
                read_only=mount.read_only,
            )
            for mount in response.mounts
        ),
        device_nodes=tuple(
            DeviceNode(
                host_path=node.host_path,
                container_path=node.container_path,
                permissions=node.permissions,
            )
            for node in response.devices
        ),
        annotations=dict(response.annotations),
        cdi_devices=tuple(device.name for device in response.cdi_devices),
    )
