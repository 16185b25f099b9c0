#ifndef HITABLES_SCOPE_H
#define HITABLES_SCOPE_H
#include <stddef.h>

struct budget;

/* Pieces of a budget that are given back together.  A zeroed scope with its budget set is empty. */
struct scope {
    struct budget *budget;
    struct scope_piece *piece;
    size_t pieces, room;
};

/* size zeroed bytes (at least one); NULL when memory or the budget is exhausted. */
void *scope_take(struct scope *scope, size_t size);
/* The piece (NULL: a new one) in another size, added bytes zeroed; NULL leaves the piece as it was. */
void *scope_resize(struct scope *scope, void *piece, size_t size);
/* Give one piece back; NULL is none. */
void scope_drop(struct scope *scope, void *piece);
/* Give back the pieces taken since there were *pieces*; none of the earlier ones may have been dropped since.
 */
void scope_shrink(struct scope *scope, size_t pieces);
/* Give everything back. */
void scope_empty(struct scope *scope);

#endif
