// Headers that several programs of this folder share. Network byte order, RFC 894, 791, 8200, 768.
#ifndef _HEADERS_P4_
#define _HEADERS_P4_

typedef bit<48> mac_t;
typedef bit<32> ipv4_addr_t;
typedef bit<128> ipv6_addr_t;

const bit<16> ETHERTYPE_IPV4 = 0x0800;
const bit<16> ETHERTYPE_IPV6 = 0x86DD;
const bit<8> PROTOCOL_UDP = 17;

header ethernet_t {
    mac_t   dst;
    mac_t   src;
    bit<16> ether_type;
}

header ipv4_t {
    bit<4>      version;
    bit<4>      ihl;
    bit<8>      tos;
    bit<16>     length;
    bit<16>     id;
    bit<3>      flags;
    bit<13>     offset;
    bit<8>      ttl;
    bit<8>      protocol;
    bit<16>     checksum;
    ipv4_addr_t src;
    ipv4_addr_t dst;
}

header ipv6_t {
    bit<4>      version;
    bit<8>      traffic_class;
    bit<20>     flow_label;
    bit<16>     length;
    bit<8>      next_header;
    bit<8>      hop_limit;
    ipv6_addr_t src;
    ipv6_addr_t dst;
}

header udp_t {
    bit<16> src;
    bit<16> dst;
    bit<16> length;
    bit<16> checksum;
}

#endif
