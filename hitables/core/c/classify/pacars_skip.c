/* The lists of PACARS as skip lists (Pugh, 1990), as Sahasranaman and Buddhikot measured them.
 *
 * Idea: the prefixes by rising start, at equal starts the larger first; one in four is on the next level,
 * too.  A search leads to the last start before the header, and from there to the parents.
 * Cost: a search and the place of an update take O(log n) steps, each a line of the cache; an update reads
 * the prefixes inside its own, whose parents may change: n of them at worst.
 * Invariant: that of pacars.c.  A woven record's prefix is in the list, and its start is at most the key.
 * Threading: changes are made by one thread at a time, never beside a search.
 */
#include "pacars_internal.h"

enum { LEVELS_AT_MOST = 16 };

static size_t prefix_bytes(uint32_t height)
{
    return sizeof(struct linked_prefix) + height * sizeof(struct linked_prefix *);
}

/* Whether that prefix stands before low to high, or is it. */
static bool up_to(const struct linked_prefix *prefix, uint32_t low, uint32_t high)
{
    return prefix->low < low || (prefix->low == low && prefix->high >= high);
}

static uint32_t draw_height(struct pacars *db)
{
    uint32_t height = 1;
    db->random ^= db->random << 13;
    db->random ^= db->random >> 17;
    db->random ^= db->random << 5;
    for (uint32_t bits = db->random; !(bits & 3) && height < LEVELS_AT_MOST; bits >>= 2)
        height++;
    return height;
}

/* The pointers of each level behind which low to high stands or would stand; gives the last prefix that is
 * not behind it. */
static struct linked_prefix *way_to(const struct crossing_list *list, uint32_t low, uint32_t high,
                                    bool before, struct linked_prefix ***way)
{
    struct linked_prefix *last = NULL, **next = list->first;
    for (uint32_t level = list->room; level-- > 0;) {
        while (next[level] && up_to(next[level], low, high) &&
               !(before && next[level]->low == low && next[level]->high == high)) {
            last = next[level];
            next = last->next;
        }
        if (way)
            way[level] = next + level;
    }
    return last;
}

static struct pacars_rule **skip_find(const struct crossing_list *list, uint32_t low, uint32_t high)
{
    struct linked_prefix *last = way_to(list, low, high, false, NULL);
    return last && last->low == low && last->high == high ? &last->rule : NULL;
}

static struct pacars_rule **skip_have(struct pacars *db, struct square *square, uint32_t side, uint32_t low,
                                      uint32_t high)
{
    struct crossing_list *list = &square->list[side];
    struct pacars_rule **there = skip_find(list, low, high);
    if (there)
        return there;
    uint32_t height = draw_height(db), levels = list->room;
    struct linked_prefix *prefix = budget_take(db->budget, prefix_bytes(height));
    if (!prefix)
        return NULL;
    if (height > levels) {
        struct linked_prefix **first = budget_resize(db->budget, list->first, levels * sizeof *list->first,
                                                     height * sizeof *list->first);
        if (!first) {
            budget_give(db->budget, prefix, prefix_bytes(height));
            return NULL;
        }
        list->first = first;
        list->room = height;
    }
    struct linked_prefix **way[LEVELS_AT_MOST];
    struct linked_prefix *parent = way_to(list, low, high, false, way);
    while (parent && parent->high < high)
        parent = parent->parent;
    *prefix = (struct linked_prefix){.low = low, .high = high, .parent = parent, .height = height};
    for (uint32_t level = 0; level < height; level++) {
        prefix->next[level] = *way[level];
        *way[level] = prefix;
    }
    for (struct linked_prefix *inside = prefix->next[0]; inside && inside->low <= high;
         inside = inside->next[0])
        if (inside->parent == parent)
            inside->parent = prefix;
    list->count++;
    return &prefix->rule;
}

/* Woven records that lead to a prefix lead to the one before it.  Their prefixes rise with their keys. */
static void lead_past(const struct pacars *db, struct woven *woven, const struct linked_prefix *prefix,
                      struct linked_prefix *before)
{
    uint32_t apart = record(db), at = place_from(woven->record, apart, woven->count, prefix->low, 0, NULL);
    for (at -= at && woven->record[(size_t)(at - 1) * apart] == prefix->low; at < woven->count; at++) {
        uint32_t *record = woven->record + (size_t)at * apart;
        const struct linked_prefix *spot = spot_of(db, record);
        if (spot && spot->low > prefix->low)
            break;
        if (spot == prefix)
            set_spot(db, record, before);
    }
}

static void skip_drop(struct pacars *db, struct square *square, uint32_t side, uint32_t low, uint32_t high)
{
    struct crossing_list *list = &square->list[side];
    struct linked_prefix **way[LEVELS_AT_MOST], *before = way_to(list, low, high, true, way);
    struct linked_prefix *prefix = *way[0];
    for (struct linked_prefix *inside = prefix->next[0]; inside && inside->low <= high;
         inside = inside->next[0])
        if (inside->parent == prefix)
            inside->parent = prefix->parent;
    for (uint32_t level = 0; level < prefix->height; level++)
        *way[level] = prefix->next[level];
    if (square->woven[side])
        lead_past(db, square->woven[side], prefix, before);
    budget_give(db->budget, prefix, prefix_bytes(prefix->height));
    if (!--list->count) {
        budget_give(db->budget, list->first, list->room * sizeof *list->first);
        *list = (struct crossing_list){0};
    }
}

static void skip_starts(const struct crossing_list *list, uint32_t *start)
{
    for (const struct linked_prefix *prefix = list->count ? list->first[0] : NULL; prefix;
         prefix = prefix->next[0])
        *start++ = prefix->low;
}

static void skip_places(const struct pacars *db, const struct crossing_list *list, struct woven *woven)
{
    uint32_t apart = record(db);
    const struct linked_prefix *last = NULL, *next = list->count ? list->first[0] : NULL;
    for (uint32_t i = 0; i < woven->count; i++) {
        for (; next && next->low <= woven->record[i * apart]; next = next->next[0])
            last = next;
        set_spot(db, woven->record + i * apart, last);
    }
}

static void skip_free(const struct pacars *db, struct crossing_list *list)
{
    for (struct linked_prefix *prefix = list->count ? list->first[0] : NULL, *next; prefix; prefix = next) {
        next = prefix->next[0];
        budget_give(db->budget, prefix, prefix_bytes(prefix->height));
    }
    budget_give(db->budget, list->first, list->room * sizeof *list->first);
    *list = (struct crossing_list){0};
}

const struct list_ops pacars_skip_lists = {
    .have = skip_have,
    .find = skip_find,
    .drop = skip_drop,
    .starts = skip_starts,
    .places = skip_places,
    .free = skip_free,
};
