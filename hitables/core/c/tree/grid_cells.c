/* The cells of a grid: which boxes each lists, and which cells become one node.
 *
 * Idea: the boxes of a node are counted and then listed per cell.  A rule that an earlier final rule hides
 * within a cell is left out of its list.  Cells of equal lists that are leaves, and neighbours, become one
 * node.
 * Cost: per node, its boxes times the cells that they meet, and the square of short lists.
 * Invariant: a point that lies in a cell finds all rules of the node that it meets there.
 * Threading: none; boxes of new nodes live in an arena of the growth, lists of cells in the space's scratch.
 */
#include "cut_grid.h"

#include <string.h>

enum { SHORT = 200 }; /* rules of a list up to which every rule is compared with every earlier one */

static uint32_t rules_in(const struct space *space, const uint32_t *box, uint32_t boxes)
{
    uint32_t rules = 0;
    for (uint32_t i = 0; i < boxes; i++)
        rules += !i || space->in->rule[box[i]] != space->in->rule[box[i - 1]];
    return rules;
}

/* Whether all that *later* matches in the region is matched, and ended, by *earlier*.  Along axes that are
 * never tested a rule does more than its boxes say: a match of it may drop packets that another match
 * would have let by.  So does a rule of TREE_DROPS along optional axes. */
static bool hides(const struct space *space, uint32_t earlier, uint32_t later, const struct range *region)
{
    bool drops = space->in->free[space->in->rule[later]] & TREE_DROPS;
    for (uint32_t a = 0; a < space->in->axes; a++) {
        struct rank_range x = box_ranks(space, earlier, a), y = box_ranks(space, later, a);
        if (space->in->axis[a].cut == TREE_CUT_NONE || (drops && space->in->axis[a].optional))
            y = (struct rank_range){0, UINT32_MAX};
        uint32_t low = y.low > region[a].ranks.low ? y.low : region[a].ranks.low;
        uint32_t high = y.high < region[a].ranks.high ? y.high : region[a].ranks.high;
        if (x.low > low || x.high < high || (region[a].none && x.low && !y.low))
            return false;
    }
    return true;
}

/* Drop boxes that an earlier final rule hides; what is left of their number. */
uint32_t list_shown(const struct space *space, uint32_t *box, uint32_t boxes, const struct range *region)
{
    const struct tree_boxes *in = space->in;
    uint32_t kept = 0;
    boxes = list_cut(space, box, boxes, region);
    if (boxes > SHORT)
        return boxes;
    for (uint32_t i = 0; i < boxes; i++) {
        bool hidden = false;
        for (uint32_t j = 0; j < kept && !hidden; j++)
            hidden = in->final[in->rule[box[j]]] && in->rule[box[j]] != in->rule[box[i]] &&
                     hides(space, box[j], box[i], region);
        if (!hidden)
            box[kept++] = box[i];
    }
    return kept;
}

/* Shrink the region to the hull of its boxes along the axes that grids may cut. */
void grid_node_compact(const struct space *space, struct grid_node *node)
{
    for (uint32_t a = 0; a < space->in->axes && node->boxes; a++) {
        enum tree_cut cut = space->in->axis[a].cut;
        struct range *along = &node->region[a];
        const struct line *line = &space->line[a];
        uint32_t least = space->in->axis[a].optional; /* the rank of the first value */
        struct rank_range hull = {UINT32_MAX, 0};
        bool none = false;
        if (cut != TREE_CUT_PREFIX && cut != TREE_CUT_RANGE)
            continue;
        for (uint32_t i = 0; i < node->boxes; i++) {
            struct rank_range ranks = box_ranks(space, node->box[i], a);
            none |= least && (!ranks.low || space->in->free[space->in->rule[node->box[i]]] & TREE_DROPS);
            if (ranks.low < least)
                ranks.low = least;
            hull.low = ranks.low < hull.low ? ranks.low : hull.low;
            hull.high = ranks.high > hull.high ? ranks.high : hull.high;
        }
        u128 low = line->edge[hull.low], high = line_end(line, hull.high);
        low = low > along->low ? low : along->low;
        high = high < along->high ? high : along->high;
        along->none &= none;
        if (low <= high) {
            along->low = low;
            along->high = high;
            along->ranks = (struct rank_range){line_rank(line, low), line_rank(line, high)};
        }
    }
}

struct grid_node *grid_node_new(struct grid_growth *p, const struct range *region)
{
    size_t size = p->space->in->axes * sizeof *region;
    struct grid_node *node = arena_take(p->space->arena, sizeof *node);
    if (!node || !(node->region = arena_take(p->later, size)) || !(node->output = node_new(p->space)))
        return NULL;
    memcpy(node->region, region, size);
    return node;
}

bool grid_node_list(struct grid_growth *p, struct grid_node *node, const uint32_t *box, uint32_t boxes)
{
    node->boxes = boxes;
    node->rules = rules_in(p->space, box, boxes);
    node->box = arena_take(p->later, boxes * sizeof *box);
    if (!node->box)
        return false;
    if (boxes)
        memcpy(node->box, box, boxes * sizeof *box);
    return true;
}

