/* Trees of grids: how patches are split, and what comes of them.
 *
 * Idea: a patch of too many rules is cut along one axis or several into equal parts, as its
 * builder chooses.  A rule that an earlier final rule hides within a part is left out of it,
 * leaves of equal lists, and neighbours, become one patch.  Printed, a grid becomes tests, each of
 * which halves what is left along one axis; neighbours that are one patch are not told apart,
 * and a leaf that several places lead to stands in a chain of its own.  (Trees that are searched
 * in memory are cuttings.c.)
 * Rules must be read in list order: only common rules that stand before all
 * others of the patch are kept above the parts.  Values that are no intervals for a grid
 * (protocols, interfaces) and what an axis needs are tested one by one before.
 * Cost: per patch, its boxes times the parts that they meet, and the square of short lists.
 * Invariant: a point that comes to a patch finds all rules of the patch that it meets; one
 * that lies in none of a grid's parts meets none, wherever it goes.  Entries and
 * decisions never exceed the budget, nor taken tests on a path max_nesting.
 * Threading: none; everything lives in arenas of the one that builds.
 */
#include "cut_grid.h"

#include <stdlib.h>
#include <string.h>

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
struct side cut_span(const struct space *space, const struct cut *cut, const struct range *along, struct side side)
{
    const struct line *line = &space->line[cut->axis];
    u128 low = line->edge[side.low], high = line_end(line, side.high);
    bool none = along->none && !side.low;
    if (low < along->low)
        low = along->low;
    if (high > along->high)
        high = along->high;
    struct side span = {cut->parts - 1, cut->parts - 1};
    if (low <= high && cut->parts > 1) {
        span.low = (uint32_t)((low - cut->low) >> cut->shift);
        if (!none)
            span.high = (uint32_t)((high - cut->low) >> cut->shift);
    }
    return span;
}

static bool spans(struct side side, const struct range *along)
{
    return side.low <= along->side.low && side.high >= along->side.high && !(along->none && side.low);
}

/* How many intervals the boxes have along the axis, spanning ones not counted. */
uint32_t count_distinct(struct plotter *p, const struct patch *patch, uint32_t axis)
{
    const struct range *along = &patch->region[axis];
    uint32_t keys = 0, count = 0;
    for (uint32_t i = 0; i < patch->boxes; i++) {
        struct side side = box_side(p->space, patch->box[i], axis);
        if (!spans(side, along))
            p->key[keys++] = (uint64_t)side.low << 32 | side.high;
    }
    sort_keys(p->key, p->spare, keys, 0);
    for (uint32_t i = 0; i < keys; i++)
        count += !i || p->key[i] != p->key[i - 1];
    return count;
}

/* Tests. */

/* Whether the test makes both lists shorter, or one of them and the region. */
static bool helps(const struct space *space, const struct patch *patch, const struct probe *probe)
{
    uint32_t in = 0, out = 0;
    for (uint32_t i = 0; i < patch->boxes; i++) {
        struct side side = box_side(space, patch->box[i], probe->axis);
        in += probe_meets(probe, side);
        out += probe_is_left(probe, side);
    }
    return out < patch->boxes && in > 0;
}

/* The most frequent interval that boxes spell along the axis and a test can spell. */
static bool most_spelt(struct plotter *p, const struct patch *patch, uint32_t axis, struct probe *probe)
{
    const struct line *line = &p->space->line[axis];
    uint32_t keys = 0, most = 0;
    for (uint32_t i = 0; i < patch->boxes; i++) {
        struct side side = box_side(p->space, patch->box[i], axis);
        if (!spans(side, &patch->region[axis]))
            p->key[keys++] = (uint64_t)side.low << 32 | side.high;
    }
    sort_keys(p->key, p->spare, keys, 0);
    for (uint32_t i = 0, next; i < keys; i = next) {
        for (next = i; next < keys && p->key[next] == p->key[i];)
            next++;
        u128 low = line->edge[p->key[i] >> 32], high = line_end(line, (uint32_t)p->key[i]);
        if (next - i <= most || !axis_can_test(&p->space->in->axis[axis], low, high))
            continue;
        struct probe tried = probe_of(p->space, patch->region, axis, low, high);
        if (helps(p->space, patch, &tried)) {
            most = next - i;
            *probe = tried;
        }
    }
    return most > 0;
}

