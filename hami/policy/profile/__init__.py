"""What follows from a vendor's profile alone, without any code of the vendor.

``defaults`` answers the hooks that a plugin leaves out. ``liveness`` says whether a node's devices
are still there. ``profile_rules`` says what is wrong with a profile. ``profile_vendor`` is a plugin
that is only a YAML file. Plugins may use these modules.
The profile itself is ``hami.domain.profile``. These modules import nothing else of ``hami.policy``.
"""
