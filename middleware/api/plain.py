"""Messages as plain dictionaries, for JSON: numbers stay numbers, and every field is there."""

from __future__ import annotations

from typing import Any

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message


def as_dict(message: Message) -> dict[str, Any]:
    """All fields by their proto names, a message that is not there as None.

    Unlike protobuf's JSON mapping, 64-bit integers are no strings.
    """
    return {field.name: _field(message, field) for field in message.DESCRIPTOR.fields}


def _field(message: Message, field: FieldDescriptor) -> Any:
    if field.has_presence and not message.HasField(field.name):
        return None
    return _value(field, getattr(message, field.name))


def _value(field: FieldDescriptor, value: Any) -> Any:
    if field.message_type is None:
        return list(value) if field.is_repeated else value
    if field.message_type.GetOptions().map_entry:
        return dict(value)
    if field.is_repeated:
        return [as_dict(item) for item in value]
    return as_dict(value)
