"""The options of ``hami scheduler``: its settings, and HAMi's own flags."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from hami.cli.flags.setting_options import (
    declared,
    given_ignored,
    given_settings,
    ignored_parameters,
    setting_parameters,
)
from hami.scheduler.settings.config_source import SCHEDULER
from hami.scheduler.settings.hami_flags import RESOURCE_NAMES, SWITCHES, WITHOUT_EFFECT

FOREIGN = tuple(sorted(RESOURCE_NAMES.keys() | WITHOUT_EFFECT))


def declare(function: Callable[..., None]) -> Callable[..., None]:
    """Give the command, which takes ``**options``, a parameter for every setting."""
    declared(function, [*setting_parameters(SCHEDULER), *ignored_parameters(FOREIGN, SWITCHES)])
    return function


def split(options: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
    """The options that were given: settings by field name, HAMi's other flags by flag name."""
    return given_settings(SCHEDULER, options), given_ignored(FOREIGN, options)