/* What the axis needs to be known, tested for the value that most boxes ask for. */
static bool most_needed(const struct space *space, const struct patch *patch, uint32_t axis, struct probe *probe)
{
    const struct tree_axis *wanted = &space->in->axis[axis];
    uint32_t needs = (uint32_t)wanted->needs, most = 0;
    if (space->in->axis[needs].cut == TREE_CUT_NONE)
        return false;
    for (uint32_t v = 0; v < wanted->needed_count; v++) {
        u128 value = wanted->needed[v];
        const struct range *along = &patch->region[needs];
        if (value < along->low || value > along->high)
            continue;
        struct probe tried = probe_of(space, patch->region, needs, value, value);
        uint32_t only = 0;
        for (uint32_t i = 0; i < patch->boxes; i++)
            only += !probe_is_left(&tried, box_side(space, patch->box[i], needs));
        if (only > most) {
            most = only;
            *probe = tried;
        }
    }
    return most > 0;
}

bool can_grid(const struct plotter *p, const struct patch *patch, uint32_t axis)
{
    enum tree_cut cut = p->space->in->axis[axis].cut;
    return (cut == TREE_CUT_PREFIX || cut == TREE_CUT_RANGE) && axis_usable(p->space, patch->region, axis);
}

/* One test takes what lies beyond the least prefix that holds all boxes which do not span the region. */
bool plan_narrows(const struct plotter *p, const struct patch *patch, uint32_t axis, struct plan *plan)
{
    const struct line *line = &p->space->line[axis];
    const struct range *along = &patch->region[axis];
    struct side hull = {UINT32_MAX, 0};
    if (p->space->in->axis[axis].cut != TREE_CUT_PREFIX)
        return false;
    for (uint32_t i = 0; i < patch->boxes; i++) {
        struct side side = box_side(p->space, patch->box[i], axis);
        if (spans(side, along))
            continue;
        hull.low = side.low < hull.low ? side.low : hull.low;
        hull.high = side.high > hull.high ? side.high : hull.high;
    }
    u128 low = line->edge[hull.low], high = line_end(line, hull.high);
    low = low > along->low ? low : along->low;
    high = high < along->high ? high : along->high;
    u128 below = prefix_below(low, high);
    low &= ~below;
    if (low <= along->low && (low | below) >= along->high)
        return false;
    plan->kind = PLAN_TEST;
    plan->probe = probe_of(p->space, patch->region, axis, low, low | below);
    return true;
}

