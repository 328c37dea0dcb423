"""Decisions: which devices a pod gets on which node, and why not.

Pure functions of values, and two tables with one owner each (``cluster.ClusterTable``,
``quota.QuotaLedger``) whose methods only compute. Not here: bytes (``hami.wire``), plugins
(``hami.vendors.registry``), Kubernetes. No I/O, no clock, no logging.
"""
