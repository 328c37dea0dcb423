"""Quota objects as the informers show them, and what elastic quotas come to. No I/O.

The ledger that counts pods against them is ``hami.policy.quota``.
"""
