/* Conflicts of boxes with rules (Storm, section 3.2.3).
 *
 * Idea: a HyperCuts tree of the rules; the leaves that a box meets are read up to the first rule that decides
 * (algorithm 1).  The best rule found so far ends the reading of a leaf at worse rules, and, where *prune* is
 * set, leaves out nodes that have only worse ones.  A rule over all of the box is no better than the rule of
 * any packet in it (*floor*), so a conflict better than that ends the walk.  A rule over all of the box is in
 * the leaf of each of its packets, so the leaf of one of them is read first, and most boxes are refused
 * there; a rule that another one of its action hides in that leaf is overlooked, and the box refused though
 * algorithm 1 might approve it.  These three are ours, not the paper's.
 * Cost: the leaves that the box meets, times their rules.
 * Invariant: an approved box has one action in all its packets.  A leaf may lack rules that an earlier one
 * covers within it: such a rule decides no packet there, and the earlier one is met in its place.  Rules that
 * were removed since the tree was built may still stand for others in this way, so a removed rule is a
 * conflict for every action until the tree is built anew.
 * Threading: conflict_find and conflict_classify change nothing; the others run alone.
 */
#include "conflict_tree.h"

#include <string.h>

#include "budget.h"
#include "search.h"

extern const struct vfdb_ops vfdb_hypercuts;

/* Megabytes of tree at first: beyond it leaves become larger, up to one leaf of all rules.  A tree of fw1_10K
 * in leaves of 16 takes gigabytes. */
enum { MEGABYTES = 16, LARGER = 4 };
/* Rules that change before the tree is built anew: these, or an eighth of the rules. */
enum { STALE = 64, STALE_SHARE = 8 };
enum { LEAF, SPFAC, MB, CHOOSE }; /* parameters of hypercuts */

static size_t box_bytes(const struct conflict_tree *t)
{
    return 2 * (size_t)t->dims * sizeof(uint32_t);
}

/* A tree of the rules in the place of the present one. */
static int grow(struct conflict_tree *t, const struct vfdb_rules *rules)
{
    struct vfdb_plan plan = t->plan;
    void *tree = NULL;
    int status;
    do {
        status = vfdb_hypercuts.build(t->budget, &plan, rules, &tree);
        if (status == VFDB_TOO_LARGE && plan.value[LEAF] >= rules->count)
            plan.value[MB] *= LARGER; /* one leaf: its rules alone take more */
        plan.value[LEAF] *= LARGER;
    } while (status == VFDB_TOO_LARGE);
    if (status)
        return status;
    uint32_t nodes = cut_tree_nodes(tree);
    uint32_t *least = budget_take(t->budget, nodes * sizeof *least);
    uint8_t *dead = budget_take(t->budget, rules->count + 1);
    if (!least || !dead) {
        budget_give(t->budget, least, nodes * sizeof *least);
        budget_give(t->budget, dead, rules->count + 1);
        vfdb_hypercuts.free(tree);
        return VFDB_NO_MEMORY;
    }
    cut_tree_least(tree, least);
    if (t->tree)
        vfdb_hypercuts.free(t->tree);
    budget_give(t->budget, t->least, t->nodes * sizeof *least);
    budget_give(t->budget, t->dead, t->count + 1);
    t->tree = tree;
    t->nodes = nodes;
    t->least = least;
    t->dead = dead;
    t->count = rules->count;
    t->dead_count = 0;
    t->rebuild_at = rules->count / STALE_SHARE > STALE ? rules->count / STALE_SHARE : STALE;
    return VFDB_OK;
}

int conflict_tree_start(struct conflict_tree *t, struct budget *budget, const struct vfdb_rules *rules,
                        const uint32_t *action, uint32_t leaf, uint32_t choose)
{
    *t = (struct conflict_tree){.budget = budget, .dims = rules->dims, .prune = true};
    memcpy(t->bits, rules->bits, rules->dims);
    t->plan = (struct vfdb_plan){
        .ops = &vfdb_hypercuts,
        .value = {[LEAF] = leaf, [SPFAC] = 4, [MB] = MEGABYTES, [CHOOSE] = choose}};
    int status = grow(t, rules);
    if (status == VFDB_OK && action && rules->count) {
        t->action = budget_take(budget, rules->count * sizeof *action);
        if (t->action)
            memcpy(t->action, action, rules->count * sizeof *action);
        else
            status = VFDB_NO_MEMORY;
    }
    if (status)
        conflict_tree_free(t);
    return status;
}

