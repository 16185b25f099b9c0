/* HiCuts (Gupta and McKeown, 1999) under the constraints of its axes.
 *
 * Idea: a node of more than leaf_size rules is cut into equal parts along the axis on
 * which its rules have most distinct intervals.  The number of parts doubles while the
 * rules of all parts, and the parts, are at most spfac times the rules of the node.
 * On prefix axes parts are prefixes, of the least prefix that holds all narrower rules:
 * a test for that comes first.  Axes of single or spelt values are tested for the most
 * frequent interval instead; an axis that needs another one's value has that tested
 * first.
 * Cost: O(n log n) per node and axis, and the rules of all parts.
 * Invariant: entries and decisions (parts - 1 per cut) never exceed the budget, nor
 * taken halvings on a path max_nesting.  What lies in no part, "none", belongs to the
 * last one.
 * Threading: none; everything lives in the space's arena.
 */
#include "tree_core.h"

#include <math.h>
#include <string.h>

enum { MOST_PARTS = 256 };

struct leaf {
    struct leaf *next; /* in the queue */
    struct twig *twig;
    uint32_t nesting, boxes, rules;
    uint32_t *box;
    struct range *region;
    const struct hole *holes;
};

struct grower {
    struct space *space;
    const struct tree_options *options;
    uint64_t *key, *spare;
    uint32_t *listed; /* scratch: one slot per box */
    struct leaf **last;
    uint64_t printed;
};

/* Equal parts low..high of an axis, the first of them *size* wide: *parts* in all. */
struct cut {
    uint32_t axis, parts;
    u128 low, high, size;
};

static bool spans(struct side side, const struct range *along)
{
    return side.low <= along->side.low && side.high >= along->side.high && !(along->none && side.low);
}

static uint32_t rules_in(const struct grower *g, const uint32_t *box, uint32_t boxes)
{
    uint32_t rules = 0;
    for (uint32_t i = 0; i < boxes; i++)
        rules += !i || g->space->in->rule[box[i]] != g->space->in->rule[box[i - 1]];
    return rules;
}

/* How many intervals the boxes have along the axis, spanning ones counted as one. */
static uint32_t distinct(struct grower *g, const struct leaf *leaf, uint32_t axis)
{
    const struct range *along = &leaf->region[axis];
    uint32_t keys = 0, count = 0;
    for (uint32_t i = 0; i < leaf->boxes; i++) {
        struct side side = box_side(g->space, leaf->box[i], axis);
        if (!spans(side, along))
            g->key[keys++] = (uint64_t)side.low << 32 | side.high;
    }
    sort_keys(g->key, g->spare, keys, 0);
    for (uint32_t i = 0; i < keys; i++)
        count += !i || g->key[i] != g->key[i - 1];
    return count;
}

static void cut_range(const struct space *space, const struct cut *cut, uint32_t i, const struct range *from,
                      struct range *to)
{
    const struct line *line = &space->line[cut->axis];
    to->low = cut->low + i * cut->size;
    to->high = i + 1 < cut->parts ? to->low + (cut->size - 1) : cut->high;
    to->side = (struct side){line_rank(line, to->low), line_rank(line, to->high)};
    to->none = from->none && i + 1 == cut->parts;
}

/* The parts, and the rules that they list. */
static double cut_space(const struct grower *g, const struct leaf *leaf, const struct cut *cut)
{
    double space = cut->parts;
    for (uint32_t p = 0; p < cut->parts; p++) {
        struct range along;
        int32_t last = -1;
        cut_range(g->space, cut, p, &leaf->region[cut->axis], &along);
        for (uint32_t i = 0; i < leaf->boxes; i++) {
            int32_t rule = g->space->in->rule[leaf->box[i]];
            if (rule != last && range_meets(&along, true, box_side(g->space, leaf->box[i], cut->axis))) {
                space++;
                last = rule;
            }
        }
    }
    return space;
}

/* Taken tests on the way to the first of so many parts, which takes most. */
static uint32_t halvings(uint32_t parts)
{
    uint32_t taken = 0;
    for (; parts > 1; parts /= 2)
        taken++;
    return taken;
}

