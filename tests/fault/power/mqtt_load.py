"""MQTT: QoS 1 and 2 for a session that is away, retained messages, and sessions made."""

from __future__ import annotations

import itertools
import threading
import time
from typing import Any

import paho.mqtt.client as paho
from paho.mqtt.enums import CallbackAPIVersion

from treecast.middleware.daemon.process import DaemonProcess

from .facts import Facts, Outcome
from .loads import Workers

KEEPER = "keeper"
SETTLE_S = 1.0  # without another message
WAIT_S = 30.0
RETAINED = 5  # topics


class Client:
    """A paho client with its network thread. `messages`: what has arrived, as (topic, payload)."""

    def __init__(self, daemon: DaemonProcess, name: str, *, clean: bool = False) -> None:
        self.messages: list[tuple[str, bytes]] = []
        self.present = False
        self._connected = threading.Event()
        self._answered = threading.Event()
        self.paho = paho.Client(
            CallbackAPIVersion.VERSION2, name, clean_session=clean, reconnect_on_failure=False
        )
        self.paho.on_connect = self._on_connect
        self.paho.on_subscribe = lambda *_: self._answered.set()
        self.paho.on_message = lambda _, __, got: self.messages.append((got.topic, got.payload))
        self.paho.connect(*daemon.address("mqtt"))
        self.paho.loop_start()
        if not self._connected.wait(WAIT_S):
            raise TimeoutError(f"{name} could not connect in {WAIT_S:g} s")

    def _on_connect(self, _: Any, __: Any, flags: Any, *___: Any) -> None:
        self.present = flags.session_present
        self._connected.set()

    def subscribe(self, topic: str) -> None:
        """Returns when the daemon has answered."""
        self._answered.clear()
        self.paho.subscribe(topic, 2)
        if not self._answered.wait(WAIT_S):
            raise TimeoutError(f"no SUBACK for {topic} in {WAIT_S:g} s")

    def settle(self) -> None:
        """Returns when nothing has arrived for a while."""
        count = -1
        while count != len(self.messages):
            count = len(self.messages)
            time.sleep(SETTLE_S)

    def close(self) -> None:
        self.paho.disconnect()
        self.paho.loop_stop()


class MqttLoad:
    """Implements `loads.Load`."""

    def __init__(self) -> None:
        self.facts = Facts()
        self._number = itertools.count(1)
        self._cycle = 0

    def begin(self, daemon: DaemonProcess, cycle: int) -> None:
        self._cycle, self._daemon = cycle, daemon
        self._workers = Workers()
        keeper = Client(daemon, KEEPER)
        keeper.subscribe("kept/#")
        self.facts.add("sessions", KEEPER)
        keeper.close()
        self._publisher = Client(daemon, f"publisher-{cycle}", clean=True)
        self._waiting: dict[int, tuple[str, Any, Any]] = {}
        self._publisher.paho.on_publish = self._told
        self._workers.start("publish", self._publish)
        self._workers.start("sessions", self._session)

    def halt(self) -> None:
        self._workers.halt()
        self._publisher.paho.loop_stop()

    def _publish(self) -> None:
        for qos in (1, 2):
            payload = b"%d-%d" % (self._cycle, next(self._number))
            self._send(f"kept/{qos}", payload, qos, "QoS 1" if qos == 1 else "QoS 2", payload, None)
        number = next(self._number)
        topic = f"retained/{number % RETAINED}"
        self._send(topic, b"%d" % number, 1, "retained", (topic, number), number, retain=True)
        while len(self._waiting) > 60 and not self._workers.over.is_set():
            time.sleep(0.01)
        time.sleep(0.01)

    def _send(
        self, topic: str, payload: bytes, qos: int, kind: str, key: Any, value: Any, **more: Any
    ) -> None:
        with self._publisher.paho._callback_mutex:  # the answer may come before `publish` returns
            pass
        sent = self._publisher.paho.publish(topic, payload, qos, **more)
        self._waiting[sent.mid] = kind, key, value
        if sent.is_published():
            self._told(None, None, sent.mid)

    def _told(self, _: Any, __: Any, mid: int, *___: Any) -> None:
        known = self._waiting.pop(mid, None)
        if known is not None:
            self.facts.add(*known)

    def _session(self) -> None:
        name = f"session-{self._cycle}-{next(self._number)}"
        client = Client(self._daemon, name)
        client.subscribe("nothing/#")
        self.facts.add("sessions", name)
        client.close()
        time.sleep(0.3)

    # --- what is left

    def audit(self, daemon: DaemonProcess, horizon: float, *, whole: bool) -> tuple[list[Outcome], list[str]]:
        problems: list[str] = []
        present = {name: self._present(daemon, name) for name in self.facts.of("sessions") if name != KEEPER}
        keeper = Client(daemon, KEEPER)
        present[KEEPER] = keeper.present
        keeper.settle()
        keeper.close()
        twos = [payload for topic, payload in keeper.messages if topic == "kept/2"]
        if len(twos) != len(set(twos)):
            problems.append(f"{len(twos) - len(set(twos))} messages of QoS 2 came twice")
        seen = {payload for _, payload in keeper.messages}
        retained = self._retained(daemon)
        outcomes = [
            self.facts.settle("sessions", horizon, lambda key, _: present[key]),
            self.facts.settle("QoS 1", horizon, lambda key, _: key in seen),
            self.facts.settle("QoS 2", horizon, lambda key, _: key in seen),
            self.facts.settle("retained", horizon, lambda key, value: retained.get(key[0], 0) >= value),
        ]
        for kind in ("QoS 1", "QoS 2"):  # the session has them now
            for key in self.facts.of(kind):
                self.facts.drop(kind, key)
        return outcomes, problems

    def _present(self, daemon: DaemonProcess, name: str) -> bool:
        client = Client(daemon, name)
        client.close()
        return client.present

    def _retained(self, daemon: DaemonProcess) -> dict[str, int]:
        reader = Client(daemon, "reader", clean=True)
        reader.subscribe("retained/#")
        reader.settle()
        reader.close()
        return {topic: int(payload) for topic, payload in reader.messages}
