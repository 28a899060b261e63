"""For all tests: in CI the same hypothesis examples each time, and nowhere a certificate."""

from __future__ import annotations

import os
import tempfile

from hypothesis import settings

settings.register_profile("ci", derandomize=True, deadline=None)
settings.register_profile("dev", deadline=None)
settings.load_profile("ci" if os.environ.get("CI") else "dev")

# Every HTTP client reads the machine's certificates when it is made, 30 ms each, and thousands are
# made here to speak plain HTTP to 127.0.0.1. An empty folder of certificates is read at once.
_EMPTY = tempfile.TemporaryDirectory(prefix="no-certificates-")
os.environ.pop("SSL_CERT_FILE", None)
os.environ["SSL_CERT_DIR"] = _EMPTY.name
