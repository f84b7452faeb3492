"""Record batches of magic 2, the one unit that is stored and carried. Import names from this module.

`batch` reads and writes headers, changes their fields in place and checks a producer's data. `record_values`
builds batches from records and reads records from batches.
"""

from .batch import (
    COMPRESSION_MASK,
    HEADER_SIZE,
    LOG_OVERHEAD,
    MAGIC,
    MAGIC_AT,
    NO_TIMESTAMP,
    BatchHeader,
    check_batches,
    patch_batch,
    read_header,
    seal_pieces,
    stamp_append_time,
)
from .compression import AT_ONCE, MAX_UNCOMPRESSED_BYTES, Unfinished, most_added, most_uncompressed
from .record_values import (
    ABORT,
    COMMIT,
    build_batch,
    control_marker,
    encode_around,
    encode_record,
    read_control_type,
    read_records,
    rebuild_batch,
    recompress_batch,
    record_size,
    seal_batch,
    sign_batch,
)

__all__ = [
    "ABORT",
    "AT_ONCE",
    "COMMIT",
    "COMPRESSION_MASK",
    "HEADER_SIZE",
    "LOG_OVERHEAD",
    "MAGIC",
    "MAGIC_AT",
    "MAX_UNCOMPRESSED_BYTES",
    "NO_TIMESTAMP",
    "BatchHeader",
    "Unfinished",
    "build_batch",
    "check_batches",
    "control_marker",
    "encode_around",
    "encode_record",
    "most_added",
    "most_uncompressed",
    "patch_batch",
    "read_control_type",
    "read_header",
    "read_records",
    "rebuild_batch",
    "recompress_batch",
    "record_size",
    "seal_batch",
    "seal_pieces",
    "sign_batch",
    "stamp_append_time",
]
