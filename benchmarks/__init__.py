"""What the hot paths cost, measured in one run: ``make bench``.

Not here: assertions. Machines are noisy, so the figures are printed with their ratios, as a table
and as JSON, and people judge them.
"""
