/* The lists of PACARS as sorted arrays.
 *
 * Idea: two arrays, starts and prefixes, by rising start; each prefix stores the place of its parent, the
 * smallest other prefix that holds it.
 * Cost: a search halves the starts; an update moves the entries behind its place.
 * Invariant: that of pacars.c.
 * Threading: changes are made by one thread at a time, never beside a search.
 */
#include "pacars_internal.h"

/* room is even. */
static size_t list_bytes(uint32_t room)
{
    return room * (sizeof(uint32_t) + sizeof(struct prefix));
}

static bool resize(struct budget *budget, struct crossing_list *list, uint32_t room)
{
    struct crossing_list other = {list->count, room, {room ? budget_take(budget, list_bytes(room)) : NULL}};
    if (room && !other.low)
        return false;
    if (list->count && room) {
        memcpy(other.low, list->low, list->count * sizeof *list->low);
        memcpy(prefixes(&other), prefixes(list), list->count * sizeof(struct prefix));
    }
    budget_give(budget, list->low, list_bytes(list->room));
    *list = other;
    return true;
}

static uint32_t place_of(const struct crossing_list *list, uint32_t low, uint32_t high)
{
    uint32_t place = holder(list, place_in(list->low, list->count, low, NULL), low, high);
    return place && list->low[place - 1] == low && prefixes(list)[place - 1].high == high ? place : 0;
}

static struct pacars_rule **array_find(const struct crossing_list *list, uint32_t low, uint32_t high)
{
    uint32_t place = place_of(list, low, high);
    return place ? &prefixes(list)[place - 1].rule : NULL;
}

static struct pacars_rule **array_have(struct pacars *db, struct square *square, uint32_t side, uint32_t low,
                                       uint32_t high)
{
    struct crossing_list *list = &square->list[side];
    uint32_t place = place_in(list->low, list->count, low, NULL), parent = holder(list, place, low, high);
    if (parent && list->low[parent - 1] == low && prefixes(list)[parent - 1].high == high)
        return &prefixes(list)[parent - 1].rule;
    if (list->count == list->room && !resize(db->budget, list, list->room ? 2 * list->room : LEAST_ROOM))
        return NULL;
    struct prefix *prefix = prefixes(list);
    while (place && list->low[place - 1] == low && prefix[place - 1].high < high)
        place--;
    memmove(list->low + place + 1, list->low + place, (list->count - place) * sizeof *list->low);
    memmove(prefix + place + 1, prefix + place, (list->count - place) * sizeof *prefix);
    list->low[place] = low;
    prefix[place] = (struct prefix){high, parent, NULL};
    list->count++;
    for (uint32_t i = place + 1; i < list->count; i++) {
        if (prefix[i].parent > place)
            prefix[i].parent++;
        else if (prefix[i].parent == parent && list->low[i] <= high)
            prefix[i].parent = place + 1;
    }
    return &prefix[place].rule;
}

static void array_drop(struct pacars *db, struct square *square, uint32_t side, uint32_t low, uint32_t high)
{
    struct crossing_list *list = &square->list[side];
    uint32_t place = place_of(list, low, high);
    struct prefix *prefix = prefixes(list);
    uint32_t parent = prefix[place - 1].parent;
    list->count--;
    memmove(list->low + place - 1, list->low + place, (list->count + 1 - place) * sizeof *list->low);
    memmove(prefix + place - 1, prefix + place, (list->count + 1 - place) * sizeof *prefix);
    for (uint32_t i = place - 1; i < list->count; i++) {
        if (prefix[i].parent > place)
            prefix[i].parent--;
        else if (prefix[i].parent == place)
            prefix[i].parent = parent;
    }
    if (!list->count)
        resize(db->budget, list, 0);
    else if (list->room > LEAST_ROOM && list->count <= list->room / 4)
        resize(db->budget, list, list->room / 2);
}

static void array_starts(const struct crossing_list *list, uint32_t *start)
{
    if (list->count)
        memcpy(start, list->low, list->count * sizeof *start);
}

static void array_places(const struct pacars *db, const struct crossing_list *list, struct woven *woven)
{
    uint32_t apart = record(db);
    for (uint32_t i = 0, at = 0; i < woven->count; i++) {
        while (at < list->count && list->low[at] <= woven->record[i * apart])
            at++;
        woven->record[i * apart + 1] = at;
    }
}

static void array_free(const struct pacars *db, struct crossing_list *list)
{
    resize(db->budget, list, 0);
}

const struct list_ops pacars_arrays = {
    .have = array_have,
    .find = array_find,
    .drop = array_drop,
    .starts = array_starts,
    .places = array_places,
    .free = array_free,
};
