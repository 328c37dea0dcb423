"""A stand-in for kubelets: nodes that report themselves, and pods that run without containers.

One object serves any number of nodes. ``life`` is the pure part, a pod's life by the clock that
it is given; ``nodes`` says what a node reports; ``kubelet`` is the client of the API server. Not
here: containers, images, volumes, probes, and the device-plugin sockets.
"""
