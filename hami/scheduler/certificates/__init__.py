"""The certificate of the listeners, made by the service itself: a CA, rotated before it ends.

Inside: how certificates are made, what is in the Secret and what comes next (both pure but for
the keys they draw), the Secret kept and followed, the ``caBundle`` of the webhooks that call us,
and the certificate in memory. Not here: TLS itself, and certificates from files
(``hami.scheduler.web``).
"""
