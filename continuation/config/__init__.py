"""Which policy holds for which model, and where it was set: layers, and the file they come from.

A file `continuation.toml` has a table `[defaults]`, any number of `[models."glob"]` and of
`[vendors.NAME]`, and tables that only the gateway reads (`gateway.py`). A layer sets some keys; a
later one wins: the defaults we ship, `[defaults]`, the globs that match the model (the most
specific one last), then what is set for a single call: by `override` for a block of code, by a
header for one request. The policy of a request is fixed when it is sent.
"""

from __future__ import annotations

import contextlib
import contextvars
import difflib
import json
import os
import re
from collections.abc import Generator, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, fields, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, cast

from continuation.config.doubts import about_glob, log, log_environment
from continuation.config.gateway import (
    GatewayTable,
    Mistakes,
    known_here,
    read_gateway,
    read_upstream,
)
from continuation.limits import spellings
from continuation.policy import (
    ALIASES,
    CLIENT_KEYS,
    KEYS,
    NO_FILES,
    RENAMED,
    Policy,
    check,
    file_of,
    is_url,
    known_key,
    nearest,
    read_value,
    shown,
)
from continuation.registry import server_mistakes

if TYPE_CHECKING:
    from typing import Unpack

    import httpx2

    from continuation.policy import CallKeys

ENVIRONMENT = "CONTINUATION_CONFIG"
"""The environment variable that may name the file."""
FILE_NAME = "continuation.toml"
TABLES = ("defaults", "models", "vendors", "gateway", "upstreams")
BUILT_IN = "built-in default"
HEADER = "x-continuation"
"""`off`, `on`, or `key=value, key=value`; a text with a comma in it is written "in quotes"."""
HEADERS = (HEADER, f"{HEADER}-token", f"{HEADER}-turn")
"""All headers of ours; the others are the gateway's."""
_MOST_MODELS = 1024

Source: TypeAlias = "Config | Policy | str | Path | None"
"""What `wrap(config=...)` takes."""


class ConfigError(ValueError):
    """A configuration file contains mistakes; the message has one line for each."""


class ConfigTypeError(ConfigError, TypeError):
    """A `ConfigError` whose first mistake is a value of the wrong type: a `TypeError` too."""


class Value(NamedTuple):
    """A key's value, and where it was set."""

    value: object
    source: str
    """The file and table, a policy in the program, or the built-in default."""


@dataclass(frozen=True, slots=True)
class Layer:
    """Some keys, and where they were set."""

    source: str
    """The file and table, or what in the program; shown to the user."""
    values: Mapping[str, Any]
    """Keys of `Policy` and their values; checked."""
    glob: str | None = None
    """The models that it holds for; `None`: all of them."""
    last: bool = False
    """Whether it overrides even what is set for single models."""

    @property
    def rank(self) -> tuple[bool, bool, int, bool, int]:
        """Sort key: globs by length of their literal prefix, then plain names; the later wins."""
        glob = self.glob or ""
        prefix = re.split(r"[*?\[]", glob, maxsplit=1)[0]
        return self.last, self.glob is not None, len(prefix), prefix == glob, len(glob)

    def covers(self, model: str) -> bool:
        """Whether it holds for a model, by any of that model's spellings."""
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
        """Return the length of its longest glob that matches a URL; 0: none does."""
        path = _bare(url)
        host = path.split("/", 1)[0].rpartition("@")[2]
        candidates, best = (path, host, host.partition(":")[0]), 0
        for glob in map(str.lower, self.base_url):
            if any(fnmatchcase(p, end) for p in candidates for end in (glob, f"{glob}/*")):
                best = max(best, len(glob))
        return best


def _bare(url: str) -> str:
    return re.sub(r"^[a-z][a-z0-9+.-]*://", "", url.lower()).rstrip("/")


