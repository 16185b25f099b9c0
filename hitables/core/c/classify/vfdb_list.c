/* The rules of a database by priority.
 *
 * Idea: boxes in slots, slots of one rule chained; an open hash table from the priority to the first slot.
 * Cost: O(1) a change, O(n log n) to sort.
 * Invariant: the table is at most half full, and its gaps are closed at each removal, so no marks of the dead
 * pile up.
 * Threading: none of its own.
 */
#include "vfdb_list.h"

#include <stdlib.h>
#include <string.h>

struct box_slot {
    uint32_t priority, next;
};

struct vfdb_list {
    struct budget *budget;
    uint32_t dims, rules, boxes;
    uint32_t slots, vacant; /* room; the first free slot, chained by next */
    struct box_slot *slot;
    uint32_t *side; /* [slots][dims][2] */
    uint32_t *head; /* [mask + 1] slot + 1, 0: empty */
    uint32_t mask;
};

static size_t box_words(const struct vfdb_list *list)
{
    return 2 * (size_t)list->dims;
}

static uint32_t place_of(const struct vfdb_list *list, uint32_t priority)
{
    return (uint32_t)(priority * UINT64_C(0x9E3779B97F4A7C15) >> 32) & list->mask;
}

struct vfdb_list *vfdb_list_new(struct budget *budget, uint32_t dims)
{
    struct vfdb_list *list = budget_take(budget, sizeof *list);
    if (!list)
        return NULL;
    *list = (struct vfdb_list){.budget = budget, .dims = dims, .mask = 15, .vacant = VFDB_NONE};
    list->head = budget_take(budget, (list->mask + 1) * sizeof *list->head);
    if (!list->head) {
        budget_give(budget, list, sizeof *list);
        return NULL;
    }
    return list;
}

void vfdb_list_free(struct vfdb_list *list)
{
    if (!list)
        return;
    struct budget *budget = list->budget;
    budget_give(budget, list->head, ((size_t)list->mask + 1) * sizeof *list->head);
    budget_give(budget, list->side, list->slots * box_words(list) * sizeof *list->side);
    budget_give(budget, list->slot, list->slots * sizeof *list->slot);
    budget_give(budget, list, sizeof *list);
}

/* Where the rule's entry of the table is, or would be. */
static uint32_t entry_of(const struct vfdb_list *list, uint32_t priority)
{
    uint32_t at = place_of(list, priority);
    while (list->head[at] && list->slot[list->head[at] - 1].priority != priority)
        at = (at + 1) & list->mask;
    return at;
}

static bool widen(struct vfdb_list *list)
{
    uint32_t mask = 2 * list->mask + 1;
    uint32_t *old = list->head, entries = list->mask + 1;
    uint32_t *head = budget_take(list->budget, ((size_t)mask + 1) * sizeof *head);
    if (!head)
        return false;
    list->head = head;
    list->mask = mask;
    for (uint32_t i = 0; i < entries; i++)
        if (old[i])
            head[entry_of(list, list->slot[old[i] - 1].priority)] = old[i];
    budget_give(list->budget, old, entries * sizeof *old);
    return true;
}

/* Doubles the slots until *more* are free. */
static bool room(struct vfdb_list *list, uint32_t more)
{
    uint64_t needed = (uint64_t)list->boxes + more;
    if (needed <= list->slots)
        return true;
    uint64_t slots = list->slots ? list->slots : 16;
    while (slots < needed)
        slots *= 2;
    if (slots >= VFDB_NONE)
        return false;
    size_t bytes = box_words(list) * sizeof *list->side;
    struct box_slot *slot = budget_take(list->budget, slots * sizeof *slot);
    uint32_t *side = slot ? budget_take(list->budget, slots * bytes) : NULL;
    if (!side) {
        budget_give(list->budget, slot, slots * sizeof *slot);
        return false;
    }
    if (list->slots) {
        memcpy(slot, list->slot, list->slots * sizeof *slot);
        memcpy(side, list->side, list->slots * bytes);
    }
    budget_give(list->budget, list->slot, list->slots * sizeof *slot);
    budget_give(list->budget, list->side, list->slots * bytes);
    for (uint32_t i = (uint32_t)slots; i-- > list->slots;) {
        slot[i].next = list->vacant;
        list->vacant = i;
    }
    list->slot = slot;
    list->side = side;
    list->slots = (uint32_t)slots;
    return true;
}

int vfdb_list_add(struct vfdb_list *list, const uint32_t *boxes, uint32_t count, uint32_t priority)
{
    if (vfdb_list_find(list, priority) != VFDB_NONE)
        return VFDB_TWICE;
    if (2 * ((uint64_t)list->rules + 1) > list->mask && !widen(list))
        return VFDB_NO_MEMORY;
    if (!room(list, count))
        return VFDB_NO_MEMORY;
    uint32_t first = VFDB_NONE;
    for (uint32_t i = count; i-- > 0;) {
        uint32_t at = list->vacant;
        list->vacant = list->slot[at].next;
        list->slot[at] = (struct box_slot){priority, first};
        memcpy(list->side + at * box_words(list), boxes + i * box_words(list),
               box_words(list) * sizeof *boxes);
        first = at;
    }
    list->head[entry_of(list, priority)] = first + 1;
    list->rules++;
    list->boxes += count;
    return VFDB_OK;
}

