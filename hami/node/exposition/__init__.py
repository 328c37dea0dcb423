"""What the agent says of itself: ``/healthz``, ``/readyz``, ``/metrics``.

The other parts know nothing of it: they keep their own counts and states, and these modules read
them when somebody asks. How that is served is ``hami.http``'s.
"""