static void drop_pending(struct conflict_tree *t)
{
    budget_give(t->budget, t->pending_priority, t->room * sizeof *t->pending_priority);
    budget_give(t->budget, t->pending_box, t->room * box_bytes(t));
    t->pending_priority = t->pending_box = NULL;
    t->pending = t->room = 0;
}

void conflict_tree_free(struct conflict_tree *t)
{
    if (!t->tree)
        return;
    vfdb_hypercuts.free(t->tree);
    t->tree = NULL;
    drop_pending(t);
    budget_give(t->budget, t->least, t->nodes * sizeof *t->least);
    budget_give(t->budget, t->dead, t->count + 1);
    if (t->action)
        budget_give(t->budget, t->action, t->count * sizeof *t->action);
}

static inline uint32_t better(uint32_t one, uint32_t two)
{
    return one < two ? one : two;
}

static struct conflict among_pending(const struct conflict_tree *t, const uint32_t *box, uint32_t action)
{
    struct conflict found = {VFDB_NONE, VFDB_NONE, 0};
    for (uint32_t i = 0; i < t->pending; i++) {
        const uint32_t *rule = t->pending_box + (size_t)i * 2 * t->dims;
        uint32_t priority = t->pending_priority[i];
        if (!conflict_meets(t->dims, box, rule))
            continue;
        if (priority != action)
            found.conflict = better(found.conflict, priority);
        else if (conflict_inside(t->dims, box, rule))
            found.match = better(found.match, priority);
    }
    return found;
}

/* Algorithm 1, lines 2 to 16. */
static void read_leaf(const struct conflict_tree *t, const struct leaves *leaves,
                      const struct cut_tree_leaf *leaf, const uint32_t *box, uint32_t action,
                      struct conflict *found)
{
    for (uint32_t i = 0; i < leaf->count; i++) {
        uint32_t rule = leaf->entry[i] & ~(uint32_t)LEAF_COVERS, priority = leaves->priority[rule];
        if (priority > better(found->match, found->conflict))
            return;
        const uint32_t *sides = leaves_box(leaves, rule);
        if (!conflict_meets(t->dims, box, sides))
            continue;
        if (t->dead[rule] || (t->action ? t->action[rule] : priority) != action) {
            found->conflict = priority;
            return;
        }
        if (conflict_inside(t->dims, box, sides)) {
            found->match = priority;
            return;
        }
    }
}

/* The best match in the leaf of a point of the box; false: there is none, or a conflict is better. */
static bool match_at(const struct conflict_tree *t, const uint32_t *box, uint32_t action,
                     const uint32_t *point, struct conflict *found)
{
    const struct leaves *leaves = cut_tree_leaves(t->tree);
    struct cut_tree_walk walk;
    struct cut_tree_leaf leaf;
    uint32_t sides[2 * VFDB_DIMS];
    for (uint32_t d = 0; d < t->dims; d++)
        sides[2 * d] = sides[2 * d + 1] = point[d];
    cut_tree_walk_start(&walk, t->tree, t->least, sides);
    if (!cut_tree_walk_next(&walk, VFDB_NONE, &leaf))
        leaf.count = 0;
    found->leaves++;
    for (uint32_t i = 0; i < leaf.count; i++) {
        uint32_t rule = leaf.entry[i] & ~(uint32_t)LEAF_COVERS, priority = leaves->priority[rule];
        const uint32_t *other = leaves_box(leaves, rule);
        if (priority > better(found->match, found->conflict))
            break;
        if (!conflict_meets(t->dims, box, other))
            continue;
        if (t->dead[rule] || (t->action ? t->action[rule] : priority) != action)
            found->conflict = priority;
        else if (conflict_inside(t->dims, box, other))
            found->match = priority;
    }
    return found->match < found->conflict;
}

struct conflict conflict_find(const struct conflict_tree *t, const uint32_t *box, uint32_t action,
                              uint32_t floor, const uint32_t *point)
{
    const struct leaves *leaves = cut_tree_leaves(t->tree);
    struct conflict found = among_pending(t, box, action);
    struct cut_tree_walk walk;
    struct cut_tree_leaf leaf;
    if (t->prune && found.conflict < floor)
        return found;
    if (t->prune && point && action != VFDB_NONE && !match_at(t, box, action, point, &found))
        return found;
    cut_tree_walk_start(&walk, t->tree, t->prune ? t->least : NULL, box);
    while (cut_tree_walk_next(&walk, better(found.match, found.conflict), &leaf)) {
        found.leaves++;
        read_leaf(t, leaves, &leaf, box, action, &found);
        if (t->prune && found.conflict < floor)
            break;
    }
    return found;
}

