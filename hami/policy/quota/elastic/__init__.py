"""Elastic quota: what is guaranteed, borrowed and taken back. No I/O, no clock.

Inside: quota objects and the groups above them as a tree (``objects``, ``validation``, ``tree``),
what pods take of it (``units``, ``vector``), the book that admits them and knows who is over
quota (``book``, ``order``, ``fair``), and the plans that give a guarantee back (``plan``).
"""
