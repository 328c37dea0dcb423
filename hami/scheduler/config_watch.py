"""Takes over a changed configuration file while the service runs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import structlog

from hami.domain.errors import HamiError
from hami.scheduler.config import SchedulerConfig, setting_of
from hami.scheduler.config_source import ConfigSource, key_of
from hami.scheduler.watched import WatchedFiles

Apply = Callable[[SchedulerConfig], None]


class ConfigWatcher:
    """Reads the files again when their content changes and hands on what is valid.

    ``apply`` gets a configuration in which only live settings differ from the running one, and
    may refuse it with a :class:`HamiError`, for example because a plugin does not take its
    section. A refused or unreadable one is logged, and the running one stays.
    """

    def __init__(
        self, source: ConfigSource, running: SchedulerConfig, apply: Apply, *, interval: float = 1.0
    ) -> None:
        self._source = source
        self._apply = apply
        self._interval = interval
        self._files = WatchedFiles(source.files(running))
        self.running = running

    async def run(self) -> None:
        """Until cancelled."""
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


def only_live(
    running: SchedulerConfig, loaded: SchedulerConfig
) -> tuple[SchedulerConfig, list[str]]:
    """What of ``loaded`` the running service takes over, and the keys that need a restart."""
    differing = _differing(running, loaded)
    live = {name: getattr(loaded, name) for name in differing if setting_of(name).live}
    waiting = [key_of(name) for name in differing if name not in live]
    return running.model_copy(update=live), waiting


def _differing(one: SchedulerConfig, other: SchedulerConfig) -> list[str]:
    return [n for n in SchedulerConfig.model_fields if getattr(one, n) != getattr(other, n)]
