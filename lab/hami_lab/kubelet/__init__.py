"""A stand-in for kubelets: nodes that report themselves, and pods that run without containers.

One object serves any number of nodes. ``life`` is the pure part, a pod's life by the clock that
it is given; ``nodes`` says what a node reports; ``kubelet`` is the client of the API server. A
``plugin_node`` gets its devices from device plugins, over ``devices``, and its containers from
``runtime``, which writes down what each was given. Not here: processes, images, volumes, probes.
"""
