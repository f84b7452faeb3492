"""Runs an agent in the foreground, until a signal ends it."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol

from treecast.middleware.model.errors import TreecastError
from treecast.middleware.model.logs import Log

from . import logs, tuning
from .file_permissions import keep_private
from .notify import Notifier
from .run import FAILED, Signals, say
from .settings import LogFormat, LogLevel, Settings

_log = Log(__name__)
WRONG_USE = 2


class Waits(Protocol):
    """`on_standby`: called once an agent waits for another one to end.

    `over`: set when the agent is to end by itself, for the reason `why_over`.
    """

    on_standby: Callable[[], None]
    over: asyncio.Event
    why_over: str


class RunningAgent(Protocol):
    """An agent of any kind. `admin_address`: HOST:PORT of status and metrics, `off` if there is none. `life`:
    tells when it stands by."""

    @property
    def life(self) -> Waits: ...

    @property
    def admin_address(self) -> str: ...

    async def start(self) -> None: ...

    async def close(self) -> None: ...


class AgentKind(NamedTuple):
    """The settings and the agent of a kind: package, and the names of both classes."""

    package: str
    settings: str
    agent: str

    def settings_type(self) -> Any:
        """Returns the class of the whole file."""
        return getattr(import_module(f"{self.package}.settings"), self.settings)

    def agent_type(self) -> Any:
        return getattr(import_module(f"{self.package}.agent"), self.agent)


KINDS: Final = {
    "rabbitmq": AgentKind("treecast.agents.rabbitmq", "RabbitAgentSettings", "RabbitAgent"),
    "kafka": AgentKind("treecast.agents.kafka", "KafkaAgentSettings", "KafkaAgent"),
    "kafka-bridge": AgentKind("treecast.agents.kafka_bridge", "BridgeAgentSettings", "BridgeAgent"),
    "mosquitto": AgentKind("treecast.agents.mosquitto", "MosquittoAgentSettings", "MosquittoAgent"),
}


def run_agent(name: str, config: Path) -> int:
    """Serves until SIGTERM, SIGINT or SIGHUP and returns the exit code. Prints one ready line to stdout.
    `name`: one of `KINDS`, of which only that one is loaded."""
    from treecast.agents.common.life import StartRefused
    from treecast.agents.common.settings import SettingsError, read_file

    kind = KINDS[name]
    try:
        settings = read_file(config, kind.settings_type())
        settings.check()
        _prepare(settings.agent.log_level)
    except (SettingsError, ValueError) as error:
        print(f"treecast agent {name}: {error}", file=sys.stderr)
        return WRONG_USE

    async def serve() -> int:
        try:
            await _join(settings.agent)
            made = kind.agent_type()(settings)
            return await _serve(made, settings.agent.name)
        except (StartRefused, SettingsError) as error:
            print(f"treecast agent {name}: {error}", file=sys.stderr)
            return FAILED

    with asyncio.Runner(loop_factory=tuning.new_event_loop) as runner:
        return runner.run(serve())


async def _join(agent: Any) -> None:
    """Joins a secured cluster by a one-time token, if the agent is to and has not yet. Raises SettingsError.
    `agent`: the table of that name; of an agent that is no host it has no token.
    """
    from treecast.agents.common.settings import AgentSettings, SettingsError

    if not isinstance(agent, AgentSettings) or not (token := agent.one_time):
        return
    from treecast.middleware.api.trust_member import join_patiently  # here: it loads `cryptography`

    try:
        await join_patiently(agent.join, token, agent.name, agent.fabric, Path(agent.data))
    except TreecastError as error:
        raise SettingsError(f"agent.join_token: {error.detail}") from error
    except OSError as error:
        raise SettingsError(f"{agent.data}: {error.strerror}") from error


def _prepare(log_level: str) -> None:
    """Sets the process up. Raises ValueError for a level that does not exist."""
    keep_private()
    tuning.tune_malloc()
    tuning.raise_open_files()
    form = LogFormat(os.environ.get("TREECAST_LOG_FORMAT", "auto"))
    logs.configure(Settings(log_level=LogLevel(log_level), log_format=form))


async def _serve(agent: RunningAgent, site: str) -> int:
    signals, notifier = Signals(), Notifier(os.environ)

    def standing_by() -> None:
        say(f"standby site={site}")
        notifier.send("READY=1", "STATUS=standing by")

    agent.life.on_standby = standing_by
    pings = asyncio.create_task(_ping(notifier))
    try:
        if not await _started(agent, signals):
            _log.info("stopping")
            return 0
        say(f"ready site={site} admin={agent.admin_address}")
        notifier.send("READY=1", "STATUS=serving")
        tuning.freeze_heap()
        await _either(signals.first, agent.life.over)
        notifier.send("STOPPING=1")
        if not signals.first.is_set():
            print(f"treecast agent: {agent.life.why_over}", file=sys.stderr)
            return FAILED
        _log.info("stopping")
    except (TreecastError, OSError) as error:
        print(f"treecast agent: {error}", file=sys.stderr)
        return FAILED
    finally:
        pings.cancel()
        await agent.close()
        notifier.close()
    return 0


async def _started(agent: RunningAgent, signals: Signals) -> bool:
    """Starts the agent, which may take long. Returns False if a signal ends it before."""
    starting = asyncio.create_task(agent.start())
    ended = asyncio.create_task(signals.first.wait())
    try:
        await asyncio.wait((starting, ended), return_when=asyncio.FIRST_COMPLETED)
        if not starting.done():
            return False
        await starting
        return True
    finally:
        for task in (starting, ended):
            task.cancel()
        await asyncio.gather(starting, ended, return_exceptions=True)


async def _either(one: asyncio.Event, other: asyncio.Event) -> None:
    """Returns once one of both is set."""
    waiting = [asyncio.create_task(event.wait()) for event in (one, other)]
    await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    for task in waiting:
        task.cancel()


async def _ping(notifier: Notifier) -> None:
    """Sends the watchdog's ping, if there is a watchdog."""
    while notifier.watchdog_seconds is not None:
        notifier.send("WATCHDOG=1")
        await asyncio.sleep(notifier.watchdog_seconds)
