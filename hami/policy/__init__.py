"""Decisions: which devices a pod gets on which node, and why not.

Pure functions of values, and two tables with one owner each (``tables.cluster_table.ClusterTable``,
``quota.QuotaLedger``) whose methods only compute. A folder is a subject:

* ``filter``: which node takes a pod;
* ``pods``: what a pod asks for, what it may not ask for, and what it uses once it is bound;
* ``quota``: how much the pods of a namespace may take together;
* ``tables``: every node's devices, and what is used of them;
* ``fit``: which devices of one node a pod gets;
* ``compute``: how the time of one device is divided between the slices that run on it;
* ``profile``: what the core does for a vendor that implements no hook.

``usage`` is what a pod's containers use together, ``recommendation`` what they could ask for.
``ports`` is what all of them call on vendors. Not here: bytes (``hami.wire``), plugins
(``hami.vendors``), Kubernetes (``hami.kube``). No I/O, no clock, no logging.
"""
