"""The command line: files, the terminal, exit codes.

The only package that reads files named by a person, prints, and exits. Not here: anything that can
be tested without a terminal. ``hami.simulate`` decides what to show, and this package how.
"""
