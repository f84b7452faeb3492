"""Python workers of a local Spark that start in a quarter of the time, and what they do after each task.

A PySpark that pip installed is in the interpreter's packages, compiled, and beside it once more as a zip, for
clusters whose machines have none. Spark puts the zip first on its workers' path, and Python compiles what it
imports from there at every start: about one second of a core for each worker, of the ten that Spark waits
for it at most ("Python worker failed to connect back"). A Spark home without the zip leaves what is compiled.
"""

from __future__ import annotations

import gc
import hashlib
import importlib.util
import os
import sys
from contextlib import suppress
from pathlib import Path

LEFT_OUT = ("python", "__pycache__")  # the first one holds the zip, and nothing that a local Spark needs
_settling = 2  # tasks: what Spark loads after the first has called us, it has at the second


def settle() -> None:
    """Called in a worker by each task: what is loaded is no garbage, and is not looked at again.

    Spark's workers collect garbage after every task, and walk over all that PySpark, pandas and Arrow are
    made of: some 55 ms of a core, where a task of a small micro-batch takes 5.
    """
    global _settling
    if _settling:
        _settling -= 1
        gc.collect()
        gc.freeze()


def quick_start() -> None:
    """To be called before the session is made; leaves alone what the environment has set."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if "SPARK_HOME" not in os.environ:
        os.environ["SPARK_HOME"] = str(light_home(_cache()))


def light_home(cache: Path) -> Path:
    """A Spark home in `cache`: links to all of the installed PySpark but its zip."""
    found = importlib.util.find_spec("pyspark")
    if found is None or found.origin is None:
        raise ModuleNotFoundError("pyspark is not installed: pip install 'treecast[spark]'")
    installed = Path(found.origin).resolve().parent
    home = cache / f"spark-home-{hashlib.blake2s(bytes(installed), digest_size=6).hexdigest()}"
    home.mkdir(parents=True, exist_ok=True)
    for entry in installed.iterdir():
        if entry.name not in LEFT_OUT and entry.is_dir() and not (entry / "__init__.py").exists():
            with suppress(FileExistsError):
                (home / entry.name).symlink_to(entry, target_is_directory=True)
    return home


def _cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "treecast"
