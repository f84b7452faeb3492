"""P4Info of a loaded program, with p4c's identifiers."""

from .build import build_p4info, parse_text, to_text

__all__ = ["build_p4info", "parse_text", "to_text"]
