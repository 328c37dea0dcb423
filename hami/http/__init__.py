"""How kubelet's probes, Prometheus and people ask a process of ours over HTTP.

``addresses`` says where a server listens, the scheduler's too. ``listening`` answers GET and HEAD,
``connection`` bounds what one caller may cost, ``probes`` has ``/healthz`` and ``/readyz``, and
``metrics`` the counters and their text, ``build_info`` one that every process has. It opens
sockets; it knows neither devices nor Kubernetes.
Not here: what a process says of itself (``hami.node``), and the scheduler's servers, which take
bodies and speak TLS (``hami.scheduler.web``).
"""
