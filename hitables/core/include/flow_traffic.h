#ifndef HITABLES_FLOW_TRAFFIC_H
#define HITABLES_FLOW_TRAFFIC_H
#include <stddef.h>
#include <stdint.h>

/* Packets of flows that begin, send in bursts, and end: see flow_traffic.c.  Times are in ns. */

/* Flows of one kind.  A flow has a number of packets from a Pareto distribution, P(X > x) = (least / x) **
 * shape, cut at *most* and rounded down; the time to the next packet is exponential, with mean *gap* inside
 * of a burst and mean *pause* between two; both are multiplied by a factor of the flow, lognormal with mean 1
 * and sigma *spread*. */
struct flow_class {
    double between;          /* mean time between the begins of two flows; 0: none begins by itself */
    uint32_t active;         /* flows in progress when the traffic begins */
    double shape, least, most;
    double burst;            /* mean packets of a burst, at least 1 */
    double gap, pause, spread;
    uint32_t protocol;
    uint32_t port, ports;    /* the server's port: one of *ports* from *port* on */
    uint32_t reply;          /* each reply-th packet of a flow goes the other way; 0: none */
    double inbound;          /* share of flows whose server is inside */
    double large, reply_large; /* share of large packets, each way */
    uint32_t small_size, large_size; /* bytes of a frame */
    uint32_t scan;           /* not 0: from one of a few hosts outside to any host inside */
};

struct flow_model {
    uint64_t seed;
    const struct flow_class *class;
    uint32_t classes;
    uint32_t inside, inside_bits; /* the prefix of the hosts inside, and how many bits number them */
    uint32_t outside;             /* hosts outside */
    /* Flows of rules, in place of hosts: each flow has a header in the box of its rule, and is replaced by a
     * flow of another rule when it ends.  One class. */
    const uint32_t *box;          /* [rules][5][2]; NULL: none */
    uint32_t rules;
    double skew;                  /* s of Zipf's law over the ranks of rules */
    uint64_t shift;            /* packets after which popular rules are exchanged; 0: never */
    uint32_t shifted, popular; /* how many are, of how many of the first ranks */
};

struct flow_traffic;

/* NULL when memory is exhausted.  The model and its arrays are copied. */
struct flow_traffic *flow_traffic_new(const struct flow_model *model);
/* NULL is no traffic. */
void flow_traffic_free(struct flow_traffic *traffic);

/* The next *count* packets.  header: [count][5]; time, ascending; length: bytes of the frame; flow: number of
 * the directed flow, counted from 0 as flows begin; rule: that the flow belongs to, or NULL.  Returns how
 * many were written: fewer only when memory is exhausted. */
size_t flow_traffic_next(struct flow_traffic *traffic, size_t count, uint32_t *header, int64_t *time,
                         uint32_t *length, uint64_t *flow, uint32_t *rule);

/* Flows in progress. */
uint32_t flow_traffic_active(const struct flow_traffic *traffic);

#endif
