"""The channels of a connection: which are open, the methods that arrive on them, and their ends."""

from __future__ import annotations

from typing import Final

from pamqp import base, commands

from treecast.middleware.broker.queues import Reason, Refusal
from treecast.middleware.model.errors import TreecastError
from treecast.middleware.model.logs import Log

from . import codec, session_table
from .codec import AmqpError
from .session_consuming import Consuming
from .session_definitions import Defining
from .session_publishing import Content, Publishing, Transactions
from .session_settling import Settling, Transaction
from .session_state import ChannelContext, ConnectionState
from .session_waiting import Suspended

_log = Log("treecast.amqp")

CODES: Final = {
    Reason.ACCESS_REFUSED: codec.ACCESS_REFUSED,
    Reason.NOT_FOUND: codec.NOT_FOUND,
    Reason.RESOURCE_LOCKED: codec.RESOURCE_LOCKED,
    Reason.PRECONDITION_FAILED: codec.PRECONDITION_FAILED,
    Reason.NOT_ALLOWED: codec.NOT_ALLOWED,
    Reason.INTERNAL_ERROR: codec.INTERNAL_ERROR,
    Reason.NOT_IMPLEMENTED: codec.NOT_IMPLEMENTED,
    Reason.COMMAND_INVALID: codec.COMMAND_INVALID,
}
_OPEN: Final = commands.Channel.Open.index
_CLOSE: Final = commands.Channel.Close.index
_CLOSE_OK: Final = commands.Channel.CloseOk.index


class Channel:
    """A channel and its parts. `number` is that of its frames, `state` a channel state of `session_table`."""

    def __init__(self, connection: ConnectionState, number: int) -> None:
        self.number = number
        self.state = session_table.RUNNING
        self.context = ChannelContext(connection, number)
        self.transaction = Transaction()
        self.defining = Defining(self.context)
        self.settling = Settling(self.context, self.transaction)
        self.consuming = Consuming(self.context, self.settling)
        self.publishing = Publishing(self.context, self.transaction)
        self.content = Content(self.context, self.publishing, self.consuming)
        self.transactions = Transactions(self.context, self.transaction, self.publishing, self.settling)

    @property
    def amid_content(self) -> bool:
        """Whether only the frames of a message's content may come."""
        return self.state == session_table.RUNNING and self.content.amid


