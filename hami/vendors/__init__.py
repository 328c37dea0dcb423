"""The registry of vendors: which plugins are installed, and every call to one of them.

``discovery`` finds plugins by their entry point; ``registry`` loads them and refuses what breaks
the contract; ``implementations`` finds out who answers each hook of a vendor: its plugin or the
core; ``boundary`` is one vendor with its hooks as methods, past which failures are values. The
contract itself is ``hami.hookspecs``; what a hook does by default is
``hami.policy.profile.defaults``. No Kubernetes here, and no vendor by name.
"""
