"""What HAMi's monitor exports, under its names, for dashboards that were made for it. No I/O."""
