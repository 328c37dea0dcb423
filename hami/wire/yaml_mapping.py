"""YAML texts of configuration files: one mapping, and no key twice.

HAMi's device configuration and the service's own file are both read here. HAMi's parser refuses a
repeated key; PyYAML would silently keep the last one.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any

import yaml

from hami.domain.errors import ConfigError, shortened


class _Strict(yaml.SafeLoader):
    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:  # noqa: FBT001, FBT002 -- PyYAML's signature
        seen: set[str] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.value in seen and key.value != "<<":
                raise yaml.constructor.ConstructorError(
                    None, None, f"the key {shortened(key.value)!r} is there twice", key.start_mark
                )
            seen.add(getattr(key, "value", ""))
        return super().construct_mapping(node, deep)


def read_mapping(file: str, text: str) -> Mapping[str, Any]:
    """The only document of a text; an empty text is an empty mapping.

    Raises:
        ConfigError: names the file and the line.
    """
    try:
        value = yaml.load(text, Loader=_Strict)  # noqa: S506 -- a SafeLoader
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"{file}:{mark.line + 1}" if mark else file
        raise ConfigError(f"{where}: this is not valid YAML: {error.problem}; repair it") from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        problem = " ".join(str(error).split()) or type(error).__name__
        raise ConfigError(f"{file}: this is not valid YAML: {problem}; repair it") from error
    if value is None:
        return {}
    if not isinstance(value, dict) or not all(isinstance(key, str) for key in value):
        raise ConfigError(
            f"{file}: {shortened(repr(value))} is no mapping; write keys and values, one a line"
        )
    return value
