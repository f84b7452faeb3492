"""A daemon with an AMQP face for all clients of a module."""

from __future__ import annotations

import gc
import itertools
import uuid
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pika
import pytest
from tests.pair import pair

from treecast.middleware.daemon.process import DaemonProcess

FACES = ("--kafka", "off", "--admin", "off", "--stare", "off", "--mqtt", "off")
_numbers = itertools.count()


@pytest.fixture(scope="module")
def amqp(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DaemonProcess]:
    daemon = DaemonProcess(tmp_path_factory.mktemp("amqp") / "data", [*FACES])
    try:
        yield daemon.start()
    finally:
        alive = daemon.running
        if alive:
            daemon.stop()
        log = daemon.clean_up()
        print(log)
    assert alive
    assert "Traceback" not in log


@pytest.fixture(scope="module")
def url(amqp: DaemonProcess) -> str:
    return f"amqp://guest:guest@{amqp.ready['amqp']}/%2F"


@pytest.fixture(autouse=True)
def forgiving() -> Iterator[None]:
    """pika leaves the sockets of failed connections to the garbage collector."""
    yield
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


@pytest.fixture
def parameters(amqp: DaemonProcess) -> pika.ConnectionParameters:
    host, port = amqp.address("amqp")
    return pika.ConnectionParameters(host, port)


@pytest.fixture
def name() -> Callable[[str], str]:
    """Returns a function that makes unique names."""
    return lambda prefix: f"{prefix}-{uuid.uuid4().hex[:6]}-{next(_numbers)}"


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[DaemonProcess]]:
    """Two daemons of one cluster with the AMQP face."""
    with two_hosts(tmp_path_factory.mktemp("hosts")) as (first, second):
        yield [first, second]


@contextmanager
def two_hosts(root: Path, *, admin: str = "off") -> Iterator[tuple[DaemonProcess, DaemonProcess]]:
    faces = [*FACES]
    faces[faces.index("--admin") + 1] = admin
    with pair(root, faces) as hosts:
        yield hosts
