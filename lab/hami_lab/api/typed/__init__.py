"""What the types of Kubernetes say of an object: its shape, its defaults, its valid values.

``shapes`` are the types of resources, ``coercion`` answers 400 where a body does not fit,
``defaults`` fills in, ``validation`` and ``updates`` answer 422. Not here: what depends on other
objects (``admission``). No I/O.
"""
