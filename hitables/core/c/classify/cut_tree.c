/* Trees of equal cuts, searched in memory.
 *
 * Idea: a node cuts its region into 2^k equal parts along one dimension or two; the part is found by taking
 * bits of the header.
 * Cost: a search reads one node of eight bytes per level, and a leaf.  A build reads each node's list once
 * per part.  A tree of more than *mb* megabytes is VFDB_TOO_LARGE.
 * Invariant: the leaves below a node tile its region, and list every rule that can be the first there, by
 * rising priority.  Regions are as wide as a power of two and start at a multiple of it.
 * Threading: searches change nothing.
 *
 * Neighbouring parts share what is below them if their rules are the same and reach through both, or if they
 * are the same leaf.  Several packets go down the tree at a time, so that the misses of the cache overlap.
 */
#include "cut_tree.h"

#include <string.h>

#include "cut_tree_nodes.h"
#include "sort.h"
#include "vfdb_work.h"

enum {
    IN_FLIGHT = 16, /* packets */
    NONE = -1
};

/* Node *of* becomes a copy of node *as*, once that is complete. */
struct twin_node {
    uint32_t of, as;
};

struct cut_tree_builder {
    struct cut_tree *db;
    struct scope scope;
    struct split_stack stack;
    cut_tree_choose *choose;
    uint32_t leaf;
    double spfac;
    size_t most_bytes;
    uint64_t *key;
    struct twin_node *twin;
    size_t twins, twin_room;
    int32_t *open_of; /* [parts] in the node that is being cut: the open region of each, or NONE */
};

static uint32_t packed(uint32_t dim, uint32_t shift, uint32_t bits)
{
    return (dim << SHIFT_BITS | shift) << WIDTH_BITS | bits;
}

uint32_t cut_tree_bits_left(const struct cut_tree_region *node, uint32_t dim)
{
    uint64_t size = (uint64_t)node->region[2 * dim + 1] - node->region[2 * dim] + 1;
    return (uint32_t)__builtin_ctzll(size);
}

/* The values of a dimension that a rule holds within the region. */
struct interval {
    uint32_t low, high;
};

static struct interval clipped(const struct cut_tree_region *node, uint32_t rule, uint32_t dim)
{
    const uint32_t *box = leaves_box(node->leaves, rule) + 2 * dim, *side = node->region + 2 * dim;
    return (struct interval){box[0] > side[0] ? box[0] : side[0], box[1] < side[1] ? box[1] : side[1]};
}

uint32_t cut_tree_distinct(const struct cut_tree_region *node, uint32_t dim)
{
    uint32_t different = 0;
    for (uint32_t i = 0; i < node->count; i++) {
        struct interval side = clipped(node, node->list[i], dim);
        node->key[i] = (uint64_t)side.low << 32 | side.high;
    }
    sort_keys(node->key, node->key + node->count, node->count, 0);
    for (uint32_t i = 0; i < node->count; i++)
        different += !i || node->key[i] != node->key[i - 1];
    return different;
}

struct cut_tree_range cut_tree_range(const struct cut_tree_region *node, uint32_t rule,
                                     const struct node_cut *cut, uint32_t i)
{
    if (!cut->bits[i])
        return (struct cut_tree_range){0, 0};
    uint32_t shift = cut_tree_bits_left(node, cut->dim[i]) - cut->bits[i], mask = (1U << cut->bits[i]) - 1;
    struct interval side = clipped(node, rule, cut->dim[i]);
    return (struct cut_tree_range){side.low >> shift & mask, side.high >> shift & mask};
}

uint64_t cut_tree_copies(const struct cut_tree_region *node, const struct node_cut *cut)
{
    uint64_t copies = 0;
    uint32_t shift[CUT_TREE_DIMS];
    for (uint32_t i = 0; i < CUT_TREE_DIMS; i++)
        shift[i] = cut_tree_bits_left(node, cut->dim[i]) - cut->bits[i];
    for (uint32_t rule = 0; rule < node->count; rule++) {
        uint64_t parts = 1;
        for (uint32_t i = 0; i < CUT_TREE_DIMS; i++)
            if (cut->bits[i]) {
                struct interval side = clipped(node, node->list[rule], cut->dim[i]);
                parts *= (side.high >> shift[i]) - (side.low >> shift[i]) + UINT64_C(1);
            }
        copies += parts;
    }
    return copies;
}

void cut_tree_free(void *built)
{
    struct cut_tree *db = built;
    struct budget *budget = db->budget;
    scope_empty(&db->scope);
    budget_give(budget, db, sizeof *db);
}

static int nodes_new(struct cut_tree *db, uint32_t count, uint32_t *first)
{
    if (count > db->room - db->nodes) {
        uint64_t room = 2 * (uint64_t)db->room + count;
        struct cut_tree_node *moved =
            room >= IS_LEAF ? NULL : scope_resize(&db->scope, db->node, room * sizeof *moved);
        if (!moved)
            return room >= IS_LEAF ? VFDB_TOO_LARGE : VFDB_NO_MEMORY;
        db->node = moved;
        db->room = (uint32_t)room;
    }
    *first = db->nodes;
    db->nodes += count;
    return VFDB_OK;
}

