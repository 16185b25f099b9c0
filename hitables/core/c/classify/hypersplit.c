/* HyperSplit (Qi, Xu, Yang, Xue and Li, INFOCOM 2009).
 *
 * Idea: a binary tree whose nodes compare one dimension with one value.  A node's rules cut each dimension
 * into segments; the dimension whose segments hold fewest rules on the average is split where half of all
 * rules, counted per segment, lie on either side.
 * Cost: a search takes a comparison per level, then reads a leaf of at most *leaf* rules.  A build sorts the
 * ends of each node's rules; rules that lie on both sides are copied, so overlap costs memory: a tree of more
 * than *mb* megabytes is VFDB_TOO_LARGE.
 * Invariant: the leaves below a node tile its box, and a leaf lists every rule that meets it, by rising
 * priority, up to the first that covers it.
 * Threading: searches change nothing.
 *
 * Where we differ from the paper: its leaves hold one rule; longer ones take a part of the memory at nearly
 * the speed.  Short lists lose the rules that an earlier one covers within the node's box.  Several packets
 * go down the tree at a time, so that the misses of the cache overlap.
 */
#include "scope.h"
#include "budget.h"
#include "split_stack.h"
#include "sort.h"
#include "vfdb.h"
#include "vfdb_work.h"

enum {
    LEAF = 31,          /* in place of a dimension */
    DIM_BITS = 5,
    MOST_NODES = 1 << (32 - DIM_BITS),
    IN_FLIGHT = 16      /* packets */
};

/* Of a leaf, *to* is the number of its entries, from *value* on. */
struct hypersplit_node {
    uint32_t value; /* smaller values lead to node *to*, others to the next */
    uint32_t to_dim;
};

struct hypersplit {
    struct budget *budget;
    struct scope scope;
    struct leaves leaves;
    struct hypersplit_node *node;
    uint32_t nodes, room;
};

struct hypersplit_builder {
    struct hypersplit *db;
    struct scope scope;
    struct split_stack stack;
    uint32_t leaf;
    size_t most_bytes;
    uint64_t *key; /* [4 * rules] */
};

struct split_point {
    uint32_t dim, value;
};

static void hypersplit_free(void *built)
{
    struct hypersplit *db = built;
    struct budget *budget = db->budget;
    scope_empty(&db->scope);
    budget_give(budget, db, sizeof *db);
}

/* The ends of the list's rules within the region, sorted; *first* counts the rules that begin with it.  An
 * end at which one rule more begins is even, after the last value of a rule odd. */
static uint32_t ends_along(const struct hypersplit_builder *b, const uint32_t *list, uint32_t count,
                           const uint32_t *side, uint32_t dim, uint32_t *first)
{
    uint32_t keys = 0;
    *first = 0;
    for (uint32_t i = 0; i < count; i++) {
        const uint32_t *of = leaves_box(&b->db->leaves, list[i]) + 2 * dim;
        if (of[0] > side[0])
            b->key[keys++] = (uint64_t)of[0] << 1;
        else
            ++*first;
        if (of[1] < side[1])
            b->key[keys++] = (uint64_t)(of[1] + 1) << 1 | 1;
    }
    sort_keys(b->key, b->key + keys, keys, 0);
    return keys;
}

/* Segments and the rules that they hold, all counted; with *half*: the first value behind the segment that
 * makes half of them. */
static uint64_t segments(const struct hypersplit_builder *b, uint32_t keys, uint32_t rules, uint32_t *count,
                         uint64_t half, uint32_t *value)
{
    uint64_t sum = rules;
    *count = 1;
    for (uint32_t i = 0; i < keys;) {
        uint64_t at = b->key[i] >> 1;
        if (half) {
            *value = (uint32_t)at;
            if (2 * sum >= half)
                return sum;
        }
        for (; i < keys && b->key[i] >> 1 == at; i++)
            rules += b->key[i] & 1 ? -1U : 1U;
        sum += rules;
        ++*count;
    }
    return sum;
}

/* False: no rule ends within the region. */
static bool choose(const struct hypersplit_builder *b, const uint32_t *list, uint32_t count,
                   const uint32_t *region, struct split_point *split)
{
    double least = 0;
    bool any = false;
    uint32_t first, keys, some;
    for (uint32_t d = 0; d < b->db->leaves.dims; d++) {
        keys = ends_along(b, list, count, region + 2 * d, d, &first);
        double average = (double)segments(b, keys, first, &some, 0, NULL) / some;
        if (keys && (!any || average < least)) {
            least = average;
            split->dim = d;
            any = true;
        }
    }
    if (!any)
        return false;
    keys = ends_along(b, list, count, region + 2 * split->dim, split->dim, &first);
    uint64_t sum = segments(b, keys, first, &some, 0, NULL);
    segments(b, keys, first, &some, sum, &split->value);
    return true;
}

static int make_leaf(struct hypersplit_builder *b, const struct open_region *open, const uint32_t *region)
{
    struct hypersplit_node *node = &b->db->node[open->node];
    node->to_dim = open->count << DIM_BITS | LEAF;
    return leaves_add(&b->db->leaves, b->stack.list + open->list, open->count, region, &node->value);
}

