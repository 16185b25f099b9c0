/* What the trees over boxes share: leaves, and regions with the rules that meet them.
 *
 * Idea: a stack of regions to be split, whose lists lie one behind the other, so that a tree grows depth
 * first in memory that follows its depth.
 * Cost: a push reads the list of the parcel above, and by the square what is short enough to be thinned.
 * Invariant: a list holds every rule that can be the first to match in its region, by rising priority; no
 * rule stands behind one that covers the region.
 * Threading: none; leaves are read only once they are finished.
 */
#include "split_stack.h"

#include <string.h>

#include "endpoints.h"

/* A longer list keeps the rules that an earlier one covers: looking for them takes time by the square. */
enum { THIN = 64, FIRST_ROOM = 64 };

static int grow(struct bag *bag, void **array, size_t size)
{
    void *moved = bag_resize(bag, *array, size);
    if (moved)
        *array = moved;
    return moved ? VFDB_OK : VFDB_NO_MEMORY;
}

/* Copies the rules, no leaves yet; a status. */
int leaves_start(struct leaves *leaves, struct bag *bag, const struct vfdb_rules *rules)
{
    *leaves = (struct leaves){.bag = bag, .dims = rules->dims, .rules = rules->count, .room = FIRST_ROOM};
    if (rules->count >= UINT32_MAX / 8)
        return VFDB_TOO_LARGE;
    size_t row = 2 * (size_t)rules->dims * sizeof *leaves->box;
    leaves->priority = bag_take(bag, rules->count * sizeof *leaves->priority);
    leaves->box = bag_take(bag, rules->count * row);
    leaves->entry = bag_take(bag, leaves->room * sizeof *leaves->entry);
    if (!leaves->priority || !leaves->box || !leaves->entry)
        return VFDB_NO_MEMORY;
    if (rules->count) {
        memcpy(leaves->priority, rules->priority, rules->count * sizeof *leaves->priority);
        memcpy(leaves->box, rules->box, rules->count * row);
    }
    return VFDB_OK;
}

/* A leaf of those rules, for that region, begins at entry *first; a status. */
int leaves_add(struct leaves *leaves, const uint32_t *list, uint32_t count, const uint32_t *region, uint32_t *first)
{
    if (count > leaves->room - leaves->entries) {
        uint64_t room = 2 * (uint64_t)leaves->room + count;
        if (room >= UINT32_MAX / 4)
            return VFDB_TOO_LARGE;
        if (grow(leaves->bag, (void **)&leaves->entry, room * sizeof *leaves->entry))
            return VFDB_NO_MEMORY;
        leaves->room = (uint32_t)room;
    }
    *first = leaves->entries;
    if (!count)
        return VFDB_OK;
    memcpy(leaves->entry + leaves->entries, list, count * sizeof *list);
    leaves->entries += count;
    if (box_covers_in(leaves->dims, leaves_box(leaves, list[count - 1]), region, region))
        leaves->entry[leaves->entries - 1] |= LEAF_COVERS;
    return VFDB_OK;
}

/* Gives back the room that no leaf took. */
int leaves_finish(struct leaves *leaves)
{
    leaves->room = leaves->entries;
    return grow(leaves->bag, (void **)&leaves->entry, leaves->entries * sizeof *leaves->entry);
}

/* Whether the part of *inner* that lies in the region lies in *outer*. */
bool box_covers_in(uint32_t dims, const uint32_t *outer, const uint32_t *inner, const uint32_t *region)
{
    for (uint32_t i = 0; i < 2 * dims; i += 2)
        if ((outer[i] > inner[i] && outer[i] > region[i]) ||
            (outer[i + 1] < inner[i + 1] && outer[i + 1] < region[i + 1]))
            return false;
    return true;
}

static bool meets(uint32_t dims, const uint32_t *box, const uint32_t *region)
{
    for (uint32_t i = 0; i < 2 * dims; i += 2)
        if (box[i] > region[i + 1] || box[i + 1] < region[i])
            return false;
    return true;
}

