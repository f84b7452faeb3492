"""Programs for the tests of the front end, and short ways to load pieces of P4."""

from __future__ import annotations

import pytest

from treecast.middleware.dataplane.p4 import ir
from treecast.middleware.dataplane.p4.frontend import load_program
from treecast.middleware.dataplane.p4.source import P4Error

ROUTER = """\
#include <core.p4>
#include <v1model.p4>

const bit<16> TYPE_IPV4 = 0x800;
typedef bit<9> egressSpec_t;
typedef bit<48> macAddr_t;

header ethernet_t {
    macAddr_t dstAddr;
    macAddr_t srcAddr;
    bit<16> etherType;
}

header ipv4_t {
    bit<4> version;
    bit<4> ihl;
    bit<8> diffserv;
    bit<16> totalLen;
    bit<8> ttl;
    bit<8> protocol;
    bit<16> hdrChecksum;
    bit<32> srcAddr;
    bit<32> dstAddr;
}

struct metadata {
    @field_list(1) bit<16> seen;
}

struct headers {
    ethernet_t ethernet;
    ipv4_t ipv4;
}

parser MyParser(packet_in packet, out headers hdr, inout metadata meta,
                inout standard_metadata_t standard_metadata) {
    state start {
        packet.extract(hdr.ethernet);
        transition select(hdr.ethernet.etherType) {
            TYPE_IPV4: parse_ipv4;
            default: accept;
        }
    }

    state parse_ipv4 {
        packet.extract(hdr.ipv4);
        transition accept;
    }
}

control MyVerifyChecksum(inout headers hdr, inout metadata meta) {
    apply {
        verify_checksum(hdr.ipv4.isValid(), {hdr.ipv4.ttl, hdr.ipv4.protocol}, hdr.ipv4.hdrChecksum,
                        HashAlgorithm.csum16);
    }
}

control MyIngress(inout headers hdr, inout metadata meta, inout standard_metadata_t standard_metadata) {
    register<bit<16>>(1024) last;
    @hidden counter(16, CounterType.packets_and_bytes) ports;

    action drop() {
        mark_to_drop(standard_metadata);
    }

    action ipv4_forward(macAddr_t dstAddr, egressSpec_t port) {
        standard_metadata.egress_spec = port;
        hdr.ethernet.srcAddr = hdr.ethernet.dstAddr;
        hdr.ethernet.dstAddr = dstAddr;
        hdr.ipv4.ttl = hdr.ipv4.ttl - 1;
    }

    @brief("where to send")
    table ipv4_lpm {
        key = {
            hdr.ipv4.dstAddr: lpm;
        }
        actions = {
            ipv4_forward;
            drop;
            NoAction;
        }
        size = 1024;
        default_action = drop();
    }

    apply {
        if (hdr.ipv4.isValid()) {
            ipv4_lpm.apply();
            last.read(meta.seen, 0);
            last.write(0, hdr.ipv4.totalLen);
            ports.count((bit<32>) standard_metadata.ingress_port);
        }
    }
}

control MyEgress(inout headers hdr, inout metadata meta, inout standard_metadata_t standard_metadata) {
    apply { }
}

control MyComputeChecksum(inout headers hdr, inout metadata meta) {
    apply {
        update_checksum(hdr.ipv4.isValid(), {hdr.ipv4.ttl, hdr.ipv4.protocol}, hdr.ipv4.hdrChecksum,
                        HashAlgorithm.csum16);
    }
}

control MyDeparser(packet_out packet, in headers hdr) {
    apply {
        packet.emit(hdr.ethernet);
        packet.emit(hdr.ipv4);
    }
}

V1Switch(MyParser(), MyVerifyChecksum(), MyIngress(), MyEgress(), MyComputeChecksum(), MyDeparser()) main;
"""

# A program around pieces: types at the top, states of the parser, locals and body of ingress.
FRAME = """\
#include <core.p4>
#include <v1model.p4>
header one_t {{ bit<8> a; int<8> s; bit<16> b; bit<32> c; }}
header var_t {{ bit<8> n; varbit<320> v; }}
header_union any_t {{ one_t one; var_t other; }}
{types}
struct M {{ bit<8> x; bit<32> y; bool flag; {fields} }}
struct H {{ one_t one; var_t var; one_t[4] stack; any_t any; {headers} }}
parser P(packet_in packet, out H hdr, inout M meta, inout standard_metadata_t sm) {{
    {parser_locals}
    {states}
}}
control V(inout H hdr, inout M meta) {{ apply {{ }} }}
control I(inout H hdr, inout M meta, inout standard_metadata_t sm) {{
    {local}
    apply {{
        {body}
    }}
}}
control E(inout H hdr, inout M meta, inout standard_metadata_t sm) {{ apply {{ }} }}
control C(inout H hdr, inout M meta) {{ apply {{ }} }}
control D(packet_out packet, in H hdr) {{ apply {{ packet.emit(hdr); }} }}
V1Switch(P(), V(), I(), E(), C(), D()) main;
"""
START = "state start { transition accept; }"


def framed(
    body: str = "",
    *,
    types: str = "",
    fields: str = "",
    headers: str = "",
    local: str = "",
    parser_locals: str = "",
    states: str = START,
) -> str:
    """Returns the text of a program around pieces."""
    return FRAME.format(
        body=body,
        types=types,
        fields=fields,
        headers=headers,
        local=local,
        parser_locals=parser_locals,
        states=states,
    )


def load(body: str = "", **pieces: str) -> ir.Program:
    """Loads the program around pieces."""
    return load_program(framed(body, **pieces), "t.p4")


def ingress(body: str = "", **pieces: str) -> tuple[ir.Statement, ...]:
    """Returns the statements of ingress."""
    program = load(body, **pieces)
    return program.controls[program.pipeline.ingress].body


def refused(text: str) -> P4Error:
    """Returns the error of a whole program."""
    with pytest.raises(P4Error) as caught:
        load_program(text, "t.p4")
    return caught.value


def complaint(body: str = "", **pieces: str) -> str:
    """Returns the only message about a program around pieces."""
    error = refused(framed(body, **pieces))
    assert len(error.diagnostics) == 1, str(error)
    return error.diagnostics[0].message


def value_of(expression: str, **pieces: str) -> object:
    """Returns the constant to which an expression folds when it is assigned to its own type."""
    (statement,) = ingress(f'log_msg("", {{{expression}}});', **pieces)
    assert isinstance(statement, ir.Evaluate)
    assert isinstance(statement.call, ir.ExternCall)
    data = statement.call.arguments[1].value
    assert isinstance(data, ir.StructValue)
    literal = data.elements[0]
    assert isinstance(literal, ir.Literal), literal
    return literal.value
