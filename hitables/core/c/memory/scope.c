/* Pieces of a budget that are given back together.
 *
 * Idea: a list of the pieces, so that code which gives up halfway frees them with one call.
 * Cost: dropping one piece reads the list from its newest; a scope holds tens of pieces.
 * Invariant: every piece in the list is charged to the budget, and so is the list.
 * Threading: none; a scope belongs to one build.
 */
#include "scope.h"

#include <assert.h>

#include "budget.h"

struct scope_piece {
    void *at;
    size_t size;
};

void *scope_take(struct scope *scope, size_t size)
{
    if (scope->pieces == scope->room) {
        size_t room = 2 * scope->room + 16;
        struct scope_piece *moved =
            budget_resize(scope->budget, scope->piece, scope->room * sizeof *moved, room * sizeof *moved);
        if (!moved)
            return NULL;
        scope->piece = moved;
        scope->room = room;
    }
    size += !size;
    void *taken = budget_take(scope->budget, size);
    if (taken)
        scope->piece[scope->pieces++] = (struct scope_piece){taken, size};
    return taken;
}

static struct scope_piece *piece_of(struct scope *scope, const void *taken)
{
    size_t i = scope->pieces;
    while (i && scope->piece[i - 1].at != taken)
        i--;
    assert(i && "the piece is in the scope");
    return scope->piece + i - 1;
}

void *scope_resize(struct scope *scope, void *taken, size_t size)
{
    if (!taken)
        return scope_take(scope, size);
    struct scope_piece *piece = piece_of(scope, taken);
    size += !size;
    void *moved = budget_resize(scope->budget, taken, piece->size, size);
    if (moved)
        *piece = (struct scope_piece){moved, size};
    return moved;
}

void scope_drop(struct scope *scope, void *taken)
{
    if (!taken)
        return;
    struct scope_piece *piece = piece_of(scope, taken);
    budget_give(scope->budget, taken, piece->size);
    *piece = scope->piece[--scope->pieces];
}

void scope_shrink(struct scope *scope, size_t pieces)
{
    while (scope->pieces > pieces) {
        struct scope_piece *piece = &scope->piece[--scope->pieces];
        budget_give(scope->budget, piece->at, piece->size);
    }
}

void scope_empty(struct scope *scope)
{
    for (size_t i = 0; i < scope->pieces; i++)
        budget_give(scope->budget, scope->piece[i].at, scope->piece[i].size);
    budget_give(scope->budget, scope->piece, scope->room * sizeof *scope->piece);
    *scope = (struct scope){.budget = scope->budget};
}
