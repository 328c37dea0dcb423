"""``shim/include/hami_slice.h`` once more: the same names, offsets and sizes, for Python.

A test compares the two field by field. Nothing here is read or written except as a whole, through
:mod:`hami.slices.limits_page` and :mod:`hami.slices.usage_region`.
"""

from __future__ import annotations

import ctypes

LIMITS_MAGIC = int.from_bytes(b"HAMILIMI", "little")
LIMITS_ABI = 1
LIMITS_SUM_WORD = 1
USAGE_MAGIC = int.from_bytes(b"HAMIUSAG", "little")
USAGE_ABI = 1
MAX_DEVICES = 16
MAX_SLOTS = 256
UUID_SIZE = 64

SLOT_BYPASS = 1
SLOT_EXPORTS = 2
SLOT_IMPORTS = 4

_u8, _u16, _u32 = ctypes.c_uint8, ctypes.c_uint16, ctypes.c_uint32
_u64, _i64 = ctypes.c_uint64, ctypes.c_int64


class DeviceLimitC(ctypes.LittleEndianStructure):
    """``struct hami_device_limit``."""

    _fields_ = (
        ("uuid", ctypes.c_char * UUID_SIZE),
        ("memory_bytes", _u64),
        ("context_reserve_bytes", _u64),
        ("cores", _u32),
        ("cores_limit", _u32),
        ("reserved", _u32 * 2),
    )


class LimitsC(ctypes.LittleEndianStructure):
    """``struct hami_limits``: one of the two copies."""

    _fields_ = (
        ("revision", _u64),
        ("checksum", _u64),
        ("generation", _u64),
        ("device_count", _u32),
        ("priority", _u32),
        ("policy", _u32),
        ("reserved", _u32 * 7),
        ("devices", DeviceLimitC * MAX_DEVICES),
    )


class ObservedDeviceC(ctypes.LittleEndianStructure):
    """``struct hami_observed_device``."""

    _fields_ = (("utilisation", _u64), ("contention", _u64))


class ObservedC(ctypes.LittleEndianStructure):
    """``struct hami_observed``: the monitor's words."""

    _fields_ = (
        ("heartbeat", _u64),
        ("share", _u16 * MAX_DEVICES),
        ("share_revision", _u64),
        ("reserved", _u64 * 2),
        ("devices", ObservedDeviceC * MAX_DEVICES),
        ("slot_generation", _u64 * MAX_SLOTS),
        ("bytes", _u64 * MAX_SLOTS * MAX_DEVICES),
    )


class LimitsPageC(ctypes.LittleEndianStructure):
    """``struct hami_limits_page``: the whole file ``limits``."""

    _fields_ = (
        ("magic", _u64),
        ("abi", _u32),
        ("size", _u32),
        ("copy_size", _u32),
        ("device_capacity", _u32),
        ("slot_capacity", _u32),
        ("observed_offset", _u32),
        ("index", _u8),
        ("reserved", _u8 * 31),
        ("copies", LimitsC * 2),
        ("padding", _u8 * 832),
        ("observed", ObservedC),
        ("tail", _u8 * 1728),
    )


class SlotC(ctypes.LittleEndianStructure):
    """``struct hami_slot``."""

    _fields_ = (
        ("pid", _u32),
        ("flags", _u32),
        ("start_time", _u64),
        ("pid_namespace", _u64),
        ("generation", _u64),
        ("found_dead_at", _u64),
        ("reserved", _u64 * 3),
    )


class BucketC(ctypes.LittleEndianStructure):
    """``struct hami_bucket``."""

    _fields_ = (
        ("level", _i64),
        ("refilled_at", _u64),
        ("charged", _u64),
        ("observed", _u64),
        ("correction", _u64),
        ("settled", _u64),
        ("waited", _u64),
        ("reserved", _u64 * 1),
    )


class UsageC(ctypes.LittleEndianStructure):
    """``struct hami_usage``: the whole file ``usage``."""

    _fields_ = (
        ("magic", _u64),
        ("abi", _u32),
        ("size", _u32),
        ("device_capacity", _u32),
        ("slot_capacity", _u32),
        ("slots_offset", _u32),
        ("charged_offset", _u32),
        ("buckets_offset", _u32),
        ("reserved", _u8 * 4060),
        ("slots", SlotC * MAX_SLOTS),
        ("charged", _u64 * MAX_SLOTS * MAX_DEVICES),
        ("buckets", BucketC * MAX_DEVICES),
        ("tail", _u8 * 3072),
    )
