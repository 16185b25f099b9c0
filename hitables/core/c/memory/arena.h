#ifndef HITABLES_ARENA_H
#define HITABLES_ARENA_H
#include <stddef.h>

/* Counted memory that is freed as a whole: the size of a structure is measured, and freeing it is one call.
 */
struct arena;

/* An empty arena that takes at most *limit* bytes (0: any number), or NULL. */
struct arena *arena_new(size_t limit);
/* From now on take nothing while *stop is not 0, so that a build in the arena ends soon. */
void arena_stops(struct arena *arena, const volatile int *stop);
/* size zeroed bytes, aligned for any type; NULL when memory or the limit is exhausted. */
void *arena_take(struct arena *arena, size_t size);
/* Bytes taken from the system. */
size_t arena_bytes(const struct arena *arena);
/* NULL is no arena. */
void arena_free(struct arena *arena);

#endif
