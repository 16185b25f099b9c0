/* Trees of grids: how nodes are split, and what comes of them.
 *
 * Idea: a node of too many rules is cut along one axis or several into equal parts, as its
 * builder chooses.  A rule that an earlier final rule hides within a part is left out of it,
 * leaves of equal lists, and neighbours, become one node.  Printed, a grid becomes tests, each of
 * which halves what is left along one axis; neighbours that are one node are not told apart,
 * and a leaf that several places lead to stands in a chain of its own.  (Trees that are searched
 * in memory are cuttings.c.)
 * Rules must be read in list order: only common rules that stand before all
 * others of the node are kept above the parts.  Values that are no intervals for a grid
 * (protocols, interfaces) and what an axis needs are tested one by one before.
 * Cost: per node, its boxes times the parts that they meet, and the square of short lists.
 * Invariant: a point that comes to a node finds all rules of the node that it meets; one
 * that lies in none of a grid's parts meets none, wherever it goes.  Entries and
 * decisions never exceed the budget, nor taken tests on a path max_nesting.
 * Threading: none; everything lives in arenas of the one that builds.
 */
#include "cut_grid.h"

#include <string.h>

#include "sort.h"

enum {
    SHORT = 200 /* in lists up to so long every rule is held against every earlier one */
};

uint32_t floor_log2(uint32_t value)
{
    return value ? 31 - (uint32_t)__builtin_clz(value) : 0;
}

/* Cuts. */

static u128 prefix_below(u128 low, u128 high)
{
    u128 below = 0;
    while (below < (low ^ high))
        below = below << 1 | 1;
    return below;
}

/* At most *parts* (a power of two) equal parts that hold the region; fewer where it has fewer values. */
struct cut cut_into(const struct space *space, const struct range *region, uint32_t axis, uint32_t parts)
{
    const struct range *along = &region[axis];
    struct cut cut = {axis, 1, along->low, 127};
    if (parts < 2)
        return cut;
    cut.shift = 0;
    if (space->in->axis[axis].cut == TREE_CUT_PREFIX) {
        u128 below = prefix_below(along->low, along->high);
        uint32_t bits = 0, wanted = floor_log2(parts);
        while (bits < 128 && below >> bits)
            bits++;
        wanted = wanted < bits ? wanted : bits;
        cut.low = along->low & ~below;
        cut.shift = bits - wanted;
        cut.parts = 1u << wanted;
    } else {
        u128 extent = along->high - along->low;
        while (cut.shift < 127 && extent >> cut.shift >= parts)
            cut.shift++;
        cut.parts = (uint32_t)(extent >> cut.shift) + 1;
    }
    return cut;
}

/* The first and the last part that a box of the region with this side meets; "none" is in the last. */
struct rank_range cut_span(const struct space *space, const struct cut *cut, const struct range *along, struct rank_range ranks)
{
    const struct line *line = &space->line[cut->axis];
    u128 low = line->edge[ranks.low], high = line_end(line, ranks.high);
    bool none = along->none && !ranks.low;
    if (low < along->low)
        low = along->low;
    if (high > along->high)
        high = along->high;
    struct rank_range span = {cut->parts - 1, cut->parts - 1};
    if (low <= high && cut->parts > 1) {
        span.low = (uint32_t)((low - cut->low) >> cut->shift);
        if (!none)
            span.high = (uint32_t)((high - cut->low) >> cut->shift);
    }
    return span;
}

static bool spans(struct rank_range ranks, const struct range *along)
{
    return ranks.low <= along->ranks.low && ranks.high >= along->ranks.high && !(along->none && ranks.low);
}

/* How many intervals the boxes have along the axis, spanning ones not counted. */
uint32_t count_distinct(struct grid_growth *p, const struct grid_node *node, uint32_t axis)
{
    const struct range *along = &node->region[axis];
    uint32_t keys = 0, count = 0;
    for (uint32_t i = 0; i < node->boxes; i++) {
        struct rank_range ranks = box_ranks(p->space, node->box[i], axis);
        if (!spans(ranks, along))
            p->key[keys++] = (uint64_t)ranks.low << 32 | ranks.high;
    }
    sort_keys(p->key, p->spare, keys, 0);
    for (uint32_t i = 0; i < keys; i++)
        count += !i || p->key[i] != p->key[i - 1];
    return count;
}

