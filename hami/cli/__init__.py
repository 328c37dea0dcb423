"""The command line: files, the terminal, exit codes.

The only package that reads files named by a person, prints, and exits. Not here: anything worth
testing without a terminal; ``hami.simulate`` decides what is shown, this says how.
"""
