/* Trees: what the builders share, the flat form, and its search.
 *
 * Idea: coordinates become ranks once, so that a builder works on small integers
 * and values come back only where a test is written down.
 * Cost: ranking sorts the ends of all boxes, per axis; a search reads one edge
 * per decision and the boxes of each rule that it meets in a leaf.
 * Invariant: the paths of a tree tile space, and every point finds on its path
 * all rules that its boxes meet there, in list order, up to a final one that
 * covers the rest: searching gives what reading the list from the top gives.
 * Threading: one tree is built by one thread; searches share it freely.
 */
#include "cost.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "sort.h"

/* Calls within calls, at most: a group's tree calls trees of later groups only. */
enum { CALLS = 8 };

static const struct tree_builder *const builders[] = {&tree_shape_groups, &tree_bisect, &tree_hicuts, &tree_hypercuts, &tree_conext2014};

enum { BUILDERS = sizeof builders / sizeof *builders };

static u128 joined(const uint64_t *words)
{
    return (u128)words[0] << 64 | words[1];
}

static u128 axis_top(const struct tree_axis *axis)
{
    u128 top = axis->bits == 128 ? ~(u128)0 : ((u128)1 << axis->bits) - 1;
    return axis->optional ? top + 1 : top;
}

/* Ranks. */

static int by_value(const void *a, const void *b)
{
    u128 x = *(const u128 *)a, y = *(const u128 *)b;
    return (x > y) - (x < y);
}

/* The elementary interval that holds *value*. */
uint32_t line_rank(const struct line *line, u128 value)
{
    uint32_t low = 0, high = line->edges;
    while (high - low > 1) {
        uint32_t middle = low + (high - low) / 2;
        if (line->edge[middle] <= value)
            low = middle;
        else
            high = middle;
    }
    return low;
}

/* The distinct values among ends[], sorted in place: by words if they fit, else by comparison. */
static uint32_t distinct(u128 *end, uint32_t count, bool narrow)
{
    if (narrow) {
        uint64_t *key = malloc(2 * (size_t)count * sizeof *key);
        if (!key)
            return 0;
        for (uint32_t i = 0; i < count; i++)
            key[i] = (uint64_t)end[i];
        sort_keys(key, key + count, count, 0);
        for (uint32_t i = 0; i < count; i++)
            end[i] = key[i];
        free(key);
    } else {
        qsort(end, count, sizeof *end, by_value);
    }
    uint32_t kept = 0;
    for (uint32_t i = 0; i < count; i++)
        if (!kept || end[i] != end[kept - 1])
            end[kept++] = end[i];
    return kept;
}

static enum tree_status line_draw(struct space *space, uint32_t axis)
{
    const struct tree_boxes *in = space->in;
    struct line *line = &space->line[axis];
    size_t room = 2 * (size_t)in->boxes + 2;
    u128 *end = room < UINT32_MAX ? arena_take(space->arena, room * sizeof *end) : NULL;
    if (!end)
        return TREE_NO_MEMORY;
    line->top = axis_top(&in->axis[axis]);
    uint32_t ends = 0;
    end[ends++] = 0;
    if (in->axis[axis].optional)
        end[ends++] = 1;
    u128 last_low = 0, last_high = line->top;
    for (uint32_t box = 0; box < in->boxes; box++) {
        size_t at = ((size_t)box * in->axes + axis) * 2;
        u128 low = joined(in->low + at), high = joined(in->high + at);
        if (low > high || high > line->top)
            return TREE_BAD_BOX;
        if (low == last_low && high == last_high)
            continue;
        last_low = low;
        last_high = high;
        end[ends++] = low;
        if (high < line->top)
            end[ends++] = high + 1;
    }
    line->edge = end;
    line->edges = distinct(end, ends, line->top >> 64 == 0);
    if (!line->edges)
        return TREE_NO_MEMORY;
    struct rank_range ranks = {0, line->edges - 1};
    last_low = 0;
    last_high = line->top;
    for (uint32_t box = 0; box < in->boxes; box++) {
        size_t at = ((size_t)box * in->axes + axis) * 2;
        u128 low = joined(in->low + at), high = joined(in->high + at);
        if (low != last_low || high != last_high)
            ranks = (struct rank_range){line_rank(line, low), line_rank(line, high)};
        last_low = low;
        last_high = high;
        space->ranks[(size_t)box * in->axes + axis] = ranks;
    }
    return TREE_OK;
}

