"""The metrics that HAMi exposes, under its names, for dashboards that were made for it. No I/O."""
