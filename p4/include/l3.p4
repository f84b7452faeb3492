// IPv4 and IPv6 as in any L3 switch: longest prefix, the next hop's address, one hop less to live.
#ifndef _L3_P4_
#define _L3_P4_

#include "headers.p4"

control L3(inout ethernet_t ethernet, inout ipv4_t ipv4, inout ipv6_t ipv6,
           inout standard_metadata_t standard, in mac_t own) {
    action drop() {
        mark_to_drop(standard);
    }

    action route(bit<9> port, mac_t next_hop) {
        standard.egress_spec = port;
        ethernet.src = own;
        ethernet.dst = next_hop;
        ipv4.ttl = ipv4.ttl - 1;
    }

    action route_ipv6(bit<9> port, mac_t next_hop) {
        standard.egress_spec = port;
        ethernet.src = own;
        ethernet.dst = next_hop;
        ipv6.hop_limit = ipv6.hop_limit - 1;
    }

    table ipv4_lpm {
        key = {
            ipv4.dst: lpm;
        }
        actions = {
            route;
            drop;
        }
        default_action = drop();
        size = 1024;
    }

    table ipv6_lpm {
        key = {
            ipv6.dst: lpm;
        }
        actions = {
            route_ipv6;
            drop;
        }
        default_action = drop();
        size = 1024;
    }

    apply {
        if (ipv4.isValid() && ipv4.ttl > 1) {
            ipv4_lpm.apply();
        } else if (ipv6.isValid() && ipv6.hop_limit > 1) {
            ipv6_lpm.apply();
        } else {
            drop();
        }
    }
}

#endif
