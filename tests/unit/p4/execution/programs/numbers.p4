#include <core.p4>
#include <v1model.p4>

header n_t { bit<8> a; bit<8> b; int<8> c; int<8> d; bit<16> e; bit<4> f; bit<4> g; bit<70> w; bit<2> pad; }
struct headers { n_t n; n_t o; }
struct metadata { }

parser P(packet_in b, out headers h, inout metadata m, inout standard_metadata_t s) {
    state start { b.extract(h.n); transition accept; }
}
control V(inout headers h, inout metadata m) { apply { } }
control I(inout headers h, inout metadata m, inout standard_metadata_t s) {
    apply {
        s.egress_spec = 1;
        h.o = h.n;
        bit<4> op = h.n.pad ++ h.n.g[1:0];
        switch (op) {
            0: { h.o.a = h.n.a + h.n.b; h.o.b = h.n.a - h.n.b; h.o.c = h.n.c + h.n.d; h.o.d = h.n.c - h.n.d; h.o.e = h.n.e * 3; }
            1: { h.o.a = h.n.a |+| h.n.b; h.o.b = h.n.a |-| h.n.b; h.o.c = h.n.c |+| h.n.d; h.o.d = h.n.c |-| h.n.d; }
            2: { h.o.a = h.n.a << h.n.b; h.o.b = h.n.a >> (h.n.b & 7); h.o.c = h.n.c >> h.n.f; h.o.d = h.n.c << h.n.f; }
            3: { h.o.e = h.n.a ++ h.n.b; h.o.a = (bit<8>) h.n.c; h.o.c = (int<8>) h.n.a; h.o.f = h.n.e[11:8]; }
            4: { h.o.a[3:0] = h.n.b[7:4]; h.o.w[69:62] = h.n.a; h.o.c[2:1] = h.n.a[1:0]; h.o.w[12:5] = h.n.b; }
            5: { h.o.a = ~h.n.a; h.o.c = -h.n.c; h.o.b = -h.n.b; h.o.d = ~h.n.d; h.o.w = ~h.n.w; }
            6: { h.o.a = h.n.c < h.n.d ? 8w1 : 2; h.o.b = (bit<8>)(bit<1>)(h.n.a >= h.n.b); h.o.e = h.n.a == 5 ? h.n.e : 0; }
            7: { h.o.e = (bit<16>)(int<16>) h.n.c; h.o.w = (bit<70>)(bit<64>)(int<64>) h.n.d; h.o.a = (bit<8>) h.n.w; }
            8: { h.o.w = h.n.w * h.n.w + (bit<70>) h.n.e; h.o.a = h.n.a & h.n.b; h.o.b = h.n.a ^ h.n.b | 1; }
            9: 10: { h.o.e = (bit<16>) (h.n.e / 7); h.o.f = h.n.f % 3; if (h.n.a > 3 && (h.n.b < 9 || h.n.c == -1)) { h.o.a = 9; } }
            default: { h.o.setInvalid(); }
        }
    }
}
control E(inout headers h, inout metadata m, inout standard_metadata_t s) { apply { } }
control C(inout headers h, inout metadata m) { apply { } }
control D(packet_out b, in headers h) { apply { b.emit(h.o); b.emit(h.n); } }
V1Switch(P(), V(), I(), E(), C(), D()) main;