enum tree_status space_draw(struct space *space)
{
    const struct tree_boxes *in = space->in;
    if (!in->axes || in->axes > TREE_AXES)
        return TREE_BAD_AXIS;
    for (uint32_t a = 0; a < in->axes; a++) {
        const struct tree_axis *axis = &in->axis[a];
        if (!axis->bits || axis->bits > 128 || axis->cut > TREE_CUT_SPELT)
            return TREE_BAD_AXIS;
        if (axis->optional && (axis->bits == 128 || axis->cut == TREE_CUT_PREFIX))
            return TREE_BAD_AXIS;
        if (axis->needs >= (int)in->axes || axis->needs == (int)a)
            return TREE_BAD_AXIS;
    }
    for (uint32_t box = 0; box < in->boxes; box++)
        if (in->rule[box] < 0 || (uint32_t)in->rule[box] >= in->rules || (box && in->rule[box] < in->rule[box - 1]))
            return TREE_BAD_BOX;
    space->ranks = arena_take(space->arena, (size_t)in->boxes * in->axes * sizeof *space->ranks);
    if (!space->ranks)
        return TREE_NO_MEMORY;
    for (uint32_t a = 0; a < in->axes; a++) {
        enum tree_status status = line_draw(space, a);
        if (status != TREE_OK)
            return status;
    }
    return TREE_OK;
}

/* Regions. */

void region_all(const struct space *space, struct range *region)
{
    for (uint32_t a = 0; a < space->in->axes; a++) {
        const struct line *line = &space->line[a];
        bool optional = space->in->axis[a].optional;
        region[a] = (struct range){optional, line->top, {optional, line->edges - 1}, optional};
    }
}

struct probe probe_of(const struct space *space, const struct range *region, uint32_t axis, u128 low, u128 high)
{
    const struct line *line = &space->line[axis];
    const struct range *along = &region[axis];
    struct probe probe = {axis, low, high, {line_rank(line, low), line_rank(line, high)}, {0, UINT32_MAX}, along->none};
    if (low > along->low)
        probe.inner.low = probe.touch.low + (line->edge[probe.touch.low] < low);
    if (high < along->high) {
        /* Wraps to UINT32_MAX + 1 = 0 only for rank 0, whose end is then above high: nothing is inner. */
        if (line_end(line, probe.touch.high) <= high)
            probe.inner.high = probe.touch.high;
        else if (probe.touch.high > 0)
            probe.inner.high = probe.touch.high - 1;
        else
            probe.inner = (struct rank_range){1, 0};
    }
    return probe;
}

static void range_rank(const struct space *space, uint32_t axis, struct range *range)
{
    range->ranks = (struct rank_range){line_rank(&space->line[axis], range->low), line_rank(&space->line[axis], range->high)};
}

void region_inside(const struct space *space, const struct range *from, const struct probe *probe, struct range *to)
{
    if (to != from)
        memcpy(to, from, space->in->axes * sizeof *to);
    struct range *along = &to[probe->axis];
    if (probe->low > along->low)
        along->low = probe->low;
    if (probe->high < along->high)
        along->high = probe->high;
    along->none = false;
    range_rank(space, probe->axis, along);
}

void region_outside(const struct space *space, const struct range *from, const struct probe *probe, struct range *to)
{
    if (to != from)
        memcpy(to, from, space->in->axes * sizeof *to);
    struct range *along = &to[probe->axis];
    if (probe->low <= along->low && probe->high < along->high)
        along->low = probe->high + 1;
    else if (probe->high >= along->high && probe->low > along->low)
        along->high = probe->low - 1;
    range_rank(space, probe->axis, along);
}

/* What the test takes from the region that fails it; NULL when memory is exhausted. */
const struct hole *hole_new(struct space *space, const struct hole *next, const struct probe *probe)
{
    struct hole *hole = arena_take(space->arena, sizeof *hole);
    if (hole)
        *hole = (struct hole){next, probe->axis, probe->low, probe->high};
    return hole;
}

