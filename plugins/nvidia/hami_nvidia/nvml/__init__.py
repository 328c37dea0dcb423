"""NVML, NVIDIA's management library: what this package asks of it, and the driver's answers.

``interface`` says what is asked, as values and two protocols. ``driver`` answers it with the
installed driver, through the module ``pynvml``; ``driver_mig``, ``driver_usage``, ``driver_watch``
and ``driver_session`` are its parts for MIG, for what is used, for errors and for the connection.
What follows from the answers is decided elsewhere: ``devices``, ``mig``, ``health``,
``measurement``. Calls block for a short while. ``pynvml`` is imported when a session begins, so a
scheduler never loads it.
"""
