// Requests for video by content identifier (hICN): the identifier is the IPv6 destination.
header ethernet {
    bit<48> dst;
    bit<48> src;
    bit<16> ether_type;
}

header ipv6 {
    bit<32> version_class_flow;
    bit<16> length;
    bit<8> next;
    bit<8> hops;
    bit<128> src;
    bit<128> content;
}

@pragma query_next(ethernet.ether_type, 0x86dd, ipv6)
@pragma query_field_exact(ipv6.content)
@pragma query_counter(requests, 100000, 1024)
