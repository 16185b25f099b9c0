#ifndef HITABLES_COLUMNS_H
#define HITABLES_COLUMNS_H
#include <stdbool.h>
#include <stdint.h>

/* A list of boxes, a column per side, so that sixteen of them are held against a header at once. */
struct ledger;

struct columns {
    uint32_t dims, count, room;
    uint32_t *word; /* [2 * dims][room]: of each dimension the low ends, then the widths (high - low) */
    bool vector;    /* with AVX-512 */
};

/* Room for *count* boxes; false without memory, and then nothing has changed. */
bool columns_reserve(struct columns *list, struct ledger *ledger, uint32_t count);
void columns_free(struct columns *list, struct ledger *ledger);
/* Before the box *at*, where there is room. */
void columns_insert(struct columns *list, uint32_t at, const uint32_t *box);
void columns_remove(struct columns *list, uint32_t at);

/* For each header the first box that holds it; the count of boxes where none does. */
void columns_first(const struct columns *list, const uint32_t *headers, uint32_t count, uint32_t *first);
/* The first box from *from* on that holds the header. */
uint32_t columns_next(const struct columns *list, const uint32_t *header, uint32_t from);

#endif
