"""The objects, their history and their resources; what a request asks for and how it is refused.

``kinds`` knows the resources, ``storage`` the objects and their recent changes, ``listing`` the
pages of a list, ``persistence`` a file for them. Not here: the way of a write (``writes``). I/O is
that file alone.
"""
