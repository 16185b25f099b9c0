/* Trees of grids: how nodes are split, and how grids are printed.
 *
 * Idea: a node of too many rules is cut along one axis or several into equal parts, as its builder chooses
 * (grid_choices.c, grid_cells.c).  Printed, a grid becomes tests, each of which halves what is left along one
 * axis; no test separates neighbours that are one node, and a leaf to which several tests lead is a chain of
 * its own.  Rules must be read in list order, so common rules are kept above the parts only if they precede
 * all others of the node.  (Trees that are searched in memory are classify/cut_tree.c.)
 * Cost: that of the cells of each node.
 * Invariant: a point that reaches a node finds all rules of the node that it meets; a point outside all parts
 * of a grid meets none, so any part may take it.  Entries and decisions never exceed the budget, and the
 * tests taken on a path never exceed max_nesting.
 * Threading: none; lists of boxes live in two arenas of the growth, all else in the space's arena or scratch.
 */
#include "cut_grid.h"

#include <string.h>

/* What a grid is printed as: tests that halve the parts along one axis after the other. */

struct grid_printer {
    struct grid_growth *growth;
    const struct grid_node *node;
    bool writes; /* make nodes; else count alone */
    bool failed;
    uint64_t printed; /* decisions, jumps to shared nodes, copies of short ones */
    uint32_t deepest; /* tests taken to a part, at most */
};

static bool same_parts(const struct grid_node *node, uint32_t one, uint32_t two, uint32_t size)
{
    return !memcmp(node->part + one, node->part + two, size * sizeof *node->part);
}

static struct build_node *output_new(struct grid_printer *w)
{
    struct build_node *output = node_new(w->growth->space);
    w->failed |= !output;
    return output;
}

/* The node that leads to a part; *taken*: a test jumps to it, else it follows in line. */
static struct build_node *print_part(struct grid_printer *w, struct grid_node *part, bool taken,
                                     uint32_t nesting)
{
    bool copied = part->refs > 1 && !taken && part->rules;
    if (!w->writes) {
        uint32_t deep = nesting + (copied && part->rules > 1);
        w->printed += copied;
        if (part->nesting < deep)
            part->nesting = deep;
        w->deepest = w->deepest > deep ? w->deepest : deep;
        return NULL;
    }
    if (!copied)
        return part->rules ? part->output : output_new(w);
    struct build_node *output = output_new(w);
    if (w->failed)
        return NULL;
    if (part->rules > 1) {
        output->then = part->output;
    } else {
        output->entries = part->entries;
        output->entry = part->entry;
    }
    return output;
}

/* Tests for *parts* parts of cut number *level* from *from* on; *cell*: where their cells start.  *visit*:
 * first, to count who leads where. */
static struct build_node *print_cut(struct grid_printer *w, uint32_t level, uint32_t cell, uint32_t from,
                                    uint32_t parts, bool taken, uint32_t nesting, bool visit)
{
    const struct grid_node *node = w->node;
    const struct cut *cut = &node->plan->cut[level];
    if (level == node->plan->cuts) {
        if (visit) {
            node->part[cell]->refs++;
            return NULL;
        }
        return print_part(w, node->part[cell], taken, nesting);
    }
    uint32_t size = 1;
    for (uint32_t c = level + 1; c < node->plan->cuts; c++)
        size *= node->plan->cut[c].parts;
    bool same = true;
    for (uint32_t i = 1; i < parts && same; i++)
        same = same_parts(node, cell + from * size, cell + (from + i) * size, size);
    if (same) {
        uint32_t next = level + 1 < node->plan->cuts ? node->plan->cut[level + 1].parts : 1;
        return print_cut(w, level + 1, cell + from * size, 0, next, taken, nesting, visit);
    }
    uint32_t half = parts / 2;
    struct build_node *low = print_cut(w, level, cell, from, half, true, nesting + 1, visit);
    struct build_node *high = print_cut(w, level, cell, from + half, parts - half, false, nesting, visit);
    w->printed++;
    if (!w->writes || w->failed)
        return NULL;
    struct build_node *output = output_new(w);
    struct branch *branch = arena_take(w->growth->space->arena, 2 * sizeof *branch);
    if (!branch || !output) {
        w->failed = true;
        return NULL;
    }
    u128 first = cut->low + ((u128)from << cut->shift), middle = first + ((u128)half << cut->shift);
    u128 last = cut->low + (((u128)(from + parts - 1) << cut->shift) + (((u128)1 << cut->shift) - 1));
    branch[0] = (struct branch){first, middle - 1, low};
    branch[1] = (struct branch){middle, last, high};
    output->kind = TREE_TEST;
    output->axis = cut->axis;
    output->branches = 2;
    output->branch = branch;
    return output;
}

/* How the grid of the node prints: decisions and the like, and how deep. */
static struct grid_printer print_count(struct grid_growth *p, struct grid_node *node)
{
    struct grid_printer w = {.growth = p, .node = node};
    for (uint32_t c = 0; c < node->cells; c++)
        node->part[c]->refs = node->part[c]->nesting = 0;
    print_cut(&w, 0, 0, 0, node->plan->cut[0].parts, true, node->nesting, true);
    w.printed = 0;
    print_cut(&w, 0, 0, 0, node->plan->cut[0].parts, true, node->nesting, false);
    return w;
}

