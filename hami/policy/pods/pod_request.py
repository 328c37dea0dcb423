"""What a pod asks of which vendors.

Needs no device table, so that nodes can do without one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from hami.domain.kubernetes.objects import Pod
from hami.domain.requests import ContainerRequest, DeviceRequest, Invalid, PodRequest
from hami.domain.scheduling import SchedulingPolicy
from hami.domain.units import VendorKey
from hami.policy.fit.rank import read_policy
from hami.policy.pods.compute_limits import with_compute_limits
from hami.policy.pods.escapes import escape_of
from hami.policy.ports import VendorRegistry


def parse_pod(
    pod: Pod, vendors: VendorRegistry, defaults: SchedulingPolicy
) -> PodRequest | Invalid:
    """What the pod asks of every vendor, container by container, and its policy.

    A pod that asks for devices and could escape its slices is ``Invalid`` too, because it may have
    gone past admission.
    """
    containers: list[ContainerRequest] = []
    for container, kind in pod.each_container():
        requests: list[DeviceRequest] = []
        for key in vendors:
            answer = vendors[key].parse_request(container, pod)
            if isinstance(answer, Invalid):
                return answer
            if answer is not None:
                requests.append(answer)
        containers.append(
            ContainerRequest(container=container, kind=kind, requests=tuple(requests))
        )
    request = PodRequest(pod=pod, containers=tuple(containers), policy=defaults)
    if not request.vendors:
        return request
    limited = with_compute_limits(pod, containers)
    if isinstance(limited, Invalid):
        return limited
    if (escape := escape_of(pod, vendors)) is not None:
        return Invalid(escape)
    policy = read_policy(pod, defaults)
    return (
        policy
        if isinstance(policy, Invalid)
        else replace(request, containers=tuple(limited), policy=policy)
    )


def who_asks(pod: Pod, vendors: VendorRegistry) -> Mapping[VendorKey, Sequence[bool]]:
    """For each vendor that the spec asks: whether each container does, init containers first.

    Also counts requests that cannot be read.
    """
    containers = [container for container, _ in pod.each_container()]
    asked = {}
    for key in vendors:
        asks = vendors[key].asks
        asking = [asks(container, pod) for container in containers]
        if True in asking:
            asked[key] = asking
    return asked
