"""What the long-running commands share: how a setting is described, read, explained, read again.

A command's settings are one pydantic model (``hami.scheduler.settings.config``,
``hami.node.settings.config``). This package finds their values in flags, environment and file, and
follows changed files. May read files and the environment that it is given. Not here: any single
command's settings, and the command line itself (``hami.cli``).
"""
