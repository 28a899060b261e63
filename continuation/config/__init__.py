"""What holds for which model, and who said so: policies in layers, and the file they come from.

A file `continuation.toml` has a table `[defaults]`, any number of `[models."glob"]` and of
`[vendors.NAME]`. A layer sets some keys; the later one wins: the defaults we ship, `[defaults]`,
the globs that match the model (the most specific one last), then what is said of a single call
(`override.py`).
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias, cast

from continuation.limits import spellings
from continuation.policy import (
    CLIENT_KEYS,
    KEYS,
    NO_FILES,
    RENAMED,
    Policy,
    check,
    file_of,
    known_key,
    shown,
    unaliased,
)
from continuation.registry import server_mistakes

ENVIRONMENT = "CONTINUATION_CONFIG"
"""The environment variable that may name the file."""
FILE_NAME = "continuation.toml"
TABLES = ("defaults", "models", "vendors")
BUILT_IN = "built-in default"

Source: TypeAlias = "Config | Policy | str | Path | None"
"""What `wrap(config=...)` takes."""


class ConfigError(ValueError):
    """A configuration file says something that cannot be; one line per mistake."""


class ConfigTypeError(ConfigError, TypeError):
    """The same, where the first mistake is a value of the wrong type, as `Policy` tells it."""


class Value(NamedTuple):
    """What a key is, and who said so."""

    value: object
    source: str
    """The file and table, a policy in the program, or the built-in default."""


@dataclass(frozen=True, slots=True)
class Layer:
    """Some keys, and where they were said."""

    source: str
    """The file and table, or who in the program; shown to the user."""
    values: Mapping[str, Any]
    """Keys of `Policy` and their values; checked."""
    glob: str | None = None
    """For which models; `None`: for all of them."""
    last: bool = False
    """It goes before what is said of single models."""

    @property
    def rank(self) -> tuple[bool, bool, int, bool, int]:
        """Sort key: the longer the glob's literal prefix the later, then a plain name."""
        glob = self.glob or ""
        prefix = re.split(r"[*?\[]", glob, maxsplit=1)[0]
        return self.last, self.glob is not None, len(prefix), prefix == glob, len(glob)

    def covers(self, model: str) -> bool:
        """Whether it speaks of a model, in any of that model's spellings."""
        if self.glob is None:
            return True
        glob = self.glob.lower()
        return any(fnmatchcase(name, glob) for name in (model.lower(), *spellings(model)))


@dataclass(frozen=True, slots=True)
class VendorTable:
    """A server that speaks a known format in its own way; the dialects read `settings`."""

    name: str
    base_url: tuple[str, ...]
    """Globs over `host[:port]/path`, without the scheme; a glob also holds for all below it."""
    settings: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """All other keys of its table."""

    def covers(self, url: str) -> int:
        """Return how specifically it speaks of a URL: characters of the glob, 0 for not at all."""
        place = _bare(url)
        host = place.split("/", 1)[0].rpartition("@")[2]
        places = (place, host, host.partition(":")[0])
        found = [g for g in self.base_url if any(_below(p, g.lower()) for p in places)]
        return max(map(len, found), default=0)


def _bare(url: str) -> str:
    return re.sub(r"^[a-z][a-z0-9+.-]*://", "", url.lower()).rstrip("/")


def _below(place: str, glob: str) -> bool:
    return fnmatchcase(place, glob) or fnmatchcase(place, f"{glob}/*")


class Config:
    """Policies by model. `policy_for` is cheap: what was found is kept."""

    def __init__(
        self, layers: tuple[Layer, ...] = (), vendors: tuple[VendorTable, ...] = ()
    ) -> None:
        self.layers = tuple(sorted(layers, key=lambda layer: layer.rank))
        """What was said, in the order in which it holds: the later one wins."""
        self.vendors = vendors
        """The tables of servers, as they stand in the file."""
        self._found: dict[str, Policy] = {}

    def policy_for(self, model: str) -> Policy:
        """Return what holds for a model."""
        policy = self._found.get(model)
        if policy is None:
            if len(self._found) >= _MOST_MODELS:
                self._found.clear()
            values = {key: found.value for key, found in self.explain(model).items()}
            policy = self._found[model] = Policy(**cast("dict[str, Any]", values))
        return policy

    def explain(self, model: str) -> dict[str, Value]:
        """Return what holds for a model, key by key, each with its source."""
        said = {item.name: Value(item.default, BUILT_IN) for item in fields(Policy)}
        for layer in self.layers:
            if layer.covers(model):
                said |= {key: Value(value, layer.source) for key, value in layer.values.items()}
        return said

    def but(self, source: str, **values: Any) -> Config:
        """Return this configuration with `values` above all of it; raises what `check` raises."""
        check(values)
        return Config((*self.layers, Layer(source, unaliased(values), last=True)), self.vendors)

    def vendor(self, url: str) -> VendorTable | None:
        """Return the vendor a URL belongs to, by the longest glob, if there is one."""
        best = max(self.vendors, key=lambda vendor: vendor.covers(url), default=None)
        return best if best is not None and best.covers(url) else None


