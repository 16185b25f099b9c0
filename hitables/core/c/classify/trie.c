/* Compressed tries (Sahasranaman and Buddhikot, section 3.1).
 *
 * Idea: a node takes stride bits of the key at a time.  In plain form it has a pointer for each of its
 * 2^stride children, a leaf none; in bitmap form a bit for each, and its children lie side by side, so that a
 * child is found by counting the bits before its own.  A prefix whose length is no multiple of the stride
 * becomes several nodes of the next level.
 * Cost: width / stride nodes per descent; the space of a node doubles with each bit of stride (plain) or is
 * that of its children (bitmap), which are copied when one is added or removed.
 * Invariant: below the root no node is both without children and with a payload of zeros, once trie_prune has
 * been called for what was cleared.
 * Threading: a descent changes nothing.
 *
 * A node moves when it gets its first child (plain) or another child is added beside it (bitmap), so payloads
 * must be movable.
 */
#include "trie.h"

#include <assert.h>
#include <string.h>

static size_t pointers(const struct trie *trie)
{
    return sizeof(void *) << trie->stride;
}

/* Bytes of a node in bitmap form, or of one in plain form. */
static size_t node_size(const struct trie *trie, bool bare)
{
    return trie->head + trie->payload + (trie->form == TRIE_PLAIN && !bare ? pointers(trie) : 0);
}

static uint32_t children(const struct trie *trie, const void *node)
{
    if (trie->form == TRIE_PLAIN)
        return ((const struct trie_plain *)node)->children;
    const struct trie_bitmap *bitmap = node;
    uint32_t count = 0;
    for (uint32_t w = 0; w < ((1u << trie->stride) + 63) / 64; w++)
        count += trie_ones(bitmap->bits[w], trie->form);
    return count;
}

/* An empty trie over keys of *width* bits, or NULL. */
struct trie *trie_new(struct budget *budget, uint32_t width, uint32_t stride, enum trie_form form,
                      size_t payload)
{
    assert(width && width <= 64 && stride && stride <= 8 && payload % 8 == 0);
    struct trie *trie = budget_take(budget, sizeof *trie);
    if (!trie)
        return NULL;
    *trie =
        (struct trie){.budget = budget, .width = width, .stride = stride, .form = form, .payload = payload};
#ifdef __x86_64__
    if (form == TRIE_POPCNT && !__builtin_cpu_supports("popcnt"))
        trie->form = TRIE_BITMAP;
#endif
    trie->levels = (width + stride - 1) / stride;
    trie->head = form == TRIE_PLAIN
                     ? sizeof(struct trie_plain)
                     : sizeof(struct trie_bitmap) + ((1u << stride) + 63) / 64 * sizeof(uint64_t);
    trie->root = budget_take(budget, node_size(trie, true));
    if (!trie->root) {
        budget_give(budget, trie, sizeof *trie);
        return NULL;
    }
    if (form == TRIE_PLAIN)
        ((struct trie_plain *)trie->root)->bare = 1;
    trie->nodes = 1;
    return trie;
}

/* Free all below a node, not the node itself. */
static void free_below(struct trie *trie, void *node, void (*drop)(void *, void *), void *owner)
{
    drop(owner, trie_payload(trie, node));
    for (uint32_t digit = 0; digit < 1u << trie->stride; digit++) {
        void *child = trie_child(trie, node, digit);
        if (!child)
            continue;
        free_below(trie, child, drop, owner);
        if (trie->form == TRIE_PLAIN)
            budget_give(trie->budget, child, node_size(trie, ((struct trie_plain *)child)->bare));
    }
    if (trie->form != TRIE_PLAIN)
        budget_give(trie->budget, ((struct trie_bitmap *)node)->below,
                    children(trie, node) * node_size(trie, true));
}

/* *drop* frees what a payload owns. */
void trie_free(struct trie *trie, void (*drop)(void *owner, void *payload), void *owner)
{
    if (!trie)
        return;
    free_below(trie, trie->root, drop, owner);
    budget_give(trie->budget, trie->root,
                node_size(trie, trie->form != TRIE_PLAIN || ((struct trie_plain *)trie->root)->bare));
    budget_give(trie->budget, trie, sizeof *trie);
}

/* The nodes of the prefix of that length that starts at *low*. */
struct trie_span trie_span(const struct trie *trie, uint64_t low, uint32_t length)
{
    uint32_t level = (length + trie->stride - 1) / trie->stride;
    uint32_t rounded = level * trie->stride < trie->width ? level * trie->stride : trie->width;
    uint64_t step = rounded ? UINT64_C(1) << (64 - rounded) : 0;
    return (struct trie_span){trie_key(trie, low), step, 1u << (rounded - length), level};
}

/* The node in plain form with or without pointers; *at* points to it then. */
static bool reform(struct trie *trie, void **at, bool bare)
{
    struct trie_plain *node = *at;
    struct trie_plain *moved =
        budget_resize(trie->budget, node, node_size(trie, node->bare), node_size(trie, bare));
    if (!moved)
        return false;
    moved->bare = bare;
    *at = moved;
    return true;
}

