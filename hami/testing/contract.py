"""``VendorContract``: every check of the kit, as one class to subclass."""

from __future__ import annotations

import pytest

from hami.domain.kubernetes.objects import Node
from hami.hookspecs import PluginConfig
from hami.testing.cluster_rules import ClusterRules
from hami.testing.fit_rules import FitRules
from hami.testing.node_rules import NodeRules
from hami.testing.pod_rules import PodRules
from hami.testing.profile_rules import ProfileRules
from hami.testing.request_rules import RequestRules
from hami.testing.subject import NO_CONFIG, Subject, subject_of
from hami.testing.wire_rules import WireRules


class VendorContract(
    ProfileRules, WireRules, RequestRules, FitRules, PodRules, ClusterRules, NodeRules
):
    """What every vendor plugin must pass.

    Subclass it in your tests and override the fixtures ``vendor`` and ``fake_node``; where they
    are needed, ``vendor_key`` (a plugin with several vendors) and ``config`` too::

        class TestAcme(VendorContract):
            @pytest.fixture
            def vendor(self):
                return hami_acme.plugin

            @pytest.fixture
            def fake_node(self, vendor):
                return node_publishing(vendor, [...])

    A check that fails says in one sentence what the plugin did and what the contract wants. One
    that does not concern the vendor is skipped with the reason.
    """

    @pytest.fixture
    def vendor(self) -> object:
        """The object that the entry point names."""
        raise NotImplementedError("override the fixture 'vendor': return your plugin object")

    @pytest.fixture
    def fake_node(self) -> Node:
        """A node that carries at least two devices of the vendor."""
        raise NotImplementedError("override the fixture 'fake_node': return a Node")

    @pytest.fixture
    def vendor_key(self) -> str | None:
        """Which of the plugin's vendors is checked; None: the first by key."""
        return None

    @pytest.fixture
    def config(self) -> PluginConfig:
        """The device configuration, the node's included."""
        return NO_CONFIG

    @pytest.fixture
    def subject(
        self, vendor: object, fake_node: Node, vendor_key: str | None, config: PluginConfig
    ) -> Subject:
        """The vendor as the checks see it; not to be overridden."""
        return subject_of(vendor, fake_node, key=vendor_key, config=config)
