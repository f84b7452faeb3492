#include <core.p4>
#include <v1model.p4>

header kind_t { bit<8> kind; bit<8> count; }
header label_t { bit<20> label; bit<3> tc; bit<1> bottom; bit<8> ttl; }
header option_t { bit<8> size; varbit<64> data; bit<8> tail; }
header a_t { bit<8> x; int<8> y; }
header b_t { bit<16> z; bool flag; bit<7> rest; }
header_union ab_t { a_t a; b_t b; }
struct peek_t { bit<4> high; bit<12> low; }
struct headers { kind_t kind; label_t[3] labels; option_t option; ab_t ab; a_t[4] list; b_t inner; }
struct metadata { bit<16> seen; bit<8> loops; bit<8> at; }
error { OddLabel }

parser Sub(packet_in b, out b_t inner, inout bit<8> loops) {
    state start { b.extract(inner); loops = loops + 1; transition select(inner.z) { 0 &&& 1: accept; default: reject; } }
}
parser P(packet_in b, out headers h, inout metadata m, inout standard_metadata_t s) {
    value_set<bit<8>>(4) known;
    Sub() sub;
    state start {
        b.extract(h.kind);
        transition select(h.kind.kind, h.kind.count) {
            (1, _): labels;
            (2, 0 .. 8): option;
            (3, _): union_a;
            (4, _): union_b;
            (5, _): list;
            (6 &&& 0xfe, 1): skip;
            (8, _): inner;
            (9, _): spin;
            (10, _): peek;
            default: more;
        }
    }
    state more { transition select(h.kind.kind) { known: union_a; 200: reject; 0: accept; } }
    state labels {
        b.extract(h.labels.next);
        verify(h.labels.last.tc != 7, error.OddLabel);
        transition select(h.labels.last.bottom) { 0: labels; 1: accept; }
    }
    state option { b.extract(h.option, (bit<32>) h.kind.count * 8 + (bit<32>) h.kind.kind - 2); transition accept; }
    state union_a { b.extract(h.ab.a); transition accept; }
    state union_b { b.extract(h.ab.b); transition select(h.ab.b.flag) { true: union_a; false: accept; } }
    state list {
        b.extract(h.list.next);
        m.loops = m.loops + 1;
        m.at = (bit<8>) h.list.lastIndex;
        transition select(m.loops == h.kind.count) { true: accept; false: list; }
    }
    state skip { b.advance((bit<32>) h.kind.count << 3); transition union_b; }
    state inner { sub.apply(b, h.inner, m.loops); transition union_a; }
    state spin { transition spin; }
    state peek {
        peek_t p = b.lookahead<peek_t>();
        m.seen = p.low ++ p.high;
        a_t ahead = b.lookahead<a_t>();
        m.at = ahead.x;
        transition union_a;
    }
}
control V(inout headers h, inout metadata m) { apply { } }
control I(inout headers h, inout metadata m, inout standard_metadata_t s) {
    apply {
        s.egress_spec = 1;
        if (s.parser_error == error.PacketTooShort) { s.egress_spec = 2; }
        else if (s.parser_error == error.StackOutOfBounds) { s.egress_spec = 3; }
        else if (s.parser_error == error.NoMatch) { s.egress_spec = 4; }
        else if (s.parser_error == error.OddLabel) { s.egress_spec = 5; }
        else if (s.parser_error == error.ParserTimeout) { s.egress_spec = 6; }
        else if (s.parser_error == error.HeaderTooShort) { s.egress_spec = 7; }
        else if (s.parser_error == error.ParserInvalidArgument) { s.egress_spec = 8; }
        if (h.labels[1].isValid()) { h.labels.pop_front(1); h.labels[0].ttl = h.labels[0].ttl |-| 200; }
        if (h.list[0].isValid()) {
            bit<32> at = (bit<32>) m.at;
            h.list[at & 1].y = h.list[(bit<8>) h.kind.count].y + 1;
            h.list.push_front(1);
            h.list[0].setValid();
            h.list[0].x = m.loops;
        }
        if (h.ab.isValid()) { h.kind.count = h.kind.count + 1; }
        if (h.ab.a.isValid() && h.ab.a.x == 3) { h.ab.b.setValid(); h.ab.b.z = 0x1234; }
        if (h.option.isValid() && h.option.size == 1) { h.option.tail = 0xee; }
        if (m.seen != 0) { h.inner.setValid(); h.inner.z = m.seen; h.inner.rest = (bit<7>) m.at; h.inner.flag = true; }
    }
}
control E(inout headers h, inout metadata m, inout standard_metadata_t s) { apply { } }
control C(inout headers h, inout metadata m) { apply { } }
control D(packet_out b, in headers h) {
    apply { b.emit(h.kind); b.emit(h.labels); b.emit(h.option); b.emit(h.ab); b.emit(h.inner); b.emit(h.list); }
}
V1Switch(P(), V(), I(), E(), C(), D()) main;
