"""Which versions of the libraries that run a model are supported: said before one is loaded, by metadata alone."""

from __future__ import annotations

from importlib import metadata

from packaging.specifiers import SpecifierSet
from packaging.version import InvalidVersion, Version

from ropebench.errors import UsageError

SUPPORTED = {"torch": ">=2.6", "transformers": ">=5.0,<6"}  # as in pyproject.toml; `make test-matrix` tries both ends


def check_versions() -> None:
    """Raise UsageError for a library that is missing or outside the supported range: elsewhere a table may be computed,
    or put into the model, in another way."""
    for name, wanted in SUPPORTED.items():
        command = f"pip install '{name}{wanted}'"
        try:
            found = metadata.version(name)
        except metadata.PackageNotFoundError:
            raise UsageError(f"{name} is not installed; ropebench needs {name}{wanted}: {command}") from None
        try:
            fits = SpecifierSet(wanted).contains(Version(found).base_version, prereleases=True)
        except InvalidVersion:
            continue  # a build of one's own, named as one likes
        if not fits:
            raise UsageError(f"{name} {found} is outside the supported range {name}{wanted}; install one: {command}")
