"""What a container is told that it used: of the last second, by ticks that are never on time."""

from __future__ import annotations

from pathlib import Path

import pytest

from hami.monitor.tick.attribution import SliceUse
from hami.monitor.tick.dividing import Dividing

from .rounds import GPUS, Ticks
from .world import NVIDIA


@pytest.mark.parametrize(
    ("moments", "percents", "told"),
    [
        pytest.param([0, 0.5, 1.0, 1.5], [0, 20, 20, 20], 20, id="on time"),
        pytest.param([0, 0.5, 0.999, 1.498], [0, 0, 20, 20], 20, id="a little early"),
        pytest.param([0, 0.5, 1.002, 1.504], [0, 0, 20, 20], 20, id="a little late"),
        pytest.param([0, 0.5, 1.0, 1.5], [0, 0, 0, 20], 10, id="half of the second"),
        pytest.param([0, 1, 1.999, 2.998], [0, 0, 0, 20], 20, id="once a second"),
    ],
)
def test_a_container_is_told_what_it_used_in_the_last_second(tmp_path, moments, percents, told):
    assert utilisations(tmp_path, moments, percents)[-1] == told * 100


def utilisations(folder: Path, moments: list[float], percents: list[float]) -> list[int]:
    ticks, dividing = Ticks(folder), Dividing()
    try:
        one = ticks.slices.add(GPUS[0])
        ticks.tick()
        return [
            dividing.divided(
                ticks.disk.of(NVIDIA), {one.id: SliceUse(percents={0: percent})}, (), 100 + moment
            )[one.id].utilisation[0]
            for moment, percent in zip(moments, percents, strict=True)
        ]
    finally:
        ticks.close()
