"""A connection to PostgreSQL that leads: it holds the advisory lock under which one coordinator decides.

The lock belongs to the connection, and every write goes over the same connection: a coordinator that has lost
the lock has no connection to write with. The server ends a connection that is silent for `SILENT_SECONDS`, so
that a stopped coordinator, or one on a host that vanished, does not hold the lock for ever.

Any failure but a refusal by the server ends the session, because the outcome is then unknown. Calls block;
they are made by one thread at a time.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeVar

from treecast.middleware.model.errors import Fault, TreecastError

LOCK: Final = int.from_bytes(b"treecast", "big")  # of this program, in each database
CONNECT_SECONDS: Final = 5.0
CALL_SECONDS: Final = 10.0  # for one statement, also where a synchronous standby has to confirm it
SILENT_SECONDS: Final = 15
_SETTINGS: Final = {
    "application_name": "treecast coordinator",
    "idle_session_timeout": f"{SILENT_SECONDS}s",
    "idle_in_transaction_session_timeout": f"{SILENT_SECONDS}s",
    "tcp_keepalives_idle": "5",
    "tcp_keepalives_interval": "2",
    "tcp_keepalives_count": "3",
    "default_transaction_isolation": "read committed",
    "search_path": "pg_catalog",
}
# Classes of SQLSTATE that refuse one transaction: data, integrity, resources, limits. Others end the session.
_REFUSALS: Final = ("22", "23", "53", "54")
# Refused at the door until an operator changes something: password, database, rights, an unknown setting.
_DOOR: Final = ("28", "3D", "42")

T = TypeVar("T")


class Session:
    """One connection, from `open` to `close`. `connection` is asyncpg's, for coroutines that `run` runs."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._runner = asyncio.Runner(loop_factory=asyncio.new_event_loop)
        self.connection: Any = None
        self._why_lost = ""  # why; empty while the session is usable
        self._warned = ""  # by the server, since the last statement began

    @property
    def place(self) -> str:
        """The database's URL without its password."""
        return shown(self._url)

    def open(self) -> None:
        """Connects to the server that takes writes. Raises STORAGE if that needs an operator, else
        COORDINATOR_UNAVAILABLE.
        """
        asyncpg = driver()
        try:
            self.connection = self._runner.run(self._connect(asyncpg))
        except asyncpg.PostgresError as error:
            operator = (error.sqlstate or "").startswith(_DOOR)
            raise self._refused("use", error, Fault.STORAGE if operator else None) from error
        except asyncpg.ClientConfigurationError as error:
            raise self._refused("use", error, Fault.STORAGE) from error
        except (OSError, TimeoutError, asyncpg.InterfaceError, asyncpg.InternalClientError) as error:
            raise self._refused("reach", error, None) from error
        self.connection.add_log_listener(self._note_warning)

    async def _connect(self, asyncpg: Any) -> Any:
        return await asyncpg.connect(
            self._url,
            timeout=CONNECT_SECONDS,
            command_timeout=CALL_SECONDS,
            server_settings=_SETTINGS,
            target_session_attrs="read-write",
        )

    def _note_warning(self, connection: Any, message: Any) -> None:
        if message.severity_en == "WARNING":
            self._warned = str(message)

    def run(self, what: str, work: Callable[[Any], Awaitable[T]]) -> T:
        """Runs `work` with the connection. `what` it does is for messages.

        A warning counts as a failure: the server commits with one if a synchronous standby did not confirm.
        """
        if self._why_lost:
            raise TreecastError(Fault.COORDINATOR_UNAVAILABLE, self._why_lost)
        asyncpg = driver()
        self._warned = ""
        try:
            found = self._runner.run(self._work(work))
        except asyncpg.PostgresError as error:
            if (error.sqlstate or "").startswith(_REFUSALS) and not self.connection.is_closed():
                raise self._refused(what, error, Fault.STORAGE) from error
            raise self._end(what, error) from error
        except (OSError, TimeoutError, asyncpg.InterfaceError, asyncpg.InternalClientError) as error:
            raise self._end(what, error) from error
        except TreecastError as error:
            if error.fault is Fault.COORDINATOR_UNAVAILABLE:
                self._end(what, error)
            raise
        if self._warned:
            raise self._end(what, RuntimeError(self._warned))
        return found

    async def _work(self, work: Callable[[Any], Awaitable[T]]) -> T:
        return await work(self.connection)

    def lock(self, seconds: float) -> bool:
        """Waits at most `seconds` for the advisory lock. Returns whether this session has it.

        Waits are short: while a statement waits, the server cannot remove old rows.
        """
        asyncpg = driver()

        async def wait(connection: Any) -> bool:
            try:
                async with connection.transaction():
                    await connection.execute(f"SET LOCAL lock_timeout = {round(seconds * 1000)}")
                    await connection.execute("SELECT pg_advisory_lock($1)", LOCK)
            except asyncpg.LockNotAvailableError:
                return False
            return True

        return self.run("wait for the lock of", wait)

    def close(self) -> None:
        """Closes the connection, which releases the lock."""
        if self.connection is not None and not self._why_lost:
            try:
                self._runner.run(self.connection.close(timeout=1.0))
            except Exception:
                self.connection.terminate()
        self._why_lost = self._why_lost or "the store is closed"
        self._runner.close()

    def _end(self, what: str, error: Exception) -> TreecastError:
        refusal = self._refused(what, error, None)
        self._why_lost = refusal.detail
        self.connection.terminate()
        return refusal

    def _refused(self, what: str, error: Exception, fault: Fault | None) -> TreecastError:
        text = " ".join(str(error).split()) or type(error).__name__
        detail = f"cannot {what} {self.place}: {text}"
        return TreecastError(fault or Fault.COORDINATOR_UNAVAILABLE, detail)


def shown(url: str) -> str:
    """Returns a database's URL without its password."""
    return re.sub(r"(password=)[^&]*", r"\1...", re.sub(r"(//[^:@/]*):[^@/]*@", r"\1@", url))


def driver() -> Any:
    """Returns asyncpg, which has no types. Raises STORAGE if it is not installed."""
    try:
        import asyncpg
    except ImportError as error:
        raise TreecastError(
            Fault.STORAGE, "a store in PostgreSQL needs a driver: pip install 'treecast[postgresql]'"
        ) from error
    return asyncpg
