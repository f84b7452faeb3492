"""MQTT clients of the scenario `full-disk`, as processes: `full_disk_mqtt.py publish|subscribe ADDRESS FILE`.

publish    QoS 1 to TOPIC until its standard input ends, then until all is acknowledged; writes the number of
           each message that was acknowledged and when (s, a steady clock) as a line of FILE
subscribe  QoS 1, to all of `full/#`, in a session that lasts; writes (publisher, number) of each message as a
           line of FILE, until its standard input ends

Both reconnect after each disconnection, and report the number of disconnections by reason. Each prints a JSON
line from time to time, and at the end an empty ledger with its problems.
"""

from __future__ import annotations

import argparse
import json
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any, TextIO

sys.path.insert(0, str(Path(__file__).parent))

from disk_client import ended
from ledger import Ledger, make_value, read_value
from paho.mqtt.client import Client, ConnectFlags, DisconnectFlags, MQTTMessage
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode

TOPICS = "full/#"
WINDOW = 200  # messages waiting for an acknowledgement
_SAY_EVERY_S = 0.2
_LASTS_S = 3600


class End:
    """A client that reconnects until it ends. `lock` guards its numbers."""

    def __init__(self, given: argparse.Namespace, file: TextIO) -> None:
        self.given = given
        self.file = file
        self.lock = threading.Lock()
        self.done = 0
        self.reasons: Counter[str] = Counter()
        self.connected = False
        name = f"{given.role}-{given.number}"
        self.client = Client(CallbackAPIVersion.VERSION2, name, protocol=MQTTProtocolVersion.MQTTv5)
        self.client.reconnect_delay_set(0.05, 0.5)
        self.client.max_inflight_messages_set(WINDOW)
        self.client.on_connect = self._up
        self.client.on_disconnect = self._down

    def begin(self) -> None:
        host, _, port = self.given.address.rpartition(":")
        lasting = Properties(PacketTypes.CONNECT)
        lasting.SessionExpiryInterval = _LASTS_S
        self.client.connect(host, int(port), keepalive=10, clean_start=False, properties=lasting)
        self.client.loop_start()

    def _up(
        self, client: Client, _: Any, flags: ConnectFlags, code: ReasonCode, properties: Properties | None
    ) -> None:
        with self.lock:
            if code.is_failure:
                self.reasons[f"refused: {code}"] += 1
            else:
                self.connected = True
        if not code.is_failure and self.given.role == "subscribe" and not flags.session_present:
            client.subscribe(TOPICS, qos=1)

    def _down(
        self, client: Client, _: Any, flags: DisconnectFlags, code: ReasonCode, properties: Properties | None
    ) -> None:
        with self.lock:
            self.connected = False
            self.reasons[str(code) if flags.is_disconnect_packet_from_server else "closed"] += 1

    def say(self, **more: Any) -> None:
        with self.lock:
            print(json.dumps({**more, "reasons": dict(self.reasons)}), flush=True)
        time.sleep(_SAY_EVERY_S)


class Publishing(End):
    """`refused`: messages whose PUBACK had an error; they are sent again."""

    def __init__(self, given: argparse.Namespace, file: TextIO) -> None:
        super().__init__(given, file)
        self.sent = 0
        self.refused = 0
        self._waiting: dict[int, int] = {}  # number by packet id
        self._early: dict[int, ReasonCode] = {}  # PUBACKs that arrived before the number was noted
        self._again: list[int] = []
        self.client.on_publish = self._acked

    def _acked(
        self, client: Client, _: Any, mid: int, code: ReasonCode, properties: Properties | None
    ) -> None:
        with self.lock:
            if mid in self._waiting:
                self._note(self._waiting.pop(mid), code)
            else:
                self._early[mid] = code

    def _note(self, number: int, code: ReasonCode) -> None:
        if code.is_failure:
            self.refused += 1
            self._again.append(number)
        else:
            self.file.write(f"{number} {time.monotonic()}\n")
            self.done += 1

    def _publish(self, number: int) -> None:
        """Publishes without holding the lock: paho holds a lock of its own while it calls `_acked`."""
        value = make_value(self.given.number, number, time.monotonic(), self.given.size)
        mid = self.client.publish(self.given.topic, value, qos=1).mid
        with self.lock:
            if mid in self._early:
                self._note(number, self._early.pop(mid))
            else:
                self._waiting[mid] = number

    def run(self) -> None:
        begun, open_ = time.monotonic(), True
        while open_ or self.done < self.sent:
            open_ = open_ and not ended()
            with self.lock:
                again, self._again = self._again, []
            for number in again:
                self._publish(number)
            due = int((time.monotonic() - begun) * self.given.rate) - self.sent if open_ else 0
            for _ in range(max(0, min(due, WINDOW - len(self._waiting)))):
                self._publish(self.sent)
                self.sent += 1
            self.say(sent=self.sent, acked=self.done, refused=self.refused)


class Subscribing(End):
    def __init__(self, given: argparse.Namespace, file: TextIO) -> None:
        super().__init__(given, file)
        self.subscribed = 0
        self.client.on_subscribe = self._heard_of
        self.client.on_message = self._received

    def _heard_of(
        self, client: Client, _: Any, mid: int, codes: list[ReasonCode], properties: Properties | None
    ) -> None:
        self.subscribed += not codes[0].is_failure

    def _received(self, client: Client, _: Any, message: MQTTMessage) -> None:
        publisher, number, _sent = read_value(message.payload)
        self.file.write(f"{publisher} {number}\n")
        self.done += 1

    def run(self) -> None:
        while not ended():
            self.file.flush()
            self.say(read=self.done, subscribed=self.subscribed)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("role", choices=["publish", "subscribe"])
    parser.add_argument("address")
    parser.add_argument("file", type=Path)
    parser.add_argument("--topic", default="full/0")
    parser.add_argument("--number", type=int, required=True)
    parser.add_argument("--rate", type=float, default=100.0)
    parser.add_argument("--size", type=int, default=200)
    given = parser.parse_args()
    with given.file.open("w") as file:
        end = (Publishing if given.role == "publish" else Subscribing)(given, file)
        end.begin()
        end.run()
        end.client.disconnect()
        end.client.loop_stop()
    print(json.dumps({"reasons": dict(end.reasons)}), flush=True)
    print(json.dumps({"ledger": Ledger().as_json()}), flush=True)


if __name__ == "__main__":
    main()
