// Stored trees of publishers, and hops for whoever is not on them (the thesis' 4.2.3 and 4.3).
//
// As virtual trees, but that a tree is rooted at its publisher and leads to stable subscribers, who get everything:
// nothing has to be stopped, and no label ends a copy.
//
// The control plane writes, by link id, the port of each of the switch's own links; by tree id, the ports of the switch
// that lead away from the publisher; and a clone session for each port. Ports 1 to 63.
#include <core.p4>
#include <v1model.p4>
#include "include/labels.p4"

V1Switch(Parse(), Verify(), LabelIngress(), LabelEgress(), Compute(), Deparse()) main;