class Config:
    """Policies by model. `policy_for` is cheap: its results are cached."""

    def __init__(
        self,
        layers: tuple[Layer, ...] = (),
        vendors: tuple[VendorTable, ...] = (),
        gateway: GatewayTable | None = None,
    ) -> None:
        self.layers = tuple(sorted(layers, key=lambda layer: layer.rank))
        """The layers in their order: a later one wins."""
        self.vendors = vendors
        """The `[vendors.NAME]` tables, in the order of the file."""
        self.gateway = gateway or GatewayTable()
        """The tables that only the gateway reads."""
        self.doubts: tuple[tuple[str, bool], ...] = ()
        """What in its file may be a mistake, and whether it is probably a misspelling."""
        self._policies: dict[str, Policy] = {}
        self._one_for_all = all(layer.glob is None for layer in self.layers)

    def policy_for(self, model: str) -> Policy:
        """Return the policy for a model, from all layers that hold for it."""
        if self._one_for_all:
            model = ""
        policy = self._policies.get(model)
        if policy is None:
            if len(self._policies) >= _MOST_MODELS:
                self._policies.clear()
            values: dict[str, Any] = {}
            for layer in self.layers:
                if layer.covers(model):
                    values.update(layer.values)
            policy = self._policies[model] = Policy(**values)
        return policy

    def explain(self, model: str) -> dict[str, Value]:
        """Return the value of each key of `Policy` for a model, with its source."""
        values = {item.name: Value(item.default, BUILT_IN) for item in fields(Policy)}
        for layer in self.layers:
            if layer.covers(model):
                values |= {key: Value(value, layer.source) for key, value in layer.values.items()}
        return values

    def but(self, source: str, **values: Any) -> Config:
        """Return this configuration, overridden by `values`; raises what `check` raises."""
        layer = Layer(source, check(values), last=True)
        return Config((*self.layers, layer), self.vendors, self.gateway)

    def vendor_settings(self, name: str) -> Mapping[str, Any] | None:
        """Return a vendor's settings, from its table or as we know it; `None`: it is unknown."""
        for vendor in self.vendors:
            if vendor.name == name:
                return vendor.settings
        return None if [*server_mistakes({"like": name})] else {"like": name}

    def vendor(self, url: str) -> VendorTable | None:
        """Return the vendor that a URL belongs to, by the longest glob; `None`: there is none."""
        best = max(self.vendors, key=lambda vendor: vendor.covers(url), default=None)
        return best if best is not None and best.covers(url) else None


# --- where it comes from ------------------------------------------------------------------------


def load(source: Source) -> Config:
    """Return the configuration for `source`: itself, a policy for all models, or a file's.

    `None` means the file in the environment variable CONTINUATION_CONFIG, or else the defaults.
    The working directory is never looked at: it may be somebody else's repository.

    Raises `ConfigError`, a `ValueError`, naming file, key, value and what is possible; `TypeError`
    for anything but the above; `OSError` when the file cannot be read.
    """
    if source is None:
        log_environment()
        path = os.environ.get(ENVIRONMENT)
        try:
            return read(Path(path)) if path else Config()
        except (OSError, ValueError) as error:
            error.add_note(f"{ENVIRONMENT} names that file")
            raise
    if isinstance(source, Config):
        for vendor in source.vendors:  # made by a program; those of a file were checked
            for mistake in server_mistakes(vendor.settings):
                raise ConfigError(f"[vendors.{vendor.name}] {mistake}")
        return source
    if isinstance(source, Policy):
        values = {
            item.name: value
            for item in fields(Policy)
            if (value := getattr(source, item.name)) != item.default
        }
        return Config((Layer("the Policy given in the program", values),) if values else ())
    if not isinstance(source, (str, Path)):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(
            f"config must be a continuation.Policy or the path of a TOML file, "
            f"not {type(source).__name__}"
        )
    return read(Path(source))


def read(path: Path) -> Config:
    """Read a file; raises what `load` raises."""
    config, mistakes = examine(path)
    if mistakes:
        first = mistakes[0]
        kind = ConfigTypeError if isinstance(first, TypeError) else ConfigError
        raise kind("\n".join(map(str, mistakes)))
    log(config.doubts)
    return config


def examine(path: Path) -> tuple[Config, list[Exception]]:
    """Read a file; return the configuration without its invalid parts, and every mistake."""
    import tomllib  # not needed by a program without a file

    try:
        document = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except UnicodeDecodeError as error:
        return Config(), [ConfigError(f"{path}: not UTF-8 text (byte {error.start})")]
    except tomllib.TOMLDecodeError as error:
        return Config(), [ConfigError(f"{path}: not valid TOML: {error}")]
    mistakes = Mistakes()

    def noting(prefix: str = "") -> AbstractContextManager[None]:
        return mistakes.collecting(f"{path}: {prefix}")

    layers: list[Layer] = []
    vendors: list[VendorTable] = []
    for key, value in document.items():
        with noting():
            _check_table(key, value)
    for glob, values in ((None, document.get("defaults")), *_table(document.get("models")).items()):
        title = "[defaults]" if glob is None else f"[models.{_quoted(glob)}]"
        with noting(f"{title} "):
            _check_glob(glob, values)
        good: dict[str, Any] = {}
        for key, value in _table(values).items():
            with noting(f"{title} "):
                good |= _key(key, value, glob, path.parent)
        layers.append(Layer(f"{path} {title}", good, glob))
    for name, values in _table(document.get("vendors")).items():
        with noting(f"[vendors.{name}] "):
            vendors.append(_vendor(name, values))
    gateway = GatewayTable()
    with noting("[gateway] "):
        gateway = read_gateway(document.get("gateway", {}), path.parent)
    config = Config(tuple(layers), tuple(vendors))
    for name, values in _table(document.get("upstreams")).items():
        with noting(f"[upstreams.{name}] "):
            upstream = read_upstream(name, values, config.vendor_settings)
            gateway = replace(gateway, upstreams={**gateway.upstreams, name: upstream})
    config.gateway = gateway
    titles = ((f"{path}: [models.{_quoted(each.glob)}]", each.glob) for each in layers if each.glob)
    config.doubts = tuple(doubt for title, glob in titles for doubt in about_glob(title, glob))
    return config, mistakes


