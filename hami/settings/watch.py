"""Takes over a changed configuration file while the process runs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Generic, TypeVar

import structlog

from hami.domain.errors import HamiError
from hami.settings.model import ServiceSettings, fields_of, key_of, setting_of
from hami.settings.source import SettingsSource
from hami.settings.watched import WatchedFiles

C = TypeVar("C", bound=ServiceSettings)


class ConfigWatcher(Generic[C]):
    """Reads the files again when their content changes, and hands on a valid configuration.

    ``apply`` gets a configuration that differs from the running one in live settings alone. It may
    refuse with a :class:`HamiError`, for example because a plugin does not take its section. A
    refused or unreadable configuration is logged, and the running one stays.
    """

    def __init__(
        self,
        source: SettingsSource[C],
        running: C,
        apply: Callable[[C], None],
        *,
        interval: float = 1.0,
    ) -> None:
        self._source = source
        self._apply = apply
        self._interval = interval
        self._files = WatchedFiles(source.files(running))
        self.running = running

    async def run(self) -> None:
        """Watch the files until cancelled."""
        while True:
            await asyncio.sleep(self._interval)
            if await asyncio.to_thread(self._files.changed):
                await self.reload()

    async def reload(self) -> None:
        """Read the files now."""
        log = structlog.get_logger()
        try:
            loaded = await asyncio.to_thread(self._source.load)
            # Another device configuration may be named now; it is watched from here on.
            self._files = WatchedFiles(self._source.files(loaded))
            taken, waiting = only_live(self.running, loaded)
            if waiting:
                log.warning("changed settings wait for a restart", settings=waiting)
            changed = [key_of(name) for name in _differing(self.running, taken)]
            if changed:
                self._apply(taken)
        except HamiError as error:
            log.warning("the configuration stays as it was", problem=str(error))
        else:
            self.running = taken
            if changed:
                log.info("the configuration has changed", settings=changed)


def only_live(running: C, loaded: C) -> tuple[C, list[str]]:
    """The live settings of ``loaded`` in ``running``, and the keys that need a restart."""
    differing = _differing(running, loaded)
    model = type(running)
    live = {name: getattr(loaded, name) for name in differing if setting_of(model, name).live}
    waiting = [key_of(name) for name in differing if name not in live]
    return running.model_copy(update=live), waiting


def _differing(one: ServiceSettings, other: ServiceSettings) -> list[str]:
    return [n for n in fields_of(type(one)) if getattr(one, n) != getattr(other, n)]