_MOST_MODELS = 1024


# --- where it comes from ------------------------------------------------------------------------


def load(source: Source) -> Config:
    """Return the configuration that `source` names: itself, a policy for all, or a file.

    `None` means the file in the environment variable CONTINUATION_CONFIG, or else the defaults.
    The working directory is never looked at: it may be somebody else's repository.

    Raises `ConfigError`, a `ValueError`, naming file, key, value and what is possible; `TypeError`
    for anything but the above; `OSError` when the file cannot be read.
    """
    if source is None:
        return _from_environment()
    if isinstance(source, Config):
        for vendor in source.vendors:  # made by a program; those of a file were checked
            for error in server_mistakes(vendor.settings):
                message = f"[vendors.{vendor.name}] {error}"
                raise ConfigError(message)
        return source
    if isinstance(source, Policy):
        return _from_policy(source)
    if not isinstance(source, (str, Path)):  # pyright: ignore[reportUnnecessaryIsInstance]
        message = (
            f"config must be a continuation.Policy or the path of a TOML file, "
            f"not {type(source).__name__}"
        )
        raise TypeError(message)
    return read(Path(source))


def _from_environment() -> Config:
    named = os.environ.get(ENVIRONMENT)
    if not named:
        return Config()
    try:
        return read(Path(named))
    except (OSError, ValueError) as error:
        error.add_note(f"{ENVIRONMENT} names that file")
        raise


def _from_policy(policy: Policy) -> Config:
    given = {
        item.name: getattr(policy, item.name)
        for item in fields(Policy)
        if getattr(policy, item.name) != item.default
    }
    return Config((Layer("the Policy given in the program", given),) if given else ())


def read(path: Path) -> Config:
    """Read a file; raises what `load` raises."""
    config, mistakes = examine(path)
    if mistakes:
        first = mistakes[0]
        kind = ConfigTypeError if isinstance(first, TypeError) else ConfigError
        raise kind("\n".join(map(str, mistakes)))
    return config


def examine(path: Path) -> tuple[Config, list[Exception]]:
    """Read a file; return what can be understood of it, and every mistake in it."""
    import tomllib  # not needed by a program without a file

    try:
        document = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except UnicodeDecodeError as error:
        return Config(), [ConfigError(f"{path}: not UTF-8 text (byte {error.start})")]
    except tomllib.TOMLDecodeError as error:
        return Config(), [ConfigError(f"{path}: not valid TOML: {error}")]
    reader = _TableReader(path)
    return reader.read(document), reader.mistakes


class _TableReader:
    """Reads a decoded file table by table and goes on after a mistake."""

    def __init__(self, path: Path) -> None:
        self.mistakes: list[Exception] = []
        self._path = path

    def read(self, document: Mapping[str, Any]) -> Config:
        for key, value in document.items():
            self._try("", _check_table, key, value)
        layers = [self._layer("[defaults]", _table(document, "defaults"), None)]
        for glob, values in _table(document, "models").items():
            place = f"[models.{_quoted(glob)}]"
            self._try(place, _check_glob, glob, values)
            layers.append(self._layer(place, _as_table(values), glob))
        vendors: list[VendorTable] = []
        for name, values in _table(document, "vendors").items():
            place = f"[vendors.{name}]"
            if vendor := self._try(place, _vendor, name, values):
                wrong = [*server_mistakes(vendor.settings)]
                self.mistakes += (ConfigError(f"{self._path}: {place} {error}") for error in wrong)
                vendors += [] if wrong else [vendor]
        return Config(tuple(layers), tuple(vendors))

    def _layer(self, place: str, values: Mapping[str, Any], glob: str | None) -> Layer:
        good: dict[str, Any] = {}
        for key, value in values.items():
            if self._try(place, _check_key, key, value, glob):
                good |= unaliased({key: self._placed(value) if key in CLIENT_KEYS else value})
        return Layer(f"{self._path} {place}", good, glob)

    def _placed(self, name: str) -> str:
        """A file named in a file is looked for beside it."""
        return name if name in NO_FILES else str(self._path.parent / file_of(name))

    def _try(self, place: str, step: Callable[..., Any], *arguments: Any) -> Any:
        try:
            return step(*arguments)
        except (ValueError, TypeError) as error:
            where = f"{self._path}: {place} " if place else f"{self._path}: "
            self.mistakes.append(type(error)(f"{where}{error}"))
            return None