def _quoted(glob: str) -> str:
    return '"' + glob.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _table(value: object) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", value) if isinstance(value, dict) else {}


def _check_table(key: str, value: object) -> None:
    if key in RENAMED:
        known_key(key, value, KEYS)
    known_here(key, value, TABLES)
    if not isinstance(value, dict):
        raise TypeError(f"{key} = {shown(key, value)}: must be a table, [{key}]")


def _check_glob(glob: str | None, values: object) -> None:
    if glob is None:
        return
    if not isinstance(values, dict):
        message = f"= {shown(glob, values)}: must be a table; write [models.{_quoted('claude-*')}]"
        raise TypeError(message)
    if not glob.strip():
        raise ValueError("the model name is empty; use [defaults] for all models")


def _key(key: str, value: Any, glob: str | None, folder: Path) -> dict[str, Any]:
    """Check a key of [defaults] or of a model; return it as `Policy` has it."""
    if glob is not None and isinstance(value, dict):
        message = f"{key}: is a table; quote a name with dots: [models.{_quoted(f'{glob}.{key}')}]"
        raise ValueError(message)
    if key not in ALIASES and key not in RENAMED:
        known_here(key, value, KEYS)
    if key in CLIENT_KEYS and glob is not None:
        message = f"{key} = {shown(key, value)}: applies to all models; put it under [defaults]"
        raise ValueError(message)
    checked = check({key: value})
    if key in CLIENT_KEYS and isinstance(value, str) and value not in NO_FILES:
        # A path in the file is relative to the file's folder.
        checked[key] = value if is_url(value) else str(folder / file_of(value))
    return checked


def _vendor(name: str, values: object) -> VendorTable:
    """Return a vendor's table, checked; the meaning of its settings by `server_mistakes`.

    Raises an `ExceptionGroup` of all that is wrong with it.
    """
    mistakes, settings = Mistakes(), dict[str, Any]()
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]*", name):
        mistakes.append(ValueError("the name must consist of letters, digits, '_', '.' and '-'"))
    if not isinstance(values, dict):
        raise TypeError(f"= {shown(name, values)}: must be a table with base_url")
    for key, value in cast("dict[str, Any]", values).items():
        with mistakes.collecting():
            _check_setting(key, value)
            settings[key] = value
    globs: tuple[str, ...] = ()
    with mistakes.collecting():
        globs = _globs(settings)
    mistakes += server_mistakes(settings)
    mistakes.raise_all()
    return VendorTable(name, globs, settings)


def _check_setting(key: str, value: object) -> None:
    if not re.fullmatch(r"[a-z][a-z0-9_]*", key):
        message = (
            f"{key} = {shown(key, value)}: a key must consist of small letters, digits and '_'"
        )
        raise ValueError(message)
    if not isinstance(value, (str, int, float, list, dict)):
        message = f"{key} = {value}: must be a string, a number, true, false, a list or a table"
        raise TypeError(message)


def _globs(settings: dict[str, Any]) -> tuple[str, ...]:
    """Remove `base_url` from a vendor's settings; return its globs."""
    if "base_url" not in settings:
        similar = next(
            (
                key
                for key in settings
                if re.search("ur[il]|host", key) or nearest(key, ["base_url"])
            ),
            None,
        )
        settings.pop(similar or "", None)  # reported here, not as an unknown key as well
        hint = f" (not {similar!r})" if similar else ""
        message = f'base_url is missing{hint}; name the servers, as in "api.example.com/v1"'
        raise ValueError(message)
    value: object = settings.pop("base_url")
    globs: list[str] = []
    for pattern in (cast("list[object]", value) if isinstance(value, list) else [value]) or [""]:
        if not isinstance(pattern, str):
            message = (
                f"base_url = {shown('base_url', pattern)}: must be a string or a list of strings"
            )
            raise TypeError(message)
        if not re.fullmatch(r"(?=.*[A-Za-z0-9])[^\s?#]+", pattern):
            raise ValueError(f'base_url = {pattern!r}: must be a glob such as "*.example.com/v1"')
        globs.append(_bare(pattern))
    return tuple(globs)


