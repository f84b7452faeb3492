// The stack between Ethernet and what is carried, and what all programs that follow one have in common.
//
//     Ethernet, type 0x9999 | entries (16) | entry ... | what is carried
//
// A switch looks at one entry per pass, from the first to the last. The parser keeps `index` entries before it and
// extracts it; what is behind is payload as yet. Copies are clones of egress, which have the headers as egress leaves
// them: clone session p goes to port p. The original goes on by recirculation and is dropped behind the last entry.
#ifndef _STACK_P4_
#define _STACK_P4_

#include "headers.p4"

const bit<16> ETHERTYPE_STACK = 0x9999;
const bit<32> STACK_BYTES = 16;  // Ethernet's header and the count

// standard_metadata.instance_type
const bit<32> NEW_PACKET = 0;
const bit<32> INGRESS_CLONE = 1;
const bit<32> EGRESS_CLONE = 2;
const bit<32> REPLICA = 5;

const bit<9> NO_PORT = 0;  // ports count from 1; an original that is recirculated leaves ingress for this one

// A set of ports, port p being bit p.
typedef bit<64> ports_t;

header stack_t {
    bit<16> count;
}

// The lowest port of a set; NO_PORT where it is empty.
control LowestPort(in ports_t ports, out bit<9> port) {
    apply {
        ports_t rest = ports;
        port = NO_PORT;
        if (rest != 0) {
            if (rest[31:0] == 0) {
                port = port + 32;
                rest = rest >> 32;
            }
            if (rest[15:0] == 0) {
                port = port + 16;
                rest = rest >> 16;
            }
            if (rest[7:0] == 0) {
                port = port + 8;
                rest = rest >> 8;
            }
            if (rest[3:0] == 0) {
                port = port + 4;
                rest = rest >> 4;
            }
            if (rest[1:0] == 0) {
                port = port + 2;
                rest = rest >> 2;
            }
            if (rest[0:0] == 0) {
                port = port + 1;
            }
        }
    }
}

#define NO_CHECKSUMS \
    control Verify(inout headers_t hdr, inout metadata_t meta) { apply { } } \
    control Compute(inout headers_t hdr, inout metadata_t meta) { apply { } }

#endif
