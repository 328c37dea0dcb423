"""The read-only API: what the service knows, as JSON, for people and tools.

``api`` has the routes, ``models`` the shapes that clients see, ``views`` and ``elastic`` what fills
them from the state. Nothing here changes anything.
"""