# --- settings for a single call -----------------------------------------------------------------

_current: contextvars.ContextVar[Mapping[str, Any]] = contextvars.ContextVar(
    "continuation_override",
    default={},  # noqa: B039 - never written to
)


@contextlib.contextmanager
def override(**keys: Unpack[CallKeys]) -> Generator[None]:
    """Apply other policies to the requests that are sent inside the block.

    `keys`: any key of `Policy` but `learned_file`, `chain_store` and `store_seconds`, which hold
    for a client. Blocks nest, and the inner one wins; a request's header `x-continuation` wins over
    them. Threads and tasks do not see each other's blocks; a task that is started inside a block
    begins with its policies. A stream keeps the policies that held when its request was sent.

    Raises `ValueError` or `TypeError` naming key, value and what is possible.
    """
    token = _current.set({**_current.get(), **_for_one_call({**keys})})
    try:
        yield
    finally:
        # A generator may be closed in another context, which never had the block's value.
        with contextlib.suppress(ValueError):
            _current.reset(token)


def current() -> Mapping[str, Any]:
    """Return the keys that the `override` blocks around this call set."""
    return _current.get()


def take(request: httpx2.Request) -> Mapping[str, Any]:
    """Remove the header from a request; return the keys that the blocks and then the header set.

    The header is for callers that cannot use a block, such as a framework's settings. A request
    that is sent again keeps the keys of its header.
    Raises `ValueError` naming header, key, value and what is possible.
    """
    check_names(request.headers.raw)
    keys: Mapping[str, Any] | None = request.extensions.get(HEADER)
    if HEADER in request.headers:
        keys = parse(request.headers[HEADER])
        del request.headers[HEADER]
        request.extensions = {**request.extensions, HEADER: keys}
    return {**_current.get(), **keys} if keys else _current.get()


def check_names(headers: Iterable[tuple[bytes, bytes]]) -> None:
    """Raise `ValueError` if a header's name is a misspelling of `x-continuation` or its kin."""
    for raw, _ in headers:
        if raw[:3].lower() == b"x-c" and (name := raw.decode("latin-1").lower()) not in HEADERS:
            near = difflib.get_close_matches(name, HEADERS, n=1, cutoff=0.85)
            if near or name.startswith("x-contin"):
                hint = f"did you mean {near[0]!r}?" if near else f"write {HEADER}: key=value"
                raise ValueError(f"header {name!r} does not exist; {hint}")


_USAGE = "write off, on, or key=value, key=value, as in max_recoveries=1"
# Possessive, so that no header takes quadratic time.
_ITEM = re.compile(r'\s*+([^\s=,"]++)\s*+=\s*+("(?:[^"\\]|\\.)*+"|[^,"]*+)\s*+(,|$)')


def parse(text: str) -> dict[str, Any]:
    """Return the header's keys; raises `ValueError` naming header, key, value and remedy."""
    word = text.strip().lower()
    if word in {"on", "off"}:
        return {"enabled": word == "on"}
    values: dict[str, Any] = {}
    seen: set[str] = set()
    position, has_more = 0, True
    while has_more:
        match = _ITEM.match(text, position)
        if match is None or match[1] in seen:
            reason = f"{match[1]!r} is given twice" if match else _USAGE
            raise ValueError(f"{HEADER}: {shown('', text)}: {reason}")
        key, literal = match[1], match[2].rstrip()
        try:
            value = read_value(key, json.loads(literal) if literal.startswith('"') else literal)
            values |= _for_one_call({key: value})
        except (ValueError, TypeError) as error:
            raise ValueError(f"{HEADER}: {error}") from None
        seen.add(key)
        position, has_more = match.end(), bool(match[3])
    return values


def _for_one_call(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values under the keys of `Policy`, checked; raises as `check` does."""
    for key in CLIENT_KEYS & values.keys():
        raise ValueError(
            f"{key} = {shown(key, values[key])}: applies to a client, not to one call; "
            "set it where the client is made"
        )
    return check(values)
