"""The state machines of connections and channels as tables: which method is allowed in which state.

Every (state, method) pair is either listed with its action or refused with a code. `ON_CONNECTION` separates
the methods of channel 0 from those of other channels.
"""

from __future__ import annotations

from typing import Final

from pamqp import commands

from . import codec

# States of a connection.
HEADER: Final = 0  # awaits the protocol header
STARTING: Final = 1  # awaits connection.start-ok
TUNING: Final = 2  # awaits connection.tune-ok
OPENING: Final = 3  # awaits connection.open
OPEN: Final = 4
CLOSING: Final = 5  # awaits connection.close-ok and ignores all else
CLOSED: Final = 6
CONNECTION_STATES: Final = (HEADER, STARTING, TUNING, OPENING, OPEN, CLOSING, CLOSED)

_Connection = commands.Connection
_Channel = commands.Channel
_Exchange = commands.Exchange
_Queue = commands.Queue
_Basic = commands.Basic
_Tx = commands.Tx

ON_CONNECTION: Final = frozenset(
    {
        _Connection.StartOk.index,
        _Connection.SecureOk.index,
        _Connection.TuneOk.index,
        _Connection.Open.index,
        _Connection.Close.index,
        _Connection.CloseOk.index,
        _Connection.UpdateSecret.index,
    }
)

# Actions of a connection by state and method.
CONNECTION: Final[dict[int, dict[int, str]]] = {
    HEADER: {},
    STARTING: {_Connection.StartOk.index: "log_in", _Connection.Close.index: "leave"},
    TUNING: {_Connection.TuneOk.index: "tune", _Connection.Close.index: "leave"},
    OPENING: {_Connection.Open.index: "open", _Connection.Close.index: "leave"},
    OPEN: {_Connection.Close.index: "leave", _Connection.UpdateSecret.index: "renew"},
    CLOSING: {_Connection.CloseOk.index: "closed", _Connection.Close.index: "leave"},
    CLOSED: {},
}
CONNECTION_REFUSED: Final = {
    HEADER: codec.UNEXPECTED_FRAME,
    STARTING: codec.CHANNEL_ERROR,
    TUNING: codec.CHANNEL_ERROR,
    OPENING: codec.CHANNEL_ERROR,
    OPEN: codec.CHANNEL_ERROR,
    CLOSING: 0,  # ignored
    CLOSED: 0,
}

# States of a channel. A channel that does not exist accepts only channel.open.
RUNNING: Final = 0
ENDING: Final = 1  # awaits channel.close-ok and ignores all else
CHANNEL_STATES: Final = (RUNNING, ENDING)

# The part of a channel and its method that handle a method, by state.
CHANNEL: Final[dict[int, dict[int, tuple[str, str]]]] = {
    RUNNING: {
        _Channel.Flow.index: ("consuming", "flow"),
        _Exchange.Declare.index: ("defining", "declare_exchange"),
        _Exchange.Delete.index: ("defining", "delete_exchange"),
        _Exchange.Bind.index: ("defining", "bind_exchange"),
        _Exchange.Unbind.index: ("defining", "unbind_exchange"),
        _Queue.Declare.index: ("defining", "declare_queue"),
        _Queue.Delete.index: ("defining", "delete_queue"),
        _Queue.Bind.index: ("defining", "bind_queue"),
        _Queue.Unbind.index: ("defining", "unbind_queue"),
        _Queue.Purge.index: ("defining", "purge_queue"),
        _Basic.Qos.index: ("consuming", "set_prefetch"),
        _Basic.Consume.index: ("consuming", "consume"),
        _Basic.Cancel.index: ("consuming", "cancel"),
        _Basic.CancelOk.index: ("consuming", "cancelled_by_us"),
        _Basic.Get.index: ("consuming", "get"),
        _Basic.Ack.index: ("settling", "ack_method"),
        _Basic.Nack.index: ("settling", "nack"),
        _Basic.Reject.index: ("settling", "reject"),
        _Basic.Recover.index: ("settling", "recover"),
        _Basic.RecoverAsync.index: ("settling", "recover_async"),
        commands.Confirm.Select.index: ("publishing", "select_confirms"),
        _Tx.Select.index: ("transactions", "select_tx"),
        _Tx.Commit.index: ("transactions", "commit"),
        _Tx.Rollback.index: ("transactions", "roll_back"),
    },
    ENDING: {},
}
# Methods whose answers promise that something is stored.
PROMISES: Final = frozenset(
    {
        _Exchange.Declare.index,
        _Exchange.Delete.index,
        _Exchange.Bind.index,
        _Exchange.Unbind.index,
        _Queue.Declare.index,
        _Queue.Delete.index,
        _Queue.Bind.index,
        _Queue.Unbind.index,
        _Queue.Purge.index,
        _Tx.Commit.index,
    }
)
SETTLES: Final = frozenset({_Basic.Ack.index, _Basic.Nack.index, _Basic.Reject.index})
CHANNEL_REFUSED: Final = {RUNNING: codec.COMMAND_INVALID, ENDING: 0}
