// The v1model architecture, in both forms of its interface: up to V1MODEL_VERSION 20200407 indices are bit<32>, from
// 20200408 on their type is a parameter. The behaviour is that of
// https://github.com/p4lang/behavioral-model/blob/main/docs/simple_switch.md

#ifndef _V1_MODEL_P4_
#define _V1_MODEL_P4_

#include <core.p4>

#ifndef V1MODEL_VERSION
#define V1MODEL_VERSION 20180101
#endif

match_kind {
    range,
    optional,  // one value, or any
    selector   // hashed to choose a member of an action selector's group
}

const bit<32> __v1model_version = V1MODEL_VERSION;

#if V1MODEL_VERSION >= 20200408
typedef bit<9> PortId_t;
#define _V1_PORT PortId_t
#define _V1_PARAMETER <I>
#define _V1_INDEX I
#else
#define _V1_PORT bit<9>
#define _V1_PARAMETER
#define _V1_INDEX bit<32>
#endif

@metadata @name("standard_metadata")
struct standard_metadata_t {
    _V1_PORT ingress_port;                    // where the packet came from
    _V1_PORT egress_spec;                     // where ingress sends it; 511 drops
    _V1_PORT egress_port;                     // where it goes, in egress
    bit<32> instance_type;                 // 0 new, 1 and 2 cloned, 4 recirculated, 5 copied by a group, 6 resubmitted
    bit<32> packet_length;                 // bytes
    @alias("queueing_metadata.enq_timestamp")
    bit<32> enq_timestamp;                 // microseconds
    @alias("queueing_metadata.enq_qdepth")
    bit<19> enq_qdepth;
    @alias("queueing_metadata.deq_timedelta")
    bit<32> deq_timedelta;
    @alias("queueing_metadata.deq_qdepth")
    bit<19> deq_qdepth;
    @alias("intrinsic_metadata.ingress_global_timestamp")
    bit<48> ingress_global_timestamp;      // microseconds
    @alias("intrinsic_metadata.egress_global_timestamp")
    bit<48> egress_global_timestamp;
    @alias("intrinsic_metadata.mcast_grp")
    bit<16> mcast_grp;                     // 0: no multicast
    @alias("intrinsic_metadata.egress_rid")
    bit<16> egress_rid;                    // which copy of a group this is
    bit<1> checksum_error;                 // a verify_checksum failed
    error parser_error;
    @alias("intrinsic_metadata.priority")
    bit<3> priority;
}

enum CounterType {
    packets,
    bytes,
    packets_and_bytes
}

enum MeterType {
    packets,
    bytes
}

enum HashAlgorithm {
    crc32,
    crc32_custom,
    crc16,
    crc16_custom,
    random,
    identity,
    csum16,
    xor16
}

#define V1MODEL_METER_COLOR_GREEN  0
#define V1MODEL_METER_COLOR_YELLOW 1
#define V1MODEL_METER_COLOR_RED    2

// An array of counters. An index outside it counts nothing.
extern counter _V1_PARAMETER {
    counter(bit<32> size, CounterType type);
    void count(in _V1_INDEX index);
}

// A counter beside each entry of the table that names it in its property `counters`.
extern direct_counter {
    direct_counter(CounterType type);
    void count();
}

// An array of two-rate three-colour meters.
extern meter _V1_PARAMETER {
    meter(bit<32> size, MeterType type);
    void execute_meter<T>(in _V1_INDEX index, out T result);
}

// A meter beside each entry of the table that names it in its property `meters`.
extern direct_meter<T> {
    direct_meter(MeterType type);
    void read(out T result);
}

// An array of values that stay from packet to packet.
#if V1MODEL_VERSION >= 20200408
extern register<T, I> {
#else
extern register<T> {
#endif
    register(bit<32> size);
    @noSideEffects
    void read(out T result, in _V1_INDEX index);
    void write(in _V1_INDEX index, in T value);
}

// Table property `implementation`: members that several entries share.
extern action_profile {
    action_profile(bit<32> size);
}

// The same, and groups of members among which a hash of the selector keys chooses.
extern action_selector {
    action_selector(HashAlgorithm algorithm, bit<32> size, bit<32> outputWidth);
}

// A number between lo and hi, both included.
extern void random<T>(out T result, in T lo, in T hi);

// Sends `data` to the control plane; `receiver` is not used.
extern void digest<T>(in bit<32> receiver, in T data);

@deprecated("Please use mark_to_drop(standard_metadata) instead.")
extern void mark_to_drop();
@pure
extern void mark_to_drop(inout standard_metadata_t standard_metadata);

// result = base + hash(data) % max; base where max is 0.
@pure
extern void hash<O, T, D, M>(out O result, in HashAlgorithm algo, in T base, in D data, in M max);

enum CloneType {
    I2E,
    E2E
}

@deprecated("Please use verify_checksum/update_checksum instead.")
extern Checksum16 {
    Checksum16();
    bit<16> get<D>(in D data);
}

extern void verify_checksum<T, O>(in bool condition, in T data, in O checksum, HashAlgorithm algo);
@pure
extern void update_checksum<T, O>(in bool condition, in T data, inout O checksum, HashAlgorithm algo);
// The same over `data` and what the parser left of the packet.
extern void verify_checksum_with_payload<T, O>(in bool condition, in T data, in O checksum, HashAlgorithm algo);
@noSideEffects
extern void update_checksum_with_payload<T, O>(in bool condition, in T data, inout O checksum, HashAlgorithm algo);

extern void clone(in CloneType type, in bit<32> session);
extern void clone_preserving_field_list(in CloneType type, in bit<32> session, bit<8> index);
@deprecated("Please use 'clone_preserving_field_list' instead")
extern void clone3<T>(in CloneType type, in bit<32> session, in T data);

@deprecated("Please use 'resubmit_preserving_field_list' instead")
extern void resubmit<T>(in T data);
extern void resubmit_preserving_field_list(bit<8> index);

@deprecated("Please use 'recirculate_preserving_field_list' instead")
extern void recirculate<T>(in T data);
extern void recirculate_preserving_field_list(bit<8> index);

// Cuts the packet to so many bytes, once it is deparsed.
extern void truncate(in bit<32> length);

extern void assert(in bool check);
extern void assume(in bool check);
extern void log_msg(string msg);
extern void log_msg<T>(string msg, in T data);

parser Parser<H, M>(packet_in b, out H parsedHdr, inout M meta, inout standard_metadata_t standard_metadata);
control VerifyChecksum<H, M>(inout H hdr, inout M meta);
@pipeline
control Ingress<H, M>(inout H hdr, inout M meta, inout standard_metadata_t standard_metadata);
@pipeline
control Egress<H, M>(inout H hdr, inout M meta, inout standard_metadata_t standard_metadata);
control ComputeChecksum<H, M>(inout H hdr, inout M meta);
@deparser
control Deparser<H>(packet_out b, in H hdr);

package V1Switch<H, M>(Parser<H, M> p,
                       VerifyChecksum<H, M> vr,
                       Ingress<H, M> ig,
                       Egress<H, M> eg,
                       ComputeChecksum<H, M> ck,
                       Deparser<H> dep);

#endif
