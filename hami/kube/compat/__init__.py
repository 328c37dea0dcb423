"""What exists only for HAMi's protocol: the node lock, one pod at a time from bind to start."""
