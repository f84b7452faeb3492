"""P4Info's text form, as p4c writes `X.p4info.txtpb`."""

from __future__ import annotations

from finsy.proto import p4i
from google.protobuf import text_format

_HEAD = "# proto-file: p4/config/v1/p4info.proto\n# proto-message: p4.config.v1.P4Info\n\n"


def to_text(info: p4i.P4Info) -> str:
    return _HEAD + text_format.MessageToString(info)


def parse_text(text: str) -> p4i.P4Info:
    """ValueError where it is none."""
    try:
        return text_format.Parse(text, p4i.P4Info())
    except text_format.ParseError as error:
        raise ValueError(str(error)) from error