/* Move the ends of a range past holes.  False: no value is left of it. */
bool range_trim(const struct space *space, const struct hole *holes, uint32_t axis, struct range *along)
{
    bool again = true;
    while (again) {
        again = false;
        for (const struct hole *hole = holes; hole; hole = hole->next) {
            if (hole->axis != axis)
                continue;
            bool low = hole->low <= along->low && hole->high >= along->low;
            bool high = hole->low <= along->high && hole->high >= along->high;
            if (low && high)
                return false;
            if (low)
                along->low = hole->high + 1;
            if (high)
                along->high = hole->low - 1;
            again |= low || high;
        }
    }
    range_rank(space, axis, along);
    return true;
}

bool box_covers(const struct space *space, uint32_t box, const struct range *region)
{
    for (uint32_t a = 0; a < space->in->axes; a++) {
        struct rank_range ranks = box_ranks(space, box, a);
        if (ranks.low > region[a].ranks.low || ranks.high < region[a].ranks.high || (region[a].none && ranks.low))
            return false;
    }
    return true;
}

/* How many of the boxes stand before the end of the list: behind a final rule that
 * covers the region no rule is read. */
uint32_t list_cut(const struct space *space, const uint32_t *box, uint32_t boxes, const struct range *region)
{
    const struct tree_boxes *in = space->in;
    for (uint32_t i = 0; i < boxes; i++) {
        int32_t rule = in->rule[box[i]];
        if (in->final[rule] && box_covers(space, box[i], region)) {
            while (i < boxes && in->rule[box[i]] == rule)
                i++;
            return i;
        }
    }
    return boxes;
}

/* Whether the axis may be tested in the region. */
bool axis_usable(const struct space *space, const struct range *region, uint32_t a)
{
    const struct tree_axis *axis = &space->in->axis[a];
    if (axis->cut == TREE_CUT_NONE)
        return false;
    if (axis->needs < 0)
        return true;
    const struct range *needs = &region[axis->needs];
    if (needs->none || needs->low != needs->high)
        return false;
    for (uint32_t i = 0; i < axis->needed_count; i++)
        if (needs->low == axis->needed[i])
            return true;
    return false;
}

/* Whether a rule can be written that tests for low..high. */
bool axis_can_test(const struct tree_axis *axis, u128 low, u128 high)
{
    u128 size = high - low, left = size;
    /* All values: what fails that test lacks the field.  nf_tables reads a later fragment's ports natively, but
     * `--dport 0:65535` through xtables, so not as the rules of the list do; and it would tell little. */
    if (axis->optional && (!low || (low == 1 && high == axis_top(axis))))
        return false;
    if (axis->cut == TREE_CUT_POINT)
        return !size && low > axis->optional;
    if (axis->cut != TREE_CUT_SPELT)
        return true;
    while ((left & 0xff) == 0xff)
        left >>= 8;
    return !left && !((low - axis->optional) & size);
}

/* Twigs. */

struct build_node *node_new(struct space *space)
{
    return arena_take(space->arena, sizeof(struct build_node));
}

/* Make the rules of the boxes the node's entries; false when memory is exhausted. */
bool node_lists(struct space *space, struct build_node *node, const uint32_t *box, uint32_t boxes)
{
    const int32_t *rule = space->in->rule;
    uint32_t rules = 0;
    for (uint32_t i = 0; i < boxes; i++)
        rules += !i || rule[box[i]] != rule[box[i - 1]];
    node->entry = arena_take(space->arena, rules * sizeof *node->entry);
    if (!node->entry)
        return false;
    node->entries = 0;
    for (uint32_t i = 0; i < boxes; i++)
        if (!i || rule[box[i]] != rule[box[i - 1]])
            node->entry[node->entries++] = (uint32_t)rule[box[i]];
    if (!node->list) {
        node->list = node->entry;
        node->listed = node->entries;
    }
    return true;
}

/* The flat form. */

struct tally {
    uint64_t nodes, edges, entries;
};

