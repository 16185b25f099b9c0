#ifndef HITABLES_CONFLICT_TREE_H
#define HITABLES_CONFLICT_TREE_H
#include <stdbool.h>
#include <stdint.h>

#include "cut_tree.h"
#include "vfdb.h"

/* Rules with actions, asked whether a box may have an action (Storm, algorithm 1).  A packet that no rule
 * matches has the action VFDB_NONE: that is an implicit last rule over everything. */
struct conflict_tree {
    struct budget *budget;
    struct vfdb_plan plan; /* of the tree, which is of HyperCuts */
    uint32_t dims;
    uint8_t bits[VFDB_DIMS];
    bool prune; /* leave out parts of the tree that cannot change the answer */
    void *tree; /* struct cut_tree */
    uint32_t nodes, *least; /* [nodes] */
    uint32_t count;         /* rules of the tree */
    uint32_t *action;       /* [count] NULL: a rule's action is its priority */
    uint8_t *dead;          /* [count] removed since the tree was built */
    uint32_t dead_count;
    /* Rules that were inserted since, in any order. */
    uint32_t pending, room, *pending_priority, *pending_box;
    uint32_t rebuild_at; /* pending and dead rules that the next build waits for */
};

/* The best rule of the same action over all of the box, and the best of another action that meets it:
 * priorities, VFDB_NONE if there is none.  With *prune*, no more than decides which of both is better. */
struct conflict {
    uint32_t match, conflict;
    uint32_t leaves; /* visited */
};

/* *action* NULL: the priority.  Nodes are cut as *choose* of hypercuts says, with *leaf* rules in a leaf.  On
 * failure nothing is left to be freed. */
int conflict_tree_start(struct conflict_tree *t, struct budget *budget, const struct vfdb_rules *rules,
                        const uint32_t *action, uint32_t leaf, uint32_t choose);
void conflict_tree_free(struct conflict_tree *t);

/* *floor*: no rule over all of the box is better than this priority.  *point*: a header in the box, or NULL;
 * with it, and *prune*, a match is looked for in the leaf of that header alone. */
struct conflict conflict_find(const struct conflict_tree *t, const uint32_t *box, uint32_t action,
                              uint32_t floor, const uint32_t *point);
/* Whether every packet of the box has that action, and, unless it is VFDB_NONE, one rule holds the box.
 * *match*: that rule's priority. */
static inline bool conflict_approves(struct conflict found, uint32_t action)
{
    return action == VFDB_NONE ? found.conflict == VFDB_NONE : found.match < found.conflict;
}

/* The action of a packet and the priority of its rule; only while no rule was inserted or removed. */
uint32_t conflict_classify(const struct conflict_tree *t, const uint32_t *header, uint32_t *priority);

/* Rules change, of trees without actions.  remove leaves the rule in the tree, where it forbids boxes. */
int conflict_insert(struct conflict_tree *t, const uint32_t *box, uint32_t priority);
void conflict_remove(struct conflict_tree *t, const uint32_t *box, uint32_t priority);
/* Build the tree anew where many rules have changed; without memory it stays as it is. */
void conflict_refresh(struct conflict_tree *t);

static inline bool conflict_meets(uint32_t dims, const uint32_t *box, const uint32_t *other)
{
    for (uint32_t i = 0; i < 2 * dims; i += 2)
        if (box[i] > other[i + 1] || box[i + 1] < other[i])
            return false;
    return true;
}

/* Whether *inner* lies in *outer*. */
static inline bool conflict_inside(uint32_t dims, const uint32_t *inner, const uint32_t *outer)
{
    for (uint32_t i = 0; i < 2 * dims; i += 2)
        if (inner[i] < outer[i] || inner[i + 1] > outer[i + 1])
            return false;
    return true;
}

#endif
