"""The settings: the section ``nvidia:``, the flags and variables, and what they give a node.

``config`` reads what scheduling and admission need of the section. ``options`` lists the flags and
variables of the node agent. ``node_settings`` merges all of it with this node's own entry.
The defaults that scheduling derives from the section are in ``schedule.profile``. These modules
read values that they are given: they open no file and import nothing else of this package.
"""
