"""The read-only API: what the service knows, as JSON, for people and tools.

``api`` has the routes, which ``late_router`` makes when they are first asked. ``models`` has the
shapes that clients see; ``views`` and ``elastic`` fill them from the state. Nothing here changes
anything.
"""
