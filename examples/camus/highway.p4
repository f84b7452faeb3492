// Position reports of cars over IPv4 and UDP, ten a second: car, coordinates in miles, miles per hour.
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

header report {
    bit<32> car;
    bit<16> x;
    bit<16> y;
    bit<8> spd;
}

@pragma query_next(ethernet.ether_type, 0x0800, ip_begin)
@pragma query_next(ip_begin.version_ihl, 0x45, ipv4)
@pragma query_next(ipv4.protocol, 17, udp)
@pragma query_next(udp.dst, 5055, report)

@pragma query_field(report.x)
@pragma query_field(report.y)
@pragma query_field(report.spd)
@pragma query_counter(area, 1000000, 64)
