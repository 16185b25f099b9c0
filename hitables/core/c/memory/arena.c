/* Counted memory in blocks.
 *
 * Idea: a piece is the next bytes of the newest block.
 * Cost: a take is a pointer bump; a block is at least 64 KiB.
 * Invariant: *bytes* counts what was taken from the system, so it is never too low.
 * Threading: an arena belongs to one thread at a time.
 */
#include "arena.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCK = 64 * 1024, ALIGN = 16 };

struct block {
    struct block *next;
    size_t used, size;
    _Alignas(16) unsigned char data[];
};

struct arena {
    struct block *first;
    size_t bytes, limit;
    const volatile int *stop;
};

struct arena *arena_new(size_t limit)
{
    struct arena *arena = calloc(1, sizeof *arena);
    if (arena)
        arena->limit = limit;
    return arena;
}

void arena_stops(struct arena *arena, const volatile int *stop)
{
    arena->stop = stop;
}

void *arena_take(struct arena *arena, size_t size)
{
    struct block *block = arena->first;
    if (size > SIZE_MAX / 2 || (arena->stop && *arena->stop))
        return NULL;
    size = (size + ALIGN - 1) & ~(size_t)(ALIGN - 1);
    if (!block || block->size - block->used < size) {
        size_t room = size > BLOCK ? size : BLOCK;
        size_t total = sizeof *block + room;
        if (arena->limit && arena->bytes + total > arena->limit)
            return NULL;
        block = malloc(total);
        if (!block)
            return NULL;
        block->next = arena->first;
        block->used = 0;
        block->size = room;
        arena->first = block;
        arena->bytes += total;
    }
    void *taken = block->data + block->used;
    block->used += size;
    return memset(taken, 0, size);
}

size_t arena_bytes(const struct arena *arena)
{
    return arena->bytes;
}

void arena_free(struct arena *arena)
{
    if (!arena)
        return;
    for (struct block *block = arena->first, *next; block; block = next) {
        next = block->next;
        free(block);
    }
    free(arena);
}
