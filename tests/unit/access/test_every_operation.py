"""Every method of AMQP and every packet of MQTT has its row of rights, as every API of Kafka
(`kafka/test_rights.py`): a new one without a row fails here."""

from __future__ import annotations

from pamqp import base, commands
from tests.unit.amqp.test_rights import OPERATIONS

from treecast.shims.amqp import session_table as amqp
from treecast.shims.amqp.needed import NEEDED as METHODS
from treecast.shims.mqtt import session_table as mqtt
from treecast.shims.mqtt.rights import NEEDED as PACKETS

# Methods that a channel handles outside of its table
BESIDE = {
    commands.Channel.Open.index,
    commands.Channel.Close.index,
    commands.Channel.CloseOk.index,
    commands.Basic.Publish.index,
}


def test_every_method_of_amqp_has_a_row() -> None:
    handled = {method for methods in amqp.CHANNEL.values() for method in methods}
    handled |= {method for methods in amqp.CONNECTION.values() for method in methods}
    assert set(METHODS) == handled | BESIDE | amqp.ON_CONNECTION


def test_every_method_with_rights_is_tried_without_them() -> None:
    """`amqp/test_rights.py` tries each operation with each right missing; reading is reviewed there, too."""
    tried = {frame.index for frame, _ in OPERATIONS.values() if isinstance(frame, base.Frame)}
    elsewhere = {
        commands.Basic.Publish.index,  # as bytes
        commands.Basic.Consume.index,
        commands.Connection.Open.index,
        commands.Exchange.Unbind.index,  # as bind
    }
    assert {method for method, rights in METHODS.items() if rights} == tried | elsewhere


def test_every_packet_of_mqtt_has_a_row() -> None:
    assert set(PACKETS) == {packet for packets in mqtt.ALLOWED.values() for packet in packets}
