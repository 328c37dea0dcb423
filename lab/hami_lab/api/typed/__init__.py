"""What the types of Kubernetes say of an object: its fields, its defaults, its valid values.

``types`` are those of its OpenAPI definitions, ``conforming`` answers 400 where a body has others,
``defaults`` fills in, ``validation`` and ``updates`` answer 422. Not here: what depends on other
objects (``admission``). No I/O.
"""
