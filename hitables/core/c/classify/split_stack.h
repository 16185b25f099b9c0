#ifndef HITABLES_SPLIT_STACK_H
#define HITABLES_SPLIT_STACK_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "scope.h"
#include "vfdb.h"

/* What the trees that are searched in memory share: rules and the leaves that list them, and, while a tree
 * grows, a stack of regions with the rules that meet them.  Functions return an enum vfdb_status as an int.
 */

/* Leaves are runs of entry[]: rules by rising priority.  COVERS: the rule matches every header of the leaf.
 */
enum { LEAF_COVERS = 1U << 31 };

struct leaves {
    struct scope *scope;
    uint32_t dims, rules, entries, room;
    uint32_t *priority; /* [rules] */
    uint32_t *box;      /* [rules][dims][2] */
    uint32_t *entry;    /* [room] */
};

/* A node to be made, over a region and the rules of list[] that meet it.  The list of the region pushed
 * last is the last, too. */
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

/* Copy the rules; there are no leaves yet. */
int leaves_start(struct leaves *leaves, struct scope *scope, const struct vfdb_rules *rules);
/* Add a leaf of those rules, for that region; *first: its first entry. */
int leaves_add(struct leaves *leaves, const uint32_t *list, uint32_t count, const uint32_t *region,
               uint32_t *first);
/* Give back the room that no leaf takes. */
int leaves_finish(struct leaves *leaves);
/* Whether the part of *inner* that lies in the region lies in *outer*. */
bool box_covers_in(uint32_t dims, const uint32_t *outer, const uint32_t *inner, const uint32_t *region);

/* Start with one region: all rules and all headers, for node 0. */
int split_stack_start(struct split_stack *stack, struct scope *scope, const struct leaves *leaves,
                      const struct vfdb_rules *rules);
/* Make room for *more* rules in the lists. */
int split_stack_room(struct split_stack *stack, size_t more);
/* Push a region for *node* with the rules of *from* that meet it; it is copied.  There must be room for
 * all rules of *from*. */
int split_stack_push(struct split_stack *stack, uint32_t node, const struct open_region *from,
                     const uint32_t *region);
/* Pop the top and copy its region; its list stays until split_stack_close_up. */
struct open_region split_stack_pop(struct split_stack *stack, uint32_t *region);
/* Free the list of a popped region: the lists pushed since move into its place. */
void split_stack_close_up(struct split_stack *stack, const struct open_region *over);

/* Make the node of an open region: a leaf, or a node whose parts it pushes.  *region* may be changed. */
typedef int split_region(void *builder, const struct open_region *open, uint32_t *region);
/* Grow a tree from the regions on the stack until none is left, depth first, and finish the leaves. */
int split_stack_grow(struct split_stack *stack, struct leaves *leaves, split_region *split, void *builder);

static inline const uint32_t *leaves_box(const struct leaves *leaves, uint32_t rule)
{
    return leaves->box + (size_t)rule * 2 * leaves->dims;
}

/* The priority of the first rule of a leaf that matches, or VFDB_NONE. */
static inline __attribute__((always_inline)) uint32_t
leaf_read(const struct leaves *leaves, uint32_t first, uint32_t count, const uint32_t *header,
          struct vfdb_work *work)
{
    const uint32_t *entry = leaves->entry + first, *end = entry + count;
    for (; entry < end; entry++) {
        if (*entry & LEAF_COVERS)
            return leaves->priority[*entry & ~(uint32_t)LEAF_COVERS];
        if (work)
            work->rules++;
        const uint32_t *box = leaves_box(leaves, *entry);
        uint32_t d = 0;
        while (d < leaves->dims && header[d] - box[2 * d] <= box[2 * d + 1] - box[2 * d])
            d++;
        if (d == leaves->dims)
            return leaves->priority[*entry];
    }
    return VFDB_NONE;
}

static inline uint32_t leaf_search(const struct leaves *leaves, uint32_t first, uint32_t count,
                                   const uint32_t *header)
{
    return leaf_read(leaves, first, count, header, NULL);
}

#endif
