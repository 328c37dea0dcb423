"""What the cluster says, and how that becomes state.

``feeds`` carries informers' objects into the state, ``agents`` and ``handshake`` tell living nodes
from silent ones, ``verification`` judges signatures, ``takeover`` and ``endings`` begin and end a
term of leadership. The watches themselves are ``hami.kube.informer``.
"""
