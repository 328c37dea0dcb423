"""Who has what: the state of the service, in memory and with one owner.

``state`` is the only place that changes it: charges of bound pods, reservations, holds for
claimants, locks, quota objects. Nothing here waits or calls the API server.
"""