/* The parts of a node while they are made: one list per cell. */
struct cell_lists {
    uint32_t cells;
    uint32_t *start; /* of each list, in box[]; [cells] ends the last */
    uint32_t *boxes; /* of each list */
    uint32_t *box;
};

static void cells_free(struct scope *scratch, struct cell_lists *cells)
{
    scope_drop(scratch, cells->start);
    scope_drop(scratch, cells->boxes);
    scope_drop(scratch, cells->box);
}

/* The region of one cell: its parts as digits of *cell*. */
static void cell_region(const struct space *space, const struct grid_node *node, uint32_t cell,
                        struct range *region)
{
    memcpy(region, node->region, space->in->axes * sizeof *region);
    for (uint32_t c = node->plan->cuts; c--;) {
        const struct cut *cut = &node->plan->cut[c];
        const struct line *line = &space->line[cut->axis];
        struct range *along = &region[cut->axis];
        uint32_t part = cell % cut->parts;
        u128 low = cut->low + ((u128)part << cut->shift), high = low + (((u128)1 << cut->shift) - 1);
        cell /= cut->parts;
        along->low = low > along->low ? low : along->low;
        along->high = high < along->high ? high : along->high;
        along->none &= part + 1 == cut->parts;
        along->ranks = (struct rank_range){0, 0};
        if (along->low <= along->high)
            along->ranks = (struct rank_range){line_rank(line, along->low), line_rank(line, along->high)};
    }
}

/* Whether no value of the node's region lies in the cell. */
static bool cell_is_void(const struct grid_node *node, const struct range *region)
{
    for (uint32_t c = 0; c < node->plan->cuts; c++) {
        const struct range *along = &region[node->plan->cut[c].axis];
        if (along->low > along->high && !along->none)
            return true;
    }
    return false;
}

/* Call the cells that a box meets, in two passes: count them (box NULL), or list them. */
static void cells_meet(const struct space *space, const struct grid_node *node, uint32_t at,
                       struct cell_lists *cells, bool fill)
{
    const struct grid_plan *plan = node->plan;
    struct rank_range span[TREE_AXES];
    uint32_t digit[TREE_AXES];
    for (uint32_t c = 0; c < plan->cuts; c++) {
        uint32_t axis = plan->cut[c].axis;
        span[c] = cut_span(space, &plan->cut[c], &node->region[axis], box_ranks(space, node->box[at], axis));
        digit[c] = span[c].low;
    }
    for (;;) {
        uint32_t cell = 0, c = plan->cuts;
        for (uint32_t i = 0; i < plan->cuts; i++)
            cell = cell * plan->cut[i].parts + digit[i];
        if (fill)
            cells->box[cells->start[cell] + cells->boxes[cell]] = node->box[at];
        cells->boxes[cell]++;
        while (c && digit[c - 1] == span[c - 1].high) {
            c--;
            digit[c] = span[c].low;
        }
        if (!c)
            return;
        digit[c - 1]++;
    }
}

/* The lists of all cells, hidden rules left out. */
static bool cells_fill(struct space *space, const struct grid_node *node, struct cell_lists *cells)
{
    size_t total = 0;
    *cells = (struct cell_lists){.cells = 1};
    for (uint32_t c = 0; c < node->plan->cuts; c++)
        cells->cells *= node->plan->cut[c].parts;
    cells->start = scope_take(&space->scratch, (cells->cells + 1) * sizeof *cells->start);
    cells->boxes = scope_take(&space->scratch, cells->cells * sizeof *cells->boxes);
    if (!cells->start || !cells->boxes)
        return false;
    for (uint32_t i = 0; i < node->boxes; i++)
        cells_meet(space, node, i, cells, false);
    for (uint32_t c = 0; c < cells->cells; c++) {
        cells->start[c] = (uint32_t)total;
        total += cells->boxes[c];
        cells->boxes[c] = 0;
    }
    if (total <= UINT32_MAX)
        cells->box = scope_take(&space->scratch, (total + 1) * sizeof *cells->box);
    if (!cells->box)
        return false;
    for (uint32_t i = 0; i < node->boxes; i++)
        cells_meet(space, node, i, cells, true);
    struct range region[TREE_AXES];
    for (uint32_t c = 0; c < cells->cells; c++) {
        cell_region(space, node, c, region);
        cells->boxes[c] = cell_is_void(node, region)
                              ? 0
                              : list_shown(space, cells->box + cells->start[c], cells->boxes[c], region);
    }
    return true;
}

/* Take the rule out of every list, if every list has it at its head. */
static bool cells_take(const struct grid_growth *p, struct cell_lists *cells, int32_t rule)
{
    const int32_t *rules = p->space->in->rule;
    for (uint32_t c = 0; c < cells->cells; c++) {
        const uint32_t *box = cells->box + cells->start[c];
        if (!cells->boxes[c] || rules[box[0]] != rule)
            return false;
    }
    for (uint32_t c = 0; c < cells->cells; c++) {
        uint32_t *box = cells->box + cells->start[c], kept = 0;
        for (uint32_t i = 0; i < cells->boxes[c]; i++)
            if (rules[box[i]] != rule)
                box[kept++] = box[i];
        cells->boxes[c] = kept;
    }
    return true;
}

