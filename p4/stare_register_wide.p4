// stare_register.p4 for switches of up to 128 ports: a multicast group goes to banks of eight, and egress drops
// the copies for ports that are not in the set.
#define STARE_BANK 8
#include "stare_register.p4"
