// Records of a Kafka topic with a content header: the fields that its views ask for, in fixed widths.
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

header content {
    bit<32> topic;
    bit<64> stock;
    bit<32> price;
}

@pragma query_next(ethernet.ether_type, 0x0800, ip_begin)
@pragma query_next(ip_begin.version_ihl, 0x45, ipv4)
@pragma query_next(ipv4.protocol, 17, udp)
@pragma query_next(udp.dst, 7672, content)

@pragma query_field_exact(content.topic)
@pragma query_field_ternary(content.stock)
@pragma query_field(content.price)
