"""Where a pod goes: filter, preempt question, bind, and who is tried next.

``extender`` answers kube-scheduler; ``gangs`` reserves all or none; ``binding`` writes the Binding;
``locks`` takes HAMi's node lock; ``wakeup`` touches pods that fit now; ``overstayed`` ends promises
that are never used. The arithmetic of a fit is ``hami.policy``; who has what is ``bookings``.
"""
