"""A running lab: commands in its hosts, its links and counters; its creation and removal."""

from __future__ import annotations

import contextlib
import os
import select
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import msgspec

from . import enter, execute, namespaces, state
from .description import Description
from .impairment import Counters
from .messages import Answer, Direction, RelayError, Request, ask, ask_for_change
from .plan import End, Interface, Plan, Shape, StartCommand, StartRelay, StartSwitch, make_plan

_READY_SECONDS = 30.0
_SWITCH_READY_SECONDS = 300.0  # it loads gRPC and a program; several do at once
_QUIET_SECONDS = 0.05
_OURS = frozenset({"TREECAST_CI", "TREECAST_PURE"})
_PROCESSES = (StartRelay, StartSwitch, StartCommand)


class LabError(Exception):
    """A lab cannot be built or used as requested. The text states the reason and the next step."""


@dataclass(frozen=True, slots=True)
class RelayedLink:
    """A link with a relay. `forward` is from its first end to its second."""

    socket: Path

    def change(self, *, direction: Direction = "both", **settings: float | bool) -> None:
        """Sets fields of `Impairment`: `change(loss=0.1)`. Raises RelayError if one is unknown or
        impossible.
        """
        ask_for_change(self.socket, direction, settings)

    def cut(self, direction: Direction = "both") -> None:
        """Drops frames from now on; those in flight still arrive."""
        self.change(direction=direction, cut=True)

    def heal(self, direction: Direction = "both") -> None:
        self.change(direction=direction, cut=False)

    def forget_groups(self, direction: Direction = "both") -> None:
        """Drops UDP to groups from now on, as a switch does that has forgotten memberships."""
        self.change(direction=direction, forgets=True)

    def learn_groups(self, direction: Direction = "both") -> None:
        self.change(direction=direction, forgets=False)

    def look(self) -> Answer:
        """Returns all its counters at this moment."""
        return ask(self.socket, Request("look"))

    def settled(self, timeout: float = 10.0) -> tuple[Counters, Counters]:
        """Returns the counters forward and backward, once nothing waits and nothing new has come for a
        moment.
        """
        deadline = time.monotonic() + timeout
        before = self.look()
        while True:
            time.sleep(_QUIET_SECONDS)
            now = self.look()
            if now == before and not any(counters.waiting for counters in now.counters.values()):
                return now.counters["forward"], now.counters["backward"]
            if time.monotonic() > deadline:
                raise RelayError(f"frames still pass after {timeout} s: {now}")
            before = now


