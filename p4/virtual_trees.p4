// Virtual trees (the thesis' chapter 5): hop, tree and stop labels over partial trees that switches store.
//
// The control plane writes, by link id, the port of each of the switch's own links; by tree id, the ports (port p as bit
// p) of each tree that touches the switch; and a clone session for each port. Ports 1 to 63.
#include <core.p4>
#include <v1model.p4>

#define STOPS
#include "include/labels.p4"

V1Switch(Parse(), Verify(), LabelIngress(), LabelEgress(), Compute(), Deparse()) main;
