"""The read-only API: what the service knows, as JSON, for people and tools.

``api`` has the routes, which ``late_router`` makes when they are first asked, and ``models`` the shapes
that clients see. ``views`` and ``elastic`` fill
the shapes from the state. Nothing here changes anything.
"""
