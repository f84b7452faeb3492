"""Clients in other languages, unmodified: amqplib from the npm registry, amqp091-go from the module proxy."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

pytestmark = pytest.mark.clients

ROOT = Path(__file__).resolve().parents[3]
HERE = Path(__file__).resolve().parent
AMQPLIB = "2.3.1"
PATIENCE_S = 90


@pytest.fixture(scope="session")
def amqplib(require_tool: Callable[[str], str], require: Callable[[object, str], None]) -> Path:
    """amqplib, fetched once into the repository's cache."""
    node, npm = require_tool("node"), require_tool("npm")
    folder = ROOT / ".cache" / f"amqplib-{AMQPLIB}"
    if not (folder / "node_modules" / "amqplib" / "package.json").exists():
        folder.mkdir(parents=True, exist_ok=True)
        command = [npm, "install", "--silent", "--no-audit", "--no-fund", "--prefix", str(folder)]
        done = subprocess.run([*command, f"amqplib@{AMQPLIB}"], capture_output=True, text=True, check=False)
        require(done.returncode == 0, f"npm cannot fetch amqplib: {done.stderr[-300:]}")
    assert node
    return folder / "node_modules"


@pytest.fixture(scope="session")
def amqp091_go(
    require_tool: Callable[[str], str],
    require: Callable[[object, str], None],
    tmp_path_factory: pytest.TempPathFactory,
) -> Path:
    """The compiled program of `amqp091_go`; its go.mod pins the client, its go.sum the digests."""
    program = tmp_path_factory.mktemp("go") / "exchange"
    command = [require_tool("go"), "build", "-o", str(program), "."]
    done = subprocess.run(command, cwd=HERE / "amqp091_go", capture_output=True, text=True, check=False)
    require(done.returncode == 0, f"go cannot build with amqp091-go: {done.stderr[-300:]}")
    return program


def test_amqp091_go(url: str, amqp091_go: Path, name: Callable[[str], str]) -> None:
    command = [str(amqp091_go), url, name("go")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [str(number) for number in range(20)]


def test_amqplib(url: str, amqplib: Path, name: Callable[[str], str]) -> None:
    done = subprocess.run(
        ["node", str(HERE / "exchange.cjs"), url, name("js")],
        env=os.environ | {"NODE_PATH": str(amqplib)},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [[str(number), False] for number in range(20)]
