#ifndef HITABLES_ARENA_H
#define HITABLES_ARENA_H
#include <stddef.h>

/* Counted memory: everything a structure holds comes from its arena, so its
 * size is measured and freeing it is one call. */
struct arena;

struct arena *arena_new(size_t limit);
void arena_stops(struct arena *arena, const volatile int *stop);
void *arena_take(struct arena *arena, size_t size);
size_t arena_bytes(const struct arena *arena);
void arena_free(struct arena *arena);

#endif
