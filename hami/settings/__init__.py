"""What the long-running commands share: how a setting is described, read, explained, read again.

A command's settings are one pydantic model (``hami.scheduler.settings.config``,
``hami.node.settings.config``, ``hami.monitor.settings.config``). This package finds their values in
flags, environment and file, and follows changed files. ``node_process`` has what every process on a
node is told, with the entries for single nodes (``node_config``) and the vendors' flags and
variables (``vendor_options``). May read files and the environment that it is given. Not here: the
command line itself (``hami.cli``).
"""