/* Tests. */

/* Whether the test makes both lists shorter, or one of them and the region. */
static bool helps(const struct space *space, const struct grid_node *node, const struct probe *probe)
{
    uint32_t in = 0, out = 0;
    for (uint32_t i = 0; i < node->boxes; i++) {
        struct rank_range ranks = box_ranks(space, node->box[i], probe->axis);
        in += probe_meets(probe, ranks);
        out += probe_is_left(probe, ranks);
    }
    return out < node->boxes && in > 0;
}

/* The most frequent interval that boxes spell along the axis and a test can spell. */
static bool most_spelt(struct grid_growth *p, const struct grid_node *node, uint32_t axis, struct probe *probe)
{
    const struct line *line = &p->space->line[axis];
    uint32_t keys = 0, most = 0;
    for (uint32_t i = 0; i < node->boxes; i++) {
        struct rank_range ranks = box_ranks(p->space, node->box[i], axis);
        if (!spans(ranks, &node->region[axis]))
            p->key[keys++] = (uint64_t)ranks.low << 32 | ranks.high;
    }
    sort_keys(p->key, p->spare, keys, 0);
    for (uint32_t i = 0, next; i < keys; i = next) {
        for (next = i; next < keys && p->key[next] == p->key[i];)
            next++;
        u128 low = line->edge[p->key[i] >> 32], high = line_end(line, (uint32_t)p->key[i]);
        if (next - i <= most || !axis_can_test(&p->space->in->axis[axis], low, high))
            continue;
        struct probe tried = probe_of(p->space, node->region, axis, low, high);
        if (helps(p->space, node, &tried)) {
            most = next - i;
            *probe = tried;
        }
    }
    return most > 0;
}

/* What the axis needs to be known, tested for the value that most boxes ask for. */
static bool most_needed(const struct space *space, const struct grid_node *node, uint32_t axis, struct probe *probe)
{
    const struct tree_axis *wanted = &space->in->axis[axis];
    uint32_t needs = (uint32_t)wanted->needs, most = 0;
    if (space->in->axis[needs].cut == TREE_CUT_NONE)
        return false;
    for (uint32_t v = 0; v < wanted->needed_count; v++) {
        u128 value = wanted->needed[v];
        const struct range *along = &node->region[needs];
        if (value < along->low || value > along->high)
            continue;
        struct probe tried = probe_of(space, node->region, needs, value, value);
        uint32_t only = 0;
        for (uint32_t i = 0; i < node->boxes; i++)
            only += !probe_is_left(&tried, box_ranks(space, node->box[i], needs));
        if (only > most) {
            most = only;
            *probe = tried;
        }
    }
    return most > 0;
}

bool can_grid(const struct grid_growth *p, const struct grid_node *node, uint32_t axis)
{
    enum tree_cut cut = p->space->in->axis[axis].cut;
    return (cut == TREE_CUT_PREFIX || cut == TREE_CUT_RANGE) && axis_usable(p->space, node->region, axis);
}

/* One test takes what lies beyond the least prefix that holds all boxes which do not span the region. */
bool plan_narrows(const struct grid_growth *p, const struct grid_node *node, uint32_t axis, struct grid_plan *plan)
{
    const struct line *line = &p->space->line[axis];
    const struct range *along = &node->region[axis];
    struct rank_range hull = {UINT32_MAX, 0};
    if (p->space->in->axis[axis].cut != TREE_CUT_PREFIX)
        return false;
    for (uint32_t i = 0; i < node->boxes; i++) {
        struct rank_range ranks = box_ranks(p->space, node->box[i], axis);
        if (spans(ranks, along))
            continue;
        hull.low = ranks.low < hull.low ? ranks.low : hull.low;
        hull.high = ranks.high > hull.high ? ranks.high : hull.high;
    }
    u128 low = line->edge[hull.low], high = line_end(line, hull.high);
    low = low > along->low ? low : along->low;
    high = high < along->high ? high : along->high;
    u128 below = prefix_below(low, high);
    low &= ~below;
    if (low <= along->low && (low | below) >= along->high)
        return false;
    plan->kind = PLAN_TEST;
    plan->probe = probe_of(p->space, node->region, axis, low, low | below);
    return true;
}

