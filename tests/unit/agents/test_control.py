"""An agent's control address: a network controller asks for receivers, and sets signed rules."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import msgspec
import pytest

from treecast.agents.common.control import ControlServer
from treecast.agents.common.settings import AgentSettings, SettingsError
from treecast.middleware.api.daemon_client import DaemonClient
from treecast.middleware.api.join_token import new_token
from treecast.middleware.api.one_time_token import OneTimeToken
from treecast.middleware.api.v1 import daemon_pb2 as pb
from treecast.middleware.fabric.carriers.registry import Carriers
from treecast.middleware.fabric.carriers.srv6 import Srv6
from treecast.middleware.fabric.settings import FabricSettings
from treecast.middleware.model.errors import Fault, TreecastError

T = TypeVar("T")
TOKEN = new_token("cluster")
SID = bytes(15) + b"\x01"
RULES = pb.ReplicationTrees(trees=[pb.ReplicationTree(hosts=["lisbon", "oslo"], sid=SID)]).SerializeToString()


def served(carriers: Carriers, call: Callable[[str], T]) -> T:
    """Returns what `call` returns with the address of an agent that has these carriers."""

    async def run() -> T:
        server = ControlServer("127.0.0.1:0", TOKEN, carriers)
        await server.start()
        try:
            return await asyncio.to_thread(call, server.address)
        finally:
            await server.close()

    return asyncio.run(run())


def srv6() -> tuple[Carriers, Srv6]:
    carriers = Carriers(FabricSettings(carriers=("srv6",)))
    carrier = carriers.named("srv6")
    assert isinstance(carrier, Srv6)
    return carriers, carrier


def fault_of(carriers: Carriers, call: Callable[[str], object]) -> Fault:
    with pytest.raises(TreecastError) as caught:
        served(carriers, call)
    return caught.value.fault


def test_receivers_are_told_to_everybody() -> None:
    carriers, carrier = srv6()
    carrier._names = {1: "lisbon", 2: "oslo"}
    carrier._wanted = {frozenset((1, 2)): 7}
    carrier._bytes = {frozenset((1, 2)): 700}

    def ask(address: str) -> list[tuple[list[str], int, int]]:
        with DaemonClient(address) as client:
            return [(list(one.hosts), one.packets, one.bytes) for one in client.list_receiver_sets()]

    assert served(carriers, ask) == [(["lisbon", "oslo"], 7, 700)]


def test_signed_rules_are_taken() -> None:
    carriers, carrier = srv6()

    def tell(address: str) -> int:
        with DaemonClient(address, token=TOKEN) as client:
            return client.set_rules("srv6", 5, RULES)

    assert served(carriers, tell) == 5
    assert carrier.version == 5


@pytest.mark.parametrize("token", [None, new_token("cluster")])
def test_rules_of_strangers_are_refused(token: object) -> None:
    carriers, carrier = srv6()

    def tell(address: str) -> int:
        with DaemonClient(address, token=token) as client:  # type: ignore[arg-type]
            return client.set_rules("srv6", 5, RULES)

    assert fault_of(carriers, tell) is Fault.POLICY_VIOLATION
    assert carrier.version == 0


def test_calls_of_a_daemon_are_refused() -> None:
    def ask(address: str) -> object:
        with DaemonClient(address, token=TOKEN) as client:
            return client.list_topics()

    assert fault_of(srv6()[0], ask) is Fault.NOT_SUPPORTED


def test_an_agent_without_such_a_carrier_says_so() -> None:
    def ask(address: str) -> object:
        with DaemonClient(address) as client:
            return client.list_receiver_sets()

    assert fault_of(Carriers(FabricSettings()), ask) is Fault.POLICY_VIOLATION


def settings(tmp_path: Path, carrier: str) -> AgentSettings:
    return AgentSettings(
        name="lisbon", data=str(tmp_path), join="127.0.0.1:7671", join_token=TOKEN.format(), carrier=carrier
    )


def test_carriers_of_the_settings(tmp_path: Path) -> None:
    assert settings(tmp_path, "auto").fabric_settings.carriers == ("ip-multicast",)
    assert settings(tmp_path, "unicast").fabric_settings.carriers == ()
    assert settings(tmp_path, "srv6").fabric_settings.carriers == ("srv6",)


@pytest.mark.parametrize("carrier", ["pigeon", "relay"])
def test_carriers_that_do_not_fit_are_refused(tmp_path: Path, carrier: str) -> None:
    with pytest.raises(SettingsError, match=r"agent\.carrier"):
        settings(tmp_path, carrier).check()


def test_in_a_secured_cluster_it_is_a_unix_socket(tmp_path: Path) -> None:
    """Only the agent's own user reaches it, and needs no token; by TCP nobody is answered."""
    carriers, carrier = srv6()

    async def run(address: str) -> int:
        server = ControlServer(address, None, carriers, "cluster")
        await server.start()
        try:
            return await asyncio.to_thread(tell, server.address)
        finally:
            await server.close()

    def tell(address: str) -> int:
        with DaemonClient(address) as client:
            client.list_receiver_sets()
            return client.set_rules("srv6", 3, RULES)

    assert asyncio.run(run(f"unix:{tmp_path / 'control'}")) == 3
    assert carrier.version == 3
    with pytest.raises(TreecastError, match="this cluster is secured"):
        asyncio.run(run("127.0.0.1:0"))


def test_a_secured_agent_names_no_tcp_address(tmp_path: Path) -> None:
    once = OneTimeToken(bytes(8), bytes(16), bytes(32)).format()
    settings = AgentSettings(
        name="a", data=str(tmp_path), join="10.0.0.1:7671", join_token=once, control="127.0.0.1:7691"
    )
    assert settings.one_time == once
    with pytest.raises(SettingsError, match="a Unix socket"):
        settings.check()
    msgspec.structs.replace(settings, control="unix:/run/a").check()
