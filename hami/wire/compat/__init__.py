"""What exists only for HAMi: the file of its device configuration. No I/O."""
