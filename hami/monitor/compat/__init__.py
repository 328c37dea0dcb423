"""Slices of HAMi's own library, so that a node in migration is shown and fed back whole.

``region_layout`` says which bytes mean what, ``region`` reads one file, ``region_files`` finds the
files and writes two words back, ``region_slices`` makes rows of the table, ``feedback`` decides the
two words. Everything that was read here was written by a container.
Nothing outside this folder needs it.
"""
