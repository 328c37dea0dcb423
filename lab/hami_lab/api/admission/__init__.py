"""What may change or refuse a write: priorities, tokens, ResourceQuotas and webhooks.

``chain`` is the order of all of them. Not here: whether a value is of its type (``typed``). May do
I/O: webhooks are called over HTTPS.
"""
