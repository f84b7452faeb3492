#include <core.p4>
#include <v1model.p4>

header op_t { bit<8> op; bit<8> count; bit<16> value; }
header note_t { bit<8> kind; bit<8> rid; bit<16> kept; bit<16> length; bit<9> port; bit<7> zero; }
struct headers { op_t op; note_t note; }
struct metadata { @field_list(1, 2) bit<16> kept; @field_list(2) bit<8> rounds; bit<8> lost; }
struct news_t { bit<16> value; bit<9> port; bool odd; }

parser P(packet_in b, out headers h, inout metadata m, inout standard_metadata_t s) {
    state start { b.extract(h.op); transition accept; }
}
control V(inout headers h, inout metadata m) { apply { } }
control I(inout headers h, inout metadata m, inout standard_metadata_t s) {
    register<bit<16>>(16) memory;
    register<int<8>>(4) small;
    counter(8, CounterType.bytes) counted;
    meter(4, MeterType.packets) limited;
    direct_meter<bit<2>>(MeterType.bytes) each;
    bit<16> result;
    bit<2> color = 0;
    action meet(bit<16> value) { each.read(color); h.op.value = h.op.value + value; }
    action miss() { color = 3; }
    table metered { key = { h.op.count: exact; } actions = { meet; miss; } default_action = miss; meters = each; }
    action one(bit<8> x) { h.op.value[7:0] = x; }
    action two(bit<16> y, bit<8> x) { h.op.value = y ^ (bit<16>) x; }
    action_selector(HashAlgorithm.crc16, 32, 10) choice;
    table chosen {
        key = { h.op.op: ternary; h.op.value: selector; s.ingress_port: selector; }
        actions = { one; two; }
        implementation = choice;
    }
    action profiled(bit<16> v) { h.op.value = v; }
    action_profile(8) profile;
    table indirect { key = { h.op.count: range; } actions = { profiled; one; } implementation = profile; }
    apply {
        m.lost = 7;
        s.egress_spec = (bit<9>) h.op.count & 7;
        if (h.op.op == 1) { clone(CloneType.I2E, 5); h.op.value = 0xffff; }
        else if (h.op.op == 2) { m.kept = h.op.value; m.rounds = 9; clone_preserving_field_list(CloneType.I2E, 6, 1); }
        else if (h.op.op == 3) {
            m.rounds = m.rounds + 1;
            if (m.rounds < h.op.count) { m.kept = m.kept + 3; resubmit_preserving_field_list(2); }
            h.op.value = m.kept;
        }
        else if (h.op.op == 5) { s.mcast_grp = (bit<16>) h.op.count; truncate(12); }
        else if (h.op.op == 6) { digest<news_t>(1, { h.op.value, s.ingress_port, h.op.value[0:0] == 1 }); mark_to_drop(s); }
        else if (h.op.op == 7) {
            memory.read(result, (bit<32>) h.op.count);
            memory.write((bit<32>) h.op.count, result + h.op.value);
            int<8> before;
            small.read(before, (bit<32>) h.op.count);
            small.write((bit<32>) h.op.count, before - 3);
            h.op.value = result;
            counted.count((bit<32>) h.op.count);
        }
        else if (h.op.op == 8) { limited.execute_meter((bit<32>) h.op.count, color); h.op.value = (bit<16>) color; }
        else if (h.op.op == 9) { metered.apply(); h.op.count = (bit<8>) color; }
        else if (h.op.op == 10) { random(result, 10, 20); h.op.value = result; }
        else if (h.op.op == 11) { hash(result, HashAlgorithm.crc16, 16w5, { h.op.value, h.op.count }, 32w100); h.op.value = result; }
        else if (h.op.op == 12) { resubmit_preserving_field_list(1); }
        else if (h.op.op == 13) { assert(h.op.count != 0); log_msg("count {} value {}", { h.op.count, h.op.value }); }
        else if (h.op.op == 14) { if (chosen.apply().hit) { h.op.count = 1; } }
        else if (h.op.op == 15) { indirect.apply(); }
    }
}
control E(inout headers h, inout metadata m, inout standard_metadata_t s) {
    apply {
        if (h.op.op == 4) {
            m.rounds = m.rounds + 1;
            if (m.rounds < h.op.count) { recirculate_preserving_field_list(2); }
            h.op.value = h.op.value + 1;
        }
        if (h.op.op == 16 && s.instance_type == 0) { m.kept = 0x55; clone_preserving_field_list(CloneType.E2E, 6, 2); }
        if (h.op.op == 17) { clone(CloneType.E2E, 5); }
        if (h.op.op == 18 && s.egress_rid == 1) { mark_to_drop(s); }
        h.note.setValid();
        h.note.kind = (bit<8>) s.instance_type;
        h.note.rid = (bit<8>) s.egress_rid;
        h.note.kept = m.kept + (bit<16>) m.lost;
        h.note.length = (bit<16>) s.packet_length;
        h.note.port = s.ingress_port;
    }
}
control C(inout headers h, inout metadata m) { apply { } }
control D(packet_out b, in headers h) { apply { b.emit(h.op); b.emit(h.note); } }
V1Switch(P(), V(), I(), E(), C(), D()) main;
