"""Live resize: who may ask for one, and how it becomes a newer signed allocation.

``authorizer`` asks the API server whose a token is and what he may. ``resizer`` reserves, writes
and waits until the watch shows it. What fits is decided in ``hami.policy.fit.resize`` and booked in
``hami.scheduler.bookings.resizes``; the HTTP route is in ``hami.scheduler.web``. I/O: calls to the
API server.
"""