/* Put the node's new parts into the queue. */
static void enqueue(struct grid_growth *p, struct grid_node *node)
{
    for (uint32_t c = 0; c < node->cells; c++) {
        struct grid_node *part = node->part[c];
        if (!part->boxes || part->number)
            continue;
        part->number = 1;
        grid_node_compact(p->space, part);
        p->last->next = part;
        p->last = part;
    }
}

static bool grid_fits(struct grid_growth *p, struct grid_node *node)
{
    uint64_t listed = node->entries;
    struct grid_printer w = print_count(p, node);
    for (uint32_t c = 0; c < node->cells; c++) {
        struct grid_node *part = node->part[c];
        if (part->refs) { /* each once */
            listed += part->rules;
            part->refs = 0;
        }
    }
    if (w.deepest > p->max_nesting || p->printed - node->rules + listed + w.printed > p->budget)
        return false;
    p->printed += listed + w.printed - node->rules;
    print_count(p, node); /* the links are read again when it is printed */
    return true;
}

/* Whether parts differ, and some part has less to list. */
static bool grid_helps(const struct grid_node *node)
{
    bool less = false, differ = false;
    for (uint32_t c = 0; c < node->cells; c++) {
        less |= node->part[c]->boxes < node->boxes;
        differ |= node->part[c] != node->part[0];
    }
    return less && differ;
}

/* Fewer parts along the cut that has most. */
static bool plan_shrinks(struct grid_growth *p, struct grid_node *node)
{
    struct grid_plan *plan = node->plan;
    uint32_t most = 0;
    for (uint32_t c = 1; c < plan->cuts; c++)
        if (plan->cut[c].parts > plan->cut[most].parts)
            most = c;
    uint32_t parts = 1u << (plan->cut[most].parts > 2 ? floor_log2(plan->cut[most].parts - 1) : 0);
    plan->cut[most] = cut_into(p->space, node->region, plan->cut[most].axis, parts);
    if (plan->cut[most].parts < 2)
        plan->cut[most] = plan->cut[--plan->cuts];
    return plan->cuts > 0;
}

static enum tree_status split_grid(struct grid_growth *p, struct grid_node *node)
{
    do {
        if (!grid_node_cut(p, node))
            return TREE_NO_MEMORY;
        if (!grid_helps(node))
            break;
        if (grid_fits(p, node)) {
            enqueue(p, node);
            return TREE_OK;
        }
    } while (plan_shrinks(p, node));
    node->plan->kind = PLAN_LEAF;
    return TREE_OK;
}

/* One side of a test. */
static struct grid_node *test_side(struct grid_growth *p, const struct grid_node *from, bool inside)
{
    const struct probe *probe = &from->plan->probe;
    struct grid_node *to = grid_node_new(p, from->region);
    if (!to)
        return NULL;
    (inside ? region_inside : region_outside)(p->space, from->region, probe, to->region);
    to->holes = from->holes;
    if (!inside && !(to->holes = hole_new(p->space, from->holes, probe)))
        return NULL;
    bool alive = range_trim(p->space, to->holes, probe->axis, &to->region[probe->axis]);
    uint32_t boxes = 0;
    for (uint32_t i = 0; i < from->boxes; i++) {
        struct rank_range ranks = box_ranks(p->space, from->box[i], probe->axis);
        bool here = inside ? probe_meets(probe, ranks) : probe_is_left(probe, ranks);
        if (here && range_meets(&to->region[probe->axis], alive, ranks))
            p->listed[boxes++] = from->box[i];
    }
    to->nesting = from->nesting + inside;
    boxes = list_shown(p->space, p->listed, boxes, to->region);
    return grid_node_list(p, to, p->listed, boxes) ? to : NULL;
}

static enum tree_status split_test(struct grid_growth *p, struct grid_node *node)
{
    struct grid_node *taken = test_side(p, node, true), *other = taken ? test_side(p, node, false) : NULL;
    if (!other || !(node->part = arena_take(p->space->arena, 2 * sizeof *node->part)))
        return TREE_NO_MEMORY;
    uint64_t printed = p->printed - node->rules + taken->rules + other->rules + 1;
    if (printed > p->budget) {
        node->plan->kind = PLAN_LEAF;
        return TREE_OK;
    }
    p->printed = printed;
    node->part[0] = taken;
    node->part[1] = other;
    node->cells = 2;
    enqueue(p, node);
    return TREE_OK;
}

static bool leaf_holds(struct grid_growth *p, struct grid_node *node)
{
    const int32_t *rule = p->space->in->rule;
    node->entries = node->cells = 0;
    node->entry = arena_take(p->space->arena, node->rules * sizeof *node->entry);
    for (uint32_t i = 0; node->entry && i < node->boxes; i++)
        if (!i || rule[node->box[i]] != rule[node->box[i - 1]])
            node->entry[node->entries++] = (uint32_t)rule[node->box[i]];
    return node->entry != NULL;
}

