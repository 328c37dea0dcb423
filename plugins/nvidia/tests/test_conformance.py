"""The plugin follows the vendor contract with shared GPUs, with MIG, and with both on a node."""

from __future__ import annotations

import hami_nvidia
import pytest

from hami.testing import VendorContract, node_publishing

from .builders import a_gpu, a_mig_gpu, linked


class TestSharedGpus(VendorContract):
    @pytest.fixture
    def vendor(self):
        return hami_nvidia.plugin

    def devices(self):
        shape = {"memory": 24576, "slots": 10, "model": "NVIDIA A10"}
        return [a_gpu(f"GPU-{n}", index=n, numa=n // 2, **shape) for n in range(4)]

    @pytest.fixture
    def fake_node(self, vendor):
        return node_publishing(vendor, self.devices())


class TestLinkedGpus(TestSharedGpus):
    """The pair scores ride in an annotation of their own."""

    def devices(self):
        names = [f"GPU-{n}" for n in range(4)]
        return linked(*names, memory=81920, slots=4)(
            {(0, 1): 200, (2, 3): 200, (0, 2): 50, (0, 3): 50, (1, 2): 50, (1, 3): 50}
        )


class TestMigGpus(TestSharedGpus):
    def devices(self):
        return [a_mig_gpu(f"GPU-{n}", index=n, model="NVIDIA A100-SXM4-40GB") for n in range(2)]


class TestSharedAndMigGpus(TestSharedGpus):
    def devices(self):
        return [*super().devices()[:2], a_mig_gpu("GPU-9", index=9)]


class TestConfiguredGpus(TestSharedGpus):
    """Defaults that change what a request means."""

    @pytest.fixture
    def config(self):
        return {"nvidia": {"defaultMemory": 2048, "defaultCores": 30, "memoryFactor": 4}}


class TestHiddenGpus(TestSharedGpus):
    """Containers that ask for no GPU get variables, and nothing else."""

    @pytest.fixture
    def config(self):
        hiding = {"overwriteEnv": True, "gpuCorePolicy": "force", "runtimeClassName": "nvidia"}
        return {"nvidia": hiding}
