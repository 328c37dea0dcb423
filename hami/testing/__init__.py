"""The conformance kit: what every vendor plugin must pass, in-tree or not.

Inside: ``VendorContract``, a pytest class to subclass, and ``node_publishing``, which builds the
node that most subclasses need. It asks a plugin as the services do, through the real registry.
Not here: tests of hami itself, and anything that needs hardware. The node checks let the plugin
do its I/O, below the directories that the test gives it. Needs the extra ``testing``.
"""

from hami.testing.contract import VendorContract
from hami.testing.subject import node_publishing

__all__ = ["VendorContract", "node_publishing"]
