// Market data, telemetry and plain IP on one switch: the headers of the three descriptions, each once.
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

header mold {
    bit<80> session;
    bit<64> sequence;
    bit<16> count;
}

header message {
    bit<16> length;
    bit<8> type;
}

// Add Order, with and without attribution: types F and A.
header add_order {
    bit<16> stock_locate;
    bit<16> tracking;
    bit<48> timestamp;
    bit<64> reference;
    bit<8> side;
    bit<32> shares;
    bit<64> stock;
    bit<32> price; // in units of 0.0001
}

@pragma query_next(ethernet.ether_type, 0x0800, ip_begin)
@pragma query_next(ip_begin.version_ihl, 0x45, ipv4)
@pragma query_next(ipv4.protocol, 17, udp)
@pragma query_next(udp.dst, 26477, mold)
@pragma query_next(udp.dst, 5000, int_shim)
@pragma query_next(int_shim.type, 1, int_meta)
@pragma query_next(int_meta.instructions, 0xa000, hop)
@pragma query_messages(mold.count, message.length, 12)
@pragma query_next(message.type, 0x41, add_order)
@pragma query_next(message.type, 0x46, add_order)

@pragma query_field_lpm(ipv4.dst)
@pragma query_field_exact(hop.switch_id)
@pragma query_field(hop.hop_latency)
@pragma query_field_ternary(add_order.stock)
@pragma query_field_exact(add_order.side)
@pragma query_field(add_order.shares)
@pragma query_field(add_order.price)
@pragma query_counter(orders, 1000000, 64)

// A copy without some of its messages. Its UDP checksum is left out, as RFC 768 allows.
action pruned(inout headers_t hdr, bit<16> bytes) {
    hdr.udp.length = hdr.udp.length - bytes;
    hdr.udp.checksum = 0;
    hdr.ipv4.length = hdr.ipv4.length - bytes;
    hash(hdr.ipv4.checksum, HashAlgorithm.csum16, 16w0, {
            hdr.ip_begin.version_ihl, hdr.ipv4.tos, hdr.ipv4.length, hdr.ipv4.id, hdr.ipv4.fragment, hdr.ipv4.ttl,
            hdr.ipv4.protocol, hdr.ipv4.src, hdr.ipv4.dst }, 32w0x10000);
}