/* Parts are prefixes or intervals of one size; so many as spfac, nesting, budget and the axis allow. */
static struct cut cut_equally(const struct grower *g, const struct leaf *leaf, uint32_t axis)
{
    const struct range *along = &leaf->region[axis];
    struct cut best = {axis, 1, along->low, along->high, 0};
    double enough = g->options->spfac * leaf->rules;
    uint32_t start = (uint32_t)sqrt(leaf->rules);
    u128 extent = along->high - along->low;
    for (uint32_t parts = 2; parts <= MOST_PARTS && parts - 1 <= extent; parts *= 2) {
        struct cut cut = {axis, parts, along->low, along->high, extent / parts + 1};
        if (halvings(parts) + leaf->nesting > g->options->max_nesting)
            break;
        if ((parts - 1) * cut.size > extent) /* rounding left nothing for the last part */
            break;
        double space = cut_space(g, leaf, &cut);
        if ((parts > 2 && parts > start && space > enough) ||
            (double)(g->printed - leaf->rules) + space - 1 > (double)g->options->budget)
            break;
        best = cut;
    }
    return best;
}

/* Whether the test makes both lists shorter, or one of them and the region. */
static bool helps(const struct grower *g, const struct leaf *leaf, const struct probe *probe)
{
    uint32_t in = 0, out = 0;
    for (uint32_t i = 0; i < leaf->boxes; i++) {
        struct side side = box_side(g->space, leaf->box[i], probe->axis);
        in += probe_meets(probe, side);
        out += probe_is_left(probe, side);
    }
    return out < leaf->boxes && in > 0;
}

/* The least prefix that holds all boxes that do not span the region; false: the region itself. */
static bool least_prefix(const struct grower *g, const struct leaf *leaf, uint32_t axis, struct probe *probe)
{
    const struct line *line = &g->space->line[axis];
    const struct range *along = &leaf->region[axis];
    struct side hull = {UINT32_MAX, 0};
    for (uint32_t i = 0; i < leaf->boxes; i++) {
        struct side side = box_side(g->space, leaf->box[i], axis);
        if (spans(side, along))
            continue;
        hull.low = side.low < hull.low ? side.low : hull.low;
        hull.high = side.high > hull.high ? side.high : hull.high;
    }
    u128 low = line->edge[hull.low], high = line_end(line, hull.high), below = 0;
    if (low < along->low)
        low = along->low;
    if (high > along->high)
        high = along->high;
    while (below < (low ^ high))
        below = below << 1 | 1;
    low &= ~below;
    if (low <= along->low && (low | below) >= along->high)
        return false;
    *probe = probe_of(g->space, leaf->region, axis, low, low | below);
    return true;
}

/* The most frequent interval that boxes spell along the axis and a test can spell. */
static bool most_spelt(struct grower *g, const struct leaf *leaf, uint32_t axis, struct probe *probe)
{
    const struct line *line = &g->space->line[axis];
    const struct range *along = &leaf->region[axis];
    uint32_t keys = 0, most = 0;
    for (uint32_t i = 0; i < leaf->boxes; i++) {
        struct side side = box_side(g->space, leaf->box[i], axis);
        if (!spans(side, along))
            g->key[keys++] = (uint64_t)side.low << 32 | side.high;
    }
    sort_keys(g->key, g->spare, keys, 0);
    for (uint32_t i = 0, next; i < keys; i = next) {
        for (next = i; next < keys && g->key[next] == g->key[i];)
            next++;
        u128 low = line->edge[g->key[i] >> 32], high = line_end(line, (uint32_t)g->key[i]);
        if (next - i <= most || !axis_can_test(&g->space->in->axis[axis], low, high))
            continue;
        struct probe tried = probe_of(g->space, leaf->region, axis, low, high);
        if (helps(g, leaf, &tried)) {
            most = next - i;
            *probe = tried;
        }
    }
    return most > 0;
}