/* Take from a list what an earlier rule covers. */
static uint32_t thin(const struct leaves *leaves, uint32_t *list, uint32_t count, const uint32_t *region)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < count; i++) {
        const uint32_t *box = leaves_box(leaves, list[i]);
        uint32_t before = 0;
        while (before < kept && !box_covers_in(leaves->dims, leaves_box(leaves, list[before]), box, region))
            before++;
        if (before == kept)
            list[kept++] = list[i];
    }
    return kept;
}

/* One parcel: all rules and all headers, for node 0; a status. */
int parcels_start(struct parcels *parcels, struct bag *bag, const struct leaves *leaves, const struct vfdb_rules *rules)
{
    uint32_t all[2 * VFDB_DIMS];
    *parcels = (struct parcels){.bag = bag, .leaves = leaves, .room = FIRST_ROOM};
    parcels->parcel = bag_take(bag, FIRST_ROOM * sizeof *parcels->parcel);
    parcels->region = bag_take(bag, FIRST_ROOM * 2 * (size_t)rules->dims * sizeof *parcels->region);
    if (!parcels->parcel || !parcels->region || parcels_room(parcels, 2 * (size_t)rules->count))
        return VFDB_NO_MEMORY;
    for (uint32_t d = 0; d < rules->dims; d++) {
        all[2 * d] = 0;
        all[2 * d + 1] = dim_top(rules, d);
    }
    struct parcel whole = {.count = rules->count, .list = rules->count};
    for (uint32_t i = 0; i < rules->count; i++)
        parcels->list[whole.list + i] = i;
    return parcels_push(parcels, 0, &whole, all);
}

/* Room for so many rules more in the lists; a status. */
int parcels_room(struct parcels *parcels, size_t more)
{
    if (parcels->listed + more <= parcels->list_room && parcels->list)
        return VFDB_OK;
    size_t room = 2 * parcels->list_room + more;
    if (grow(parcels->bag, (void **)&parcels->list, room * sizeof *parcels->list))
        return VFDB_NO_MEMORY;
    parcels->list_room = room;
    return VFDB_OK;
}

/* A parcel for *node* with the rules of *from* that meet the region, which is copied.  There must be room
 * for the whole list of *from*; a status. */
int parcels_push(struct parcels *p, uint32_t node, const struct parcel *from, const uint32_t *region)
{
    uint32_t dims = p->leaves->dims, count = 0, *kept = p->list + p->listed;
    if (p->count == p->room) {
        size_t row = 2 * (size_t)dims * sizeof *p->region;
        if (grow(p->bag, (void **)&p->parcel, 2 * (size_t)p->room * sizeof *p->parcel) ||
            grow(p->bag, (void **)&p->region, 2 * (size_t)p->room * row))
            return VFDB_NO_MEMORY;
        p->room *= 2;
    }
    for (uint32_t i = 0; i < from->count; i++) {
        uint32_t rule = p->list[from->list + i];
        const uint32_t *box = leaves_box(p->leaves, rule);
        if (!meets(dims, box, region))
            continue;
        kept[count++] = rule;
        if (box_covers_in(dims, box, region, region))
            break;
    }
    if (count <= THIN)
        count = thin(p->leaves, kept, count, region);
    memcpy(p->region + (size_t)p->count * 2 * dims, region, 2 * dims * sizeof *region);
    p->parcel[p->count++] = (struct parcel){node, count, p->listed};
    p->listed += count;
    return VFDB_OK;
}

/* The last parcel and its region; its list stays until parcels_close_up. */
struct parcel parcels_pop(struct parcels *p, uint32_t *region)
{
    p->count--;
    memcpy(region, p->region + (size_t)p->count * 2 * p->leaves->dims, 2 * p->leaves->dims * sizeof *region);
    return p->parcel[p->count];
}

/* The list of a parcel that was popped is not needed any more: what was pushed since moves in its place. */
void parcels_close_up(struct parcels *p, const struct parcel *over)
{
    memmove(p->list + over->list, p->list + over->list + over->count,
            (p->listed - over->list - over->count) * sizeof *p->list);
    for (uint32_t i = p->count; i && p->parcel[i - 1].list > over->list; i--)
        p->parcel[i - 1].list -= over->count;
    p->listed -= over->count;
}
