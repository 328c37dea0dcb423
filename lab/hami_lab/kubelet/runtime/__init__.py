"""A container runtime without containers: what each would have been given, kept for who asks.

``cdi`` resolves CDI names as containerd does, ``create`` puts together what a container gets,
``traces`` is what it leaves in the node's cgroups and its /proc, ``runtime`` keeps all of it.
Nothing is executed. Files are read and written: CDI specs, and a node's folder.
"""
