"""``hami chart convert``: a file of HAMi's values in, one of ours out."""

from __future__ import annotations

from pathlib import Path

import typer
import yaml

from hami.cli.flags.files import file_name, read_text
from hami.domain.errors import ConfigError
from hami.migration.conversion import Conversion, convert
from hami.wire.yaml_mapping import read_mapping


def read(path: Path) -> Conversion:
    """The conversion of the file's values; ``-`` is standard input.

    Raises:
        ConfigError: it cannot be read, or is no YAML mapping.
    """
    return convert(read_mapping(file_name(path), read_text(path)))


def as_yaml(conversion: Conversion) -> str:
    """Our values, with a line that says where they come from."""
    head = "# Values of the chart hami, from HAMi's, by hami chart convert.\n"
    if not conversion.values:
        return f"{head}{{}}\n"
    return head + yaml.safe_dump(dict(conversion.values), sort_keys=False, allow_unicode=True)


def write(conversion: Conversion, output: Path | None) -> None:
    """Write the values to the file, or to standard output.

    Raises:
        ConfigError: the file cannot be written.
    """
    text = as_yaml(conversion)
    if output is None:
        typer.echo(text, nl=False)
        return
    try:
        output.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{output}: {error.strerror}; name a file that can be written") from error