class Channels:
    """The channels of one connection, `by_number`, and the method that waits for another host."""

    def __init__(self, connection: ConnectionState) -> None:
        self.by_number: dict[int, Channel] = {}
        self._connection = connection
        self._suspended: tuple[Channel, base.Frame] | None = None

    def forget(self) -> None:
        """Drops the method that waits: the client has gone."""
        self._suspended = None

    # --- methods

    def on_method(self, number: int, channel: Channel | None, method: base.Frame, now: float) -> None:
        if method.index == _OPEN:
            self._open(number, channel)
        elif channel is None:
            if method.index != _CLOSE_OK:
                # A close-ok without a channel is harmless: both sides may have closed it at the same time.
                raise AmqpError(codec.CHANNEL_ERROR, "expected 'channel.open'", method.index)
        elif method.index == _CLOSE:
            self._release(channel, now)
            self._connection.output.send(number, commands.Channel.CloseOk())
        # The client may have sent much before it reads that its channel is closed. All of it is ignored.
        elif channel.state == session_table.ENDING:
            if method.index == _CLOSE_OK:
                del self.by_number[number]
        else:
            self._act(channel, method, now)

    def _act(self, channel: Channel, method: base.Frame, now: float) -> None:
        action = session_table.CHANNEL[channel.state].get(method.index)
        if action is None:
            code = session_table.CHANNEL_REFUSED[channel.state]
            raise AmqpError(code, "unimplemented method", method.index)
        connection = self._connection
        if connection.unpumped and method.index not in session_table.SETTLES:
            connection.pump(now)  # the method sees the queues as the settlements before it have left them
        joined = connection.host.queues.joined
        # A method that changes definitions is answered only when the other hosts of the view have them, too.
        before = joined.definitions.version if joined is not None else 0
        if method.index in session_table.PROMISES:
            connection.output.depends = True
        part, name = action
        try:
            getattr(getattr(channel, part), name)(method, now)
        # The method has asked another host. It is run again as a whole with the answer, so it must not have
        # acted yet.
        except Suspended:
            connection.held = True
            self._suspended = channel, method
        except (Refusal, AmqpError, TreecastError) as error:
            self.refused(channel, error, method.index, now)
        if joined is not None and joined.definitions.version != before:
            connection.output.shares = joined.definitions.version

    def run_again(self, now: float) -> bool:
        """Runs the method that waited. Returns False if its channel or connection was closed meanwhile."""
        suspended, self._suspended = self._suspended, None
        if suspended is None or self._connection.phase == session_table.CLOSED:
            # Opened again before its close-ok: ignored, as everything on a channel that is ending.
            return False
        channel, method = suspended
        # A channel of the same number may have been opened since: the answer is not for that one.
        if self.by_number.get(channel.number) is not channel or channel.state != session_table.RUNNING:
            return False
        self._act(channel, method, now)
        return True

    # --- opening and closing

    def _open(self, number: int, channel: Channel | None) -> None:
        connection, count = self._connection, len(self.by_number)
        if channel is not None:
            if channel.state == session_table.ENDING:
                return
            raise AmqpError(codec.CHANNEL_ERROR, "second 'channel.open' seen", _OPEN)
        if number > connection.channel_max or count >= connection.channel_max:
            detail = (
                f"number of channels opened ({count}) has reached the negotiated channel_max "
                f"({connection.channel_max})"
            )
            raise AmqpError(codec.NOT_ALLOWED, detail, _OPEN)
        self.by_number[number] = Channel(connection, number)
        connection.output.send(number, commands.Channel.OpenOk())

    def _release(self, channel: Channel, now: float) -> None:
        """Releases a channel, after writing its pending confirms."""
        # Confirms of messages that were taken are owed, also by a channel that ends with an error.
        confirms = self._connection.unconfirmed.pop(channel.number, None)
        if confirms is not None:
            confirms.write()
        self.by_number.pop(channel.number, None)
        channel.content.forget()
        channel.consuming.leave(now)
        channel.settling.release(now)

    def release_all(self, now: float) -> None:
        """Releases the channels and exclusive queues of the connection."""
        connection = self._connection
        # Nothing may be delivered to this client any more while its channels give back what they hold.
        connection.output.writable = False
        running = [one for one in self.by_number.values() if one.state == session_table.RUNNING]
        for channel in running:  # first: no channel is to get what another one returns
            channel.consuming.leave(now)
        for channel in running:
            self._release(channel, now)
        self.by_number.clear()
        connection.vhost.release(connection)
        connection.pump(now)

    def refused(self, channel: Channel, error: Exception, method: int, now: float) -> None:
        """Closes the channel if the error affects only it, else raises the error."""
        found = _as_error(error, method)
        if not found.ends_channel:
            raise found
        self._release(channel, now)
        # Its number stays taken until the close-ok: what still comes on it belongs to the closed channel.
        channel.state = session_table.ENDING
        self.by_number[channel.number] = channel
        class_id, method_id = found.method >> 16, found.method & 0xFFFF
        close = commands.Channel.Close(found.code, found.text, class_id, method_id)
        connection = self._connection
        connection.output.send(channel.number, close)
        _log.info(
            "channel closed", channel=channel.number, connection=connection.shown_name, reason=found.text
        )

    def review(self, now: float) -> None:
        """Closes the channels that go on with something that their user may no longer do."""
        for channel in list(self.by_number.values()):
            if channel.state == session_table.RUNNING:
                try:
                    channel.consuming.review()
                except AmqpError as error:
                    self.refused(channel, error, 0, now)

    # --- all of them

    def forget_permissions(self) -> None:
        """Has rights looked up again: the user has a new secret."""
        for channel in self.by_number.values():
            channel.context.forget_permissions()

    def resume(self, now: float) -> None:
        """Delivers from the queues again."""
        for channel in list(self.by_number.values()):
            channel.consuming.pump(now)


def _as_error(error: Exception, method: int) -> AmqpError:
    """Converts an internal error to an AMQP error."""
    if isinstance(error, Refusal):
        return AmqpError(CODES[error.reason], error.detail, method)
    if isinstance(error, AmqpError):
        error.method = error.method or method
        return error
    return AmqpError(codec.INTERNAL_ERROR, str(error), method)