static bool add_plain(struct trie *trie, void **at, uint32_t digit)
{
    if (((struct trie_plain *)*at)->bare && !reform(trie, at, false))
        return false;
    struct trie_plain *child = budget_take(trie->budget, node_size(trie, true));
    if (!child) {
        if (!((struct trie_plain *)*at)->children)
            reform(trie, at, true);
        return false;
    }
    child->bare = 1;
    trie_pointers(trie, *at)[digit] = child;
    ((struct trie_plain *)*at)->children++;
    return true;
}

static bool add_bitmap(struct trie *trie, struct trie_bitmap *node, uint32_t digit)
{
    size_t size = node_size(trie, true);
    uint32_t count = children(trie, node), before = trie_rank(node, digit, trie->form);
    char *below = budget_take(trie->budget, (count + 1) * size);
    if (!below)
        return false;
    if (count) {
        memcpy(below, node->below, before * size);
        memcpy(below + (before + 1) * size, node->below + before * size, (count - before) * size);
    }
    budget_give(trie->budget, node->below, count * size);
    node->below = below;
    node->bits[digit / 64] |= UINT64_C(1) << digit % 64;
    return true;
}

/* The payload of the node at that level on the path of *key*; NULL if there is no such node, or it cannot be
 * made: then nothing has changed.  Level 0 is the root. */
void *trie_reach(struct trie *trie, uint64_t key, uint32_t level, bool make)
{
    void **at = &trie->root, *node = trie->root;
    for (uint32_t l = 0; l < level; l++) {
        uint32_t digit = trie_digit(trie, key, l);
        void *child = trie_child(trie, node, digit);
        if (!child) {
            if (!make)
                return NULL;
            if (!(trie->form == TRIE_PLAIN ? add_plain(trie, at, digit) : add_bitmap(trie, node, digit))) {
                trie_prune(trie, key, l);
                return NULL;
            }
            trie->nodes++;
            if (trie->form == TRIE_PLAIN)
                node = *at;
            child = trie_child(trie, node, digit);
        }
        if (trie->form == TRIE_PLAIN)
            at = trie_pointers(trie, node) + digit;
        node = child;
    }
    return trie_payload(trie, node);
}

static bool is_idle(const struct trie *trie, const void *node)
{
    const uint64_t *payload = trie_payload(trie, node);
    for (size_t i = 0; i < trie->payload / 8; i++)
        if (payload[i])
            return false;
    return !children(trie, node);
}

/* Remove a child that is not needed; false if memory does not allow it now. */
static bool take_away(struct trie *trie, void **at, void *node, uint32_t digit)
{
    if (trie->form == TRIE_PLAIN) {
        void **slot = trie_pointers(trie, node) + digit;
        budget_give(trie->budget, *slot, node_size(trie, ((struct trie_plain *)*slot)->bare));
        *slot = NULL;
        if (!--((struct trie_plain *)node)->children)
            reform(trie, at, true); /* or it keeps its pointers */
        return true;
    }
    struct trie_bitmap *bitmap = node;
    size_t size = node_size(trie, true);
    uint32_t count = children(trie, node), before = trie_rank(bitmap, digit, trie->form);
    char *below = count > 1 ? budget_take(trie->budget, (count - 1) * size) : NULL;
    if (count > 1) {
        if (!below)
            return false;
        memcpy(below, bitmap->below, before * size);
        memcpy(below + before * size, bitmap->below + (before + 1) * size, (count - before - 1) * size);
    }
    budget_give(trie->budget, bitmap->below, count * size);
    bitmap->below = below;
    bitmap->bits[digit / 64] &= ~(UINT64_C(1) << digit % 64);
    return true;
}

/* Remove the nodes on the path of *key*, down to that level, that are not needed. */
void trie_prune(struct trie *trie, uint64_t key, uint32_t level)
{
    void **at[65], *node[65];
    uint32_t deepest = 0;
    at[0] = &trie->root;
    node[0] = trie->root;
    while (deepest < level) {
        uint32_t digit = trie_digit(trie, key, deepest);
        void *child = trie_child(trie, node[deepest], digit);
        if (!child)
            break;
        at[deepest + 1] = trie->form == TRIE_PLAIN ? trie_pointers(trie, node[deepest]) + digit : NULL;
        node[++deepest] = child;
    }
    while (deepest && is_idle(trie, node[deepest])) {
        deepest--;
        if (!take_away(trie, at[deepest], node[deepest], trie_digit(trie, key, deepest)))
            return;
        trie->nodes--;
        if (trie->form == TRIE_PLAIN)
            node[deepest] = *at[deepest];
    }
}

enum { SIDE_BY_SIDE = 16 };

void trie_walk(const struct trie *trie, const uint64_t *key, size_t count, uint32_t *steps)
{
    for (size_t first = 0; first < count; first += SIDE_BY_SIDE) {
        uint32_t some = count - first < SIDE_BY_SIDE ? (uint32_t)(count - first) : SIDE_BY_SIDE, on = some;
        const void *node[SIDE_BY_SIDE];
        for (uint32_t i = 0; i < some; i++)
            node[i] = trie->root;
        for (uint32_t level = 0; on; level++) {
            on = 0;
            for (uint32_t i = 0; i < some; i++) {
                if (!node[i])
                    continue;
                steps[first + i]++;
                node[i] = level < trie->levels
                              ? trie_child(trie, node[i], trie_digit(trie, key[first + i], level))
                              : NULL;
                __builtin_prefetch(node[i]);
                on += node[i] != NULL;
            }
        }
    }
}
