"""What stands in `deploy/`: read as those read it who use it, and held to what the gateway does."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml  # type: ignore[import-untyped]
from support.topology import DEPLOY, servers

from continuation.cli import _parser
from continuation.config import examine
from continuation.config.gateway import GatewayTable
from continuation.gateway.server import LISTEN_SECONDS

HOUSE = DEPLOY.parent
COMPOSE: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
GATEWAYS = {name: service for name, service in SERVICES.items() if name.startswith("gateway")}
IMAGE = re.findall(r"(?m)^([A-Z]+) (.*)", (HOUSE / "Dockerfile").read_text())
UNIT = (DEPLOY / "continuation.service").read_text()
DRAIN = GatewayTable().drain_seconds + LISTEN_SECONDS


def test_two_gateways_stand_behind_nginx_and_share_a_database() -> None:
    assert len(GATEWAYS) == 2
    assert servers() == [f"{name}:8787" for name in GATEWAYS]
    assert set(SERVICES) == {*GATEWAYS, "nginx", "postgres"}
    assert [*map(str, SERVICES["nginx"]["depends_on"])] == [*GATEWAYS]
    for service in SERVICES.values():
        for volume in service.get("volumes", []):
            source = volume.partition(":")[0]
            assert source in COMPOSE["volumes"] or (DEPLOY / source).is_file()
    for service in GATEWAYS.values():
        assert "depends_on" not in service, "without the database it works, but for chains"
        assert float(service["stop_grace_period"].removesuffix("s")) > DRAIN
        assert (DEPLOY / service["build"] / "Dockerfile").is_file()


def test_their_configuration_is_one_and_names_the_database_of_the_compose_file() -> None:
    config, mistakes = examine(DEPLOY / "continuation.toml")
    assert not mistakes
    assert config.gateway.drain_seconds + LISTEN_SECONDS <= DRAIN
    store = urlsplit(config.policy_for("").chain_store)
    made = SERVICES["postgres"]["environment"]
    assert (store.scheme, store.hostname) == ("postgresql", "postgres")
    assert store.username == store.path.strip("/") == made["POSTGRES_USER"]
    for service in GATEWAYS.values():
        assert service["environment"]["PGPASSWORD"] == made["POSTGRES_PASSWORD"]
        assert any(v.endswith(f":{_config(_entry())}:ro") for v in service["volumes"])


def _entry() -> list[str]:
    [told] = [words for word, words in IMAGE if word == "ENTRYPOINT"]
    entry: list[str] = yaml.safe_load(told)
    return entry


def _config(command: list[str]) -> str:
    return command[command.index("--config") + 1]


def test_the_image_holds_what_it_starts() -> None:
    extras = tomllib.loads((HOUSE / "pyproject.toml").read_text())["project"]
    said = " ".join(words for word, words in IMAGE if word == "RUN")
    for extra in re.findall(r"\[([a-z,]+)\]", said)[0].split(","):
        assert extra in extras["optional-dependencies"]
    for word, words in IMAGE:
        if word == "COPY":
            assert all((HOUSE / source).exists() for source in words.split()[:-1])
    assert ("USER", "nobody") in IMAGE
    name, *options = _entry()
    assert name in extras["scripts"]
    assert _parser("serve").parse_args(options).host == "0.0.0.0"


def test_the_unit_starts_what_there_is_and_waits_for_what_has_begun() -> None:
    [start] = re.findall(r"(?m)^ExecStart=/usr/bin/env continuation (.*)", UNIT)
    assert _parser("serve").parse_args(shlex.split(start)).host == "127.0.0.1"
    [seconds] = re.findall(r"(?m)^TimeoutStopSec=(\d+)", UNIT)
    assert float(seconds) > DRAIN


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
def test_systemd_takes_the_unit(tmp_path: Path) -> None:
    path = tmp_path / "continuation.service"
    path.write_text(UNIT)
    command = ["systemd-analyze", "verify", "--man=no", str(path)]
    checked = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (checked.returncode, checked.stderr) == (0, "")
