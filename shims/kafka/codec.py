"""The codec of the hot path: request headers, Produce and Fetch. All other messages go through `schema`.

Request header version 1 is `api_key int16, api_version int16, correlation_id int32, client_id`. Version 2,
used by flexible requests, adds tagged fields (KIP-482). The client id has an int16 length in both.
Source: RequestHeader.json of Apache Kafka's message schemas.

`codec_produce` and `codec_fetch` hold the two messages.
"""

from __future__ import annotations

from typing import Final

from treecast.middleware.wire.kafka_primitives import CodecError, LocalCodecError, Reader, RemoteCodecError

from .codec_fetch import (
    FetchPartition,
    FetchRequest,
    FetchResult,
    decode_fetch_request,
    encode_fetch_response,
)
from .codec_produce import (
    ProducedPartition,
    ProduceRequest,
    ProduceResult,
    decode_produce_request,
    encode_produce_response,
)
from .versions import APIS, NEVER

_FLEXIBLE: Final[dict[int, int]] = {key: api.flexible for key, api in APIS.items()}


class RequestHeader:
    """A request's header. `body` is the offset of the body in the frame; `reader`, if given, is at it."""

    def __init__(
        self,
        api_key: int,
        api_version: int,
        correlation_id: int,
        client_id: str | None,
        body: int,
        reader: Reader | None = None,
    ) -> None:
        self.api_key = api_key
        self.api_version = api_version
        self.correlation_id = correlation_id
        self.client_id = client_id
        self.body = body
        self.reader = reader


def decode_request_header(frame: memoryview) -> RequestHeader:
    """Returns the header of the request that fills `frame` (size prefix excluded). Raises RemoteCodecError.

    The header of an API that is not served is read as version 1.
    """
    reader = Reader(frame)
    api_key = reader.int16()
    api_version = reader.int16()
    correlation_id = reader.int32()
    client_id = reader.nullable_string(False)
    if api_version >= _FLEXIBLE.get(api_key, NEVER):
        reader.skip_tagged_fields()
    return RequestHeader(api_key, api_version, correlation_id, client_id, reader.position, reader)


__all__ = [
    "CodecError",
    "FetchPartition",
    "FetchRequest",
    "FetchResult",
    "LocalCodecError",
    "ProduceRequest",
    "ProduceResult",
    "ProducedPartition",
    "RemoteCodecError",
    "RequestHeader",
    "decode_fetch_request",
    "decode_produce_request",
    "decode_request_header",
    "encode_fetch_response",
    "encode_produce_response",
]
