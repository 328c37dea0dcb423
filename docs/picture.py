"""The README's picture: what ``hami simulate`` shows of examples/demo, as SVG.

``make picture`` writes it; a test compares it with a run of now.
"""

from __future__ import annotations

import io
from pathlib import Path

from rich.console import Console

from hami.cli.commands.simulate import run_simulation
from hami.cli.commands.simulation_tables import print_simulation

ROOT = Path(__file__).parents[1]
PICTURE = ROOT / "docs" / "simulate.svg"
FILES = ("examples/demo/cluster.yaml", "examples/demo/workload.yaml")


def drawn() -> str:
    """The picture of a real run."""
    console = Console(
        file=io.StringIO(), record=True, width=80, force_terminal=True, color_system="truecolor"
    )
    print_simulation(console, run_simulation([ROOT / file for file in FILES], None, None, None))
    svg = console.export_svg(title=f"hami simulate {' '.join(FILES)}", unique_id="hami")
    return "".join(f"{line.rstrip()}\n" for line in svg.splitlines())


if __name__ == "__main__":
    PICTURE.write_text(drawn(), encoding="utf-8")