static enum tree_status split(struct grid_growth *p, struct grid_node *node)
{
    enum tree_status status = TREE_OK;
    node->plan = &p->plan;
    p->plan = (struct grid_plan){.kind = PLAN_LEAF};
    if (node->rules > p->leaf_size && node->rules > 1 && node->nesting < p->max_nesting)
        p->builder->choose(p, node, node->plan);
    if (p->plan.kind == PLAN_TEST)
        status = split_test(p, node);
    else if (p->plan.kind == PLAN_GRID)
        status = split_grid(p, node);
    if (status != TREE_OK)
        return status;
    if (p->plan.kind != PLAN_GRID)
        p->plan.cuts = 0;
    size_t size = offsetof(struct grid_plan, cut) + p->plan.cuts * sizeof *p->plan.cut;
    node->plan = arena_take(p->space->arena, size);
    if (!node->plan || (p->plan.kind == PLAN_LEAF && !leaf_holds(p, node)))
        return TREE_NO_MEMORY;
    memcpy(node->plan, &p->plan, size);
    return TREE_OK;
}

/* Split all nodes, level by level, so that a budget that runs out leaves a tree of even depth.  Lists of a
 * level are given back when the next one is done. */
static enum tree_status grow(struct grid_growth *p)
{
    struct space *space = p->space;
    size_t boxes = space->in->boxes;
    struct range region[TREE_AXES];
    region_all(space, region);
    p->key = arena_take(space->arena, (boxes + 1) * sizeof *p->key);
    p->spare = arena_take(space->arena, (boxes + 1) * sizeof *p->spare);
    p->listed = arena_take(space->arena, (boxes + 1) * sizeof *p->listed);
    p->later = arena_new(p->memory);
    p->empty = p->later ? grid_node_new(p, region) : NULL;
    p->first = p->last = p->empty ? grid_node_new(p, region) : NULL;
    if (!p->key || !p->spare || !p->listed || !p->first)
        return TREE_NO_MEMORY;
    for (uint32_t i = 0; i < boxes; i++)
        p->listed[i] = i;
    uint32_t listed = list_shown(space, p->listed, (uint32_t)boxes, region);
    if (!grid_node_list(p, p->first, p->listed, listed))
        return TREE_NO_MEMORY;
    grid_node_compact(space, p->first);
    p->printed = p->first->rules;
    for (struct grid_node *node = p->first; node; node = node->next) {
        struct grid_node *end = p->last;
        arena_free(p->list);
        p->list = p->later;
        p->later = arena_new(p->memory);
        if (!p->later)
            return TREE_NO_MEMORY;
        enum tree_status status = split(p, node);
        while (status == TREE_OK && node != end)
            status = split(p, node = node->next);
        size_t bytes = arena_bytes(space->arena) + arena_bytes(p->list) + arena_bytes(p->later);
        if (status == TREE_OK && p->memory && bytes > p->memory)
            status = TREE_NO_MEMORY;
        if (status != TREE_OK)
            return status;
    }
    return TREE_OK;
}

static void growth_free(struct grid_growth *p)
{
    arena_free(p->list);
    arena_free(p->later);
}

/* Printed. */

static bool grid_node_print(struct grid_growth *p, struct grid_node *node)
{
    struct build_node *output = node->output;
    output->entries = node->entries;
    output->entry = node->entry;
    if (node->plan->kind == PLAN_LEAF)
        return true;
    if (node->plan->kind == PLAN_TEST) {
        const struct probe *probe = &node->plan->probe;
        u128 low = p->space->in->axis[probe->axis].optional, high = p->space->line[probe->axis].top;
        output->branch = arena_take(p->space->arena, 2 * sizeof *output->branch);
        if (!output->branch)
            return false;
        output->branch[0] = (struct branch){probe->low, probe->high, node->part[0]->output};
        output->branch[1] = (struct branch){low, high, node->part[1]->output};
        output->kind = TREE_TEST;
        output->axis = probe->axis;
        output->branches = 2;
        return true;
    }
    struct grid_printer w = {.growth = p, .node = node, .writes = true};
    struct build_node *tests = print_cut(&w, 0, 0, 0, node->plan->cut[0].parts, true, 0, false);
    if (w.failed)
        return false;
    /* Not all parts are one, so this is a test of its own, which nothing else leads to. */
    *output = *tests;
    output->entries = node->entries;
    output->entry = node->entry;
    return true;
}

enum tree_status cut_grid_print(struct space *space, const struct tree_options *options,
                                const struct grid_builder *builder, struct build_node **root)
{
    struct grid_growth growth = {
        .space = space,
        .builder = builder,
        .leaf_size = options->leaf_size,
        .spfac = options->spfac,
        .budget = options->budget,
        .max_nesting = options->max_nesting,
        .memory = options->memory,
    };
    enum tree_status status = grow(&growth);
    for (struct grid_node *node = growth.first; status == TREE_OK && node; node = node->next)
        if (!grid_node_print(&growth, node))
            status = TREE_NO_MEMORY;
    if (status == TREE_OK)
        *root = growth.first->output;
    growth_free(&growth);
    return status;
}