/* What the axis needs to be known, tested for the value that most boxes ask for. */
static bool most_needed(const struct grower *g, const struct leaf *leaf, uint32_t axis, struct probe *probe)
{
    const struct tree_axis *wanted = &g->space->in->axis[axis];
    uint32_t needs = (uint32_t)wanted->needs, most = 0;
    if (g->space->in->axis[needs].cut == TREE_CUT_NONE)
        return false;
    for (uint32_t v = 0; v < wanted->needed_count; v++) {
        u128 value = wanted->needed[v];
        const struct range *along = &leaf->region[needs];
        if (value < along->low || value > along->high)
            continue;
        struct probe tried = probe_of(g->space, leaf->region, needs, value, value);
        uint32_t only = 0;
        for (uint32_t i = 0; i < leaf->boxes; i++)
            only += !probe_is_left(&tried, box_side(g->space, leaf->box[i], needs));
        if (only > most) {
            most = only;
            *probe = tried;
        }
    }
    return most > 0;
}

/* What to do with a leaf: a test (true) or a cut of parts (false; 1 part: nothing). */
static bool choose(struct grower *g, const struct leaf *leaf, struct probe *probe, struct cut *cut)
{
    bool tried[TREE_AXES] = {false};
    const struct tree_boxes *in = g->space->in;
    cut->parts = 1;
    for (uint32_t round = 0; round < in->axes; round++) {
        uint32_t most = 0, axis = 0;
        for (uint32_t a = 0; a < in->axes; a++) {
            uint32_t count = tried[a] || in->axis[a].cut == TREE_CUT_NONE ? 0 : distinct(g, leaf, a);
            if (count > most) {
                most = count;
                axis = a;
            }
        }
        if (!most)
            return false;
        tried[axis] = true;
        if (!axis_usable(g->space, leaf->region, axis)) {
            if (most_needed(g, leaf, axis, probe))
                return true;
            continue;
        }
        switch (in->axis[axis].cut) {
        case TREE_CUT_PREFIX:
            if (least_prefix(g, leaf, axis, probe))
                return true;
            /* fall through */
        case TREE_CUT_RANGE:
            *cut = cut_equally(g, leaf, axis);
            if (cut->parts > 1)
                return false;
            break;
        default:
            if (most_spelt(g, leaf, axis, probe))
                return true;
        }
    }
    return false;
}

static struct leaf *leaf_new(struct grower *g, uint32_t nesting)
{
    struct arena *arena = g->space->arena;
    struct leaf *leaf = arena_take(arena, sizeof *leaf);
    if (!leaf)
        return NULL;
    leaf->nesting = nesting;
    leaf->twig = twig_new(g->space);
    leaf->region = arena_take(arena, g->space->in->axes * sizeof *leaf->region);
    return leaf->twig && leaf->region ? leaf : NULL;
}

/* Give the leaf the first so many of listed[], cut behind a rule that covers its region. */
static bool leaf_list(struct grower *g, struct leaf *leaf, uint32_t boxes)
{
    leaf->boxes = list_cut(g->space, g->listed, boxes, leaf->region);
    leaf->rules = rules_in(g, g->listed, leaf->boxes);
    leaf->box = arena_take(g->space->arena, leaf->boxes * sizeof *leaf->box);
    if (leaf->box)
        memcpy(leaf->box, g->listed, leaf->boxes * sizeof *leaf->box);
    return leaf->box != NULL;
}

/* The boxes of a part of a leaf; its region is set, *test* tells how it was made (NULL: by a cut). */
static bool leaf_fill(struct grower *g, const struct leaf *from, const struct probe *test, bool inside, uint32_t axis,
                      struct leaf *to)
{
    uint32_t boxes = 0;
    to->holes = from->holes;
    if (test && !inside && !(to->holes = hole_new(g->space, from->holes, test)))
        return false;
    bool alive = range_trim(g->space, to->holes, axis, &to->region[axis]);
    for (uint32_t i = 0; i < from->boxes; i++) {
        struct side side = box_side(g->space, from->box[i], axis);
        bool here = !test || (inside ? probe_meets(test, side) : probe_is_left(test, side));
        if (here && range_meets(&to->region[axis], alive, side))
            g->listed[boxes++] = from->box[i];
    }
    return leaf_list(g, to, boxes);
}

