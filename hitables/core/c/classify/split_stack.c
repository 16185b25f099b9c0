/* What the trees over boxes share: leaves, and a stack of regions with the rules that meet them.
 *
 * Idea: the lists of the regions to be split lie one behind the other, so that a tree grows depth first in
 * memory that follows its depth.
 * Cost: a push reads the list of the region above, and takes the square of a list short enough to be thinned.
 * Invariant: a list holds every rule that can be the first to match in its region, by rising priority, up to
 * the first that covers the region.
 * Threading: none; leaves are read only once they are finished.
 */
#include "split_stack.h"

#include <string.h>

#include "budget.h"
#include "endpoints.h"

/* A longer list keeps the rules that an earlier one covers: looking for them takes time by the square. */
enum { THIN = 64, FIRST_ROOM = 64 };

static int grow(struct scope *scope, void **array, size_t size)
{
    void *moved = scope_resize(scope, *array, size);
    if (moved)
        *array = moved;
    return moved ? VFDB_OK : VFDB_NO_MEMORY;
}

int leaves_start(struct leaves *leaves, struct scope *scope, const struct vfdb_rules *rules)
{
    *leaves = (struct leaves){.scope = scope, .dims = rules->dims, .rules = rules->count, .room = FIRST_ROOM};
    if (rules->count >= UINT32_MAX / 8)
        return VFDB_TOO_LARGE;
    size_t row = 2 * (size_t)rules->dims * sizeof *leaves->box;
    leaves->priority = scope_take(scope, rules->count * sizeof *leaves->priority);
    leaves->box = scope_take(scope, rules->count * row);
    leaves->entry = scope_take(scope, leaves->room * sizeof *leaves->entry);
    if (!leaves->priority || !leaves->box || !leaves->entry)
        return VFDB_NO_MEMORY;
    if (rules->count) {
        memcpy(leaves->priority, rules->priority, rules->count * sizeof *leaves->priority);
        memcpy(leaves->box, rules->box, rules->count * row);
    }
    return VFDB_OK;
}

int leaves_add(struct leaves *leaves, const uint32_t *list, uint32_t count, const uint32_t *region,
               uint32_t *first)
{
    if (count > leaves->room - leaves->entries) {
        uint64_t room = 2 * (uint64_t)leaves->room + count;
        if (room >= UINT32_MAX / 4)
            return VFDB_TOO_LARGE;
        if (grow(leaves->scope, (void **)&leaves->entry, room * sizeof *leaves->entry))
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

int leaves_finish(struct leaves *leaves)
{
    leaves->room = leaves->entries;
    return grow(leaves->scope, (void **)&leaves->entry, leaves->entries * sizeof *leaves->entry);
}

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

/* Remove from a list the rules that an earlier one covers; the number left. */
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

int split_stack_start(struct split_stack *stack, struct scope *scope, const struct leaves *leaves,
                      const struct vfdb_rules *rules)
{
    uint32_t all[2 * VFDB_DIMS];
    *stack = (struct split_stack){.scope = scope, .leaves = leaves, .room = FIRST_ROOM};
    stack->open = scope_take(scope, FIRST_ROOM * sizeof *stack->open);
    stack->region = scope_take(scope, FIRST_ROOM * 2 * (size_t)rules->dims * sizeof *stack->region);
    if (!stack->open || !stack->region || split_stack_room(stack, 2 * (size_t)rules->count))
        return VFDB_NO_MEMORY;
    for (uint32_t d = 0; d < rules->dims; d++) {
        all[2 * d] = 0;
        all[2 * d + 1] = dim_top(rules, d);
    }
    struct open_region whole = {.count = rules->count, .list = rules->count};
    for (uint32_t i = 0; i < rules->count; i++)
        stack->list[whole.list + i] = i;
    return split_stack_push(stack, 0, &whole, all);
}

int split_stack_room(struct split_stack *stack, size_t more)
{
    if (stack->listed + more <= stack->list_room && stack->list)
        return VFDB_OK;
    size_t room = 2 * stack->list_room + more;
    if (grow(stack->scope, (void **)&stack->list, room * sizeof *stack->list))
        return VFDB_NO_MEMORY;
    stack->list_room = room;
    return VFDB_OK;
}

int split_stack_push(struct split_stack *p, uint32_t node, const struct open_region *from,
                     const uint32_t *region)
{
    uint32_t dims = p->leaves->dims, count = 0, *kept = p->list + p->listed;
    if (budget_stopped(p->scope->budget)) /* a large tree takes no memory for seconds */
        return VFDB_NO_MEMORY;
    if (p->count == p->room) {
        size_t row = 2 * (size_t)dims * sizeof *p->region;
        if (grow(p->scope, (void **)&p->open, 2 * (size_t)p->room * sizeof *p->open) ||
            grow(p->scope, (void **)&p->region, 2 * (size_t)p->room * row))
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
    p->open[p->count++] = (struct open_region){node, count, p->listed};
    p->listed += count;
    return VFDB_OK;
}

struct open_region split_stack_pop(struct split_stack *p, uint32_t *region)
{
    p->count--;
    memcpy(region, p->region + (size_t)p->count * 2 * p->leaves->dims, 2 * p->leaves->dims * sizeof *region);
    return p->open[p->count];
}

void split_stack_close_up(struct split_stack *p, const struct open_region *over)
{
    memmove(p->list + over->list, p->list + over->list + over->count,
            (p->listed - over->list - over->count) * sizeof *p->list);
    for (uint32_t i = p->count; i && p->open[i - 1].list > over->list; i--)
        p->open[i - 1].list -= over->count;
    p->listed -= over->count;
}

int split_stack_grow(struct split_stack *stack, struct leaves *leaves, split_region *split, void *builder)
{
    int status = VFDB_OK;
    while (!status && stack->count) {
        uint32_t region[2 * VFDB_DIMS];
        struct open_region open = split_stack_pop(stack, region);
        status = split(builder, &open, region);
        split_stack_close_up(stack, &open);
    }
    return status ? status : leaves_finish(leaves);
}