static int twin_new(struct cut_tree_builder *b, uint32_t of, uint32_t as)
{
    if (b->twins == b->twin_room) {
        struct twin_node *moved = scope_resize(&b->scope, b->twin, 2 * b->twin_room * sizeof *moved);
        if (!moved)
            return VFDB_NO_MEMORY;
        b->twin = moved;
        b->twin_room *= 2;
    }
    b->twin[b->twins++] = (struct twin_node){of, as};
    return VFDB_OK;
}

/* Whether all rules of an open region span it along the dimensions that are cut. */
static bool reaches_through(const struct cut_tree_builder *b, const struct open_region *open,
                            const uint32_t *region, const struct node_cut *cut)
{
    for (uint32_t i = 0; i < open->count; i++)
        for (uint32_t k = 0; k < CUT_TREE_DIMS; k++) {
            const uint32_t *side = region + 2 * cut->dim[k];
            const uint32_t *box = leaves_box(&b->db->leaves, b->stack.list[open->list + i]) + 2 * cut->dim[k];
            if (cut->bits[k] && (box[0] > side[0] || box[1] < side[1]))
                return false;
        }
    return true;
}

/* Whether the last rule of an open region covers it. */
static bool is_closed(const struct cut_tree_builder *b, const struct open_region *open,
                      const uint32_t *region)
{
    return open->count &&
           box_covers_in(b->db->leaves.dims,
                         leaves_box(&b->db->leaves, b->stack.list[open->list + open->count - 1]), region,
                         region);
}

/* Whether the open region pushed last needs no node of its own beside number *other*. */
static bool is_twin(const struct cut_tree_builder *b, uint32_t other, const struct node_cut *cut)
{
    const struct split_stack *p = &b->stack;
    const struct open_region *one = &p->open[other], *two = &p->open[p->count - 1];
    size_t row = 2 * (size_t)b->db->leaves.dims;
    const uint32_t *here = p->region + other * row, *there = p->region + (p->count - 1) * row;
    if (one->count != two->count ||
        memcmp(p->list + one->list, p->list + two->list, one->count * sizeof *p->list))
        return false;
    if (one->count <= b->leaf && is_closed(b, one, here) == is_closed(b, two, there))
        return true;
    return reaches_through(b, one, here, cut) && reaches_through(b, two, there, cut);
}

static void pop_last(struct split_stack *p)
{
    p->listed = p->open[--p->count].list;
}

/* The node and the open region of part number *part*. */
static int make_part(struct cut_tree_builder *b, const struct open_region *open, uint32_t first,
                     uint32_t part, const struct node_cut *cut, const uint32_t *region)
{
    struct split_stack *p = &b->stack;
    uint32_t row = 1U << cut->bits[1];
    int status = split_stack_push(p, first + part, open, region);
    b->open_of[part] = NONE;
    if (status)
        return status;
    if (!p->open[p->count - 1].count) {
        pop_last(p);
        b->db->node[first + part] = (struct cut_tree_node){0, IS_LEAF};
        return VFDB_OK;
    }
    int32_t beside = part % row ? b->open_of[part - 1] : NONE,
            above = part >= row ? b->open_of[part - row] : NONE;
    for (uint32_t i = 0; i < 2; i++) {
        int32_t other = i ? above : beside;
        if (other != NONE && is_twin(b, (uint32_t)other, cut)) {
            pop_last(p);
            b->open_of[part] = other;
            return twin_new(b, first + part, p->open[other].node);
        }
    }
    b->open_of[part] = (int32_t)p->count - 1;
    return VFDB_OK;
}

static int make_cuts(struct cut_tree_builder *b, const struct open_region *open, uint32_t *region,
                     const struct node_cut *cut)
{
    struct cut_tree *db = b->db;
    uint32_t first, shift[CUT_TREE_DIMS], low[CUT_TREE_DIMS], how[CUT_TREE_DIMS];
    struct cut_tree_region node = {.region = region};
    int status = nodes_new(db, 1U << (cut->bits[0] + cut->bits[1]), &first);
    if (status)
        return status;
    for (uint32_t i = 0; i < CUT_TREE_DIMS; i++) {
        shift[i] = cut->bits[i] ? cut_tree_bits_left(&node, cut->dim[i]) - cut->bits[i] : 0;
        low[i] = region[2 * cut->dim[i]];
        how[i] = packed(cut->dim[i], shift[i], cut->bits[i]);
    }
    db->node[open->node] = (struct cut_tree_node){first, how[0] << ONE_BITS | how[1]};
    for (uint32_t part = 0; !status && part < 1U << (cut->bits[0] + cut->bits[1]); part++) {
        uint32_t number[CUT_TREE_DIMS] = {part >> cut->bits[1], part & ((1U << cut->bits[1]) - 1)};
        for (uint32_t i = 0; i < CUT_TREE_DIMS; i++)
            if (cut->bits[i]) {
                region[2 * cut->dim[i]] = low[i] + (number[i] << shift[i]);
                region[2 * cut->dim[i] + 1] = low[i] + (number[i] << shift[i]) + ((1U << shift[i]) - 1);
            }
        status = split_stack_room(&b->stack, open->count);
        if (!status)
            status = make_part(b, open, first, part, cut, region);
    }
    return status;
}

