"""An emulated switch of either of STARE's designs, with its controller beside it in the embedded one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from random import Random
from types import MappingProxyType

from ...control.stare_switch.embedded import BETWEEN_SWITCHES, EmbeddedController, Place
from ...control.stare_switch.programming import (
    REGISTER,
    TABLE,
    ControlDriver,
    bring_up,
    embedded_state,
    matches_of,
    register_state,
)
from ...dataplane.emulator import SwitchDevice
from ...dataplane.p4 import ActionCall, ControlError, ExactMatch, Program, Switch
from ...fabric.stare.settings import StareSettings

CPU_PORT = 510
DESIGNS = ("register", "embedded")
Routes = Mapping[tuple[bytes, int], tuple[int, bytes]]
NO_ROUTES: Routes = MappingProxyType({})


class EmbeddedCpu:
    """The embedded controller as a `CpuPort`: its writes reach the table at once."""

    def __init__(self, switch: Switch, place: Place, random: Random, settings: StareSettings) -> None:
        self.driver = ControlDriver(switch.control)
        self.controller = EmbeddedController(settings, random, place, self.driver)

    def packet_in(self, packet: bytes, now: float) -> None:
        self.controller.packet_in(packet, now)

    def work(self, now: float) -> None:
        self.controller.work(now)

    def take(self) -> Sequence[bytes]:
        sent, self.driver.sent = self.driver.sent, []
        return sent

    def next_deadline(self) -> float:
        return self.controller.next_deadline()


class StareSwitch:
    """A switch. The emulator uses `device`; the rest is for inspection."""

    def __init__(
        self,
        program: Program,
        place: Place,
        ports: Iterable[int],
        random: Random,
        *,
        routes: Routes = NO_ROUTES,
        settings: StareSettings = BETWEEN_SWITCHES,
    ) -> None:
        """`program`: of one of the designs; `ports`: all ports, to switches and hosts."""
        known = sorted(ports)
        self.ports = tuple(known)
        self.place = place
        self.switch = Switch(program, ports=known, cpu_port=CPU_PORT)
        self.cpu: EmbeddedCpu | None = None
        if any(table.name == TABLE for table in program.tables):
            bring_up(self.switch.control, embedded_state(place, known, routes))
            self.cpu = EmbeddedCpu(self.switch, place, random, settings)
        else:
            bring_up(self.switch.control, register_state(place, known, routes))
        self.device = SwitchDevice(self.switch, self.cpu, cpu_port=CPU_PORT)

    def held(self, state: int) -> int:
        """Returns the ports, as a set, that the data plane sends the state's publishes to."""
        if self.cpu is None:
            return self.switch.control.register(REGISTER).read(state)
        try:
            action = self.switch.control.table(TABLE).entry(matches_of(state)).action
        except ControlError:
            return 0
        assert isinstance(action, ActionCall)
        return action.arguments["ports"]

    def all_held(self) -> dict[int, int]:
        """Returns the non-empty entries by state id."""
        control = self.switch.control
        if self.cpu is None:
            return {
                state: ports for state, ports in enumerate(control.register(REGISTER).read_all()) if ports
            }
        found = {}
        for entry in control.table(TABLE).entries():
            assert isinstance(entry.action, ActionCall)
            [match] = entry.matches.values()
            assert isinstance(match, ExactMatch)
            found[match.value] = entry.action.arguments["ports"]
        return found