/* The entries that the node is written as: its items, its rules in their forms, where it goes on. */
static uint32_t node_steps(const struct space *space, const struct build_node *node, struct printed_entry *out)
{
    uint32_t steps = 0;
    for (uint32_t i = 0; i < node->items; i++, steps++)
        if (out)
            out[steps] = node->item[i];
    for (uint32_t i = 0; i < node->entries; i++) {
        struct printed_entry form = {TREE_RULE, (int32_t)node->entry[i], NULL};
        if (space->form && space->form[node->entry[i]].to) {
            form = space->form[node->entry[i]];
            if (form.step == TREE_ASK) {
                if (out)
                    out[steps] = form;
                steps++;
                form = (struct printed_entry){TREE_RULE, (int32_t)node->entry[i], NULL};
            }
        }
        if (out)
            out[steps] = form;
        steps++;
    }
    if (node->then) {
        if (out)
            out[steps] = (struct printed_entry){TREE_GO, -1, node->then};
        steps++;
    }
    return steps;
}

/* Number the nodes in preorder, the side that stays right behind its test, and leave
 * them in *order.  A node with several parents is numbered once. */
static enum tree_status nodes_number(struct space *space, struct build_node *root, struct build_node ***order, struct tally *tally)
{
    size_t room = 1024, listed = 0, waiting = 0, stack_room = 1024;
    struct printed_entry *step = NULL;
    size_t step_room = 0;
    struct build_node **list = malloc(room * sizeof *list), **stack = malloc(stack_room * sizeof *stack);
    enum tree_status status = TREE_NO_MEMORY;
    if (list && stack)
        stack[waiting++] = root;
    while (list && stack) {
        if (!waiting) {
            bool fits = tally->nodes < UINT32_MAX && tally->edges < UINT32_MAX && tally->entries < UINT32_MAX;
            status = fits ? TREE_OK : TREE_NO_MEMORY;
            break;
        }
        struct build_node *node = stack[--waiting];
        if (node->number)
            continue;
        if (listed == room) {
            struct build_node **more = realloc(list, 2 * room * sizeof *list);
            if (!more)
                break;
            list = more;
            room *= 2;
        }
        list[listed++] = node;
        node->number = (uint32_t)listed;
        tally->nodes++;
        tally->edges += node->branches;
        uint32_t steps = node_steps(space, node, NULL);
        tally->entries += steps;
        if (steps > step_room) {
            free(step);
            step = malloc(2 * steps * sizeof *step);
            step_room = 2 * (size_t)steps;
            if (!step)
                break;
        }
        node_steps(space, node, step);
        if (waiting + node->branches + steps > stack_room) {
            size_t larger = 2 * (waiting + node->branches + steps);
            struct build_node **more = realloc(stack, larger * sizeof *stack);
            if (!more)
                break;
            stack = more;
            stack_room = larger;
        }
        for (uint32_t i = 0; i < steps; i++)
            if (step[i].to && !step[i].to->number)
                stack[waiting++] = step[i].to;
        for (uint32_t i = 0; i < node->branches; i++)
            stack[waiting++] = node->branch[i].to;
    }
    free(stack);
    free(step);
    *order = list;
    return status;
}

static void words(u128 value, uint64_t *word)
{
    word[0] = (uint64_t)(value >> 64);
    word[1] = (uint64_t)value;
}

enum tree_status nodes_write(struct space *space, struct build_node *root, struct tree *tree)
{
    struct build_node **order = NULL;
    struct tally tally = {0, 0, 0};
    enum tree_status status = nodes_number(space, root, &order, &tally);
    uint32_t most = 0;
    if (status == TREE_OK) {
        tree->node = arena_take(tree->arena, tally.nodes * sizeof *tree->node);
        tree->edge = arena_take(tree->arena, tally.edges * sizeof *tree->edge);
        tree->entry = arena_take(tree->arena, tally.entries * sizeof *tree->entry);
        tree->step = arena_take(tree->arena, tally.entries * sizeof *tree->step);
        tree->link = arena_take(tree->arena, tally.entries * sizeof *tree->link);
        for (uint64_t n = 0; n < tally.nodes; n++) {
            uint32_t steps = node_steps(space, order[n], NULL);
            most = steps > most ? steps : most;
        }
        if (!tree->node || !tree->edge || !tree->entry || !tree->step || !tree->link)
            status = TREE_NO_MEMORY;
    }
    struct printed_entry *step = malloc((most + 1) * sizeof *step);
    if (!step)
        status = TREE_NO_MEMORY;
    for (uint64_t n = 0; status == TREE_OK && n < tally.nodes; n++) {
        const struct build_node *node = order[n];
        uint32_t steps = node_steps(space, node, step);
        tree->node[n] = (struct tree_node){tree->entries, steps, tree->edges, node->branches,
                                           (uint8_t)node->kind, (uint8_t)node->axis, node->negated, 0};
        for (uint32_t i = 0; i < steps; i++) {
            tree->entry[tree->entries] = step[i].rule;
            tree->step[tree->entries] = (uint8_t)step[i].step;
            tree->link[tree->entries++] = step[i].to ? step[i].to->number - 1 : 0;
        }
        for (uint32_t i = 0; i < node->branches; i++) {
            struct tree_edge *edge = &tree->edge[tree->edges++];
            words(node->branch[i].low, edge->low);
            words(node->branch[i].high, edge->high);
            edge->to = node->branch[i].to->number - 1;
        }
        tree->nodes++;
    }
    for (uint64_t n = 0; order && n < tally.nodes; n++)
        order[n]->number = 0;
    free(order);
    free(step);
    return status;
}

