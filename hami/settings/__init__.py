"""What the commands that stay share: how a setting is described, read, explained and read again.

A command's settings are one pydantic model (``hami.scheduler.settings.config``,
``hami.node.settings.config``); here is how its values are found in flags, environment and file, and
how changed files are followed. May read files and the environment that it is given. Not here: any
single command's settings, and the command line itself (``hami.cli``).
"""
