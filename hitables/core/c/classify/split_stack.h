#ifndef HITABLES_SPLIT_STACK_H
#define HITABLES_SPLIT_STACK_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "scope.h"
#include "vfdb.h"

/* What the trees over boxes share that are searched in memory: rules and the leaves that list them,
 * and, while a tree grows, regions with the rules that meet them. */

/* Leaves are runs of entry[]: rules by rising priority.  COVERS: it matches whatever comes to the leaf. */
enum { LEAF_COVERS = 1U << 31 };

struct leaves {
    struct scope *scope;
    uint32_t dims, rules, entries, room;
    uint32_t *priority; /* [rules] */
    uint32_t *box;      /* [rules][dims][2] */
    uint32_t *entry;    /* [room] */
};

/* A node to be made, over a region and the rules of list[] that meet it.  What was pushed last is on top
 * of the lists, too. */
struct open_region {
    uint32_t node, count;
    size_t list;
};

struct split_stack {
    struct scope *scope;
    const struct leaves *leaves;
    uint32_t count, room;
    struct open_region *open;
    uint32_t *region; /* [room][dims][2] */
    uint32_t *list;
    size_t listed, list_room;
};

int leaves_start(struct leaves *leaves, struct scope *scope, const struct vfdb_rules *rules);
int leaves_add(struct leaves *leaves, const uint32_t *list, uint32_t count, const uint32_t *region, uint32_t *first);
int leaves_finish(struct leaves *leaves);
bool box_covers_in(uint32_t dims, const uint32_t *outer, const uint32_t *inner, const uint32_t *region);

int split_stack_start(struct split_stack *stack, struct scope *scope, const struct leaves *leaves, const struct vfdb_rules *rules);
int split_stack_room(struct split_stack *stack, size_t more);
int split_stack_push(struct split_stack *stack, uint32_t node, const struct open_region *from, const uint32_t *region);
struct open_region split_stack_pop(struct split_stack *stack, uint32_t *region);
void split_stack_close_up(struct split_stack *stack, const struct open_region *over);

static inline const uint32_t *leaves_box(const struct leaves *leaves, uint32_t rule)
{
    return leaves->box + (size_t)rule * 2 * leaves->dims;
}

/* The priority of the first rule of a leaf that matches, or VFDB_NONE. */
static inline uint32_t leaf_search(const struct leaves *leaves, uint32_t first, uint32_t count, const uint32_t *header)
{
    const uint32_t *entry = leaves->entry + first, *end = entry + count;
    for (; entry < end; entry++) {
        if (*entry & LEAF_COVERS)
            return leaves->priority[*entry & ~(uint32_t)LEAF_COVERS];
        const uint32_t *box = leaves_box(leaves, *entry);
        uint32_t d = 0;
        while (d < leaves->dims && header[d] - box[2 * d] <= box[2 * d + 1] - box[2 * d])
            d++;
        if (d == leaves->dims)
            return leaves->priority[*entry];
    }
    return VFDB_NONE;
}

#endif
