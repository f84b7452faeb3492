"""Builds the compiled form of the hot modules.

The list below is the whole of it: each is plain typed Python that also runs as it is. Without a C
compiler, without mypyc, or with TREECAST_PURE=1, the package installs without them and only runs slower.
"""

import os
import sys

from setuptools import setup

HOT_MODULES: list[str] = []


def extensions() -> list[object]:
    if os.environ.get("TREECAST_PURE") == "1" or not HOT_MODULES:
        return []
    try:
        from mypyc.build import mypycify
    except ImportError:
        print("treecast: mypyc is not here, so the hot modules stay interpreted", file=sys.stderr)
        return []
    here = os.path.dirname(os.path.abspath(__file__))
    os.chdir(here)
    built = mypycify(
        [f"src/treecast/{module}" for module in HOT_MODULES],
        opt_level="3",
        debug_level="0",
        group_name="hot",
    )
    for extension in built:
        extension.optional = True
    return list(built)


setup(ext_modules=extensions())
