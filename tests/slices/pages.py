"""Limits as ``shim/tests/sample.h`` makes them: one number determines everything."""

from __future__ import annotations

from hami.slices.limits_page import DeviceLimit, PageLimits


def sample_limits(number: int, devices: int = 3) -> PageLimits:
    """The limits that the C programs expect in revision ``number``."""
    return PageLimits(
        generation=number * 2,
        priority=number % 2,
        policy=("default", "force", "disable")[number % 3],
        devices=tuple(
            DeviceLimit(
                uuid=f"GPU-{number}-{i}",
                memory_bytes=number * 1000 + i,
                context_reserve_bytes=number * 7 + i,
                cores=(number + i) % 101,
            )
            for i in range(devices)
        ),
    )
