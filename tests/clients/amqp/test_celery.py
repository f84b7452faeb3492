"""Celery with a worker process, unmodified: its defaults, and quorum queues with delayed delivery."""

from __future__ import annotations

import importlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest
from amqp.exceptions import NotFound
from kombu.transport.native_delayed_delivery import MAX_LEVEL, level_name

from treecast.middleware.daemon.process import DaemonProcess

pytestmark = pytest.mark.clients

HERE = Path(__file__).resolve().parent
PATIENCE_S = 90


@pytest.fixture(params=["", "quorum"])
def application(
    request: pytest.FixtureRequest,
    start_daemon: Callable[..., DaemonProcess],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[ModuleType]:
    """The application's module, with a worker that serves it."""
    flags = ("--kafka", "off", "--mqtt", "off", "--amqp-transient-queues", "true")
    daemon = start_daemon(*flags)
    monkeypatch.setenv("CELERY_BROKER", f"amqp://guest:guest@{daemon.ready['amqp']}//")
    monkeypatch.setenv("CELERY_QUORUM", request.param)
    monkeypatch.syspath_prepend(str(HERE))
    sys.modules.pop("celery_app", None)
    module = importlib.import_module("celery_app")
    log = tmp_path / "worker.log"
    with log.open("wb") as out:
        worker = subprocess.Popen(
            [sys.executable, "-m", "celery", "-A", "celery_app", "worker", "-c", "1", "-l", "info"],
            cwd=HERE,
            env=os.environ | {"C_FORCE_ROOT": "1"},
            stdout=out,
            stderr=out,
        )
    try:
        yield module
    finally:
        module.app.close()
        worker.send_signal(signal.SIGTERM)
        try:
            worker.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            worker.kill()
            worker.wait()
        print(log.read_text(errors="replace")[-5000:])


def test_tasks_results_and_retries(application: ModuleType) -> None:
    results = [application.add.delay(number, 1) for number in range(20)]
    assert [result.get(timeout=PATIENCE_S) for result in results] == list(range(1, 21))
    assert application.flaky.delay().get(timeout=PATIENCE_S) == 2
    assert application.add.apply_async((1, 2), countdown=1).get(timeout=PATIENCE_S) == 3
    assert application.app.control.ping(timeout=10)


def test_quorum_queues_have_native_delayed_delivery(application: ModuleType) -> None:
    """With them, a countdown waits in the broker: in queues that a worker declares, one for each bit."""
    quorum = bool(os.environ["CELERY_QUORUM"])
    assert application.add.apply_async((1, 2), countdown=1).get(timeout=PATIENCE_S) == 3
    with application.app.connection_for_read() as connection:
        channel = connection.channel()
        if quorum:
            channel.queue_declare(level_name(MAX_LEVEL), passive=True)
        else:
            with pytest.raises(NotFound):
                channel.queue_declare(level_name(MAX_LEVEL), passive=True)
