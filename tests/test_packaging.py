"""What is installed is what is here, and nothing is called `providers` at the top."""

from __future__ import annotations

import importlib.metadata
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import absolute_links
import pytest

import continuation

ROOT = Path(__file__).parent.parent


def project() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def test_every_package_is_listed() -> None:
    found = set()
    for top, prefix in (("continuation", ""), ("providers", "continuation.")):
        for init in (ROOT / top).rglob("__init__.py"):
            parts = init.parent.relative_to(ROOT).parts
            if parts[:2] != ("continuation", "providers"):
                found.add(prefix + ".".join(parts))
    assert set(project()["tool"]["setuptools"]["packages"]) == found


def test_the_link_and_the_mapping_agree() -> None:
    link = ROOT / "continuation" / "providers"
    assert link.resolve() == (ROOT / "providers").resolve()
    mapped = project()["tool"]["setuptools"]["package-dir"]
    packages = project()["tool"]["setuptools"]["packages"]
    assert set(mapped) == {name for name in packages if name.startswith("continuation.providers")}
    for name, folder in mapped.items():
        assert folder == name.removeprefix("continuation.").replace(".", "/")


def test_a_checkout_without_symbolic_links_works(tmp_path: Path) -> None:
    """An editable install is a path to the checkout; a zip or Windows has a file for the link."""
    for top in ("continuation", "providers"):
        shutil.copytree(ROOT / top, tmp_path / top, ignore=shutil.ignore_patterns("__pycache__"))
    link = tmp_path / "continuation" / "providers"
    shutil.rmtree(link)
    link.write_text("../providers")
    code = "from continuation import registry; print(registry.dialects()[0].name)"
    command = [sys.executable, "-c", code]
    ran = subprocess.run(
        command, cwd=tmp_path, env={"PYTHONPATH": str(tmp_path)}, capture_output=True, text=True
    )
    assert ran.stdout.strip() == "anthropic", ran.stderr


def test_the_distribution_has_no_top_level_providers() -> None:
    top = importlib.metadata.distribution("continuation-engine").read_text("top_level.txt")
    assert top is not None
    assert top.split() == ["continuation"]


def test_the_version_is_told_once() -> None:
    assert importlib.metadata.version("continuation-engine") == continuation.__version__
    assert f"[{continuation.__version__}]" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def test_the_extras_are_those_we_promise() -> None:
    extras = set(project()["project"]["optional-dependencies"])
    told = "anthropic openai google all cli gateway postgres otel pricing test dev docs"
    assert extras == set(told.split())


def test_the_readme_has_no_relative_link_where_it_is_read_elsewhere() -> None:
    text = absolute_links.absolute((ROOT / "README.md").read_text(encoding="utf-8"), "README.md")
    links = re.findall(r"\]\(([^)]+)\)", text)
    assert len(links) > 15
    assert all(link.startswith(absolute_links.base().replace("/blob/", "/")[:20]) for link in links)
    pictures = re.findall(r"(?s)!\[[^\]]*\]\(([^)]+)\)", text)
    assert pictures
    assert all("/raw/" in link for link in pictures)


def test_a_link_to_nothing_is_named() -> None:
    with pytest.raises(ValueError, match=r"design/a\.md: links to no/such\.md, which is not there"):
        absolute_links.absolute("[x](../no/such.md)", "design/a.md")


def test_types_are_shipped() -> None:
    assert (ROOT / "continuation" / "py.typed").exists()


def test_every_file_that_contributors_are_sent_to_is_there() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`([\w./-]+\.(?:py|md|toml))`", text))
    tops = [path for path in ROOT.iterdir() if not path.name.startswith(".")]
    everything = [path.as_posix() for top in tops for path in (top, *top.rglob("*.*"))]
    assert len(named) > 15
    assert [name for name in named if not any(p.endswith(f"/{name}") for p in everything)] == []


def test_nothing_speaks_of_one_machine() -> None:
    for path in [*ROOT.glob("*.md"), *ROOT.glob("design/**/*.md"), ROOT / "pyproject.toml"]:
        text = path.read_text(encoding="utf-8")
        for word in ("/work/", "/root/", "/tmp/"):
            assert word not in text, f"{path.name}: {word}"