static int make_split(struct hypersplit *db, uint32_t node, const struct split_point *split)
{
    if (db->nodes + 2 > db->room) {
        uint32_t room = 2 * db->room;
        struct hypersplit_node *moved =
            room > MOST_NODES ? NULL : scope_resize(&db->scope, db->node, room * sizeof *moved);
        if (!moved)
            return room > MOST_NODES ? VFDB_TOO_LARGE : VFDB_NO_MEMORY;
        db->node = moved;
        db->room = room;
    }
    db->node[node] = (struct hypersplit_node){split->value, db->nodes << DIM_BITS | split->dim};
    db->nodes += 2;
    return VFDB_OK;
}

/* Make the node of an open region, and push its halves. */
static int split_node(void *builder, const struct open_region *open, uint32_t *region)
{
    struct hypersplit_builder *b = builder;
    struct hypersplit *db = b->db;
    struct split_point split;
    int status = VFDB_OK;
    if (open->count <= b->leaf || !choose(b, b->stack.list + open->list, open->count, region, &split)) {
        status = make_leaf(b, open, region);
    } else {
        uint32_t below = db->nodes, *side = region + 2 * split.dim, low = side[0];
        status = make_split(db, open->node, &split);
        if (!status)
            status = split_stack_room(&b->stack, 2 * (size_t)open->count);
        side[0] = split.value;
        if (!status)
            status = split_stack_push(&b->stack, below + 1, open, region);
        side[0] = low;
        side[1] = split.value - 1;
        if (!status)
            status = split_stack_push(&b->stack, below, open, region);
    }
    if (db->nodes * sizeof *db->node + db->leaves.entries * sizeof *db->leaves.entry > b->most_bytes)
        return VFDB_TOO_LARGE;
    return status;
}

static int grow_tree(struct hypersplit_builder *b, const struct vfdb_rules *rules)
{
    struct hypersplit *db = b->db;
    int status = leaves_start(&db->leaves, &db->scope, rules);
    if (!status)
        status = split_stack_start(&b->stack, &b->scope, &db->leaves, rules);
    if (status)
        return status;
    b->key = scope_take(&b->scope, 4 * (size_t)rules->count * sizeof *b->key);
    db->room = 64;
    db->node = scope_take(&db->scope, db->room * sizeof *db->node);
    if (!b->key || !db->node)
        return VFDB_NO_MEMORY;
    db->nodes = 1;
    status = split_stack_grow(&b->stack, &db->leaves, split_node, b);
    struct hypersplit_node *node =
        status ? NULL : scope_resize(&db->scope, db->node, db->nodes * sizeof *node);
    if (!node)
        return status ? status : VFDB_NO_MEMORY;
    db->node = node;
    return VFDB_OK;
}

static int hypersplit_build(struct budget *budget, const struct vfdb_plan *plan,
                            const struct vfdb_rules *rules, void **built)
{
    struct hypersplit *db = budget_take(budget, sizeof *db);
    if (!db)
        return VFDB_NO_MEMORY;
    *db = (struct hypersplit){.budget = budget, .scope.budget = budget};
    struct hypersplit_builder b = {.db = db,
                                   .scope.budget = budget,
                                   .leaf = (uint32_t)plan->value[0],
                                   .most_bytes = (size_t)plan->value[1] << 20};
    int status = grow_tree(&b, rules);
    scope_empty(&b.scope);
    if (status)
        hypersplit_free(db);
    else
        *built = db;
    return status;
}

VFDB_BODY int go_down(const struct hypersplit *db, const uint32_t *headers, size_t count, uint32_t *answers,
                      struct vfdb_work *work, bool counted)
{
    const struct hypersplit_node *node = db->node, *at[IN_FLIGHT];
    uint32_t dims = db->leaves.dims, flying = count < IN_FLIGHT ? (uint32_t)count : IN_FLIGHT;
    size_t packet[IN_FLIGHT], next = flying;
    for (uint32_t i = 0; i < flying; i++) {
        packet[i] = i;
        at[i] = node;
    }
    while (flying)
        for (uint32_t i = 0; i < flying; i++) {
            const uint32_t *header = headers + packet[i] * dims;
            uint32_t dim = at[i]->to_dim & LEAF;
            if (counted)
                work[packet[i]].nodes++;
            if (dim != LEAF) {
                at[i] = node + (at[i]->to_dim >> DIM_BITS) + (header[dim] >= at[i]->value);
                __builtin_prefetch(at[i]);
                continue;
            }
            if (counted)
                work[packet[i]].lists++;
            answers[packet[i]] = leaf_read(&db->leaves, at[i]->value, at[i]->to_dim >> DIM_BITS, header,
                                           counted ? &work[packet[i]] : NULL);
            at[i] = node;
            if (next < count) {
                packet[i] = next++;
            } else {
                flying--;
                packet[i] = packet[flying];
                at[i--] = at[flying];
            }
        }
    return VFDB_OK;
}

static int hypersplit_search(const void *built, const uint32_t *headers, size_t count, uint32_t *answers)
{
    return go_down(built, headers, count, answers, NULL, false);
}

static int hypersplit_search_counted(const void *built, const uint32_t *headers, size_t count,
                                     uint32_t *answers, struct vfdb_work *work)
{
    return go_down(built, headers, count, answers, work, true);
}

const struct vfdb_ops vfdb_hypersplit = {
    .name = "hypersplit",
    .title = "a binary tree of comparisons that halve the rules",
    .least_dims = 1,
    .most_dims = VFDB_DIMS,
    .param = {{"leaf", "rules in a leaf at most", 4, 1, 1000},
              {"mb", "megabytes of tree at most", 1024, 1, 1 << 20}},
    .build = hypersplit_build,
    .search = hypersplit_search,
    .search_counted = hypersplit_search_counted,
    .free = hypersplit_free,
};