/* Where the axis cannot be cut into parts: the test that comes first. */
bool plan_test(struct grid_growth *p, const struct grid_node *node, uint32_t axis, struct grid_plan *plan)
{
    bool usable = axis_usable(p->space, node->region, axis);
    bool found = usable ? most_spelt(p, node, axis, &plan->probe) : most_needed(p->space, node, axis, &plan->probe);
    if (found)
        plan->kind = PLAN_TEST;
    return found;
}

/* Lists. */

static uint32_t rules_in(const struct space *space, const uint32_t *box, uint32_t boxes)
{
    uint32_t rules = 0;
    for (uint32_t i = 0; i < boxes; i++)
        rules += !i || space->in->rule[box[i]] != space->in->rule[box[i - 1]];
    return rules;
}

/* Whether all that *later* matches in the region is matched, and ended, by *earlier*.  Along axes that are never
 * tested a rule does more than its boxes say: a match of it may drop packets that another match would have let by.
 * So does a rule of TREE_DROPS along optional axes. */
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
static uint32_t list_shown(const struct space *space, uint32_t *box, uint32_t boxes, const struct range *region)
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
static void compact(const struct space *space, struct grid_node *node)
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

static struct grid_node *grid_node_new(struct grid_growth *p, const struct range *region)
{
    size_t size = p->space->in->axes * sizeof *region;
    struct grid_node *node = arena_take(p->space->arena, sizeof *node);
    if (!node || !(node->region = arena_take(p->later, size)) || !(node->output = node_new(p->space)))
        return NULL;
    memcpy(node->region, region, size);
    return node;
}

static bool grid_node_list(struct grid_growth *p, struct grid_node *node, const uint32_t *box, uint32_t boxes)
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

/* Splitting. */

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
static void cell_region(const struct space *space, const struct grid_node *node, uint32_t cell, struct range *region)
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
static void cells_meet(const struct space *space, const struct grid_node *node, uint32_t at, struct cell_lists *cells, bool fill)
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

/* Patches for the lists.  Equal lists that are leaves become one; others only in neighbours along
 * the last cut, since cutting the hull of any cells again and again may never end. */
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

/* The way to a part; *taken*: a test leads to it, else it stands in line. */
static struct build_node *print_part(struct grid_printer *w, struct grid_node *part, bool taken, uint32_t nesting)
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

/* Tests for *parts* parts of cut number *level* from *from* on; *cell*: where their cells start.
 * *visit*: first, to count who leads where. */
static struct build_node *print_cut(struct grid_printer *w, uint32_t level, uint32_t cell, uint32_t from, uint32_t parts,
                              bool taken, uint32_t nesting, bool visit)
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
        compact(p->space, part);
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
    print_count(p, node); /* who leads where is asked again when it is printed */
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
        struct cell_lists cells;
        bool split = cells_fill(p->space, node, &cells) && (!p->builder->shares || cells_share(p, node, &cells)) &&
                    cells_merge(p, node, &cells);
        cells_free(&p->space->scratch, &cells);
        if (!split)
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

/* Split all nodes, level by level, so that a budget that runs out leaves a tree of even depth.
 * Lists of a level are given back when the next one is done. */
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
    compact(space, p->first);
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
        .space = space, .builder = builder, .leaf_size = options->leaf_size, .spfac = options->spfac,
        .budget = options->budget, .max_nesting = options->max_nesting, .memory = options->memory,
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
