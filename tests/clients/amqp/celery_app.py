"""The application of the Celery test: `celery -A celery_app worker`; the broker is in CELERY_BROKER."""

from __future__ import annotations

import os

from celery import Celery
from kombu import Queue

app = Celery("orders", broker=os.environ["CELERY_BROKER"], backend="rpc://")
app.conf.broker_connection_retry_on_startup = True
if os.environ.get("CELERY_QUORUM"):
    app.conf.task_default_queue_type = "quorum"
    app.conf.task_queues = [Queue("celery", queue_arguments={"x-queue-type": "quorum"})]
    app.conf.broker_transport_options = {"confirm_publish": True}
    app.conf.worker_detect_quorum_queues = True


@app.task
def add(first: int, second: int) -> int:
    return first + second


@app.task(bind=True, max_retries=3, acks_late=True)
def flaky(self) -> int:  # type: ignore[no-untyped-def]
    """Succeeds at the third attempt."""
    if self.request.retries < 2:
        raise self.retry(countdown=0.2)
    return int(self.request.retries)
