"""The committed messages are those of the .proto beside them, and kubelet's."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet

from hami.node.kubelet.api import v1beta1_pb2 as api

ROOT = Path(__file__).parents[3]
PROTO = "hami/node/kubelet/api/v1beta1.proto"


def committed() -> FileDescriptorProto:
    found = FileDescriptorProto()
    api.DESCRIPTOR.CopyToProto(found)
    return found


@pytest.mark.skipif(
    find_spec("grpc_tools") is None,
    reason="grpcio-tools is not installed: pip install grpcio-tools",
)
def test_the_messages_are_those_of_the_proto(tmp_path):
    """By their descriptors, which do not depend on the generator's version."""
    from grpc_tools import protoc

    out = tmp_path / "set"
    assert protoc.main(["", f"-I{ROOT}", f"--descriptor_set_out={out}", PROTO]) == 0
    [file] = FileDescriptorSet.FromString(out.read_bytes()).file
    assert committed() == without_json_names(file), "run `make protos`"


def without_json_names(file: FileDescriptorProto) -> FileDescriptorProto:
    """protoc adds them when it writes descriptors, and not when it writes Python."""
    for message in file.message_type:
        for field in (
            *message.field,
            *(field for each in message.nested_type for field in each.field),
        ):
            field.ClearField("json_name")
    return file


# What goes over the socket: kubelet's names and numbers.
FIELDS = """
    ContainerAllocateRequest: 1 devices_ids
    ContainerAllocateResponse: 1 envs, 2 mounts, 3 devices, 4 annotations, 5 cdi_devices
    AllocateRequest: 1 container_requests
    AllocateResponse: 1 container_responses
    CDIDevice: 1 name
    ContainerPreferredAllocationRequest: 1 available_deviceIDs, 2 must_include_deviceIDs, 3 allocation_size
    ContainerPreferredAllocationResponse: 1 deviceIDs
    Device: 1 ID, 2 health, 3 topology
    DevicePluginOptions: 1 pre_start_required, 2 get_preferred_allocation_available
    DeviceSpec: 1 container_path, 2 host_path, 3 permissions
    Empty:
    ListAndWatchResponse: 1 devices
    Mount: 1 container_path, 2 host_path, 3 read_only
    NUMANode: 1 ID
    PreStartContainerRequest: 1 devices_ids
    PreStartContainerResponse:
    PreferredAllocationRequest: 1 container_requests
    PreferredAllocationResponse: 1 container_responses
    RegisterRequest: 1 version, 2 endpoint, 3 resource_name, 4 options
    TopologyInfo: 1 nodes
"""
METHODS = {
    "v1beta1.Registration": ["Register"],
    "v1beta1.DevicePlugin": [
        "GetDevicePluginOptions", "ListAndWatch", "GetPreferredAllocation", "Allocate",
        "PreStartContainer",
    ],
}  # fmt: skip


def test_fields_have_kubelets_numbers():
    found = {
        message.name: ", ".join(f"{field.number} {field.name}" for field in message.field)
        for message in committed().message_type
    }
    expected = dict(line.strip().split(":", 1) for line in FIELDS.strip().splitlines())
    assert found == {name: fields.strip() for name, fields in expected.items()}


def test_services_have_kubelets_methods():
    assert {
        service.full_name: [method.name for method in service.methods]
        for service in api.DESCRIPTOR.services_by_name.values()
    } == METHODS