uint32_t conflict_classify(const struct conflict_tree *t, const uint32_t *header, uint32_t *priority)
{
    vfdb_hypercuts.search(t->tree, header, 1, priority);
    if (!t->action || *priority == VFDB_NONE)
        return *priority;
    return t->action[lower_bound(cut_tree_leaves(t->tree)->priority, 1, t->count, *priority)];
}

int conflict_insert(struct conflict_tree *t, const uint32_t *box, uint32_t priority)
{
    if (t->pending == t->room) {
        uint32_t room = t->room ? 2 * t->room : STALE;
        uint32_t *priorities = budget_take(t->budget, room * sizeof *priorities);
        uint32_t *boxes = budget_take(t->budget, room * box_bytes(t));
        if (!priorities || !boxes) {
            budget_give(t->budget, priorities, room * sizeof *priorities);
            budget_give(t->budget, boxes, room * box_bytes(t));
            return VFDB_NO_MEMORY;
        }
        uint32_t kept = t->pending;
        if (kept) {
            memcpy(priorities, t->pending_priority, kept * sizeof *priorities);
            memcpy(boxes, t->pending_box, kept * box_bytes(t));
        }
        drop_pending(t);
        t->pending = kept;
        t->room = room;
        t->pending_priority = priorities;
        t->pending_box = boxes;
    }
    t->pending_priority[t->pending] = priority;
    memcpy(t->pending_box + (size_t)t->pending++ * 2 * t->dims, box, box_bytes(t));
    return VFDB_OK;
}

void conflict_remove(struct conflict_tree *t, const uint32_t *box, uint32_t priority)
{
    const struct leaves *leaves = cut_tree_leaves(t->tree);
    uint32_t *boxes = t->pending_box;
    for (uint32_t i = 0; i < t->pending; i++)
        if (t->pending_priority[i] == priority &&
            !memcmp(boxes + (size_t)i * 2 * t->dims, box, box_bytes(t))) {
            uint32_t last = --t->pending;
            t->pending_priority[i] = t->pending_priority[last];
            memmove(boxes + (size_t)i * 2 * t->dims, boxes + (size_t)last * 2 * t->dims, box_bytes(t));
            return;
        }
    uint32_t i = lower_bound(leaves->priority, 1, t->count, priority);
    while (i < t->count && leaves->priority[i] == priority &&
           (t->dead[i] || memcmp(leaves_box(leaves, i), box, box_bytes(t))))
        i++;
    if (i < t->count && leaves->priority[i] == priority) {
        t->dead[i] = 1;
        t->dead_count++;
    }
}

/* The rules that are alive, by rising priority: those of the tree and the pending ones. */
static void gather(const struct conflict_tree *t, uint32_t *priority, uint32_t *box)
{
    const struct leaves *leaves = cut_tree_leaves(t->tree);
    uint32_t count = 0, row = 2 * t->dims;
    for (uint32_t i = 0; i < t->count; i++)
        if (!t->dead[i]) {
            priority[count] = leaves->priority[i];
            memcpy(box + (size_t)count++ * row, leaves_box(leaves, i), box_bytes(t));
        }
    for (uint32_t i = 0; i < t->pending; i++) {
        uint32_t at = lower_bound(priority, 1, count, t->pending_priority[i]);
        memmove(priority + at + 1, priority + at, (count - at) * sizeof *priority);
        memmove(box + (size_t)(at + 1) * row, box + (size_t)at * row, (count - at) * box_bytes(t));
        priority[at] = t->pending_priority[i];
        memcpy(box + (size_t)at * row, t->pending_box + (size_t)i * row, box_bytes(t));
        count++;
    }
}

void conflict_refresh(struct conflict_tree *t)
{
    if (t->pending + t->dead_count < t->rebuild_at)
        return;
    uint32_t count = t->count - t->dead_count + t->pending;
    uint32_t *priority = budget_take(t->budget, (count + 1) * sizeof *priority);
    uint32_t *box = priority ? budget_take(t->budget, (count + 1) * box_bytes(t)) : NULL;
    if (box) {
        gather(t, priority, box);
        struct vfdb_rules rules = {t->dims, count, t->bits, priority, box};
        if (grow(t, &rules) == VFDB_OK)
            drop_pending(t);
        else
            t->rebuild_at *= 2;
    }
    budget_give(t->budget, box, (count + 1) * box_bytes(t));
    budget_give(t->budget, priority, (count + 1) * sizeof *priority);
}
