"""The book: who holds what of elastic quotas, who may have more, and who is over quota.

``book`` answers; ``accounts`` has every pod once, ``tree`` the sums of quotas and groups, ``order``
(on ``ranks``) each quota's pods in the order in which they are in quota; ``rules`` says why a pod
is refused and ``room`` how much is left; ``sharing`` (on ``fair``) shares out what is unused;
``trial`` takes changes back. Whom to evict is ``plans``. No I/O, no clock.
"""
