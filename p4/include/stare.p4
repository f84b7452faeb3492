// STARE's address and header (middleware/wire/stare.py), and what both of its switch designs have in common.
//
//     address  11101111 | kind (2) | state id (22)
//     header   kind (2) | state id (22) | VNF id (14) | update number (14) | segments - 1 (6) | segment (6)
#ifndef _STARE_P4_
#define _STARE_P4_

#include "headers.p4"

const bit<8> STARE_PREFIX = 0xEF;
const bit<16> STARE_PORT = 65432;
const bit<24> MULTICAST_MAC = 0x01005E;

const bit<2> KIND_PUBLISH = 0;
const bit<2> KIND_SUB_ACK = 1;
const bit<2> KIND_SUB_REMOVE = 2;
const bit<2> KIND_SUB_REGISTER = 3;

// A set of ports, port p being bit p; it is also the number of the multicast group that goes to them.
typedef bit<16> ports_t;
const bit<9> PORTS = 16;

header stare_t {
    bit<2>  kind;
    bit<22> state;
    bit<14> vnf;
    bit<14> update;
    bit<6>  last;
    bit<6>  segment;
}

#endif