/* Empty an entry: those that were placed behind it because it was taken move back. */
static void close_hole(struct vfdb_list *list, uint32_t hole)
{
    for (uint32_t at = (hole + 1) & list->mask; list->head[at]; at = (at + 1) & list->mask) {
        uint32_t wanted = place_of(list, list->slot[list->head[at] - 1].priority);
        if (((at - wanted) & list->mask) >= ((at - hole) & list->mask)) {
            list->head[hole] = list->head[at];
            hole = at;
        }
    }
    list->head[hole] = 0;
}

int vfdb_list_drop(struct vfdb_list *list, uint32_t priority)
{
    uint32_t hole = entry_of(list, priority);
    if (!list->head[hole])
        return VFDB_ABSENT;
    for (uint32_t at = list->head[hole] - 1, next; at != VFDB_NONE; at = next) {
        next = list->slot[at].next;
        list->slot[at].next = list->vacant;
        list->vacant = at;
        list->boxes--;
    }
    list->rules--;
    close_hole(list, hole);
    return VFDB_OK;
}

void vfdb_list_rename(struct vfdb_list *list, uint32_t from, uint32_t to)
{
    uint32_t hole = entry_of(list, from), first = list->head[hole];
    close_hole(list, hole);
    for (uint32_t at = first - 1; at != VFDB_NONE; at = list->slot[at].next)
        list->slot[at].priority = to;
    list->head[entry_of(list, to)] = first;
}

/* One more box of a rule, which may be new. */
int vfdb_list_extend(struct vfdb_list *list, const uint32_t *box, uint32_t priority)
{
    uint32_t first = vfdb_list_find(list, priority);
    if (first == VFDB_NONE)
        return vfdb_list_add(list, box, 1, priority);
    if (!room(list, 1))
        return VFDB_NO_MEMORY;
    uint32_t at = list->vacant;
    list->vacant = list->slot[at].next;
    list->slot[at] = (struct box_slot){priority, list->slot[first].next};
    list->slot[first].next = at;
    memcpy(list->side + at * box_words(list), box, box_words(list) * sizeof *box);
    list->boxes++;
    return VFDB_OK;
}

/* Remove a box; with its last box the rule is removed. */
int vfdb_list_shrink(struct vfdb_list *list, const uint32_t *box, uint32_t priority)
{
    uint32_t before = VFDB_NONE, at = vfdb_list_find(list, priority);
    while (at != VFDB_NONE && memcmp(list->side + at * box_words(list), box, box_words(list) * sizeof *box)) {
        before = at;
        at = list->slot[at].next;
    }
    if (at == VFDB_NONE)
        return VFDB_ABSENT;
    if (before == VFDB_NONE && list->slot[at].next == VFDB_NONE)
        return vfdb_list_drop(list, priority);
    if (before == VFDB_NONE)
        list->head[entry_of(list, priority)] = list->slot[at].next + 1;
    else
        list->slot[before].next = list->slot[at].next;
    list->slot[at].next = list->vacant;
    list->vacant = at;
    list->boxes--;
    return VFDB_OK;
}

uint32_t vfdb_list_count(const struct vfdb_list *list)
{
    return list->rules;
}

uint32_t vfdb_list_find(const struct vfdb_list *list, uint32_t priority)
{
    uint32_t head = list->head[entry_of(list, priority)];
    return head ? head - 1 : VFDB_NONE;
}

uint32_t vfdb_list_next(const struct vfdb_list *list, uint32_t at)
{
    return list->slot[at].next;
}

const uint32_t *vfdb_list_box(const struct vfdb_list *list, uint32_t at)
{
    return list->side + at * box_words(list);
}

uint32_t vfdb_list_boxes(const struct vfdb_list *list)
{
    return list->boxes;
}

uint32_t vfdb_list_priority(const struct vfdb_list *list, uint32_t at)
{
    return list->slot[at].priority;
}

static int rising(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* All boxes by rising priority, as numbers of slots; *at* is to be given back to the budget. */
int vfdb_list_sorted(const struct vfdb_list *list, struct budget *budget, uint32_t **at)
{
    *at = NULL;
    if (!list->boxes)
        return VFDB_OK;
    uint64_t *key = budget_take(budget, list->rules * sizeof *key);
    uint32_t *sorted = key ? budget_take(budget, list->boxes * sizeof *sorted) : NULL, keys = 0, boxes = 0;
    if (sorted) {
        for (uint32_t i = 0; i <= list->mask; i++)
            if (list->head[i])
                key[keys++] = (uint64_t)list->slot[list->head[i] - 1].priority << 32 | (list->head[i] - 1);
        qsort(key, keys, sizeof *key, rising);
        for (uint32_t i = 0; i < keys; i++)
            for (uint32_t slot = (uint32_t)key[i]; slot != VFDB_NONE; slot = list->slot[slot].next)
                sorted[boxes++] = slot;
        *at = sorted;
    }
    budget_give(budget, key, list->rules * sizeof *key);
    return sorted ? VFDB_OK : VFDB_NO_MEMORY;
}
