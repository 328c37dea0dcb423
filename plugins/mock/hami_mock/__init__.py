"""Devices that are not there: the vendor ``MOCK``, and simulated nodes of any vendor.

Inside: a plugin that implements every hook of the contract and fails on demand, for tests of
whatever calls a vendor; and the catalogue of device profiles from which ``hami simulate`` and the
embedded cluster make nodes (``mock.hami.io/devices: "h100x8"``). Not here: other vendors' rules;
a simulated node carries the annotations that such a vendor's node would publish, no more. The
scheduler's hooks are pure, but for ``hami_simulated_annotations``, which reads this package's
data; the node's hooks read and write the files that the section ``mock:`` names, and
``slice.state_dir``.
"""

from hami_mock.vendor import MockVendor

__version__ = "1.0.0.dev0"
__all__ = ["MockVendor", "plugin"]

plugin = MockVendor()
