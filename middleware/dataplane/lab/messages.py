"""Requests to a relay and its answers: one JSON object per packet of a Unix SEQPACKET socket.

    -> {"do": "change", "direction": "both", "settings": {"loss": 0.1}}
    <- {"error": "", "counters": {"forward": {...}, "backward": {...}}, "missed": 0, "refused": 0}

`forward` is from the first end of the link to the second. Shares are from 0 to 1, delays in seconds.
"""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Literal, cast

import msgspec

from .impairment import Counters

MOST_BYTES = 16 * 1024
DIRECTIONS = ("forward", "backward")
_ANSWER_SECONDS = 10.0

Direction = Literal["forward", "backward", "both"]


class Request(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A request. `look` reads the counters; `change` sets fields of `Impairment` and also returns the
    counters.
    """

    do: Literal["look", "change"]
    direction: Direction = "both"
    settings: dict[str, float | bool] = {}


class Answer(msgspec.Struct, frozen=True):
    """`missed`: frames that the kernel had no room to hand over. `refused`: it had none to take them."""

    error: str = ""
    counters: dict[str, Counters] = {}
    missed: int = 0
    refused: int = 0


class RelayError(Exception):
    """A relay is unreachable or refused a request. The text states the reason."""


def ask(path: Path, request: Request) -> Answer:
    """Asks the relay at a socket. Raises RelayError if it refuses or is not there."""
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as client:
            client.settimeout(_ANSWER_SECONDS)
            client.connect(str(path))
            client.send(msgspec.json.encode(request))
            answer = msgspec.json.decode(client.recv(MOST_BYTES), type=Answer)
    except (OSError, msgspec.MsgspecError) as error:
        raise RelayError(f"the relay at {path} does not answer: {error}") from error
    if answer.error:
        raise RelayError(f"the relay refuses: {answer.error}")
    return answer


def as_direction(text: str) -> Direction:
    """Returns the text as a direction. Raises ValueError if it is not one."""
    if text not in (*DIRECTIONS, "both"):
        raise ValueError(f"direction {text!r} is not one of forward, backward, both")
    return cast(Direction, text)


def ask_for_change(path: Path, direction: Direction, settings: dict[str, float | bool]) -> Answer:
    """Sets fields of `Impairment`; without any, only looks."""
    return ask(path, Request("change", direction, settings) if settings else Request("look"))