/* Keep the rules that all lists have in common above them. */
static bool cells_share(struct grid_growth *p, struct grid_node *node, struct cell_lists *cells)
{
    uint32_t fewest = 0, room = 0;
    for (uint32_t c = 0; c < cells->cells; c++)
        if (cells->boxes[c] < cells->boxes[fewest])
            fewest = c;
    node->entries = 0;
    while (cells->boxes[fewest]) {
        int32_t rule = p->space->in->rule[cells->box[cells->start[fewest]]];
        if (!cells_take(p, cells, rule))
            break;
        if (node->entries == room) {
            room = room ? 2 * room : 16;
            uint32_t *more = arena_take(p->space->arena, room * sizeof *more);
            if (!more)
                return false;
            if (node->entries)
                memcpy(more, node->entry, node->entries * sizeof *more);
            node->entry = more;
        }
        node->entry[node->entries++] = (uint32_t)rule;
    }
    return true;
}

static uint64_t list_hash(const uint32_t *box, uint32_t boxes)
{
    uint64_t hash = 0x9e3779b97f4a7c15u + boxes;
    for (uint32_t i = 0; i < boxes; i++)
        hash = (hash ^ box[i]) * 0xbf58476d1ce4e5b9u;
    return hash ^ hash >> 32;
}

static void region_join(const struct space *space, struct range *to, const struct range *with)
{
    for (uint32_t a = 0; a < space->in->axes; a++) {
        u128 low = to[a].low < with[a].low ? to[a].low : with[a].low;
        u128 high = to[a].high > with[a].high ? to[a].high : with[a].high;
        bool empty = to[a].low > to[a].high; /* only "none" */
        if (empty || with[a].low > with[a].high) {
            low = empty ? with[a].low : to[a].low;
            high = empty ? with[a].high : to[a].high;
        }
        to[a].ranks = (struct rank_range){line_rank(&space->line[a], low), line_rank(&space->line[a], high)};
        to[a].low = low;
        to[a].high = high;
        to[a].none |= with[a].none;
    }
}

/* Whether neighbours along the axis are together what a test can ask for. */
static bool joins(const struct space *space, const struct range *one, const struct range *two, uint32_t axis)
{
    u128 low = one[axis].low, high = two[axis].high, below = prefix_below(low, high);
    return space->in->axis[axis].cut != TREE_CUT_PREFIX || (!(low & below) && (high & below) == below);
}

/* Make a part for each cell: p->empty where its list is empty.  Equal lists that are leaves become one part;
 * others only in neighbours along the last cut, since cutting the hull of any cells again and again may never
 * end. */
static bool cells_merge(struct grid_growth *p, struct grid_node *node, const struct cell_lists *cells)
{
    uint32_t slots = 2, row = node->plan->cut[node->plan->cuts - 1].parts;
    while (slots < 2 * cells->cells)
        slots *= 2;
    struct grid_node **slot = scope_take(&p->space->scratch, slots * sizeof *slot);
    node->cells = cells->cells;
    node->part = arena_take(p->space->arena, cells->cells * sizeof *node->part);
    bool fits = slot && node->part;
    struct range region[TREE_AXES];
    for (uint32_t c = 0; fits && c < cells->cells; c++) {
        const uint32_t *box = cells->box + cells->start[c];
        uint32_t boxes = cells->boxes[c], at = 0;
        struct grid_node *part = NULL;
        if (!boxes) {
            node->part[c] = p->empty;
            continue;
        }
        cell_region(p->space, node, c, region);
        bool leaf = rules_in(p->space, box, boxes) <= p->leaf_size;
        struct grid_node *before = c % row ? node->part[c - 1] : NULL;
        if (before && before->boxes == boxes && !memcmp(before->box, box, boxes * sizeof *box) &&
            (leaf || joins(p->space, before->region, region, node->plan->cut[node->plan->cuts - 1].axis)))
            part = before;
        if (leaf && !part)
            for (at = (uint32_t)list_hash(box, boxes) & (slots - 1); slot[at]; at = (at + 1) & (slots - 1))
                if (slot[at]->boxes == boxes && !memcmp(slot[at]->box, box, boxes * sizeof *box)) {
                    part = slot[at];
                    break;
                }
        if (part) {
            region_join(p->space, part->region, region);
        } else {
            part = grid_node_new(p, region);
            fits = part && grid_node_list(p, part, box, boxes);
            if (part)
                part->holes = node->holes;
            if (leaf)
                slot[at] = part;
        }
        node->part[c] = part;
    }
    scope_drop(&p->space->scratch, slot);
    return fits;
}

bool grid_node_cut(struct grid_growth *p, struct grid_node *node)
{
    struct cell_lists cells;
    bool cut = cells_fill(p->space, node, &cells) && (!p->builder->shares || cells_share(p, node, &cells)) &&
               cells_merge(p, node, &cells);
    cells_free(&p->space->scratch, &cells);
    return cut;
}
