/* Pieces of a ledger that are given back together.
 *
 * Idea: a list of what was taken, so that whoever gives up halfway has one call to make.
 * Cost: dropping one piece reads the list from its newest; bags hold tens of pieces.
 * Invariant: every piece in the list is charged to the ledger, and so is the list.
 * Threading: none; a bag belongs to one build.
 */
#include "scope.h"

#include <assert.h>

#include "budget.h"

struct bag_piece {
    void *at;
    size_t size;
};

/* size zeroed bytes (at least one), or NULL. */
void *bag_take(struct bag *bag, size_t size)
{
    if (bag->pieces == bag->room) {
        size_t room = 2 * bag->room + 16;
        struct bag_piece *moved =
            ledger_resize(bag->ledger, bag->piece, bag->room * sizeof *moved, room * sizeof *moved);
        if (!moved)
            return NULL;
        bag->piece = moved;
        bag->room = room;
    }
    size += !size;
    void *taken = ledger_take(bag->ledger, size);
    if (taken)
        bag->piece[bag->pieces++] = (struct bag_piece){taken, size};
    return taken;
}

static struct bag_piece *piece_of(struct bag *bag, const void *taken)
{
    size_t i = bag->pieces;
    while (i && bag->piece[i - 1].at != taken)
        i--;
    assert(i && "the piece is in the bag");
    return bag->piece + i - 1;
}

/* The piece (NULL: a new one) in another size, what is new zeroed; NULL leaves it as it was. */
void *bag_resize(struct bag *bag, void *taken, size_t size)
{
    if (!taken)
        return bag_take(bag, size);
    struct bag_piece *piece = piece_of(bag, taken);
    size += !size;
    void *moved = ledger_resize(bag->ledger, taken, piece->size, size);
    if (moved)
        *piece = (struct bag_piece){moved, size};
    return moved;
}

/* Give one piece back; NULL is none. */
void bag_drop(struct bag *bag, void *taken)
{
    if (!taken)
        return;
    struct bag_piece *piece = piece_of(bag, taken);
    ledger_give(bag->ledger, taken, piece->size);
    *piece = bag->piece[--bag->pieces];
}

/* Give everything back. */
void bag_empty(struct bag *bag)
{
    for (size_t i = 0; i < bag->pieces; i++)
        ledger_give(bag->ledger, bag->piece[i].at, bag->piece[i].size);
    ledger_give(bag->ledger, bag->piece, bag->room * sizeof *bag->piece);
    *bag = (struct bag){.ledger = bag->ledger};
}
