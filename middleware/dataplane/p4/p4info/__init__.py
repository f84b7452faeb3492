"""P4Info of a loaded program, with the identifiers that p4c gives."""

from .build import build_p4info, parse_text, to_text

__all__ = ["build_p4info", "parse_text", "to_text"]
