#ifndef HITABLES_BAG_H
#define HITABLES_BAG_H
#include <stddef.h>

struct ledger;

/* Pieces of a ledger that are given back together: a zeroed bag with its ledger set is an empty one. */
struct bag {
    struct ledger *ledger;
    struct bag_piece *piece;
    size_t pieces, room;
};

void *bag_take(struct bag *bag, size_t size);
void *bag_resize(struct bag *bag, void *taken, size_t size);
void bag_drop(struct bag *bag, void *taken);
void bag_empty(struct bag *bag);

#endif
