"""Kubelet's device plugin API: our own .proto, and the messages generated from it.

Messages only, no I/O. ``make protos`` generates them with an old generator, because the protobuf
library takes code of older generators and refuses that of newer ones.
"""
