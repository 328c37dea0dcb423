"""Reads metrics as Prometheus does: once a second, until standard input ends.

``python -m benchmarks.scrape_process URL`` then prints how many bytes the last answer had.
"""

from __future__ import annotations

import select
import sys
import urllib.request


def main() -> None:
    size = 0
    while not select.select([sys.stdin], [], [], 1.0)[0]:
        with urllib.request.urlopen(sys.argv[1], timeout=30) as answer:
            size = len(answer.read())
    sys.stdout.write(f"{size}\n")


if __name__ == "__main__":
    main()
