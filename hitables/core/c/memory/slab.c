/* Pieces of one size, taken and given back one by one.
 *
 * Idea: chunks of 64 pieces side by side; a piece is known by its number, which its owner keeps.
 * Cost: O(1) each; a chunk without pieces in use is given back to the budget.
 * Invariant: the vacant list holds exactly the chunks that have memory and a free piece, the spare list those
 * without memory.
 * Threading: none; the owner's lock is enough.
 */
#include "slab.h"

#include <stdbool.h>
#include <string.h>

enum { PIECES = 64 };
#define NOWHERE UINT32_MAX

struct chunk {
    char *piece;
    uint64_t used; /* a bit for each piece */
    uint32_t before, after;
};

struct slab {
    struct budget *budget;
    size_t size;
    struct chunk *chunk; /* [room] */
    uint32_t chunks, room, vacant, spare;
};

struct slab *slab_new(struct budget *budget, size_t size)
{
    struct slab *slab = budget_take(budget, sizeof *slab);
    if (slab) {
        slab->budget = budget;
        slab->size = size;
        slab->vacant = slab->spare = NOWHERE;
    }
    return slab;
}

void slab_free(struct slab *slab)
{
    if (!slab)
        return;
    for (uint32_t i = 0; i < slab->chunks; i++)
        budget_give(slab->budget, slab->chunk[i].piece, PIECES * slab->size);
    budget_give(slab->budget, slab->chunk, slab->room * sizeof *slab->chunk);
    budget_give(slab->budget, slab, sizeof *slab);
}

static void link_chunk(struct slab *slab, uint32_t at)
{
    slab->chunk[at].before = NOWHERE;
    slab->chunk[at].after = slab->vacant;
    if (slab->vacant != NOWHERE)
        slab->chunk[slab->vacant].before = at;
    slab->vacant = at;
}

static void unlink_chunk(struct slab *slab, uint32_t at)
{
    uint32_t before = slab->chunk[at].before, after = slab->chunk[at].after;
    if (before == NOWHERE)
        slab->vacant = after;
    else
        slab->chunk[before].after = after;
    if (after != NOWHERE)
        slab->chunk[after].before = before;
}

static bool add_chunk(struct slab *slab)
{
    if (slab->spare == NOWHERE && slab->chunks == slab->room) {
        uint32_t room = slab->room ? 2 * slab->room : 4;
        struct chunk *chunk =
            budget_resize(slab->budget, slab->chunk, slab->room * sizeof *chunk, room * sizeof *chunk);
        if (!chunk)
            return false;
        slab->chunk = chunk;
        slab->room = room;
    }
    char *piece = budget_take(slab->budget, PIECES * slab->size);
    if (!piece)
        return false;
    uint32_t at = slab->spare;
    if (at == NOWHERE)
        at = slab->chunks++;
    else
        slab->spare = slab->chunk[at].after;
    slab->chunk[at] = (struct chunk){.piece = piece};
    link_chunk(slab, at);
    return true;
}

void *slab_take(struct slab *slab, uint32_t *number)
{
    if (slab->vacant == NOWHERE && !add_chunk(slab))
        return NULL;
    uint32_t at = slab->vacant;
    struct chunk *chunk = slab->chunk + at;
    uint32_t place = (uint32_t)__builtin_ctzll(~chunk->used);
    chunk->used |= UINT64_C(1) << place;
    if (chunk->used == UINT64_MAX)
        unlink_chunk(slab, at);
    *number = at * PIECES + place;
    return chunk->piece + place * slab->size;
}

void slab_give(struct slab *slab, uint32_t number)
{
    uint32_t at = number / PIECES;
    struct chunk *chunk = slab->chunk + at;
    if (chunk->used == UINT64_MAX)
        link_chunk(slab, at);
    chunk->used &= ~(UINT64_C(1) << number % PIECES);
    if (chunk->used)
        return;
    unlink_chunk(slab, at);
    budget_give(slab->budget, chunk->piece, PIECES * slab->size);
    chunk->piece = NULL;
    chunk->after = slab->spare;
    slab->spare = at;
}
