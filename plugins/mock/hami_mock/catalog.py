"""The catalogue of device profiles: what a simulated device is, and how its node publishes it."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import resources
from typing import Annotated, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, PositiveInt, StrictInt, StrictStr

from hami.domain.units import MAX_DEVICE_MEMORY, WHOLE_DEVICE

_Name = Annotated[StrictStr, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")]
_Plain = Annotated[StrictStr, Field(pattern=r"^[^,:;]+$")]
"""The separators of the register annotation's text format cannot be in a model."""
_MiB = Annotated[StrictInt, Field(gt=0, le=MAX_DEVICE_MEMORY)]


class _Written(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)


class VendorFormat(_Written):
    """How a vendor's node publishes its devices.

    ``scores`` is the annotation with the pair scores; empty for a vendor that has none.
    """

    register_key: StrictStr = Field(alias="register", min_length=1)
    codec: Literal["json", "csv"] = "json"
    id_prefix: _Name = Field(alias="idPrefix")
    mode: _Plain
    scores: StrictStr = ""


class MockMigProfile(_Written):
    """One MIG profile: ``starts`` are memory slices, of which an instance takes ``size``."""

    name: _Name
    memory_mib: _MiB = Field(alias="memoryMiB")
    cores: Annotated[StrictInt, Field(ge=0, le=WHOLE_DEVICE)]
    slices: PositiveInt
    starts: tuple[StrictInt, ...]
    size: PositiveInt

    def on_the_wire(self) -> dict[str, object]:
        """As an element of ``migProfiles`` in NVIDIA's register annotation."""
        return {
            "name": self.name,
            "memoryMB": self.memory_mib,
            "core": self.cores,
            "sliceCount": self.slices,
            "placements": [{"start": start, "size": self.size} for start in self.starts],
        }


class DeviceProfile(_Written):
    """One kind of device."""

    vendor: StrictStr
    model: _Plain
    memory_mib: _MiB = Field(alias="memoryMiB")
    cores: Annotated[StrictInt, Field(ge=0)] = WHOLE_DEVICE
    slots: PositiveInt = 10
    nvlinks: Annotated[StrictInt, Field(ge=0, le=18)] = 0
    mig: tuple[MockMigProfile, ...] = ()

    def slots_in(self, mode: str) -> int:
        """Slices per device; in MIG mode, how many instances of the smallest profile it holds."""
        return max(len(m.starts) for m in self.mig) if mode == MIG else self.slots


MIG = "mig"


class Catalog(_Written):
    """Device profiles by name, and the vendors that they refer to, by key."""

    vendors: Mapping[_Name, VendorFormat] = Field(default_factory=dict)
    profiles: Mapping[_Name, DeviceProfile] = Field(default_factory=dict)

    def with_(self, other: Catalog) -> Catalog:
        """Both catalogues together; where both name a profile, ``other`` wins."""
        return Catalog(
            vendors={**self.vendors, **other.vendors},
            profiles={**self.profiles, **other.profiles},
        )


def builtin_catalog() -> Catalog:
    """The profiles that come with this package; reads its data."""
    text = resources.files("hami_mock").joinpath("data/devices.yaml").read_text("utf-8")
    return Catalog.model_validate(yaml.safe_load(text))
