"""The `[vendors.NAME]` tables of a configuration, checked by those who read them."""

from __future__ import annotations

from collections.abc import Iterator

from continuation.config import Config, ConfigError


def vendor_mistakes(config: Config) -> Iterator[ConfigError]:
    """Yield all that is wrong with the tables: file, table, key, value and what is possible."""
    for vendor in config.vendors:
        from continuation.providers.openai_common.vendors import (
            mistakes,  # not needed without such a table
        )

        for error in mistakes(vendor.settings):
            yield ConfigError(f"{vendor.source or f'[vendors.{vendor.name}]'} {error}")


def checked(config: Config) -> Config:
    """Return a configuration; raise `ConfigError` if there is a mistake in a vendor's table."""
    if mistakes := [*vendor_mistakes(config)]:
        raise ConfigError("\n".join(map(str, mistakes)))
    return config
