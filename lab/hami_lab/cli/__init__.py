"""The commands ``hami demo`` and ``hami up``, which ``hami`` finds by their entry points.

``commands`` declares them, ``demo`` and ``up`` do their work. Not here: what a demo shows
(``hami_lab.demo``), and the terminal's tables (``hami.cli``).
"""
