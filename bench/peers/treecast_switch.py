"""`treecast p4 switch` with one of STARE's programs, and the bare loop with the same system calls."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Mapping
from pathlib import Path

from msgspec.structs import replace

from bench.core.peer import LocalProcess
from bench.core.process import ServerProcess
from bench.core.wires import Wires
from bench.workloads.flood import state_ids
from treecast.middleware.control.stare_switch.embedded import Place, port_set
from treecast.middleware.control.stare_switch.programming import (
    REGISTER,
    TABLE,
    embedded_state,
    entry_of,
    register_state,
)
from treecast.middleware.control.switches import EntryKey, SwitchSession, SwitchState
from treecast.middleware.control.switches.state import plain

PROGRAMS = Path(__file__).resolve().parents[2] / "p4"
SWITCH_CORE = 1


class SwitchPeer(LocalProcess):
    """A process between the cables."""

    def __init__(self, name: str, wires: Wires, parent: Path | None) -> None:
        super().__init__("switch-", parent)
        self.name = name
        self.wires = wires

    def missing(self) -> str:
        """Returns why it cannot run here, or an empty string."""
        return ""

    def serve(self, command: list[str]) -> float:
        """Starts a command and waits for its line that begins with `ready`."""
        command = self.wires.command(self.wires.switch, SWITCH_CORE, command)
        process = self._process = ServerProcess(command, self.folder / "switch.log", cwd=Path.cwd())
        return process.wait_until(lambda: "ready" in process.tail(), 60)


class TreecastSwitch(SwitchPeer):
    """`design`: register or embedded."""

    def __init__(self, wires: Wires, states: int, design: str, python: str, parent: Path | None) -> None:
        super().__init__(f"Treecast, {design}", wires, parent)
        self._states, self._design = states, design
        self._python = os.path.abspath(python)
        self._compiled = "not started yet"

    def launch(self, folder: Path) -> float:
        endpoint = f"unix:{folder}/p4runtime"
        command = [self._python, "-m", "treecast.middleware.cli", "p4", "switch"]
        command += [str(PROGRAMS / f"stare_{self._design}.p4"), "--p4runtime", endpoint]
        command += [word for port in range(self.wires.count) for word in ("--port", f"{port}=sw{port}")]
        took = self.serve(command)
        asyncio.run(self._program(endpoint))
        self._compiled = "yes" if self._is_compiled() else "no"
        return took

    async def _program(self, endpoint: str) -> None:
        """Programs the switch: all states go to all ports but the first."""
        ports = range(self.wires.count)
        place = Place(frozenset(), bytes([2, 0, 0, 0, 0, 254]), bytes([10, 0, 0, 254]))
        to = port_set(ports[1:])
        async with SwitchSession(endpoint) as session:
            await session.learn_program()
            await session.bring_to(self._state(place, to, list(ports)))

    def _state(self, place: Place, to: int, ports: list[int]) -> SwitchState:
        states = state_ids(self._states)
        if self._design == "register":
            return replace(
                register_state(place, ports), registers={(REGISTER, state): to for state in states}
            )
        entries = [plain(entry_of(state, to)) for state in states]
        keys = {EntryKey.of(TABLE, one.matches): one for one in entries}
        return replace(embedded_state(place, ports), entries=keys)

    def _is_compiled(self) -> bool:
        maps = [Path(f"/proc/{pid}/maps").read_text() for pid in self.pids()]
        return any("__mypyc" in one for one in maps)

    def settings(self) -> Mapping[str, str]:
        return {
            "program": f"p4/stare_{self._design}.p4 on `treecast p4 switch`, generated Python",
            "what it does": "IPv4 checksum verified, state looked up, one hop less to live, new checksum",
            "bit helpers compiled": self._compiled,
            "ports": "AF_PACKET sockets",
            "cores": "one",
        }


class FloorSwitch(SwitchPeer):
    """bench/floor/switch.py: the limit of Python code that only calls recv and send."""

    is_floor = True

    def __init__(self, wires: Wires, parent: Path | None) -> None:
        super().__init__("floor", wires, parent)

    def launch(self, folder: Path) -> float:
        ports = [f"sw{port}" for port in range(self.wires.count)]
        return self.serve([sys.executable, "-m", "bench.floor.switch", *ports])

    def settings(self) -> Mapping[str, str]:
        return {"what": "a bare Python loop: one recv, and one send to each other port; nothing is read"}
