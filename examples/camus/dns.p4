// DNS queries over IPv4 for names of one label with four characters, such as h105. Others have no question here.
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

header dns {
    bit<16> id;
    bit<16> flags;
    bit<16> questions;
    bit<16> answers;
    bit<16> authorities;
    bit<16> additionals;
}

header label {
    bit<8> length;
}

header question {
    bit<32> name;
    bit<8> end;
    bit<16> type;
    bit<16> class;
}

// Only in answers: the parser never gets here.
header answer {
    bit<16> name;
    bit<16> type;
    bit<16> class;
    bit<32> ttl;
    bit<16> length;
    bit<32> address;
}

@pragma query_next(ethernet.ether_type, 0x0800, ip_begin)
@pragma query_next(ip_begin.version_ihl, 0x45, ipv4)
@pragma query_next(ipv4.protocol, 17, udp)
@pragma query_next(udp.dst, 53, dns)
@pragma query_next(dns.questions, 1, label)
@pragma query_next(label.length, 4, question)

@pragma query_field_exact(question.name)
@pragma query_field_exact(question.end)
@pragma query_field_exact(question.type)
@pragma query_field_exact(question.class)
@pragma query_field_ternary(dns.flags)

// An authoritative answer, back to where the query came from.
action answerDNS(inout headers_t hdr, inout standard_metadata_t standard, bit<32> ip) {
    bit<48> mac = hdr.ethernet.src;
    hdr.ethernet.src = hdr.ethernet.dst;
    hdr.ethernet.dst = mac;
    bit<32> address = hdr.ipv4.src;
    hdr.ipv4.src = hdr.ipv4.dst;
    hdr.ipv4.dst = address;
    hdr.udp.dst = hdr.udp.src;
    hdr.udp.src = 53;
    hdr.udp.checksum = 0;
    hdr.dns.flags = hdr.dns.flags | 0x8400;
    hdr.dns.answers = 1;
    hdr.answer.setValid();
    hdr.answer.name = 0xc00c; // the question's
    hdr.answer.type = 1;
    hdr.answer.class = 1;
    hdr.answer.ttl = 60;
    hdr.answer.length = 4;
    hdr.answer.address = ip;
    hdr.udp.length = hdr.udp.length + 16;
    hdr.ipv4.length = hdr.ipv4.length + 16;
    hdr.ipv4.ttl = 64;
    hash(hdr.ipv4.checksum, HashAlgorithm.csum16, 16w0, {
            hdr.ip_begin.version_ihl, hdr.ipv4.tos, hdr.ipv4.length, hdr.ipv4.id, hdr.ipv4.fragment, hdr.ipv4.ttl,
            hdr.ipv4.protocol, hdr.ipv4.src, hdr.ipv4.dst }, 32w0x10000);
    standard.egress_spec = standard.ingress_port;
}
