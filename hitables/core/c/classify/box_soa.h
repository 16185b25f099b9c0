#ifndef HITABLES_BOX_SOA_H
#define HITABLES_BOX_SOA_H
#include <stdbool.h>
#include <stdint.h>

/* A list of boxes, a column per bound, so that sixteen of them are compared with a header at once. */
struct budget;

struct box_soa {
    uint32_t dims, count, room;
    uint32_t *word; /* [2 * dims][room]: for each dimension the low ends, then the widths (high - low) */
    bool vector;    /* with AVX-512 */
};

/* Room for *count* boxes; false without memory, and then nothing has changed. */
bool box_soa_reserve(struct box_soa *list, struct budget *budget, uint32_t count);
void box_soa_free(struct box_soa *list, struct budget *budget);
/* Insert a box before box *at*; there must be room. */
void box_soa_insert(struct box_soa *list, uint32_t at, const uint32_t *box);
void box_soa_remove(struct box_soa *list, uint32_t at);

/* For each header the first box that holds it; the count of boxes where none does. */
void box_soa_first(const struct box_soa *list, const uint32_t *headers, uint32_t count, uint32_t *first);
/* The first box from *from* on that holds the header. */
uint32_t box_soa_next(const struct box_soa *list, const uint32_t *header, uint32_t from);

#endif
