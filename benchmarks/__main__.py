"""``python -m benchmarks [TOPIC...]``: measures, prints a table, and writes it into ``docs``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

from benchmarks import (
    bind,
    control_plane,
    decisions,
    filter_http,
    kubelet,
    lock_burst,
    monitor,
    node_scrape,
    quota,
    quota_plan,
    quota_storm,
    report,
    share,
    shim,
    simulation,
    startup,
    wakeup,
)
from benchmarks.rows import Row
from tests.kubernetes.binaries import Missing

TOPICS: Mapping[str, Callable[[], Sequence[Row]]] = MappingProxyType(
    {
        # First, while this process is small: Linux counts a parent's memory into its child's peak.
        "simulate": simulation.measure,
        "startup": startup.measure,
        "filter": filter_http.measure,
        "bind": bind.measure,
        "wakeup": wakeup.measure,
        "decisions": decisions.measure,
        "quota": quota.measure,
        "quota-plan": quota_plan.measure,
        "quota-storm": quota_storm.measure,
        "kubelet": kubelet.measure,
        "kubernetes": control_plane.measure,
        "lock-burst": lock_burst.measure,
        "monitor": monitor.measure,
        "node-scrape": node_scrape.measure,
        "shim": shim.measure,
        "share": share.measure,
    }
)


def main() -> int:
    """1 when a limit was missed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("topic", nargs="*", choices=[*TOPICS, []], help="by default all of them")
    parser.add_argument(
        "--no-save", action="store_true", help="leave the figures in docs as they are"
    )
    asked = parser.parse_args()
    results = {}
    for topic in (name for name in TOPICS if name in (asked.topic or TOPICS)):
        sys.stderr.write(f"measuring {topic} ...\n")
        try:
            results[topic] = report.measured_now(TOPICS[topic]())
        except Missing as missing:
            sys.stderr.write(f"{topic} is not measured: {missing}\n")
    report.show(results)
    if not asked.no_save:
        report.save(results)
    return int(any(row.verdict == "missed" for topic in results.values() for row in topic.rows))


if __name__ == "__main__":
    sys.exit(main())
