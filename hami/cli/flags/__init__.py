"""What a person writes after a command: flags, values, and files that they name, which are read."""
