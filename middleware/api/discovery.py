"""Discovery of this host's daemon. A client on the host looks, in this order, at:

1. the variable `TREECAST_<FACE>`, HOST:PORT, unless it is `off`, empty or names port 0; 2. the face's Unix
socket in the runtime directory, `<face>.sock`, if somebody listens on it. The file
   `<face>.address` beside it holds the TCP address, for clients without support for Unix sockets;
3. localhost and the face's default port.

The runtime directory is `$TREECAST_RUNTIME_DIR`. Without that variable, a client looks at the user's own,
`$XDG_RUNTIME_DIR/treecast`, and then at the host's, `/run/treecast`; a daemon uses the host's if it may, and
the user's otherwise.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct

OFF = "off"
DEFAULT_PORTS = {
    "kafka": 9092,
    "amqp": 5672,
    "mqtt": 1883,
    "stare": 65431,
    "admin": 7670,
    "control": 7671,
    "fabric": 7672,
}
DEFAULT_ADDRESSES = {face: f"127.0.0.1:{port}" for face, port in DEFAULT_PORTS.items()}
DEFAULT_SOURCE = "the default port"
_SYSTEM_RUNTIME_DIR = "/run/treecast"
_CONNECT_SECONDS = 1.0


class Address(Struct, frozen=True):
    """A TCP address. Its text is `host:port`, with brackets around an IPv6 host."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> Address:
        """Parses `127.0.0.1:9092`, `name:9092` or `[::1]:9092`. Raises ValueError with the reason."""
        host, colon, port = text.strip().rpartition(":")
        if host.startswith("[") and host.endswith("]"):
            host = host[1:-1]
        elif ":" in host:
            raise ValueError(f"an IPv6 address needs brackets, as in [{host}]:{port}")
        if not colon or not host:
            raise ValueError("expected HOST:PORT, as in 127.0.0.1:9092")
        if not (port.isascii() and port.isdigit() and int(port) <= 65535):
            raise ValueError(f"port {port!r} is not a number from 0 to 65535")
        return cls(host, int(port))

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def reachable(self) -> Address:
        """The address to connect to: loopback for a wildcard."""
        local = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # nosec B104  # what to call, not where to listen
        return Address(local.get(self.host, self.host), self.port)


class Endpoint(Struct, frozen=True):
    """A discovered face. `socket` is its live Unix socket, if any; `source` states how it was found."""

    address: Address
    socket: Path | None
    source: str

    def __str__(self) -> str:
        return str(self.address)


def runtime_dirs(environment: Mapping[str, str] = os.environ) -> list[Path]:
    """Returns the possible directories of a daemon's sockets; the first usable one counts."""
    if chosen := environment.get("TREECAST_RUNTIME_DIR"):
        return [Path(chosen)]
    found = [Path(_SYSTEM_RUNTIME_DIR)]
    if user := environment.get("XDG_RUNTIME_DIR"):
        found.append(Path(user, "treecast"))
    return found


def is_live(path: Path) -> bool:
    """Returns whether somebody listens on a Unix socket."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(_CONNECT_SECONDS)
        try:
            probe.connect(str(path))
        except OSError:
            return False
        return True


def find_face(face: str, environment: Mapping[str, str] = os.environ) -> Endpoint:
    """Returns the place of `face` ("kafka", "admin", ...) of this host's daemon, without checking that it
    answers.

    Raises ValueError if the variable is not an address.
    """
    variable = f"TREECAST_{face.upper()}"
    text = environment.get(variable, "")
    if text and text != OFF:
        try:
            address = Address.parse(text)
        except ValueError as error:
            raise ValueError(f"{variable}={text!r}: {error}") from error
        if address.port:
            return Endpoint(address.reachable, None, variable)
    for folder in reversed(runtime_dirs(environment)):  # a user's own daemon before the host's
        if found := _from_socket(folder, face):
            return found
    return Endpoint(Address("127.0.0.1", DEFAULT_PORTS[face]), None, DEFAULT_SOURCE)


def find_control(environment: Mapping[str, str] = os.environ) -> Endpoint:
    """Returns the place of the daemon's control service (gRPC)."""
    return find_face("control", environment)


def _from_socket(folder: Path, face: str) -> Endpoint | None:
    path = folder / f"{face}.sock"
    try:
        address = Address.parse((folder / f"{face}.address").read_text())
    except (OSError, ValueError):
        return None
    return Endpoint(address, path, str(path)) if is_live(path) else None
