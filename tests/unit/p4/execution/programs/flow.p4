#include <core.p4>
#include <v1model.p4>

header x_t { bit<8> op; bit<8> a; bit<8> b; bit<8> c; }
struct pair_t { bit<8> first; bit<8> second; }
struct headers { x_t x; x_t y; x_t[2] z; }
struct metadata { bit<8> trace; pair_t pair; }

const list<bit<8>> STEPS = { 2, 4 };
bit<8> bump(inout bit<8> v, in bit<8> by) { v = v + by; if (v == 7) { return 100; } return v; }
pair_t swap(in pair_t p) { return { p.second, p.first }; }
bit<8> search(in bit<8> limit) {
    bit<8> sum = 0;
    for (bit<8> i in 1 .. 10) {
        if (i == limit) { return sum; }
        if (i[0:0] == 1) { continue; }
        sum = sum + i;
        if (sum > 18) { break; }
    }
    return sum + 50;
}
parser P(packet_in b, out headers h, inout metadata m, inout standard_metadata_t s) {
    state start { b.extract(h.x); transition accept; }
}
control V(inout headers h, inout metadata m) { apply { } }
control Inner(inout x_t x, in bit<8> limit, out bit<8> result, inout standard_metadata_t s) {
    bit<8> local = 3;
    action early(inout bit<8> v) { v = v + 1; if (limit > 5) { return; } v = v + 10; }
    apply {
        result = 1;
        early(x.b);
        local = local + x.b;
        if (limit == 9) { return; }
        result = local;
        if (limit == 10) { x.c = 0xcc; exit; }
        x.c = x.c + 1;
    }
}
control I(inout headers h, inout metadata m, inout standard_metadata_t s) {
    Inner() inner;
    bit<8> got = 0;
    action set_a(bit<8> v) { h.x.a = v; }
    action add_a(bit<8> v) { h.x.a = h.x.a + v; }
    action leave() { h.x.c = 0x11; exit; }
    action bound(inout bit<8> into, bit<8> v) { into = into + v; }
    table t {
        key = { h.x.op: exact; h.x.a & 3: ternary @name("low"); }
        actions = { set_a; add_a; leave; bound(h.x.b); NoAction; }
        default_action = add_a(1);
        size = 20;
    }
    table small {
        key = { h.x.b: range; h.x.c: optional; }
        actions = { set_a; NoAction; }
        const entries = { (1 .. 5, _): set_a(50); (3, 9): set_a(60); (_, 7): set_a(70); }
    }
    apply {
        s.egress_spec = 2;
        if (h.x.op < 8) {
            switch (t.apply().action_run) {
                set_a: { m.trace = 1; }
                add_a: { m.trace = 2; }
                bound: { m.trace = 4; }
                default: { m.trace = 3; }
            }
            h.x.c = h.x.c + m.trace;
            small.apply();
        } else if (h.x.op == 8) {
            h.x.a = bump(h.x.b, h.x.c) + bump(h.x.b, 1);
            h.x.c = search(h.x.a);
        } else if (h.x.op == 9) {
            m.pair = { h.x.a, h.x.b };
            m.pair = swap(m.pair);
            h.x.a = m.pair.first;
            h.x.b = m.pair.second;
        } else if (h.x.op == 10) {
            inner.apply(h.x, h.x.a, got, s);
            h.x.op = got;
        } else if (h.x.op == 11) {
            h.y.setValid();
            h.y.a = 5;
            h.z[0] = h.x;
            h.z[1] = { 1, 2, 3, 4 };
            h.z[0].b = h.y.c;
            if (h.z[0] == h.x) { h.x.c = 1; }
        } else if (h.x.op == 12) {
            h.y = h.x;
            h.x.setInvalid();
            h.x.setValid();
            h.x.c = h.x.a;
            h.z.push_front(1);
        } else if (h.x.op == 13) {
            if (t.apply().hit && bump(h.x.a, 2) > 4) { h.x.b = 1; } else { h.x.b = 2; }
        } else if (h.x.op == 14) {
            for (bit<8> v in (list<bit<8>>){ h.x.a, 3, h.x.b }) { if (v == 9) { continue; } h.x.a = h.x.a + v; }
            for (bit<8> v in STEPS) { h.x.b = h.x.b + v; }
        }
    }
}
control E(inout headers h, inout metadata m, inout standard_metadata_t s) {
    apply { if (h.y.isValid()) { h.y.b = (bit<8>) s.egress_port; } if (h.x.op == 99) { exit; } h.x.op = h.x.op ^ 0x80; }
}
control C(inout headers h, inout metadata m) { apply { } }
control D(packet_out b, in headers h) { apply { b.emit(h); } }
V1Switch(P(), V(), I(), E(), C(), D()) main;
