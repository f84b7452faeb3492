"""The option `kafka.bootstrap.servers`: addresses, of which any one that answers will do."""

from __future__ import annotations

from treecast.middleware.api.discovery import Address, find_face

from .errors import OptionError


class Servers(tuple[Address, ...]):
    """Addresses of one cluster in the given order, at least one. Their text is the option's."""

    __slots__ = ()

    @classmethod
    def parse(cls, text: str) -> Servers:
        """Parses HOST:PORT, also as PLAINTEXT://HOST:PORT, separated by commas. Raises OptionError with the
        reason.
        """
        try:
            found = cls(Address.parse(_without_scheme(part)) for part in text.split(",") if part.strip())
        except ValueError as error:
            raise OptionError(f"kafka.bootstrap.servers: {error}") from None
        if not found:
            raise OptionError("kafka.bootstrap.servers names no address; h1:9092,h2:9092 would be two")
        return found

    def __str__(self) -> str:
        return ",".join(map(str, self))


def _without_scheme(text: str) -> str:
    """Returns an address without the listener's protocol that Kafka's clients accept before it."""
    scheme, found, rest = text.strip().rpartition("://")
    if found and scheme.upper() != "PLAINTEXT":
        raise OptionError(
            f"kafka.bootstrap.servers: {scheme}:// asks for TLS or SASL, which connections here do not have; "
            "PLAINTEXT://HOST:PORT or HOST:PORT would do"
        )
    return rest


def servers_of(option: str) -> Servers:
    """Returns the option's servers; without it, this host's daemon."""
    return Servers.parse(option) if option else one(find_face("kafka").address)


def one(address: Address) -> Servers:
    return Servers((address,))
