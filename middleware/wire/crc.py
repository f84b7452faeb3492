"""CRC-32C (Castagnoli, RFC 3720 B.4), by the extension module of the `crc32c` package.

The package itself also loads a command-line tool and its own version's metadata, which takes 10 ms of
each start, so its extension is loaded without it where that can be found.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.machinery import PathFinder
from importlib.util import module_from_spec

Crc = Callable[..., int]

_PACKAGE = "crc32c"
_EXTENSION = "crc32c._crc32c"


def load() -> Crc:
    """The extension's function, or the package's where another release of it is laid out differently."""
    try:
        return _from_extension()
    except (ImportError, AttributeError):
        import crc32c as package

        function: Crc = package.crc32c
        return function


def _from_extension() -> Crc:
    package = PathFinder.find_spec(_PACKAGE)
    places = package.submodule_search_locations if package is not None else None
    found = PathFinder.find_spec(_EXTENSION, places) if places is not None else None
    if found is None or found.loader is None:
        raise ImportError(f"there is no {_EXTENSION}")
    module = module_from_spec(found)
    found.loader.exec_module(module)
    function: Crc = module.crc32c
    return function


# crc32c(data, value=0): the checksum of `data`, which goes on from `value`, that of what stands before it
crc32c: Crc = load()