const char *tree_algorithm(uint32_t index)
{
    return index < BUILDERS ? builders[index]->name : NULL;
}

int tree_is_bounded(uint32_t index)
{
    return index < BUILDERS && builders[index]->bounded;
}

static volatile int stop_all;

void tree_stop(int stop)
{
    stop_all = stop;
}

struct tree *tree_grow(const char *algorithm, const struct tree_boxes *boxes,
                       const struct tree_options *options, enum tree_status *status)
{
    const struct tree_builder *builder = NULL;
    for (uint32_t i = 0; i < BUILDERS; i++)
        if (!strcmp(builders[i]->name, algorithm))
            builder = builders[i];
    struct space space = {.arena = arena_new(options->memory), .in = boxes};
    struct arena *kept = arena_new(0);
    if (space.arena)
        arena_heeds(space.arena, &stop_all);
    struct tree *tree = kept ? arena_take(kept, sizeof *tree) : NULL;
    struct build_node *root = NULL;
    *status = !builder ? TREE_BAD_OPTION : space.arena && tree ? space_draw(&space) : TREE_NO_MEMORY;
    if (*status == TREE_OK)
        *status = builder->grow(&space, options, &root);
    if (*status == TREE_OK) {
        tree->arena = kept;
        *status = nodes_write(&space, root, tree);
    }
    if (*status == TREE_OK)
        tree->bytes = arena_bytes(space.arena) + arena_bytes(kept);
    arena_free(space.arena);
    if (*status == TREE_OK)
        return tree;
    if (stop_all)
        *status = TREE_STOPPED;
    arena_free(kept);
    return NULL;
}

void tree_free(struct tree *tree)
{
    if (tree)
        arena_free(tree->arena);
}

/* Search. */

static bool rule_matches(const struct tree_boxes *in, uint32_t box, uint32_t end, const uint64_t *point)
{
    for (; box < end; box++) {
        const uint64_t *low = in->low + (size_t)box * in->axes * 2, *high = in->high + (size_t)box * in->axes * 2;
        uint32_t a = 0;
        while (a < in->axes && words_hold(low + 2 * a, high + 2 * a, point + 2 * a))
            a++;
        if (a == in->axes)
            return true;
    }
    return false;
}

/* The edge of CUTS that holds the word: halving, one rule read per step. */
static const struct tree_edge *cut_find(const struct tree_edge *edge, uint32_t edges, const uint64_t *word, uint32_t *reads)
{
    while (edges > 1) {
        uint32_t half = edges / 2;
        ++*reads;
        if (words_hold(edge[0].low, edge[half - 1].high, word)) {
            edges = half;
        } else {
            edge += half;
            edges -= half;
        }
    }
    return edge;
}

/* The edge of LOOKUPS that a search comes to.  A search for one edge reads one rule. */
static const struct tree_edge *lookup_find(const struct tree_edge *edge, uint32_t edges, const uint64_t *word,
                                           uint32_t *reads)
{
    for (;;) {
        uint32_t middle = (edges - 1) / 2;
        ++*reads;
        if (edges == 1 || words_hold(edge[middle].low, edge[middle].high, word))
            return edge + middle;
        if (middle) {
            ++*reads;
            if (words_hold(edge[0].low, edge[middle - 1].high, word)) {
                edges = middle;
                continue;
            }
        }
        ++*reads;
        edge += middle + 1;
        edges -= middle + 1;
    }
}