class Lab:
    """Made by `up`. As a context manager it is taken down at the end, however that comes."""

    def __init__(self, lab_id: str, plan: Plan, *, kept: bool, seed: int) -> None:
        self.id = lab_id
        self.plan = plan
        self.folder = state.folder(lab_id)
        self._kept = kept
        self._seed = seed
        self._children: list[subprocess.Popen[Any]] = []
        self._switches: dict[str, subprocess.Popen[bytes]] = {}

    # --- made and removed

    @classmethod
    def up(cls, description: Description, *, file: Path | None = None, seed: int = 1) -> Lab:
        """Builds a lab. One from a `file` outlives this process; otherwise this process owns it.

        Leftovers of earlier owners are removed first. Raises LabError on failure, and then leaves nothing
        behind.
        """
        require_root()
        state.sweep()
        lab_id = state.kept_id(file) if file else state.owned_id()
        lab = cls(lab_id, make_plan(description), kept=file is not None, seed=seed)
        if not state.claim(lab_id):
            raise LabError(f"the lab of {file} is up already; take it down with `treecast lab down {file}`")
        try:
            lab._build()
        except BaseException as error:
            lab.down()
            if isinstance(error, OSError):
                raise LabError(f"the kernel refuses a part of the lab: {error}") from error
            raise
        return lab

    def _build(self) -> None:
        known = state.State(
            self.id,
            self.plan.description.source,
            state.Owner.this(),
            hosts=list(self.plan.description.hosts),
            relays={step.link: step.number for step in self._relay_steps()},
        )
        state.write(known)
        self._write_hosts()
        network = (step for step in self.plan.steps if not isinstance(step, _PROCESSES))
        execute.carry_out(network, self.namespace)
        self._start_relays()
        self._start_switches()
        for step in self.plan.steps:
            if isinstance(step, StartCommand):
                self._start_logged(step)
        if self._kept:
            known.owner = None
            state.write(known)

    def down(self) -> None:
        """Ends all that runs in it and removes it. A second time does nothing."""
        for child in self._children:
            child.kill()  # also those that have not entered their namespace yet
        state.remove(self.id)
        for child in self._children:
            child.wait()
            for pipe in (child.stdin, child.stdout, child.stderr):
                if pipe is not None:
                    with contextlib.suppress(BrokenPipeError):
                        pipe.close()
        self._children.clear()

    def __enter__(self) -> Lab:
        return self

    def __exit__(self, *_: object) -> None:
        self.down()

    def kill_switch(self, switch: str) -> None:
        """Kills the process of a P4 switch that this lab has started; its links then carry nothing."""
        process = self._switches.get(switch)
        if process is None:
            raise LabError(f"no P4 switch {switch!r} was started here")
        process.kill()
        process.wait()

    def restart_switch(self, switch: str) -> None:
        """Starts a P4 switch again after `kill_switch`; it has lost all that a controller had written."""
        for step in self.plan.steps:
            if isinstance(step, StartSwitch) and step.node == switch:
                self._await_switch(step, self._start_switch(step))

    def _write_hosts(self) -> None:
        lines = ["127.0.0.1 localhost", "::1 localhost"]
        for node in (*self.plan.description.hosts, *self.plan.description.routers):
            for interface in self.plan.of(node)[:1]:
                lines += [f"{interface.ipv4.ip} {node}", f"{interface.ipv6.ip} {node}"]
        (self.folder / "hosts").write_text("\n".join(lines) + "\n")

    def _relay_steps(self) -> Iterator[StartRelay]:
        return (step for step in self.plan.steps if isinstance(step, StartRelay))

    def _start_relays(self) -> None:
        """Starts all relays at once, then waits for each."""
        started = [(step, self._start_relay(step)) for step in self._relay_steps()]
        for step, relay in started:
            assert relay.stdout is not None
            if not select.select([relay.stdout], [], [], _READY_SECONDS)[0] or not relay.stdout.readline():
                raise LabError(f"the relay of {step.link} does not start:\n{self._log('relays').read_text()}")
            relay.stdout.close()

    def _start_relay(self, step: StartRelay) -> subprocess.Popen[bytes]:
        module = "treecast.middleware.dataplane.lab.relay"
        settings = msgspec.json.encode(step.impairment).decode()
        socket_path, seed = str(self._relay_socket(step.number)), str(self._seed * 1000 + step.number)
        command = (sys.executable, "-m", module, socket_path, seed, settings)
        with self._log("relays").open("ab") as log:
            return self._popen(step.node, command, stdout=subprocess.PIPE, stderr=log)

    def _start_switches(self) -> None:
        """Starts all switches at once, then waits for each."""
        steps = [step for step in self.plan.steps if isinstance(step, StartSwitch)]
        started = [(step, self._start_switch(step)) for step in steps]
        for step, switch in started:
            self._await_switch(step, switch)

    def _await_switch(self, step: StartSwitch, switch: subprocess.Popen[bytes]) -> None:
        assert switch.stdout is not None
        readable = select.select([switch.stdout], [], [], _SWITCH_READY_SECONDS)[0]
        if not readable or not switch.stdout.readline().startswith(b"ready "):
            log = self._log(step.node).read_text()
            raise LabError(f"the switch {step.node} does not start:\n{log}")
        switch.stdout.close()

    def _start_switch(self, step: StartSwitch) -> subprocess.Popen[bytes]:
        program = [str(self._beside(step.program))] if step.program else []
        ports = [word for port, interface in step.ports for word in ("--port", f"{port}={interface}")]
        options = ["--name", step.node, "--p4runtime", self.p4runtime(step.node)]
        options += ["--cpu-port", str(step.cpu_port), "--stats", str(self.switch_stats(step.node))]
        command = (
            sys.executable,
            "-m",
            "treecast.middleware.cli",
            "p4",
            "switch",
            *program,
            *ports,
            *options,
        )
        with self._log(step.node).open("ab") as log:
            found = self._popen(step.node, command, stdout=subprocess.PIPE, stderr=log)
        self._switches[step.node] = found
        return found

    def _beside(self, program: str) -> Path:
        """Returns a path relative to the lab's file."""
        return Path(self.plan.description.source).parent / program

    def _start_logged(self, step: StartCommand) -> None:
        with self._log(step.node).open("ab") as log:
            self._popen(step.node, step.command, stdout=log, stderr=log)

    def _log(self, node: str) -> Path:
        path = self.folder / node / "log"
        path.parent.mkdir(exist_ok=True)
        return path

    def _relay_socket(self, number: int) -> Path:
        return state.relay_socket(self.id, number)

    # --- what is in it

    def namespace(self, node: str) -> str:
        """Returns the name of a node's namespace, for `ip netns exec`."""
        return state.namespace(self.id, node)

    def interface(self, node: str, number: int = 0) -> Interface:
        """Returns an addressed interface of a host or router, in the order of its links."""
        return self.plan.of(node)[number]

    def ipv4(self, node: str) -> str:
        """Returns the first IPv4 address of a host or router."""
        return str(self.interface(node).ipv4.ip)

    def ipv6(self, node: str) -> str:
        """Returns the first IPv6 address of a host or router."""
        return str(self.interface(node).ipv6.ip)

    def p4runtime(self, switch: str) -> str:
        """Returns the address of a P4 switch for controllers, usable anywhere on this machine:
        `unix:PATH`.
        """
        return f"unix:{self.folder / switch / 'p4runtime.sock'}"

    def switch_stats(self, switch: str) -> Path:
        """Returns the file with a P4 switch's counts, written at its end and on SIGUSR1."""
        return self.folder / switch / "stats.json"

    def shape(self, rate: int) -> None:
        """Gives all links that have a rate another one, in bit/s each way."""
        shaped = (step for step in self.plan.steps if isinstance(step, Shape))
        execute.carry_out([Shape(step.node, step.interface, rate) for step in shaped], self.namespace)

    def link(self, one: str, other: str) -> RelayedLink:
        """Returns the control of the relay of a link, named as in its description (`forward` is from
        `one`).
        """
        for step in self._relay_steps():
            if self.plan.description.links[step.number].between == (one, other):
                return RelayedLink(self._relay_socket(step.number))
        raise LabError(
            f"no relayed link is described between {one} and {other}, in this order; give it relay = true"
        )

    def end(self, one: str, other: str, at: str) -> End:
        """Returns the end of a link at node `at`; it is also the port of a bridge."""
        for link, ends in zip(self.plan.description.links, self.plan.ends, strict=True):
            if link.between == (one, other):
                return next(end for end in ends if end.node == at)
        raise LabError(f"no link is described between {one} and {other}, in this order")

    def counters(self, node: str, interface: str = "eth0") -> dict[str, int]:
        """Returns the kernel's counters of an interface: `rx_packets`, `tx_bytes` and so on."""
        return namespaces.inside(self.namespace(node), lambda: execute.interface_counters(interface))

    # --- commands

    def run(
        self, node: str, *command: str, timeout: float = 60.0, check: bool = True
    ) -> subprocess.CompletedProcess[str]:
        """Runs a command in a node to its end. With `check`, raises CalledProcessError if it fails."""
        arguments = self._command(node, command)
        return subprocess.run(
            arguments,
            env=host_environment(self.id, node),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=check,
        )

    def start(
        self,
        node: str,
        *command: str,
        stdin: int | IO[Any] | None = subprocess.DEVNULL,
        stdout: int | IO[Any] | None = subprocess.PIPE,
        stderr: int | IO[Any] | None = None,
    ) -> subprocess.Popen[bytes]:
        """Starts a command in a node; it is killed when the lab goes down, or its owner ends.

        The kernel ties it to the thread that calls this: call it from one that lives as long as the lab.
        """
        return self._popen(node, command, stdin=stdin, stdout=stdout, stderr=stderr)

    def _popen(self, node: str, command: Sequence[str], **streams: Any) -> subprocess.Popen[bytes]:
        child = subprocess.Popen(
            self._command(node, command),
            env=host_environment(self.id, node),
            start_new_session=self._kept,
            **{"stdin": subprocess.DEVNULL, **streams},
        )
        self._children.append(child)
        return child

    def _command(self, node: str, command: Sequence[str]) -> list[str]:
        if node not in self.plan.nodes:
            raise LabError(f"there is no {node!r} in the lab, but {', '.join(self.plan.nodes)}")
        owner = 0 if self._kept else os.getpid()
        return [
            sys.executable,
            "-I",
            "-S",
            enter.__file__,
            *_where(self.id, node),
            str(owner),
            "--",
            *command,
        ]


def _where(lab_id: str, node: str) -> tuple[str, str, str]:
    """Returns the first arguments of `enter`."""
    path = namespaces.path_of(state.namespace(lab_id, node))
    return str(path), str(state.folder(lab_id) / "hosts"), node


def host_environment(lab_id: str, node: str) -> dict[str, str]:
    """Returns the environment of a host's processes: its own runtime directory, no settings of another
    daemon.
    """
    runtime = state.folder(lab_id) / node / "run"
    runtime.mkdir(mode=0o700, parents=True, exist_ok=True)
    inherited = {k: v for k, v in os.environ.items() if not k.startswith("TREECAST_") or k in _OURS}
    return {**inherited, "TREECAST_RUNTIME_DIR": str(runtime)}


def require_root() -> None:
    """Raises LabError if this process may not make namespaces."""
    if os.geteuid() != 0:
        raise LabError("network namespaces need root; run it again as root, for example with sudo")


def replace_by_command(lab_id: str, node: str, command: Sequence[str]) -> int:
    """Replaces this process by a command in a host. Returns an exit code if that is impossible."""
    where, environment = _where(lab_id, node), host_environment(lab_id, node)
    os.environ.clear()
    os.environ.update(environment)
    return enter.main([*where, "0", "--", *command])
