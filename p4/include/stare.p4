// STARE's addresses and header (middleware/wire/stare.py), and what both of its switch designs have in common.
//
//     IPv4     11101111 | kind (2) | state id (22)
//     IPv6     ff18::, and in the low 24 bits kind (2) | state id (22)
//     header   kind (2) | state id (22) | VNF id (14) | update number (14) | segments - 1 (6) | segment (6)
#ifndef _STARE_P4_
#define _STARE_P4_

#include "headers.p4"

const bit<8> STARE_PREFIX = 0xEF;
const bit<104> STARE_PREFIX_IPV6 = 104w0xFF18 << 88;
const bit<16> STARE_PORT = 65432;
const bit<24> MULTICAST_MAC = 0x01005E;
const bit<16> MULTICAST_MAC_IPV6 = 0x3333;
const bit<16> REQUEST_LENGTH = 16;  // UDP's, of a SUB-register or SUB-remove: nothing follows the header

const bit<2> KIND_PUBLISH = 0;
const bit<2> KIND_SUB_ACK = 1;
const bit<2> KIND_SUB_REMOVE = 2;
const bit<2> KIND_SUB_REGISTER = 3;

// A set of ports, port p being bit p. A multicast group goes to a set of 16 banks of STARE_BANK neighbouring
// ports each, bank b being bit b of its number: with one port in a bank the set of ports is the number. Where
// banks have more, egress drops the copies for ports that are not in the set.
#ifndef STARE_BANK
#define STARE_BANK 1
#endif
typedef bit<(16 * STARE_BANK)> ports_t;
const bit<9> PORTS = 16 * STARE_BANK;

#if STARE_BANK == 1
#define GROUP_OF(ports) (ports)
#else
#define BANK(ports, b) (bit<1>) (ports[(b) * STARE_BANK + STARE_BANK - 1:(b) * STARE_BANK] != 0)
#define BANKS(ports, b) (BANK(ports, (b) + 3) ++ BANK(ports, (b) + 2) ++ BANK(ports, (b) + 1) ++ BANK(ports, (b)))
#define GROUP_OF(ports) (BANKS(ports, 12) ++ BANKS(ports, 8) ++ BANKS(ports, 4) ++ BANKS(ports, 0))
#endif

header stare_t {
    bit<2>  kind;
    bit<22> state;
    bit<14> vnf;
    bit<14> update;
    bit<6>  last;
    bit<6>  segment;
}

#endif
