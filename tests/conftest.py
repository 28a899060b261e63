"""For all tests: how many examples a property gets, which seed, and nowhere a certificate.

A property test asks for `@settings(max_examples=examples(200))`: two hundred examples in a full
run. The profile says what part of them is tried:

    fast     a tenth, the same ones each time: what the README's test line runs
    ci       all of them, the same ones each time (`pytest --hypothesis-profile ci`)
    nightly  ten times as many, other ones each time; the seed is in the header of the run, and
             `--hypothesis-seed` tries the same ones again
"""

from __future__ import annotations

import gc
import os
import random
import tempfile
from collections.abc import Iterator
from pathlib import Path

import certifi
import pytest
from hypothesis import settings
from support.postgres import databases, store

from continuation.simulator import Simulator

__all__ = ["databases", "store"]  # fixtures, for whoever asks for them

settings.register_profile("fast", max_examples=10, derandomize=True, deadline=None)
settings.register_profile("ci", max_examples=100, derandomize=True, deadline=None)
settings.register_profile("nightly", max_examples=1000, deadline=None)
settings.load_profile("fast")

# Every HTTP client reads the machine's certificates when it is made, 30 ms each, and thousands are
# made here to speak plain HTTP to 127.0.0.1. One of them is read at once.
_BUNDLE = tempfile.TemporaryDirectory(prefix="one-certificate-")
_ONE = Path(_BUNDLE.name, "one.pem")
_ONE.write_text("-----BEGIN" + Path(certifi.where()).read_text().split("-----BEGIN")[1])
os.environ["SSL_CERT_FILE"] = str(_ONE)
os.environ["SSL_CERT_DIR"] = _BUNDLE.name


@pytest.fixture
def sim() -> Iterator[Simulator]:
    """A provider that says what a test has told it to; some files have one with an answer."""
    with Simulator() as running:
        yield running


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Draw the seed of a nightly run here: drawn by hypothesis, nobody would come to know it."""
    option = config.option
    if option.hypothesis_profile == "nightly" and option.hypothesis_seed is None:
        option.hypothesis_seed = random.randrange(2**32)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """One worker more than cores: a fifth of the time goes by in waiting for sockets."""
    return (os.cpu_count() or 1) + 1


def pytest_collection_finish() -> None:
    """Keep the SDKs' million objects out of each collection: some fixtures collect after a test."""
    gc.collect()
    gc.freeze()


def pytest_report_header(config: pytest.Config) -> str:
    profile = config.option.hypothesis_profile or "fast"
    seed = config.option.hypothesis_seed
    return f"properties: profile {profile}, seed {'fixed by each test' if seed is None else seed}"
