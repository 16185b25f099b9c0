#ifndef HITABLES_SCOPE_H
#define HITABLES_SCOPE_H
#include <stddef.h>

struct budget;

/* Pieces of a budget that are given back together: a zeroed scope with its budget set is an empty one. */
struct scope {
    struct budget *budget;
    struct scope_piece *piece;
    size_t pieces, room;
};

void *scope_take(struct scope *scope, size_t size);
void *scope_resize(struct scope *scope, void *taken, size_t size);
void scope_drop(struct scope *scope, void *taken);
void scope_shrink(struct scope *scope, size_t pieces);
void scope_empty(struct scope *scope);

#endif
