"""The rights that each AMQP method needs, as in RabbitMQ. `broker.queues.needs` makes them for an operation.

Methods without a row of their own rights act on what the channel has already: its consumers, deliveries,
confirms and transaction.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from pamqp import commands

from treecast.middleware.model.rights import CONFIGURE, READ, WRITE

Rights = tuple[tuple[str, str], ...]  # (right, of what)
_NONE: Final[Rights] = ()
_BIND: Final[Rights] = ((WRITE, "target"), (READ, "source"), (READ, "routing key of a topic exchange"))

NEEDED: Final[Mapping[int, Rights]] = MappingProxyType(
    {
        commands.Exchange.Declare.index: (
            (CONFIGURE, "exchange"),
            (READ, "exchange with an alternate exchange"),
            (WRITE, "alternate exchange"),
        ),
        commands.Exchange.Delete.index: ((CONFIGURE, "exchange"),),
        commands.Exchange.Bind.index: _BIND,
        commands.Exchange.Unbind.index: _BIND,
        commands.Queue.Declare.index: (
            (CONFIGURE, "queue"),
            (READ, "queue with dead letters"),
            (WRITE, "dead letter exchange"),
        ),
        commands.Queue.Delete.index: ((CONFIGURE, "queue"),),
        commands.Queue.Bind.index: _BIND,
        commands.Queue.Unbind.index: _BIND,
        commands.Queue.Purge.index: ((READ, "queue"),),
        commands.Basic.Publish.index: ((WRITE, "exchange"), (WRITE, "routing key of a topic exchange")),
        commands.Basic.Consume.index: ((READ, "queue"),),
        commands.Basic.Get.index: ((READ, "queue"),),
        commands.Channel.Open.index: _NONE,
        commands.Channel.Flow.index: _NONE,
        commands.Channel.Close.index: _NONE,
        commands.Channel.CloseOk.index: _NONE,
        commands.Basic.Qos.index: _NONE,
        commands.Basic.Cancel.index: _NONE,
        commands.Basic.CancelOk.index: _NONE,
        commands.Basic.Ack.index: _NONE,
        commands.Basic.Nack.index: _NONE,
        commands.Basic.Reject.index: _NONE,
        commands.Basic.Recover.index: _NONE,
        commands.Basic.RecoverAsync.index: _NONE,
        commands.Confirm.Select.index: _NONE,
        commands.Tx.Select.index: _NONE,
        commands.Tx.Commit.index: _NONE,
        commands.Tx.Rollback.index: _NONE,
        # A connection's methods are before the log-in, or end it.
        commands.Connection.StartOk.index: _NONE,
        commands.Connection.SecureOk.index: _NONE,
        commands.Connection.TuneOk.index: _NONE,
        commands.Connection.Open.index: (("open", "virtual host"),),
        commands.Connection.Close.index: _NONE,
        commands.Connection.CloseOk.index: _NONE,
        commands.Connection.UpdateSecret.index: _NONE,
    }
)
