"""The embedded P4_16 target for v1model: front end, interpreter, tables, and their control-plane view. Pure.

Other rooms use only the names exported here (tests/house checks this). A source is loaded as a `Program` and
run by a `Switch`; `Entities` reads and writes a switch in P4Runtime's terms; a `Runner` runs vectors on one.
The inner structure is described in docs/decisions/2026-11-21-p4-target-rooms.md.
"""

# A program: from its source, or from a device config.
from .bundle import Bundle
from .bundle import load as load_device_config
from .frontend import load_program
from .ir import Bits, Program

# P4Info of a program, and conversion of P4Runtime messages to values and back.
from .p4info import build_p4info, parse_text, to_text
from .p4info.layout import layouts
from .p4runtime.actions import action_from, action_to
from .p4runtime.amounts import meter_from, meter_to
from .p4runtime.arbitration import Arbitration, Notice
from .p4runtime.data import number_of, to_data
from .p4runtime.entities import DONE, Entities, Outcome
from .p4runtime.errors import Code, P4RuntimeError, invalid, not_found
from .p4runtime.fingerprint import first_difference
from .p4runtime.matches import call_from, call_to, matches_from, matches_to
from .p4runtime.names import names_of
from .p4runtime.packets import packet_in, packet_out
from .p4runtime.profiles import group_from, group_to
from .p4runtime.replication import group_entry_from, group_entry_to, session_from, session_to
from .p4runtime.roles import Roles
from .p4runtime.schema import Schema, Table
from .p4runtime.sets import digest_list_to
from .p4runtime.tables import entry_from, entry_to

# The switch that runs it, and the contents of its tables.
from .runtime import (
    ActionCall,
    CloneSession,
    Control,
    ControlError,
    Entry,
    ExactMatch,
    GroupEntry,
    GroupMember,
    GroupRef,
    IdleEntry,
    LpmMatch,
    Match,
    Matches,
    MemberEntry,
    MeterConfig,
    MulticastGroup,
    Out,
    RangeMatch,
    Replica,
    Stats,
    Switch,
    TernaryMatch,
    ValueSetMember,
)
from .runtime.carrying import carry_over
from .source import P4Error

# Vectors, and a switch that runs them.
from .stf.lexing import VectorError
from .stf.parse import parse as parse_vectors
from .stf.runner import PORTS, Problem, Report, Runner

__all__ = [
    "ActionCall",
    "Arbitration",
    "Bits",
    "Bundle",
    "CloneSession",
    "Code",
    "Control",
    "ControlError",
    "DONE",
    "Entities",
    "Entry",
    "ExactMatch",
    "GroupEntry",
    "GroupMember",
    "GroupRef",
    "IdleEntry",
    "LpmMatch",
    "Match",
    "Matches",
    "MemberEntry",
    "MeterConfig",
    "MulticastGroup",
    "Notice",
    "Out",
    "Outcome",
    "P4Error",
    "P4RuntimeError",
    "PORTS",
    "Problem",
    "Program",
    "RangeMatch",
    "Replica",
    "Report",
    "Roles",
    "Runner",
    "Schema",
    "Stats",
    "Switch",
    "Table",
    "TernaryMatch",
    "ValueSetMember",
    "VectorError",
    "action_from",
    "action_to",
    "build_p4info",
    "call_from",
    "call_to",
    "carry_over",
    "digest_list_to",
    "entry_from",
    "entry_to",
    "first_difference",
    "group_entry_from",
    "group_entry_to",
    "group_from",
    "group_to",
    "invalid",
    "layouts",
    "load_device_config",
    "load_program",
    "matches_from",
    "matches_to",
    "meter_from",
    "meter_to",
    "names_of",
    "not_found",
    "number_of",
    "packet_in",
    "packet_out",
    "parse_text",
    "parse_vectors",
    "session_from",
    "session_to",
    "to_data",
    "to_text",
]
