"""``python -m hami``: the same as ``hami``."""

from hami.cli.main import main

main()
