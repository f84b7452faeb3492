"""Reads the imports of every module, and reports those that break the layers of docs/architecture.md.

Imports go down the list `LAYERS` only; rooms on one line must not import each other.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]

# Highest first. A room may import the rooms of every line below its own.
LAYERS: tuple[tuple[str, ...], ...] = (
    ("cli",),
    ("daemon", "evaluation"),
    ("agents",),
    ("shims", "spark_connectors", "control"),
    ("relay",),
    ("fabric", "dataplane"),
    ("broker",),
    ("api", "storage"),
    ("load",),
    ("routing",),
    ("filters",),
    ("wire",),
    ("model",),
)

# A face imports the broker's public module and these rooms, and nothing else of `middleware`.
SHIM_MAY_IMPORT = (
    "treecast.middleware.broker",
    "treecast.middleware.api",
    "treecast.middleware.wire",
    "treecast.middleware.model",
)

# Packages that other code uses through the names of their `__all__` only.
BEHIND_ONE_MODULE = ("treecast.middleware.dataplane.p4",)

IMPURE = {"asyncio", "os", "random", "selectors", "signal", "socket", "subprocess", "threading", "time"}
PURE_FOLDERS = (
    "middleware/model",
    "middleware/wire",
    "middleware/filters",
    "middleware/routing",
    "middleware/fabric/core",
    "middleware/dataplane/p4",
    "middleware/dataplane/emulator",
    "middleware/control/replicas",
)
PURE_FILES = (
    "shims/*/codec*.py",
    "shims/*/session*.py",
    "agents/*/codec.py",
    "agents/*/session*.py",
    *(f"agents/rabbitmq/{name}.py" for name in ("topics", "hops", "bindings", "confirms")),
    *(f"agents/mosquitto/{name}.py" for name in ("topics", "bridge", "inbound")),
    "agents/common/bounds.py",
    "shims/amqp/management*.py",
    "shims/amqp/users.py",
    *(f"middleware/fabric/channel/{name}.py" for name in ("codec", "states", "incoming")),
    *(f"middleware/fabric/channel/{name}.py" for name in ("outgoing", "settings")),
    *(f"middleware/fabric/channel/{name}.py" for name in ("greeting", "calls", "session")),
    *(f"middleware/fabric/stare/{name}.py" for name in ("settings", "timers", "subscriptions", "replica")),
    *(
        f"middleware/fabric/stare/{name}.py"
        for name in ("published", "received", "announcements", "node", "output")
    ),
    "middleware/broker/*/state.py",
    "middleware/broker/access/*.py",
    *(f"middleware/broker/groups/{name}.py" for name in ("group", "joining", "syncing", "timeouts")),
    "middleware/broker/queues/[!bh]*.py",  # all except `block_store` and `host`
    *(f"middleware/broker/queues/{name}.py" for name in ("backlog", "bindings", "headers")),
    *(
        f"middleware/control/{name}.py"
        for name in ("values", "commands", "cluster_state", "state", "decision")
    ),
    *(f"middleware/control/{name}.py" for name in ("hosts", "topics", "homes", "allotments")),
    *(f"middleware/control/{name}.py" for name in ("history", "definitions", "events")),
    "middleware/api/admission.py",
    *(f"middleware/control/switches/{name}.py" for name in ("state", "difference", "messages", "refusals")),
    "middleware/control/switches/local.py",
    *(f"middleware/dataplane/lab/{name}.py" for name in ("description", "impairment", "plan", "units")),
)


@dataclass(frozen=True)
class Import:
    """One import: its place, the full name of the module, and the name that it has in the file."""

    path: Path
    line: int
    module: str
    local: str = ""

    def __str__(self) -> str:
        return f"{self.path}:{self.line} imports {self.module}"


def module_name(path: Path) -> str:
    """`middleware/wire/varint.py` is `treecast.middleware.wire.varint`."""
    parts = path.with_suffix("").parts
    return ".".join(("treecast", *(parts[:-1] if parts[-1] == "__init__" else parts)))


def imports_of(path: Path, root: Path = REPOSITORY) -> Iterator[Import]:
    """Yields every import of a module, including those inside functions, with relative ones resolved."""
    name = module_name(path)
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    for node in ast.walk(ast.parse((root / path).read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(path, node.lineno, alias.name)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parent = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join([*parent, base] if base else parent)
            for alias in node.names:
                yield Import(path, node.lineno, f"{base}.{alias.name}", alias.asname or alias.name)


def room(module: str) -> str | None:
    """Returns the room of one of our modules: `treecast.middleware.wire.varint` is in `wire`."""
    parts = module.split(".")
    if parts[0] != "treecast" or len(parts) < 2:
        return None
    if parts[1] != "middleware":
        return parts[1]
    return parts[2] if len(parts) > 2 else None


def layer(name: str) -> int:
    """Returns the line of `LAYERS` that holds the room; 0 is the highest."""
    for number, rooms in enumerate(LAYERS):
        if name in rooms:
            return number
    raise KeyError(f"room {name!r} is in no layer: add it to LAYERS and to docs/architecture.md")


def breaks_layers(found: Import) -> bool:
    """Returns whether an import goes up, sideways, or from a face past the broker's public module."""
    origin, target = room(module_name(found.path)), room(found.module)
    if origin is None or target is None or origin == target:
        return False
    if target not in {name for rooms in LAYERS for name in rooms}:
        return False  # a name of `treecast` itself, such as `__version__`
    if layer(target) <= layer(origin):
        return True
    return origin == "shims" and not _public_to_shims(found.module)


def _public_to_shims(module: str) -> bool:
    broker = "treecast.middleware.broker"
    for part in ("access", "pubsub", "queues"):  # separate public modules, which few faces load
        if module.startswith(f"{broker}.{part}."):
            return module.removeprefix(f"{broker}.{part}.") in exported(Path(f"middleware/broker/{part}"))
    if module == broker or module.startswith(f"{broker}."):
        return module == broker or module.removeprefix(f"{broker}.") in exported(Path("middleware/broker"))
    return module.startswith(SHIM_MAY_IMPORT)


def passes_the_public_module(found: Import) -> bool:
    """Returns whether an import from outside bypasses the public module of a package."""
    for package in BEHIND_ONE_MODULE:
        folder = Path(*package.split(".")[1:])
        if found.module.startswith(f"{package}.") and folder not in found.path.parents:
            return found.module.removeprefix(f"{package}.") not in exported(folder)
    return False


def exported(package: Path, root: Path = REPOSITORY) -> set[str]:
    """Returns the names in a package's `__all__`."""
    for node in ast.parse((root / package / "__init__.py").read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return set(ast.literal_eval(node.value))
    return set()


def sources(root: Path = REPOSITORY) -> list[Path]:
    """Returns all modules of the package, relative to the repository."""
    tops = ("middleware", "shims", "agents", "spark_connectors")
    found = (path.relative_to(root) for top in tops for path in (root / top).rglob("*.py"))
    return sorted(path for path in found if "_pb2" not in path.name)


def beside_the_package(root: Path = REPOSITORY) -> list[Path]:
    """Returns the sources that use the package from outside."""
    found = (path.relative_to(root) for top in ("bench", "examples") for path in (root / top).rglob("*.py"))
    return sorted(found)


def pure_sources(root: Path = REPOSITORY) -> list[Path]:
    """Returns the modules that must not do I/O or await."""
    folders = (path for folder in PURE_FOLDERS for path in (root / folder).rglob("*.py"))
    files = (path for pattern in PURE_FILES for path in root.glob(pattern))
    return sorted({path.relative_to(root) for path in (*folders, *files)})
