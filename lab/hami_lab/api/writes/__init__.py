"""The writes: create, replace, patch and delete, bind, evict and scale.

Each goes through the types, the defaults, the checks and the admission before it is stored. Not
here: HTTP (``http``). No I/O but that of the admission webhooks.
"""
