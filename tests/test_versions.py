"""The supported range of torch and transformers is stated once for pip and once for people, and said when missed."""

from __future__ import annotations

import tomllib
from importlib import metadata
from pathlib import Path

import pytest

from ropebench.errors import UsageError
from ropebench.versions import SUPPORTED, check_versions

ROOT = Path(__file__).parents[1]


def test_the_range_is_that_of_pyproject() -> None:
    stated = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    assert [one for one in stated if one.startswith(("torch", "transformers"))] == [
        f"{name}{wanted}" for name, wanted in SUPPORTED.items()
    ]


def test_what_is_installed_is_inside() -> None:
    check_versions()


@pytest.mark.parametrize("name, version, inside", [
    ("torch", "2.5.1", False), ("torch", "2.6.0+cpu", True), ("torch", "2.14.1+cu130", True),
    ("torch", "2.15.0a0+git12", True), ("transformers", "4.57.6", False), ("transformers", "5.0.0", True),
    ("transformers", "5.25.0.dev0", True), ("transformers", "6.0.0", False), ("torch", "my own build", True),
])  # fmt: skip
def test_a_version_outside_is_one_clear_line(
    monkeypatch: pytest.MonkeyPatch, name: str, version: str, inside: bool
) -> None:
    plain = metadata.version
    monkeypatch.setattr(metadata, "version", lambda asked: version if asked == name else plain(asked))
    if inside:
        check_versions()
        return
    with pytest.raises(UsageError, match=f"{name} {version} is outside the supported range {name}>=.*pip install"):
        check_versions()


def test_a_library_that_is_missing_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "version", absent)
    with pytest.raises(UsageError, match=r"torch is not installed; ropebench needs torch>=2.6: pip install"):
        check_versions()