/* Where the axis cannot be cut into parts: the test that comes first. */
bool plan_test(struct plotter *p, const struct patch *patch, uint32_t axis, struct plan *plan)
{
    bool usable = axis_usable(p->space, patch->region, axis);
    bool found = usable ? most_spelt(p, patch, axis, &plan->probe) : most_needed(p->space, patch, axis, &plan->probe);
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
        struct side x = box_side(space, earlier, a), y = box_side(space, later, a);
        if (space->in->axis[a].cut == TREE_CUT_NONE || (drops && space->in->axis[a].optional))
            y = (struct side){0, UINT32_MAX};
        uint32_t low = y.low > region[a].side.low ? y.low : region[a].side.low;
        uint32_t high = y.high < region[a].side.high ? y.high : region[a].side.high;
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
static void compact(const struct space *space, struct patch *patch)
{
    for (uint32_t a = 0; a < space->in->axes && patch->boxes; a++) {
        enum tree_cut cut = space->in->axis[a].cut;
        struct range *along = &patch->region[a];
        const struct line *line = &space->line[a];
        uint32_t least = space->in->axis[a].optional; /* the rank of the first value */
        struct side hull = {UINT32_MAX, 0};
        bool none = false;
        if (cut != TREE_CUT_PREFIX && cut != TREE_CUT_RANGE)
            continue;
        for (uint32_t i = 0; i < patch->boxes; i++) {
            struct side side = box_side(space, patch->box[i], a);
            none |= least && (!side.low || space->in->free[space->in->rule[patch->box[i]]] & TREE_DROPS);
            if (side.low < least)
                side.low = least;
            hull.low = side.low < hull.low ? side.low : hull.low;
            hull.high = side.high > hull.high ? side.high : hull.high;
        }
        u128 low = line->edge[hull.low], high = line_end(line, hull.high);
        low = low > along->low ? low : along->low;
        high = high < along->high ? high : along->high;
        along->none &= none;
        if (low <= high) {
            along->low = low;
            along->high = high;
            along->side = (struct side){line_rank(line, low), line_rank(line, high)};
        }
    }
}

static struct patch *patch_new(struct plotter *p, const struct range *region)
{
    size_t size = p->space->in->axes * sizeof *region;
    struct patch *patch = arena_take(p->space->arena, sizeof *patch);
    if (!patch || !(patch->region = arena_take(p->later, size)) || !(patch->twig = twig_new(p->space)))
        return NULL;
    memcpy(patch->region, region, size);
    return patch;
}

static bool patch_list(struct plotter *p, struct patch *patch, const uint32_t *box, uint32_t boxes)
{
    patch->boxes = boxes;
    patch->rules = rules_in(p->space, box, boxes);
    patch->box = arena_take(p->later, boxes * sizeof *box);
    if (!patch->box)
        return false;
    if (boxes)
        memcpy(patch->box, box, boxes * sizeof *box);
    return true;
}

/* Splitting. */

/* The parts of a patch while they are made: one list per cell. */
struct cells {
    uint32_t cells;
    uint32_t *start; /* of each list, in box[]; [cells] ends the last */
    uint32_t *boxes; /* of each list */
    uint32_t *box;
};

static void cells_free(struct cells *cells)
{
    free(cells->start);
    free(cells->boxes);
    free(cells->box);
}

/* The region of one cell: its parts as digits of *cell*. */
static void cell_region(const struct space *space, const struct patch *patch, uint32_t cell, struct range *region)
{
    memcpy(region, patch->region, space->in->axes * sizeof *region);
    for (uint32_t c = patch->plan->cuts; c--;) {
        const struct cut *cut = &patch->plan->cut[c];
        const struct line *line = &space->line[cut->axis];
        struct range *along = &region[cut->axis];
        uint32_t part = cell % cut->parts;
        u128 low = cut->low + ((u128)part << cut->shift), high = low + (((u128)1 << cut->shift) - 1);
        cell /= cut->parts;
        along->low = low > along->low ? low : along->low;
        along->high = high < along->high ? high : along->high;
        along->none &= part + 1 == cut->parts;
        along->side = (struct side){0, 0};
        if (along->low <= along->high)
            along->side = (struct side){line_rank(line, along->low), line_rank(line, along->high)};
    }
}

/* Whether no value of the patch's region lies in the cell. */
static bool cell_is_void(const struct patch *patch, const struct range *region)
{
    for (uint32_t c = 0; c < patch->plan->cuts; c++) {
        const struct range *along = &region[patch->plan->cut[c].axis];
        if (along->low > along->high && !along->none)
            return true;
    }
    return false;
}

/* Call the cells that a box meets, in two passes: count them (box NULL), or list them. */
static void cells_meet(const struct space *space, const struct patch *patch, uint32_t at, struct cells *cells, bool fill)
{
    const struct plan *plan = patch->plan;
    struct side span[TREE_AXES];
    uint32_t digit[TREE_AXES];
    for (uint32_t c = 0; c < plan->cuts; c++) {
        uint32_t axis = plan->cut[c].axis;
        span[c] = cut_span(space, &plan->cut[c], &patch->region[axis], box_side(space, patch->box[at], axis));
        digit[c] = span[c].low;
    }
    for (;;) {
        uint32_t cell = 0, c = plan->cuts;
        for (uint32_t i = 0; i < plan->cuts; i++)
            cell = cell * plan->cut[i].parts + digit[i];
        if (fill)
            cells->box[cells->start[cell] + cells->boxes[cell]] = patch->box[at];
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
static bool cells_fill(const struct space *space, const struct patch *patch, struct cells *cells)
{
    size_t total = 0;
    *cells = (struct cells){.cells = 1};
    for (uint32_t c = 0; c < patch->plan->cuts; c++)
        cells->cells *= patch->plan->cut[c].parts;
    cells->start = malloc((cells->cells + 1) * sizeof *cells->start);
    cells->boxes = calloc(cells->cells, sizeof *cells->boxes);
    if (!cells->start || !cells->boxes)
        return false;
    for (uint32_t i = 0; i < patch->boxes; i++)
        cells_meet(space, patch, i, cells, false);
    for (uint32_t c = 0; c < cells->cells; c++) {
        cells->start[c] = (uint32_t)total;
        total += cells->boxes[c];
        cells->boxes[c] = 0;
    }
    if (total > UINT32_MAX || !(cells->box = malloc((total + 1) * sizeof *cells->box)))
        return false;
    for (uint32_t i = 0; i < patch->boxes; i++)
        cells_meet(space, patch, i, cells, true);
    struct range region[TREE_AXES];
    for (uint32_t c = 0; c < cells->cells; c++) {
        cell_region(space, patch, c, region);
        cells->boxes[c] = cell_is_void(patch, region)
                              ? 0
                              : list_shown(space, cells->box + cells->start[c], cells->boxes[c], region);
    }
    return true;
}

/* Take the rule out of every list, if every list has it at its head. */
static bool cells_take(const struct plotter *p, struct cells *cells, int32_t rule)
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
static bool cells_share(struct plotter *p, struct patch *patch, struct cells *cells)
{
    uint32_t fewest = 0, room = 0;
    for (uint32_t c = 0; c < cells->cells; c++)
        if (cells->boxes[c] < cells->boxes[fewest])
            fewest = c;
    patch->held = 0;
    while (cells->boxes[fewest]) {
        int32_t rule = p->space->in->rule[cells->box[cells->start[fewest]]];
        if (!cells_take(p, cells, rule))
            break;
        if (patch->held == room) {
            room = room ? 2 * room : 16;
            uint32_t *more = arena_take(p->space->arena, room * sizeof *more);
            if (!more)
                return false;
            if (patch->held)
                memcpy(more, patch->entry, patch->held * sizeof *more);
            patch->entry = more;
        }
        patch->entry[patch->held++] = (uint32_t)rule;
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
        to[a].side = (struct side){line_rank(&space->line[a], low), line_rank(&space->line[a], high)};
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
static bool cells_merge(struct plotter *p, struct patch *patch, const struct cells *cells)
{
    uint32_t slots = 2, row = patch->plan->cut[patch->plan->cuts - 1].parts;
    while (slots < 2 * cells->cells)
        slots *= 2;
    struct patch **slot = calloc(slots, sizeof *slot);
    patch->cells = cells->cells;
    patch->part = arena_take(p->space->arena, cells->cells * sizeof *patch->part);
    bool made = slot && patch->part;
    struct range region[TREE_AXES];
    for (uint32_t c = 0; made && c < cells->cells; c++) {
        const uint32_t *box = cells->box + cells->start[c];
        uint32_t boxes = cells->boxes[c], at = 0;
        struct patch *part = NULL;
        if (!boxes) {
            patch->part[c] = p->empty;
            continue;
        }
        cell_region(p->space, patch, c, region);
        bool leaf = rules_in(p->space, box, boxes) <= p->leaf_size;
        struct patch *before = c % row ? patch->part[c - 1] : NULL;
        if (before && before->boxes == boxes && !memcmp(before->box, box, boxes * sizeof *box) &&
            (leaf || joins(p->space, before->region, region, patch->plan->cut[patch->plan->cuts - 1].axis)))
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
            part = patch_new(p, region);
            made = part && patch_list(p, part, box, boxes);
            if (part)
                part->holes = patch->holes;
            if (leaf)
                slot[at] = part;
        }
        patch->part[c] = part;
    }
    free(slot);
    return made;
}

/* What a grid is printed as: tests that halve the parts along one axis after the other. */

struct printer {
    struct plotter *plotter;
    const struct patch *patch;
    bool writes; /* make twigs; else count alone */
    bool failed;
    uint64_t printed; /* decisions, jumps to shared patches, copies of short ones */
    uint32_t deepest; /* tests taken to a part, at most */
};

static bool same_parts(const struct patch *patch, uint32_t one, uint32_t two, uint32_t size)
{
    return !memcmp(patch->part + one, patch->part + two, size * sizeof *patch->part);
}

static struct twig *made(struct printer *w)
{
    struct twig *twig = twig_new(w->plotter->space);
    w->failed |= !twig;
    return twig;
}

/* The way to a part; *taken*: a test leads to it, else it stands in line. */
static struct twig *print_part(struct printer *w, struct patch *part, bool taken, uint32_t nesting)
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
        return part->rules ? part->twig : made(w);
    struct twig *twig = made(w);
    if (w->failed)
        return NULL;
    if (part->rules > 1) {
        twig->then = part->twig;
    } else {
        twig->entries = part->held;
        twig->entry = part->entry;
    }
    return twig;
}

/* Tests for *parts* parts of cut number *level* from *from* on; *cell*: where their cells start.
 * *visit*: first, to count who leads where. */
static struct twig *print_cut(struct printer *w, uint32_t level, uint32_t cell, uint32_t from, uint32_t parts,
                              bool taken, uint32_t nesting, bool visit)
{
    const struct patch *patch = w->patch;
    const struct cut *cut = &patch->plan->cut[level];
    if (level == patch->plan->cuts) {
        if (visit) {
            patch->part[cell]->refs++;
            return NULL;
        }
        return print_part(w, patch->part[cell], taken, nesting);
    }
    uint32_t size = 1;
    for (uint32_t c = level + 1; c < patch->plan->cuts; c++)
        size *= patch->plan->cut[c].parts;
    bool same = true;
    for (uint32_t i = 1; i < parts && same; i++)
        same = same_parts(patch, cell + from * size, cell + (from + i) * size, size);
    if (same) {
        uint32_t next = level + 1 < patch->plan->cuts ? patch->plan->cut[level + 1].parts : 1;
        return print_cut(w, level + 1, cell + from * size, 0, next, taken, nesting, visit);
    }
    uint32_t half = parts / 2;
    struct twig *low = print_cut(w, level, cell, from, half, true, nesting + 1, visit);
    struct twig *high = print_cut(w, level, cell, from + half, parts - half, false, nesting, visit);
    w->printed++;
    if (!w->writes || w->failed)
        return NULL;
    struct twig *twig = made(w);
    struct branch *branch = arena_take(w->plotter->space->arena, 2 * sizeof *branch);
    if (!branch || !twig) {
        w->failed = true;
        return NULL;
    }
    u128 first = cut->low + ((u128)from << cut->shift), middle = first + ((u128)half << cut->shift);
    u128 last = cut->low + (((u128)(from + parts - 1) << cut->shift) + (((u128)1 << cut->shift) - 1));
    branch[0] = (struct branch){first, middle - 1, low};
    branch[1] = (struct branch){middle, last, high};
    twig->kind = TREE_TEST;
    twig->axis = cut->axis;
    twig->branches = 2;
    twig->branch = branch;
    return twig;
}

/* How the grid of the patch prints: decisions and the like, and how deep. */
static struct printer print_count(struct plotter *p, struct patch *patch)
{
    struct printer w = {.plotter = p, .patch = patch};
    for (uint32_t c = 0; c < patch->cells; c++)
        patch->part[c]->refs = patch->part[c]->nesting = 0;
    print_cut(&w, 0, 0, 0, patch->plan->cut[0].parts, true, patch->nesting, true);
    w.printed = 0;
    print_cut(&w, 0, 0, 0, patch->plan->cut[0].parts, true, patch->nesting, false);
    return w;
}

/* Put the patch's new parts into the queue. */
static void enqueue(struct plotter *p, struct patch *patch)
{
    for (uint32_t c = 0; c < patch->cells; c++) {
        struct patch *part = patch->part[c];
        if (!part->boxes || part->number)
            continue;
        part->number = 1;
        compact(p->space, part);
        p->last->next = part;
        p->last = part;
    }
}

static bool grid_fits(struct plotter *p, struct patch *patch)
{
    uint64_t listed = patch->held;
    struct printer w = print_count(p, patch);
    for (uint32_t c = 0; c < patch->cells; c++) {
        struct patch *part = patch->part[c];
        if (part->refs) { /* each once */
            listed += part->rules;
            part->refs = 0;
        }
    }
    if (w.deepest > p->max_nesting || p->printed - patch->rules + listed + w.printed > p->budget)
        return false;
    p->printed += listed + w.printed - patch->rules;
    print_count(p, patch); /* who leads where is asked again when it is printed */
    return true;
}

/* Whether parts differ, and some part has less to list. */
static bool grid_helps(const struct patch *patch)
{
    bool less = false, differ = false;
    for (uint32_t c = 0; c < patch->cells; c++) {
        less |= patch->part[c]->boxes < patch->boxes;
        differ |= patch->part[c] != patch->part[0];
    }
    return less && differ;
}

/* Fewer parts along the cut that has most. */
static bool plan_shrinks(struct plotter *p, struct patch *patch)
{
    struct plan *plan = patch->plan;
    uint32_t most = 0;
    for (uint32_t c = 1; c < plan->cuts; c++)
        if (plan->cut[c].parts > plan->cut[most].parts)
            most = c;
    uint32_t parts = 1u << (plan->cut[most].parts > 2 ? floor_log2(plan->cut[most].parts - 1) : 0);
    plan->cut[most] = cut_into(p->space, patch->region, plan->cut[most].axis, parts);
    if (plan->cut[most].parts < 2)
        plan->cut[most] = plan->cut[--plan->cuts];
    return plan->cuts > 0;
}

static enum tree_status split_grid(struct plotter *p, struct patch *patch)
{
    do {
        struct cells cells;
        bool made = cells_fill(p->space, patch, &cells) && (!p->builder->shares || cells_share(p, patch, &cells)) &&
                    cells_merge(p, patch, &cells);
        cells_free(&cells);
        if (!made)
            return TREE_NO_MEMORY;
        if (!grid_helps(patch))
            break;
        if (grid_fits(p, patch)) {
            enqueue(p, patch);
            return TREE_OK;
        }
    } while (plan_shrinks(p, patch));
    patch->plan->kind = PLAN_LEAF;
    return TREE_OK;
}

/* One side of a test. */
static struct patch *test_side(struct plotter *p, const struct patch *from, bool inside)
{
    const struct probe *probe = &from->plan->probe;
    struct patch *to = patch_new(p, from->region);
    if (!to)
        return NULL;
    (inside ? region_inside : region_outside)(p->space, from->region, probe, to->region);
    to->holes = from->holes;
    if (!inside && !(to->holes = hole_new(p->space, from->holes, probe)))
        return NULL;
    bool alive = range_trim(p->space, to->holes, probe->axis, &to->region[probe->axis]);
    uint32_t boxes = 0;
    for (uint32_t i = 0; i < from->boxes; i++) {
        struct side side = box_side(p->space, from->box[i], probe->axis);
        bool here = inside ? probe_meets(probe, side) : probe_is_left(probe, side);
        if (here && range_meets(&to->region[probe->axis], alive, side))
            p->listed[boxes++] = from->box[i];
    }
    to->nesting = from->nesting + inside;
    boxes = list_shown(p->space, p->listed, boxes, to->region);
    return patch_list(p, to, p->listed, boxes) ? to : NULL;
}

static enum tree_status split_test(struct plotter *p, struct patch *patch)
{
    struct patch *taken = test_side(p, patch, true), *other = taken ? test_side(p, patch, false) : NULL;
    if (!other || !(patch->part = arena_take(p->space->arena, 2 * sizeof *patch->part)))
        return TREE_NO_MEMORY;
    uint64_t printed = p->printed - patch->rules + taken->rules + other->rules + 1;
    if (printed > p->budget) {
        patch->plan->kind = PLAN_LEAF;
        return TREE_OK;
    }
    p->printed = printed;
    patch->part[0] = taken;
    patch->part[1] = other;
    patch->cells = 2;
    enqueue(p, patch);
    return TREE_OK;
}

static bool leaf_holds(struct plotter *p, struct patch *patch)
{
    const int32_t *rule = p->space->in->rule;
    patch->held = patch->cells = 0;
    patch->entry = arena_take(p->space->arena, patch->rules * sizeof *patch->entry);
    for (uint32_t i = 0; patch->entry && i < patch->boxes; i++)
        if (!i || rule[patch->box[i]] != rule[patch->box[i - 1]])
            patch->entry[patch->held++] = (uint32_t)rule[patch->box[i]];
    return patch->entry != NULL;
}

static enum tree_status split(struct plotter *p, struct patch *patch)
{
    enum tree_status status = TREE_OK;
    patch->plan = &p->plan;
    p->plan = (struct plan){.kind = PLAN_LEAF};
    if (patch->rules > p->leaf_size && patch->rules > 1 && patch->nesting < p->max_nesting)
        p->builder->choose(p, patch, patch->plan);
    if (p->plan.kind == PLAN_TEST)
        status = split_test(p, patch);
    else if (p->plan.kind == PLAN_GRID)
        status = split_grid(p, patch);
    if (status != TREE_OK)
        return status;
    if (p->plan.kind != PLAN_GRID)
        p->plan.cuts = 0;
    size_t size = offsetof(struct plan, cut) + p->plan.cuts * sizeof *p->plan.cut;
    patch->plan = arena_take(p->space->arena, size);
    if (!patch->plan || (p->plan.kind == PLAN_LEAF && !leaf_holds(p, patch)))
        return TREE_NO_MEMORY;
    memcpy(patch->plan, &p->plan, size);
    return TREE_OK;
}

/* Split all patches, level by level, so that a budget that runs out leaves a tree of even depth.
 * Lists of a level are given back when the next one is done. */
static enum tree_status plot(struct plotter *p)
{
    struct space *space = p->space;
    size_t boxes = space->in->boxes;
    struct range region[TREE_AXES];
    region_all(space, region);
    p->key = arena_take(space->arena, (boxes + 1) * sizeof *p->key);
    p->spare = arena_take(space->arena, (boxes + 1) * sizeof *p->spare);
    p->listed = arena_take(space->arena, (boxes + 1) * sizeof *p->listed);
    p->later = arena_new(p->memory);
    p->empty = p->later ? patch_new(p, region) : NULL;
    p->first = p->last = p->empty ? patch_new(p, region) : NULL;
    if (!p->key || !p->spare || !p->listed || !p->first)
        return TREE_NO_MEMORY;
    for (uint32_t i = 0; i < boxes; i++)
        p->listed[i] = i;
    uint32_t listed = list_shown(space, p->listed, (uint32_t)boxes, region);
    if (!patch_list(p, p->first, p->listed, listed))
        return TREE_NO_MEMORY;
    compact(space, p->first);
    p->printed = p->first->rules;
    for (struct patch *patch = p->first; patch; patch = patch->next) {
        struct patch *end = p->last;
        arena_free(p->list);
        p->list = p->later;
        p->later = arena_new(p->memory);
        if (!p->later)
            return TREE_NO_MEMORY;
        enum tree_status status = split(p, patch);
        while (status == TREE_OK && patch != end)
            status = split(p, patch = patch->next);
        size_t bytes = arena_bytes(space->arena) + arena_bytes(p->list) + arena_bytes(p->later);
        if (status == TREE_OK && p->memory && bytes > p->memory)
            status = TREE_NO_MEMORY;
        if (status != TREE_OK)
            return status;
    }
    return TREE_OK;
}

static void plot_free(struct plotter *p)
{
    arena_free(p->list);
    arena_free(p->later);
}

/* Printed. */

static bool patch_print(struct plotter *p, struct patch *patch)
{
    struct twig *twig = patch->twig;
    twig->entries = patch->held;
    twig->entry = patch->entry;
    if (patch->plan->kind == PLAN_LEAF)
        return true;
    if (patch->plan->kind == PLAN_TEST) {
        const struct probe *probe = &patch->plan->probe;
        u128 low = p->space->in->axis[probe->axis].optional, high = p->space->line[probe->axis].top;
        twig->branch = arena_take(p->space->arena, 2 * sizeof *twig->branch);
        if (!twig->branch)
            return false;
        twig->branch[0] = (struct branch){probe->low, probe->high, patch->part[0]->twig};
        twig->branch[1] = (struct branch){low, high, patch->part[1]->twig};
        twig->kind = TREE_TEST;
        twig->axis = probe->axis;
        twig->branches = 2;
        return true;
    }
    struct printer w = {.plotter = p, .patch = patch, .writes = true};
    struct twig *tests = print_cut(&w, 0, 0, 0, patch->plan->cut[0].parts, true, 0, false);
    if (w.failed)
        return false;
    /* Not all parts are one, so this is a test of its own, which nothing else leads to. */
    *twig = *tests;
    twig->entries = patch->held;
    twig->entry = patch->entry;
    return true;
}

enum tree_status grids_print(struct space *space, const struct tree_options *options,
                             const struct grid_builder *builder, struct twig **root)
{
    struct plotter plotter = {
        .space = space, .builder = builder, .leaf_size = options->leaf_size, .spfac = options->spfac,
        .budget = options->budget, .max_nesting = options->max_nesting, .memory = options->memory,
    };
    enum tree_status status = plot(&plotter);
    for (struct patch *patch = plotter.first; status == TREE_OK && patch; patch = patch->next)
        if (!patch_print(&plotter, patch))
            status = TREE_NO_MEMORY;
    if (status == TREE_OK)
        *root = plotter.first->twig;
    plot_free(&plotter);
    return status;
}
