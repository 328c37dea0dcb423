"""The commands, a module each, with what only one of them shows. ``hami.cli.app`` names them."""
