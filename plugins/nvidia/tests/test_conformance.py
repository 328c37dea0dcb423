"""The plugin follows the vendor contract with shared GPUs, with MIG, and with both on a node.

The node's side runs on simulated GPUs of the same kind.
"""

from __future__ import annotations

from types import MappingProxyType

import pytest

from hami.testing import VendorContract, node_publishing

from .builders import a_gpu, a_mig_gpu, linked
from .node_builders import a_node, a_vendor, node_of, section_of


class TestSharedGpus(VendorContract):
    section = MappingProxyType({})
    gpus = "a100-40gx2,t4"

    @pytest.fixture
    def vendor(self):
        return a_vendor()

    @pytest.fixture
    def config(self, tmp_path):
        node = a_node(tmp_path, self.gpus)
        return {
            "nvidia": {**section_of(node), **self.section},
            "node": node_of(node),
            "nodeconfig": [],
        }

    def devices(self):
        shape = {"memory": 24576, "slots": 10, "model": "NVIDIA A10"}
        return [a_gpu(f"GPU-{n}", index=n, numa=n // 2, **shape) for n in range(4)]

    @pytest.fixture
    def fake_node(self, vendor):
        return node_publishing(vendor, self.devices())


class TestLinkedGpus(TestSharedGpus):
    """The pair scores ride in an annotation of their own."""

    gpus = "h100-80gx4"

    def devices(self):
        names = [f"GPU-{n}" for n in range(4)]
        return linked(*names, memory=81920, slots=4)(
            {(0, 1): 200, (2, 3): 200, (0, 2): 50, (0, 3): 50, (1, 2): 50, (1, 3): 50}
        )


class TestMigGpus(TestSharedGpus):
    """Instances are made for slices, and destroyed with them."""

    gpus = ({"model": "a100-40g", "count": 2, "mig": True},)
    section = MappingProxyType({"operatingMode": "mig"})

    def devices(self):
        return [a_mig_gpu(f"GPU-{n}", index=n, model="NVIDIA A100-SXM4-40GB") for n in range(2)]


class TestSharedAndMigGpus(TestSharedGpus):
    """On the node, GPUs that are cut are kubelet's to hand out."""

    gpus = (
        {"model": "t4", "count": 2},
        {"model": "a100-40g", "mig": True},
    )
    section = MappingProxyType({"migStrategy": "mixed"})

    def devices(self):
        return [*super().devices()[:2], a_mig_gpu("GPU-9", index=9)]


class TestConfiguredGpus(TestSharedGpus):
    """Defaults that change what a request means."""

    section = MappingProxyType({"defaultMemory": 2048, "defaultCores": 30, "memoryFactor": 4})


class TestHiddenGpus(TestSharedGpus):
    """Containers that ask for no GPU get variables, and nothing else."""

    section = MappingProxyType(
        {"overwriteEnv": True, "gpuCorePolicy": "force", "runtimeClassName": "nvidia"}
    )
