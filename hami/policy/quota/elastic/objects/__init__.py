"""What the elastic quota objects say, and what all of them say together.

``reading`` reads one object, ``validation`` judges one before it is written, ``arrangement`` makes
one consistent set of all. Who uses what of it is ``book``. No I/O, no clock.
"""
