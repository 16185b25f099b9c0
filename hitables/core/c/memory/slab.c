/* Pieces of one size, which come and go one by one.
 *
 * Idea: chunks of 64 pieces side by side; a piece is known by its number, which its owner
 * keeps.  Cost: O(1) each; a chunk whose last piece comes back goes back to the ledger.
 * Invariant: the vacant list holds exactly the chunks that have memory and a free piece, the
 * spare list those without memory.  Threading: none; the owner's lock is enough.
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

struct pool {
    struct ledger *ledger;
    size_t size;
    struct chunk *chunk; /* [room] */
    uint32_t chunks, room, vacant, spare;
};

/* A piece of a cache line or less never lies across two when size divides the line. */
struct pool *pool_new(struct ledger *ledger, size_t size)
{
    struct pool *pool = ledger_take(ledger, sizeof *pool);
    if (pool) {
        pool->ledger = ledger;
        pool->size = size;
        pool->vacant = pool->spare = NOWHERE;
    }
    return pool;
}

/* All its pieces go back with it. */
void pool_free(struct pool *pool)
{
    if (!pool)
        return;
    for (uint32_t i = 0; i < pool->chunks; i++)
        ledger_give(pool->ledger, pool->chunk[i].piece, PIECES * pool->size);
    ledger_give(pool->ledger, pool->chunk, pool->room * sizeof *pool->chunk);
    ledger_give(pool->ledger, pool, sizeof *pool);
}

static void link_chunk(struct pool *pool, uint32_t at)
{
    pool->chunk[at].before = NOWHERE;
    pool->chunk[at].after = pool->vacant;
    if (pool->vacant != NOWHERE)
        pool->chunk[pool->vacant].before = at;
    pool->vacant = at;
}

static void unlink_chunk(struct pool *pool, uint32_t at)
{
    uint32_t before = pool->chunk[at].before, after = pool->chunk[at].after;
    if (before == NOWHERE)
        pool->vacant = after;
    else
        pool->chunk[before].after = after;
    if (after != NOWHERE)
        pool->chunk[after].before = before;
}

static bool add_chunk(struct pool *pool)
{
    if (pool->spare == NOWHERE && pool->chunks == pool->room) {
        uint32_t room = pool->room ? 2 * pool->room : 4;
        struct chunk *chunk =
            ledger_resize(pool->ledger, pool->chunk, pool->room * sizeof *chunk, room * sizeof *chunk);
        if (!chunk)
            return false;
        pool->chunk = chunk;
        pool->room = room;
    }
    char *piece = ledger_take(pool->ledger, PIECES * pool->size);
    if (!piece)
        return false;
    uint32_t at = pool->spare;
    if (at == NOWHERE)
        at = pool->chunks++;
    else
        pool->spare = pool->chunk[at].after;
    pool->chunk[at] = (struct chunk){.piece = piece};
    link_chunk(pool, at);
    return true;
}

/* A piece as it was left by its last owner, and its number; NULL when memory is exhausted. */
void *pool_take(struct pool *pool, uint32_t *number)
{
    if (pool->vacant == NOWHERE && !add_chunk(pool))
        return NULL;
    uint32_t at = pool->vacant;
    struct chunk *chunk = pool->chunk + at;
    uint32_t place = (uint32_t)__builtin_ctzll(~chunk->used);
    chunk->used |= UINT64_C(1) << place;
    if (chunk->used == UINT64_MAX)
        unlink_chunk(pool, at);
    *number = at * PIECES + place;
    return chunk->piece + place * pool->size;
}

void pool_give(struct pool *pool, uint32_t number)
{
    uint32_t at = number / PIECES;
    struct chunk *chunk = pool->chunk + at;
    if (chunk->used == UINT64_MAX)
        link_chunk(pool, at);
    chunk->used &= ~(UINT64_C(1) << number % PIECES);
    if (chunk->used)
        return;
    unlink_chunk(pool, at);
    ledger_give(pool->ledger, chunk->piece, PIECES * pool->size);
    chunk->piece = NULL;
    chunk->after = pool->spare;
    pool->spare = at;
}
