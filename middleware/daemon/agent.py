"""Runs an agent in the foreground, until a signal ends it."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import Protocol

from treecast.middleware.model.errors import TreecastError
from treecast.middleware.model.logs import Log

from . import logs, tuning
from .notify import Notifier
from .private import keep_private
from .run import FAILED, Signals, say
from .settings import LogFormat, LogLevel, Settings

_log = Log(__name__)
WRONG_USE = 2


class RunningAgent(Protocol):
    """An agent of any kind. `admin_address`: HOST:PORT of status and metrics, `off` if there is none."""

    @property
    def admin_address(self) -> str: ...

    async def start(self) -> None: ...

    async def close(self) -> None: ...


def run_rabbitmq(config: Path) -> int:
    """Serves until SIGTERM, SIGINT or SIGHUP and returns the exit code. Prints one ready line to stdout."""
    from treecast.agents.common.settings import SettingsError, read_file
    from treecast.agents.rabbitmq.settings import RabbitAgentSettings

    keep_private()
    tuning.tune_malloc()
    tuning.raise_open_files()
    try:
        settings = read_file(config, RabbitAgentSettings)
        settings.check()
        level = LogLevel(settings.agent.log_level)
    except (SettingsError, ValueError) as error:
        print(f"treecast agent rabbitmq: {error}", file=sys.stderr)
        return WRONG_USE
    form = LogFormat(os.environ.get("TREECAST_LOG_FORMAT", "auto"))
    logs.configure(Settings(log_level=level, log_format=form))

    async def serve() -> int:
        from treecast.agents.rabbitmq.agent import RabbitAgent, StartRefused

        agent = RabbitAgent(settings)
        try:
            return await _serve(agent, settings.agent.name)
        except StartRefused as error:
            print(f"treecast agent rabbitmq: {error}", file=sys.stderr)
            return FAILED

    with asyncio.Runner(loop_factory=tuning.new_event_loop) as runner:
        return runner.run(serve())


def run_kafka(config: Path) -> int:
    """As `run_rabbitmq`, for the agent beside a Kafka cluster."""
    from treecast.agents.common.settings import SettingsError, read_file
    from treecast.agents.kafka.settings import KafkaAgentSettings

    try:
        settings = read_file(config, KafkaAgentSettings)
        settings.check()
        _prepare(settings.agent.log_level)
    except (SettingsError, ValueError) as error:
        print(f"treecast agent kafka: {error}", file=sys.stderr)
        return WRONG_USE

    async def serve() -> int:
        from treecast.agents.kafka.agent import KafkaAgent, StartRefused

        try:
            return await _serve(KafkaAgent(settings), settings.agent.name)
        except StartRefused as error:
            print(f"treecast agent kafka: {error}", file=sys.stderr)
            return FAILED

    with asyncio.Runner(loop_factory=tuning.new_event_loop) as runner:
        return runner.run(serve())


def _prepare(log_level: str) -> None:
    """Sets the process up. Raises ValueError for a level that does not exist."""
    keep_private()
    tuning.tune_malloc()
    tuning.raise_open_files()
    form = LogFormat(os.environ.get("TREECAST_LOG_FORMAT", "auto"))
    logs.configure(Settings(log_level=LogLevel(log_level), log_format=form))


async def _serve(agent: RunningAgent, site: str) -> int:
    signals, notifier = Signals(), Notifier(os.environ)
    try:
        await agent.start()
        say(f"ready site={site} admin={agent.admin_address}")
        notifier.send("READY=1", "STATUS=serving")
        tuning.freeze_heap()
        pings = asyncio.create_task(_ping(notifier))
        await signals.first.wait()
        pings.cancel()
        notifier.send("STOPPING=1")
        _log.info("stopping")
    except (TreecastError, OSError) as error:
        print(f"treecast agent: {error}", file=sys.stderr)
        return FAILED
    finally:
        await agent.close()
        notifier.close()
    return 0


async def _ping(notifier: Notifier) -> None:
    """Sends the watchdog's ping, if there is a watchdog."""
    while notifier.watchdog_seconds is not None:
        notifier.send("WATCHDOG=1")
        await asyncio.sleep(notifier.watchdog_seconds)