/* What an entry costs at the point; *took*: the point is in one of the rule's boxes. */
static double entry_cost(const struct tree_boxes *in, enum tree_step step, uint32_t rule, uint32_t box,
                         const uint64_t *point, bool took)
{
    const struct tree_costs *costs = in->costs;
    if (!costs)
        return 1;
    double tests = step <= TREE_ASK ? cost_at(in, rule, box, point, took) : 0;
    if (!took)
        return tests;
    switch (step) {
    case TREE_RULE:
        return tests + costs->taken[rule];
    case TREE_ASK:
    case TREE_CALL:
        return tests + costs->jump;
    case TREE_SEND:
    case TREE_GO:
        return tests + costs->go;
    case TREE_ACT:
        return costs->act;
    }
    return tests;
}

/* What the tests of CUTS and LOOKUPS cost: those of their first edge, as often as they were read. */
static double edges_cost(const struct tree_boxes *in, const struct tree_node *node, const struct tree_edge *edge,
                         uint32_t reads)
{
    return reads * cost_of_test(in, node->axis, joined(edge->low), joined(edge->high), false).taken;
}

enum tree_status tree_search(const struct tree *tree, const struct tree_boxes *in, const uint64_t *points,
                             size_t count, int32_t *rule, uint32_t *reads, double *spent)
{
    uint32_t *first = calloc((size_t)in->rules + 1, sizeof *first);
    if (!first)
        return TREE_NO_MEMORY;
    for (uint32_t box = 0; box < in->boxes; box++)
        first[in->rule[box] + 1]++;
    for (uint32_t r = 0; r < in->rules; r++)
        first[r + 1] += first[r];
    for (size_t p = 0; p < count; p++) {
        const uint64_t *point = points + p * in->axes * 2;
        const struct tree_node *node = &tree->node[tree->root], *back[CALLS];
        uint32_t calls = 0, i = 0, at[CALLS];
        double cost = 0;
        rule[p] = -1;
        reads[p] = 0;
        for (;;) {
            const struct tree_node *next = NULL;
            for (; i < node->entries && rule[p] < 0 && !next; i++) {
                uint32_t e = node->entry + i;
                int32_t r = tree->entry[e];
                enum tree_step step = tree->step[e];
                reads[p]++;
                bool took = step > TREE_ASK || rule_matches(in, first[r], first[r + 1], point);
                if (spent)
                    cost += entry_cost(in, step, (uint32_t)r, r < 0 ? 0 : first[r], point, took);
                if (!took)
                    continue;
                if (step <= TREE_SEND && in->free[r] & TREE_PASSED)
                    continue;
                if (step == TREE_RULE || step == TREE_ACT) {
                    rule[p] = r;
                } else {
                    next = &tree->node[tree->link[e]];
                    if (step == TREE_ASK || step == TREE_CALL) {
                        assert(calls < CALLS);
                        back[calls] = node;
                        at[calls++] = i + 1;
                    }
                }
            }
            if (rule[p] >= 0)
                break;
            if (next) {
                node = next;
                i = 0;
                continue;
            }
            if (node->kind == TREE_LEAF) {
                if (!calls)
                    break;
                node = back[--calls];
                i = at[calls];
                continue;
            }
            i = 0;
            const struct tree_edge *edge = &tree->edge[node->edge];
            const uint64_t *word = point + 2 * node->axis;
            uint32_t before = reads[p];
            if (node->kind == TREE_CUTS) {
                edge = cut_find(edge, node->edges, word, &reads[p]);
            } else if (node->kind == TREE_LOOKUPS) {
                edge = lookup_find(edge, node->edges, word, &reads[p]);
            } else {
                bool took = words_hold(edge->low, edge->high, word) != node->negated;
                struct tree_cost test = cost_of_test(in, node->axis, joined(edge->low), joined(edge->high), node->negated);
                reads[p]++;
                cost += took ? test.taken : test.missed;
                edge += !took;
            }
            if (node->kind != TREE_TEST)
                cost += edges_cost(in, node, edge, reads[p] - before);
            node = &tree->node[edge->to];
        }
        if (spent)
            spent[p] = cost;
    }
    free(first);
    return TREE_OK;
}
