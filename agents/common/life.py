"""The life that agents of all kinds share: counts, troubles, the admin address, the memory, and the fabric
host of those that carry messages between sites.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeVar

import msgspec

from treecast.middleware.api.discovery import OFF, Address
from treecast.middleware.broker.pubsub import PubSubSettings
from treecast.middleware.model.errors import TreecastError
from treecast.middleware.model.logs import Log
from treecast.middleware.relay.brokerless import BrokerlessHost, FabricHostSettings
from treecast.middleware.relay.events.ports import EventSettings
from treecast.middleware.storage.whole_file import write_whole

from .admin import AdminServer
from .control import ControlServer
from .settings import AgentSettings, SettingsError, SiteSettings
from .status import AgentCounters, AgentStatus, Trouble

if TYPE_CHECKING:
    from treecast.middleware.api.trust_member import Member

_log = Log(__name__)
_MEMORY = "agent.json"
_LARGEST = 512 << 20  # bytes of a message, with room
_EVER = 10 * 365 * 86_400.0

M = TypeVar("M", bound=msgspec.Struct)


class StartRefused(Exception):
    """The agent cannot start. The text says why and what to do."""


class _Says(Protocol):
    def status(self) -> AgentStatus: ...


class SiteLife:
    """The counts, troubles, admin server and memory of one agent; its memory is a file in its directory."""

    def __init__(self, settings: SiteSettings, says: _Says) -> None:
        """`says`: the agent, whose status is asked for at each request."""
        self.settings = settings
        self.counters = AgentCounters()
        self.troubles: dict[str, Trouble] = {}
        self.admin = AdminServer(says.status)
        self.control: ControlServer | None = None  # of a network controller
        self.on_standby: Callable[[], None] = lambda: None  # called once it waits for another agent to end
        self._stands_by = False
        self.over = asyncio.Event()  # the agent is to end by itself
        self.why_over = ""

    async def start(self, host: BrokerlessHost | None = None) -> None:
        """Serves the admin address, if there is one, and the control address of a host of the fabric. Raises
        OSError."""
        if address := self.settings.admin_address:
            await self.admin.start(address)
        agent = self.settings
        if host is not None and isinstance(agent, AgentSettings) and (target := agent.control_target):
            carriers = host.fabric_host.neighbours.fabric.carriers
            self.control = ControlServer(target, agent.token, carriers, agent.cluster_id)
            await self.control.start()

    def stand_by(self) -> None:
        """The agent waits for another one to end. Called at each try."""
        if not self._stands_by:
            self._stands_by = True
            self.on_standby()

    def end(self, why: str) -> None:
        """Has the agent end as after a failure."""
        self.why_over = self.why_over or why
        self.over.set()

    async def close(self) -> None:
        if self.control is not None:
            await self.control.close()
        await self.admin.close()

    @property
    def admin_address(self) -> str:
        """HOST:PORT of the admin address, or `off`."""
        address = self.settings.admin_address
        return OFF if address is None else str(Address(address.host, self.admin.port))

    # --- troubles

    def note(self, what: str, detail: str) -> None:
        """Something is wrong; it is logged when it begins or changes."""
        if self.troubles.get(what) != (found := Trouble(what, detail)):
            _log.warning("something is wrong", what=what, detail=detail)
            self.troubles[what] = found

    def settled(self, what: str) -> None:
        self.troubles.pop(what, None)

    # --- memory

    @property
    def _memory_path(self) -> Path:
        return Path(self.settings.data, _MEMORY)

    def recall(self, kind: type[M]) -> M:
        """Returns what an earlier run remembered, else a new `kind`."""
        try:
            return msgspec.json.decode(self._memory_path.read_bytes(), type=kind)
        except FileNotFoundError:
            return kind()
        except (OSError, msgspec.DecodeError) as error:
            _log.error("what the agent knew cannot be read", path=self._memory_path, error=error)
            return kind()

    def remember(self, memory: msgspec.Struct) -> None:
        try:
            write_whole(self._memory_path, msgspec.json.encode(memory))
        except OSError as error:
            _log.error("what the agent knows cannot be written", path=self._memory_path, error=error)


def host_settings(agent: AgentSettings, queue_bytes: int = 0) -> FabricHostSettings:
    """Returns the settings of the fabric host of an agent that carries messages. `queue_bytes`: what may wait
    for one of its subscribers; default: as for a client of a daemon. Raises SettingsError."""
    pubsub = PubSubSettings(queue_messages=1 << 40, queue_bytes=queue_bytes) if queue_bytes else None
    return FabricHostSettings(
        agent.name,
        Path(agent.data),
        agent.join,
        agent.token,
        agent.fabric_address,
        agent.fabric_settings,
        pubsub or PubSubSettings(),
        agent.fsync,
        # Nothing may be dropped for its size or age: `Spool` keeps what is owed below the bound.
        EventSettings(log_bytes=2 * agent.spool_bytes + _LARGEST, log_age=_EVER),
        member_of(agent),
    )


def member_of(agent: AgentSettings) -> Member | None:
    """Returns an agent's part in a secured cluster; None in another. Raises SettingsError."""
    if not agent.is_secured:
        return None
    from treecast.middleware.api.trust import Trust  # here: they load `cryptography`
    from treecast.middleware.api.trust_member import Member, own_addresses

    try:
        trust = Trust(Path(agent.data))
    except TreecastError as error:
        raise SettingsError(error.detail) from error
    if trust.identity.name != agent.name:
        raise SettingsError(
            f"agent.name is {agent.name!r}, and the certificate in {agent.data} of {trust.identity.name!r}"
        )
    return Member(trust, own_addresses(agent.fabric))


def sites_of(host: BrokerlessHost) -> dict[str, int]:
    """Returns the other hosts of the cluster that want something, with the number of their patterns."""
    view = host.link.view
    found: dict[str, int] = {}
    for number, patterns in host.wanted_by_others().items():
        entry = view.host(number)
        if patterns:
            found[entry.name if entry is not None else f"host {number}"] = len(patterns)
    return found


def owed_messages(host: BrokerlessHost) -> int:
    """Returns how many messages other hosts have not acknowledged."""
    streams = list(host.fabric_host.events.sending)
    return sum(promise.count for stream in streams for promise in stream.promises)


def spooled_bytes(host: BrokerlessHost) -> int:
    """Returns the size of the host's journal."""
    journal = host.hub.journal
    return journal.size if journal is not None else 0


def troubles_of(life: SiteLife, host: BrokerlessHost, held: bool) -> list[Trouble]:
    """Returns what is wrong. `held`: the broker has to keep its messages, as other sites do not take more."""
    found = list(life.troubles.values())
    member = host.member
    if member is not None and member.trust.trouble:
        found.append(Trouble("trust", member.trust.trouble))
    if member is not None and member.not_renewed:
        found.append(Trouble("trust", f"the certificate is not renewed: {member.not_renewed}"))
    if host.link.last_error is not None:
        found.append(Trouble("coordinator", str(host.link.last_error)))
    if held:
        text = "other sites do not take more, so the server keeps its messages: look for sites that are away"
        found.append(Trouble("spool", text))
    return found
