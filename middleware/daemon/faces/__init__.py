"""The faces of a daemon: one list. A host loads the modules of those that are switched on.

A further face is one row here, a module with its `Face`, and its settings.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from treecast.middleware.api.discovery import OFF, Address

if TYPE_CHECKING:
    from treecast.shims.face import Face

    from ..settings import Settings
    from .context import FaceContext


class FaceKind(Struct, frozen=True):
    """A face that a daemon may have. `listeners`: the settings with its addresses, that of TLS last.

    `make` loads the face and restores what it kept. It raises StartError, or a TreecastError with STORAGE.
    """

    listeners: tuple[str, ...]
    make: Callable[[FaceContext], Face]

    @property
    def name(self) -> str:
        return self.listeners[0]

    def is_on(self, settings: Settings) -> bool:
        return any(wanted(settings, name) is not None for name in self.listeners)


def wanted(settings: Settings, name: str) -> Address | None:
    """Returns the address of a setting; None if it is off."""
    text: str = getattr(settings, name)
    return None if text == OFF else Address.parse(text)


def _kafka(context: FaceContext) -> Face:
    from .kafka import KafkaPart

    return KafkaPart(context)


def _amqp(context: FaceContext) -> Face:
    from .amqp import AmqpPart

    return AmqpPart(context)


def _mqtt(context: FaceContext) -> Face:
    from .mqtt import MqttPart

    return MqttPart(context)


def _stare(context: FaceContext) -> Face:
    from .stare import StarePart

    return StarePart(context)


FACES: Final = (
    FaceKind(("kafka", "kafka_tls"), _kafka),
    FaceKind(("amqp", "amqp_tls"), _amqp),
    FaceKind(("mqtt", "mqtt_tls"), _mqtt),
    FaceKind(("stare",), _stare),
)
OWN: Final = ("admin", "control", "fabric")  # listeners of the daemon itself


def listeners(kinds: tuple[FaceKind, ...] = FACES) -> tuple[str, ...]:
    """Returns the settings of all listeners, in the order in which they are shown."""
    return (*(name for kind in kinds for name in kind.listeners), *OWN)


def shown(setting: str) -> str:
    """Returns the name of a listener: `mqtt-tls` for `mqtt_tls`."""
    return setting.replace("_", "-")
