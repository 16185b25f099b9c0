#ifndef HITABLES_STORM_H
#define HITABLES_STORM_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "evolve.h"

/* Storm (Ma, Lu, Banerjee and Estan, "Leveraging Parallelism for Multi-dimensional Packet Classification on
 * Software Routers"): a cache of evolving rules in front of a classifier.  See storm.c. */

/* Of storm(A): what its searches did. */
struct storm_cache_stats {
    struct evolve_stats evolve;
    uint64_t packets, hits;
    uint64_t published, deferred; /* caches; deferred: put off because the older one was still read */
};

#endif
