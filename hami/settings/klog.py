"""The flags that klog gives every Go component.

We accept them without effect, because our log has its own settings.
https://github.com/kubernetes/klog
"""

from __future__ import annotations

KLOG_SWITCHES = frozenset(
    {
        "add-dir-header", "alsologtostderr", "logtostderr", "one-output", "skip-headers",
        "skip-log-headers",
    }
)  # fmt: skip
"""The flags that need no value: ``--logtostderr`` is ``--logtostderr=true``."""

KLOG = KLOG_SWITCHES | {
    "log-backtrace-at", "log-dir", "log-file", "log-file-max-size", "stderrthreshold", "v",
    "vmodule",
}  # fmt: skip
