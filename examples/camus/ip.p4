// IPv4: each host has an address, each rack a prefix.
header ethernet {
    bit<48> dst;
    bit<48> src;
    bit<16> ether_type;
}

header ip_begin {
    bit<8> version_ihl;
}

header ipv4 {
    bit<8> tos;
    bit<16> length;
    bit<16> id;
    bit<16> fragment;
    bit<8> ttl;
    bit<8> protocol;
    bit<16> checksum;
    bit<32> src;
    bit<32> dst;
}

@pragma query_next(ethernet.ether_type, 0x0800, ip_begin)
@pragma query_next(ip_begin.version_ihl, 0x45, ipv4)
@pragma query_field_lpm(ipv4.dst)