/* Split by a test or a cut, if that fits the budget. */
static enum tree_status leaf_split(struct grower *g, struct leaf *leaf)
{
    struct probe probe;
    struct cut cut;
    uint32_t axis;
    struct leaf *part[MOST_PARTS];
    if (leaf->rules <= g->options->leaf_size || leaf->nesting >= g->options->max_nesting)
        return TREE_OK;
    bool test = choose(g, leaf, &probe, &cut);
    uint32_t parts = test ? 2 : cut.parts;
    if (parts < 2)
        return TREE_OK;
    axis = test ? probe.axis : cut.axis;
    uint64_t printed = g->printed - leaf->rules + parts - 1;
    for (uint32_t i = 0; i < parts; i++) {
        /* Parts are 2^n: each zero bit of i takes the lower half. */
        part[i] = leaf_new(g, leaf->nesting + halvings(parts) - (uint32_t)__builtin_popcount(i));
        if (!part[i])
            return TREE_NO_MEMORY;
        if (test && i == 0)
            region_inside(g->space, leaf->region, &probe, part[i]->region);
        else if (test)
            region_outside(g->space, leaf->region, &probe, part[i]->region);
        else {
            memcpy(part[i]->region, leaf->region, g->space->in->axes * sizeof *leaf->region);
            cut_range(g->space, &cut, i, &leaf->region[axis], &part[i]->region[axis]);
        }
        if (!leaf_fill(g, leaf, test ? &probe : NULL, i == 0, axis, part[i]))
            return TREE_NO_MEMORY;
        printed += part[i]->rules;
    }
    if (printed > g->options->budget)
        return TREE_OK;
    g->printed = printed;
    struct twig *twig = leaf->twig;
    twig->kind = test ? TREE_TEST : TREE_CUTS;
    twig->axis = axis;
    twig->entries = 0;
    twig->branches = parts;
    twig->branch = arena_take(g->space->arena, parts * sizeof *twig->branch);
    if (!twig->branch)
        return TREE_NO_MEMORY;
    for (uint32_t i = 0; i < parts; i++) {
        struct range along = part[i]->region[axis];
        if (!test)
            cut_range(g->space, &cut, i, &leaf->region[axis], &along);
        if (!twig_lists(g->space, part[i]->twig, part[i]->box, part[i]->boxes))
            return TREE_NO_MEMORY;
        twig->branch[i] = (struct branch){along.low, along.high, part[i]->twig};
        *g->last = part[i];
        g->last = &part[i]->next;
    }
    if (test)
        twig->branch[0] = (struct branch){probe.low, probe.high, part[0]->twig};
    return TREE_OK;
}

static enum tree_status hicuts_grow(struct space *space, const struct tree_options *options, struct twig **root)
{
    uint32_t boxes = space->in->boxes;
    struct grower grower = {.space = space, .options = options}, *g = &grower;
    g->key = arena_take(space->arena, ((size_t)boxes + 1) * sizeof *g->key);
    g->spare = arena_take(space->arena, ((size_t)boxes + 1) * sizeof *g->spare);
    g->listed = arena_take(space->arena, ((size_t)boxes + 1) * sizeof *g->listed);
    struct leaf *leaf = leaf_new(g, 0);
    if (!g->key || !g->spare || !g->listed || !leaf)
        return TREE_NO_MEMORY;
    region_all(space, leaf->region);
    for (uint32_t i = 0; i < boxes; i++)
        g->listed[i] = i;
    if (!leaf_list(g, leaf, boxes))
        return TREE_NO_MEMORY;
    g->printed = leaf->rules;
    if (!twig_lists(space, leaf->twig, leaf->box, leaf->boxes))
        return TREE_NO_MEMORY;
    *root = leaf->twig;
    g->last = &leaf->next;
    /* Breadth first, so that a budget that runs out leaves a tree of even depth. */
    for (; leaf; leaf = leaf->next) {
        enum tree_status status = leaf_split(g, leaf);
        if (status != TREE_OK)
            return status;
    }
    return TREE_OK;
}

const struct tree_builder tree_hicuts = {.name = "hicuts", .grow = hicuts_grow};
