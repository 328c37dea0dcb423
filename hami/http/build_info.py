"""Which build of hami answers, as the metric that HAMi has for it."""

from __future__ import annotations

import platform

from hami import __version__
from hami.http.metrics import header, sample


def build_info() -> str:
    """``hami_build_info``; what only a Go program has is empty."""
    labels = {
        "version": __version__,
        "revision": "",
        "build_date": "",
        "go_version": "",
        "compiler": f"{platform.python_implementation()} {platform.python_version()}",
        "platform": f"{platform.system().lower()}/{platform.machine()}",
    }
    text = "hami build metadata exposed as labels with a constant value of 1."
    return header("hami_build_info", text) + sample("hami_build_info", labels, 1)
