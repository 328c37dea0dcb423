"""The registry of vendors: which plugins are installed, and every call to one of them.

``discovery`` finds plugins by their entry point; ``registry`` loads them and refuses what breaks
the contract; ``boundary`` is one vendor with each hook as a method, past which failures are values;
``calls`` resolves which function answers a hook; ``answers`` checks what came back. The contract
itself is ``hami.hookspecs``; what a hook does by default is ``hami.policy.profile.defaults``. No
Kubernetes here, and no vendor by name.
"""
