// In-band network telemetry (INT 1.0) over UDP: instructions 0xa000 ask each hop for its id and its latency.
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

header udp {
    bit<16> src;
    bit<16> dst;
    bit<16> length;
    bit<16> checksum;
}

header int_shim {
    bit<8> type;
    bit<8> reserved;
    bit<8> length; // in words of 32 bits, with this one
    bit<8> dscp;
}

header int_meta {
    bit<16> flags;
    bit<8> words; // of each hop
    bit<8> hops_left;
    bit<16> instructions;
    bit<16> reserved;
}

// The hop that wrote last, which is the first of the stack. Others follow as payload.
header hop {
    bit<32> switch_id;
    bit<32> hop_latency; // in microseconds
}

@pragma query_next(ethernet.ether_type, 0x0800, ip_begin)
@pragma query_next(ip_begin.version_ihl, 0x45, ipv4)
@pragma query_next(ipv4.protocol, 17, udp)
@pragma query_next(udp.dst, 5000, int_shim)
@pragma query_next(int_shim.type, 1, int_meta)
@pragma query_next(int_meta.instructions, 0xa000, hop)

@pragma query_field_exact(hop.switch_id)
@pragma query_field(hop.hop_latency)
