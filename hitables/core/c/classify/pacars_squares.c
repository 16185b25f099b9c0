/* The squares of PACARS, and fractional cascading between their lists.
 *
 * Idea: a woven list joins a square's list with samples of its children's woven lists.
 * Cost: weaving sorts the keys of a square.
 * Invariant: that of pacars.c; woven places are hints, so no search relies on them.
 * Threading: changes are made by one thread at a time, never beside a search.
 */
#include "pacars_internal.h"

#include <stdlib.h>

#include "sort.h"

/* The child that holds slot *along* of the list's dimension and slot *across* of the other. */
static uint32_t digit_of(const struct pacars *db, uint32_t side, uint32_t along, uint32_t across)
{
    return side ? across << db->stride | along : along << db->stride | across;
}

/* The square of a child, or NULL. */
static struct square *square_below(const struct pacars *db, const void *node, uint32_t digit)
{
    const void *child = trie_child(db->trie, node, digit);
    return child ? *(struct square **)trie_payload(db->trie, child) : NULL;
}

static size_t woven_bytes(const struct pacars *db, uint32_t count)
{
    return sizeof(struct woven) + (size_t)count * record(db) * sizeof(uint32_t);
}

void square_unweave(const struct pacars *db, struct square *square, uint32_t side)
{
    budget_give(db->budget, square->woven[side], woven_bytes(db, woven_count(square, side)));
    square->woven[side] = NULL;
}

static uint32_t sampled(const struct square *square, uint32_t side)
{
    return woven_count(square, side) / SAMPLE;
}

/* Fills the places of woven keys in the lists of the children at that level. */
static void point_below(const struct pacars *db, const void *node, uint32_t level, uint32_t side,
                        struct woven *woven)
{
    uint32_t slots = 1u << db->stride, apart = record(db);
    for (uint32_t along = 0, first = 0, end; along < slots; along++, first = end) {
        for (end = first; end < woven->count && slot_of(db, woven->record[end * apart], level) == along;
             end++)
            ;
        for (uint32_t across = 0; across < slots && end > first; across++) {
            const struct square *child = square_below(db, node, digit_of(db, side, along, across));
            uint32_t keys = woven_count(child, side);
            for (uint32_t i = first, at = 0; i < end; i++) {
                while (at < keys && child->woven[side]->record[at * apart] <= woven->record[i * apart])
                    at++;
                woven->record[i * apart + 2 + across] = at;
            }
        }
    }
}

/* Weaves the list of one side anew, or leaves it unwoven: little worth, or no memory. */
static void weave_side(const struct pacars *db, const void *node, uint32_t level, uint32_t side,
                       struct square *square)
{
    const struct crossing_list *list = &square->list[side];
    uint32_t slots = 1u << db->stride, apart = record(db), count = list->count, kept = 0;
    square_unweave(db, square, side);
    for (uint32_t digit = 0; digit < slots * slots; digit++)
        count += sampled(square_below(db, node, digit), side);
    if (count < WORTH)
        return;
    uint32_t *key = budget_take(db->budget, count * sizeof *key);
    if (!key)
        return;
    db->lists->starts(list, key);
    for (uint32_t digit = 0, at = list->count; digit < slots * slots; digit++) {
        const struct square *child = square_below(db, node, digit);
        for (uint32_t i = 0; i < sampled(child, side); i++)
            key[at++] = child->woven[side]->record[(i * SAMPLE + SAMPLE - 1) * apart];
    }
    qsort(key, count, sizeof *key, compare_u32);
    for (uint32_t i = 0; i < count; i++)
        if (!i || key[i] != key[i - 1])
            key[kept++] = key[i];
    struct woven *woven = budget_take(db->budget, woven_bytes(db, kept));
    if (woven) {
        woven->count = kept;
        for (uint32_t i = 0; i < kept; i++)
            woven->record[i * apart] = key[i];
        db->lists->places(db, list, woven);
        point_below(db, node, level, side, woven);
        square->woven[side] = woven;
    }
    budget_give(db->budget, key, count * sizeof *key);
}

bool square_is_idle(const struct square *square)
{
    return !(square->list[0].count | square->list[1].count) && !square->woven[0] && !square->woven[1];
}

void square_drop(const struct pacars *db, struct square **at)
{
    for (uint32_t side = 0; side < SIDES; side++)
        db->lists->free(db, &(*at)->list[side]);
    budget_give(db->budget, *at, sizeof **at);
    *at = NULL;
}

/* Weaves a square anew, and makes or drops it if need be. */
static void weave(const struct pacars *db, void *node, uint32_t level)
{
    struct square **at = trie_payload(db->trie, node), *square = *at;
    if (!square) {
        uint32_t samples[SIDES] = {0};
        for (uint32_t digit = 0; digit < 1u << 2 * db->stride; digit++)
            for (uint32_t side = 0; side < SIDES; side++)
                samples[side] += sampled(square_below(db, node, digit), side);
        if (samples[0] < WORTH && samples[1] < WORTH)
            return;
        square = *at = budget_take(db->budget, sizeof *square);
        if (!square)
            return;
    }
    square->changes = 0;
    for (uint32_t side = 0; side < SIDES; side++)
        weave_side(db, node, level, side, square);
    if (square_is_idle(square))
        square_drop(db, at);
}

void squares_weave(const struct pacars *db, void *node, uint32_t level)
{
    for (uint32_t digit = 0; digit < 1u << 2 * db->stride; digit++) {
        void *child = trie_child(db->trie, node, digit);
        if (child)
            squares_weave(db, child, level + 1);
    }
    weave(db, node, level);
}

static uint32_t woven_keys(const struct square *square)
{
    return woven_count(square, 0) + woven_count(square, 1);
}

/* A square weaves anew when a quarter of its keys have changed; of the changes below, one in SAMPLE
 * counts.  It does so at once where it may have to be freed: its own list is empty, or no child is woven
 * any more. */
void squares_changed(const struct pacars *db, uint64_t key, uint32_t level)
{
    void *node[LEVELS];
    uint32_t changes = 1;
    bool unwoven = false; /* the child on the path */
    node[0] = db->trie->root;
    for (uint32_t l = 0; l < level; l++)
        node[l + 1] = trie_child(db->trie, node[l], trie_digit(db->trie, key, l));
    for (uint32_t l = level + 1; l-- > 0; changes /= SAMPLE) {
        struct square **at = trie_payload(db->trie, node[l]);
        uint32_t before = woven_keys(*at);
        if (*at && !unwoven && (l < level || (*at)->list[0].count || (*at)->list[1].count)) {
            changes = (*at)->changes += changes;
            if (!db->cascade || changes < WORTH || changes < before / 4)
                return;
        }
        weave(db, node[l], l);
        unwoven = !woven_keys(*at);
        if (unwoven && !before)
            return;
    }
}
