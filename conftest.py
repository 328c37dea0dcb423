"""For every test of the repository."""

import os
import sys

from hypothesis import settings

# Output that tests compare is the same whatever a shell or CI runner says of colours and widths.
_UNHEEDED = ("FORCE_COLOR", "NO_COLOR", "CLICOLOR_FORCE", "COLUMNS", "LINES", "TTY_COMPATIBLE")
for name in (*_UNHEEDED, "HAMI_DEBUG", "HAMI_SERVER"):
    os.environ.pop(name, None)
# Hundreds of processes are started, here and by tests, and import the same modules: each compiling
# them anew would take most of their time.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False
# Tests ask servers on this machine, with clients that would go through a proxy.
for name in ("no_proxy", "NO_PROXY"):
    os.environ[name] = ",".join(filter(None, [os.environ.get(name), "127.0.0.1", "localhost"]))

# A law is about values, not about how long a busy machine takes for an example.
settings.register_profile("hami", deadline=None)
settings.load_profile("hami")