/* Make the node of an open region, and push its parts. */
static int split_node(void *builder, const struct open_region *open, uint32_t *region)
{
    struct cut_tree_builder *b = builder;
    struct cut_tree *db = b->db;
    struct node_cut cut = {{0}, {0}};
    struct cut_tree_region node = {&db->leaves, b->stack.list + open->list, region, open->count, b->spfac,
                                   b->key};
    int status;
    if (open->count <= b->leaf || !b->choose(&node, &cut)) {
        db->node[open->node].how = IS_LEAF | open->count;
        status = leaves_add(&db->leaves, node.list, open->count, region, &db->node[open->node].first);
    } else {
        status = make_cuts(b, open, region, &cut);
    }
    if (db->nodes * sizeof *db->node + db->leaves.entries * sizeof *db->leaves.entry > b->most_bytes)
        return VFDB_TOO_LARGE;
    return status;
}

static int grow_tree(struct cut_tree_builder *b, const struct vfdb_rules *rules)
{
    struct cut_tree *db = b->db;
    int status = leaves_start(&db->leaves, &db->scope, rules);
    if (!status)
        status = split_stack_start(&b->stack, &b->scope, &db->leaves, rules);
    if (status)
        return status;
    b->twin_room = db->room = 64;
    b->key = scope_take(&b->scope, 2 * (size_t)rules->count * sizeof *b->key);
    b->twin = scope_take(&b->scope, b->twin_room * sizeof *b->twin);
    b->open_of = scope_take(&b->scope, (sizeof *b->open_of) << CUT_TREE_BITS);
    db->node = scope_take(&db->scope, db->room * sizeof *db->node);
    if (!b->key || !b->twin || !b->open_of || !db->node)
        return VFDB_NO_MEMORY;
    db->nodes = 1;
    status = split_stack_grow(&b->stack, &db->leaves, split_node, b);
    struct cut_tree_node *node = status ? NULL : scope_resize(&db->scope, db->node, db->nodes * sizeof *node);
    if (!node)
        return status ? status : VFDB_NO_MEMORY;
    db->node = node;
    for (size_t i = 0; i < b->twins; i++)
        node[b->twin[i].of] = node[b->twin[i].as];
    return VFDB_OK;
}

/* The build of both classifiers, which give how they cut. */
int cut_tree_build(struct budget *budget, const struct vfdb_plan *plan, const struct vfdb_rules *rules,
                   cut_tree_choose *choose, void **built)
{
    struct cut_tree *db = budget_take(budget, sizeof *db);
    if (!db)
        return VFDB_NO_MEMORY;
    *db = (struct cut_tree){.budget = budget, .scope.budget = budget};
    struct cut_tree_builder b = {.db = db,
                                 .scope.budget = budget,
                                 .choose = choose,
                                 .leaf = (uint32_t)plan->value[0],
                                 .spfac = (double)plan->value[1],
                                 .most_bytes = (size_t)plan->value[2] << 20};
    int status = grow_tree(&b, rules);
    scope_empty(&b.scope);
    if (status)
        cut_tree_free(db);
    else
        *built = db;
    return status;
}

VFDB_BODY int go_down(const struct cut_tree *db, const uint32_t *headers, size_t count, uint32_t *answers,
                      struct vfdb_work *work, bool counted)
{
    const struct cut_tree_node *node = db->node;
    uint32_t dims = db->leaves.dims, flying = count < IN_FLIGHT ? (uint32_t)count : IN_FLIGHT;
    uint32_t at[IN_FLIGHT] = {0};
    size_t packet[IN_FLIGHT], next = flying;
    for (uint32_t i = 0; i < flying; i++)
        packet[i] = i;
    while (flying)
        for (uint32_t i = 0; i < flying; i++) {
            const uint32_t *header = headers + packet[i] * dims;
            struct cut_tree_node here = node[at[i]];
            if (counted)
                work[packet[i]].nodes++;
            if (!(here.how & IS_LEAF)) {
                uint32_t part =
                    part_of(here.how >> ONE_BITS, header) << width_of(here.how) | part_of(here.how, header);
                at[i] = here.first + part;
                __builtin_prefetch(node + at[i]);
                continue;
            }
            if (counted)
                work[packet[i]].lists++;
            answers[packet[i]] = leaf_read(&db->leaves, here.first, here.how & ~(uint32_t)IS_LEAF, header,
                                           counted ? &work[packet[i]] : NULL);
            at[i] = 0;
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

int cut_tree_search(const void *built, const uint32_t *headers, size_t count, uint32_t *answers)
{
    return go_down(built, headers, count, answers, NULL, false);
}

int cut_tree_search_counted(const void *built, const uint32_t *headers, size_t count, uint32_t *answers,
                            struct vfdb_work *work)
{
    return go_down(built, headers, count, answers, work, true);
}
