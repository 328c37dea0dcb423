"""What no installed vendor reads is said once, with a remedy."""

from __future__ import annotations

import pytest

from hami.policy.profile.profile_vendor import ProfileVendor

from .builders import (
    ACME_YAML,
    a_container,
    a_node,
    a_pod,
    a_running_pod,
    a_workload,
    run,
    the_vendors,
)


def asking(limits: dict, **requests) -> dict:
    return a_pod("a", containers=[{"name": "c", "resources": {"limits": limits, **requests}}])


@pytest.mark.parametrize(
    ("pod", "warning"),
    [
        pytest.param(
            asking({"nvidia.com/gpu": 1}),
            "Pod default/a: container c asks for nvidia.com/gpu, which no installed vendor knows: it "
            "is not simulated; install the vendor's plugin or correct the name",
            id="a resource of no vendor",
        ),
        pytest.param(
            asking({}, requests={"rdma/hca": 1}),
            "Pod default/a: container c asks for rdma/hca, which no installed vendor knows",
            id="a request without a limit",
        ),
        pytest.param(
            asking({"acme.com/gpu": 1, "acme.com/mempercent": 50}),
            "asks for acme.com/mempercent, which no",
            id="a misspelt resource beside a good one",
        ),
        pytest.param(
            asking({"acme.com/mem": 100}),
            "Pod default/a: container c asks for acme.com/mem, but vendor ACME does not read it: ask "
            "for acme.com/gpu too, or correct the name",
            id="memory without a device",
        ),
        pytest.param(
            a_pod("a", initContainers=[a_container("setup", cores=5)]),
            "container setup asks for acme.com/cores, but vendor ACME does not read it",
            id="cores without a device in an init container",
        ),
        pytest.param(
            a_workload("Job", pod=asking({"x.io/y": 1}), parallelism=3),
            "Job default/web: container c asks for x.io/y",
            id="a workload, once for all its pods",
        ),
        pytest.param(
            a_running_pod("a", "n1", "n1-0", mem=1, limits={"gpu": 1, "x": 1}),
            "Pod default/a: container main asks for acme.com/x",
            id="a pod that runs",
        ),
    ],
)
def test_is_warned_about(pod, warning):
    (said,) = run(a_node(), pod).warnings
    assert said.startswith(warning) or warning in said


@pytest.mark.parametrize(
    "pod",
    [
        pytest.param(asking({"cpu": 1, "hugepages-2Mi": "2Mi"}), id="a plain resource"),
        pytest.param(asking({"attachable.storage.kubernetes.io/x": 1}), id="Kubernetes' own"),
        pytest.param(asking({"x.io/y": 0}), id="nothing of it"),
        pytest.param(asking({"acme.com/gpu": 1, "acme.com/mem": 1}), id="all is read"),
        pytest.param(a_pod("a", limits={"gpu": 1, "x": 1}, phase="Failed"), id="a finished pod"),
    ],
)
def test_nothing_is_said_of(pod):
    assert run(a_node(), pod).warnings == ()


def test_a_vendor_that_reads_limits_alone_says_so():
    limits_alone = ACME_YAML.replace("liveness:", "request_source: limits\n  liveness:")
    pod = asking({}, requests={"acme.com/gpu": 1})
    vendors = the_vendors(acme=ProfileVendor(limits_alone))
    (warning,) = run(a_node(), pod, vendors=vendors).warnings
    assert warning.endswith("but vendor ACME does not read it: write it into the limits")


def test_a_register_annotation_of_no_vendor_is_said_once():
    mlu = {"hami.io/node-mlu-register": "[]", "hami.io/node-handshake-mlu": "x"}
    nodes = [a_node(f"n{n}", annotations=mlu) for n in range(3)]
    (warning,) = run(*nodes).warnings
    assert warning == (
        "Node n0 and 2 more: annotation hami.io/node-mlu-register belongs to no installed vendor, so "
        "its devices are not simulated; install the vendor's plugin or correct the key"
    )