def _quoted(glob: str) -> str:
    return '"' + glob.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _as_table(value: object) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", value) if isinstance(value, dict) else {}


def _table(document: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    return _as_table(document.get(name))


def _check_table(key: str, value: object) -> None:
    if key in RENAMED:
        known_key(key, value, KEYS)
    if key in KEYS:
        message = f"{key} = {shown(key, value)}: stands in no table; put it under [defaults]"
        raise ValueError(message)
    if key not in TABLES:
        known_key(key, value, TABLES)
    if not isinstance(value, dict):
        message = f"{key} = {shown(key, value)}: must be a table, [{key}]"
        raise TypeError(message)


def _check_glob(glob: str, values: object) -> None:
    if not isinstance(values, dict):
        message = f"= {shown(glob, values)}: must be a table; write [models.{_quoted('claude-*')}]"
        raise TypeError(message)
    if not glob.strip():
        message = "is empty; for every model there is [defaults]"
        raise ValueError(message)


def _check_key(key: str, value: object, glob: str | None) -> bool:
    if glob is not None and isinstance(value, dict):
        message = f"{key}: is a table; quote a name with dots: [models.{_quoted(f'{glob}.{key}')}]"
        raise ValueError(message)
    check({key: value})
    if glob is not None and key in CLIENT_KEYS:
        message = f"{key} = {shown(key, value)}: holds for all models; put it under [defaults]"
        raise ValueError(message)
    return True


_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
_SETTING = re.compile(r"[a-z][a-z0-9_]*")
_PATTERN = re.compile(r"(?=.*[A-Za-z0-9])[^\s?#]+")


def _vendor(name: str, values: object) -> VendorTable:
    """Check the shape of a vendor's table; what its settings mean, `server_mistakes` knows."""
    if not _NAME.fullmatch(name):
        message = "the name must be of letters, digits, '_', '.' and '-'"
        raise ValueError(message)
    if not isinstance(values, dict):
        message = f"= {shown(name, values)}: must be a table with base_url"
        raise TypeError(message)
    settings = dict(cast("dict[str, Any]", values))
    for key, value in settings.items():
        _check_setting(key, value)
    if "base_url" not in settings:
        near = next((key for key in settings if "url" in key or "host" in key), None)
        instead = f" (not {near!r})" if near else ""
        message = f'base_url is missing{instead}: say which servers, as in "api.example.com/v1"'
        raise ValueError(message)
    return VendorTable(name, tuple(_patterns(settings.pop("base_url"))), settings)


def _check_setting(key: str, value: object) -> None:
    if not _SETTING.fullmatch(key):
        message = f"{key} = {shown(key, value)}: a key is of small letters, digits and '_'"
        raise ValueError(message)
    if not isinstance(value, (str, int, float, list, dict)):
        needed = "must be text, a number, true, false, a list or a table"
        message = f"{key} = {value}: {needed}"
        raise TypeError(message)


def _patterns(value: object) -> Iterator[str]:
    listed = cast("list[object]", value) if isinstance(value, list) else [value]
    for pattern in listed or [""]:
        if not isinstance(pattern, str):
            message = f"base_url = {shown('base_url', pattern)}: must be a text or a list of texts"
            raise TypeError(message)
        if not _PATTERN.fullmatch(pattern):
            message = f'base_url = {pattern!r}: must be a glob such as "*.example.com/v1"'
            raise ValueError(message)
        yield _bare(pattern)
