"""Leases, read and written: who leads, our own Lease, and the heartbeat of a node's agent."""
