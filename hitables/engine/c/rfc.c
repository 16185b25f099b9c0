/* Recursive flow classification (Gupta and McKeown, SIGCOMM 1999).
 *
 * Idea: two values of a dimension that meet the same rules are one class, and so are two pairs of
 * classes; a table from pairs to classes after each pair of dimensions leaves one class in the end,
 * and with it the rule.
 * Cost: a search reads one table per chunk of 16 bits and one per reduction, whatever the number of
 * rules.  A build fills all tables: each entry takes time by the rules that its two classes share.
 * The tables may outgrow any memory: more than *entries* entries are VFDB_TOO_LARGE.
 * Invariant: of the rules that meet a class, its set holds at least the first that meets a header,
 * whatever the header's other dimensions are; every rule in the set meets the class.
 * Threading: searches change nothing.
 *
 * Where we differ from the paper: a dimension of up to 32 bits is swept as a whole and only then split
 * into two chunks, so that any range is one box.  A set drops each rule that another, earlier one covers
 * in all dimensions to come: classes that differ in such rules alone are one.  Dimensions that all rules
 * leave free have no table.  The paper fixes the order of reduction by hand; here the pair with the
 * smallest table is reduced first, and of the last three dimensions every order is tried.
 */
#include <stdlib.h>
#include <string.h>

#include "bag.h"
#include "classes.h"
#include "edges.h"
#include "ledger.h"
#include "tree_core.h"
#include "vfdb.h"

enum {
    CHUNK = 16,           /* bits of a chunk */
    CHUNK_SIZE = 1 << CHUNK,
    BLOCK = 64,           /* headers that go from table to table together; their values stay in the L1 cache */
    MOST_STEPS = 4 * VFDB_DIMS,
    COVER_GROUPS = 4096,  /* so many groups have a table of who covers whom */
    COVER_WORDS = COVER_GROUPS / 64
};

/* A table: of a chunk of a header's dimension, or of the values that up to three steps before it gave. */
struct step {
    uint8_t inputs; /* 0: a chunk */
    bool wide;      /* entries of 32 bits, else of 16 */
    uint8_t dim, shift;
    uint16_t input[3];
    uint32_t mask;
    uint32_t stride[3];
    void *table;
};

struct rfc {
    struct bag bag;
    struct ledger *ledger;
    uint32_t dims, steps;
    struct step step[MOST_STEPS];
    uint32_t *answer; /* by the last step's value */
};

/* What is not reduced yet: the step that gives the class, and the rules of each class. */
struct node {
    uint32_t step, dims; /* dims: a bit for each dimension in it */
    struct bag bag;      /* of its sets */
    struct classes sets;
};

/* How rules look from the dimensions to come: those with the same sides there are one group. */
struct view {
    uint32_t groups;
    uint32_t *group;  /* [rules] */
    uint8_t *full;    /* [groups] it leaves all those dimensions free */
    uint32_t words;
    uint64_t *covers; /* [groups][words] the groups around each, itself too; NULL: too many groups */
    uint32_t *stamp;  /* [groups] the last set that had a rule of it */
    uint32_t stamps;
};

struct build {
    struct rfc *db;
    const struct vfdb_rules *rules;
    struct bag bag; /* what only the build needs */
    uint64_t entries, most;
    uint32_t words;
    uint64_t *dense; /* [words] a set as a bitmap */
    uint32_t *at;    /* [words] a set as sets are kept */
    uint64_t *bits;
    uint32_t *kept_at;
    uint64_t *kept_bits;
    struct node node[VFDB_DIMS];
    uint32_t nodes;
};

static void rfc_free(void *built)
{
    struct rfc *db = built;
    struct ledger *ledger = db->ledger;
    bag_empty(&db->bag);
    ledger_give(ledger, db, sizeof *db);
}

static bool same_sides(const struct vfdb_rules *rules, uint32_t one, uint32_t other, uint32_t dims)
{
    for (uint32_t d = 0; d < rules->dims; d++)
        if (dims >> d & 1 && memcmp(box_side_of(rules, one, d), box_side_of(rules, other, d), 2 * sizeof(uint32_t)))
            return false;
    return true;
}

static uint64_t sides_hash(const struct vfdb_rules *rules, uint32_t box, uint32_t dims)
{
    uint64_t hash = 0;
    for (uint32_t d = 0; d < rules->dims; d++)
        if (dims >> d & 1) {
            const uint32_t *side = box_side_of(rules, box, d);
            hash = classes_mix(d, hash ^ ((uint64_t)side[0] << 32 | side[1]));
        }
    return hash;
}

/* Takes from each group's covers those that end too early for it along one dimension: at its upper
 * end, or, with the line turned around, at its lower. */
static void narrow(const struct vfdb_rules *rules, const uint32_t *first, uint32_t dim, bool lower, struct view *view,
                   uint64_t *key, uint64_t *reach)
{
    uint32_t groups = view->groups;
    for (uint32_t g = 0; g < groups; g++) {
        const uint32_t *side = box_side_of(rules, first[g], dim);
        key[g] = (uint64_t)(lower ? side[0] : ~side[1]) << 32 | g;
    }
    sort_keys(key, key + groups, groups, 32);
    memset(reach, 0, view->words * sizeof *reach);
    for (uint32_t i = 0, end; i < groups; i = end) {
        for (end = i; end < groups && key[end] >> 32 == key[i] >> 32; end++)
            reach[(uint32_t)key[end] / 64] |= UINT64_C(1) << key[end] % 64;
        for (uint32_t k = i; k < end; k++) {
            uint64_t *covers = view->covers + (size_t)(uint32_t)key[k] * view->words;
            for (uint32_t w = 0; w < view->words; w++)
                covers[w] &= reach[w];
        }
    }
}

static int view_covers(struct build *b, struct bag *bag, uint32_t dims, const uint32_t *first, struct view *view)
{
    view->words = (view->groups + 63) / 64;
    view->covers = bag_take(bag, (size_t)view->groups * view->words * sizeof *view->covers);
    uint64_t *key = bag_take(bag, 2 * (size_t)view->groups * sizeof *key), reach[COVER_WORDS];
    if (!view->covers || !key)
        return VFDB_NO_MEMORY;
    memset(view->covers, 255, (size_t)view->groups * view->words * sizeof *view->covers);
    for (uint32_t d = 0; d < b->rules->dims; d++)
        if (dims >> d & 1) {
            narrow(b->rules, first, d, true, view, key, reach);
            narrow(b->rules, first, d, false, view, key, reach);
        }
    return VFDB_OK;
}

static int view_from(struct build *b, struct bag *bag, uint32_t dims, struct view *view)
{
    const struct vfdb_rules *rules = b->rules;
    uint32_t mask = 1, *first = bag_take(bag, rules->count * sizeof *first);
    while (mask < 2 * (uint64_t)rules->count)
        mask = 2 * mask + 1;
    uint32_t *slot = bag_take(bag, (mask + UINT64_C(1)) * sizeof *slot);
    view->group = bag_take(bag, rules->count * sizeof *view->group);
    view->groups = 0;
    if (!first || !slot || !view->group)
        return VFDB_NO_MEMORY;
    for (uint32_t box = 0; box < rules->count; box++) {
        uint32_t at = (uint32_t)(sides_hash(rules, box, dims) >> 16) & mask;
        while (slot[at] && !same_sides(rules, first[slot[at] - 1], box, dims))
            at = (at + 1) & mask;
        if (!slot[at]) {
            first[view->groups++] = box;
            slot[at] = view->groups;
        }
        view->group[box] = slot[at] - 1;
    }
    bag_drop(bag, slot);
    view->full = bag_take(bag, view->groups);
    view->stamp = bag_take(bag, view->groups * sizeof *view->stamp);
    view->stamps = 0;
    view->covers = NULL;
    if (!view->full || !view->stamp)
        return VFDB_NO_MEMORY;
    for (uint32_t g = 0; g < view->groups; g++) {
        view->full[g] = 1;
        for (uint32_t d = 0; d < rules->dims; d++) {
            const uint32_t *side = box_side_of(rules, first[g], d);
            if (dims >> d & 1 && (side[0] || side[1] != dim_top(rules, d)))
                view->full[g] = 0;
        }
    }
    return view->groups <= COVER_GROUPS ? view_covers(b, bag, dims, first, view) : VFDB_OK;
}

/* Whether a rule of that group can be the first, behind the groups that are there; it then is one. */
static bool counts(struct view *view, uint64_t *there, uint32_t group)
{
    if (!view->covers) {
        bool first = view->stamp[group] != view->stamps;
        view->stamp[group] = view->stamps;
        return first;
    }
    const uint64_t *covers = view->covers + (size_t)group * view->words;
    for (uint32_t w = 0; w < view->words; w++)
        if (there[w] & covers[w])
            return false;
    there[group / 64] |= UINT64_C(1) << group % 64;
    return true;
}

/* The class of a set, without the rules that cannot be the first. */
static uint32_t class_of(struct build *b, struct view *view, struct classes *sets, const uint32_t *at,
                         const uint64_t *bits, uint32_t words)
{
    uint32_t kept = 0;
    uint64_t hash = 0, there[COVER_WORDS] = {0};
    bool full = false;
    view->stamps++;
    for (uint32_t w = 0; w < words && !full; w++) {
        uint64_t left = 0;
        for (uint64_t rest = bits[w]; rest && !full; rest &= rest - 1) {
            uint32_t bit = (uint32_t)__builtin_ctzll(rest), group = view->group[at[w] * 64 + bit];
            if (counts(view, there, group)) {
                left |= UINT64_C(1) << bit;
                full = view->full[group];
            }
        }
        if (left) {
            b->kept_at[kept] = at[w];
            b->kept_bits[kept++] = left;
            hash += classes_mix(at[w], left);
        }
    }
    return classes_number(sets, b->kept_at, b->kept_bits, kept, hash);
}

/* Every set once, as it was met, with its class. */
struct met {
    struct bag bag;
    struct classes sets;
    uint32_t *class; /* [room] */
    uint32_t room;
};

static int met_start(struct build *b, struct met *met)
{
    *met = (struct met){.bag = {.ledger = b->db->ledger}, .room = 64};
    met->class = bag_take(&met->bag, met->room * sizeof *met->class);
    return !met->class || classes_start(&met->sets, &met->bag) ? VFDB_NO_MEMORY : VFDB_OK;
}

/* The class of the set in b->at, b->bits; CLASSES_NO_MEMORY. */
static inline uint32_t class_of_met(struct build *b, struct met *met, struct view *view, struct classes *sets,
                                    uint32_t words, uint64_t hash)
{
    uint32_t before = met->sets.count;
    uint32_t number = classes_number(&met->sets, b->at, b->bits, words, hash);
    if (number == CLASSES_NO_MEMORY || number < before)
        return number == CLASSES_NO_MEMORY ? number : met->class[number];
    if (number == met->room) {
        uint32_t *moved = bag_resize(&met->bag, met->class, 2 * (size_t)met->room * sizeof *moved);
        if (!moved)
            return CLASSES_NO_MEMORY;
        met->class = moved;
        met->room *= 2;
    }
    return met->class[number] = class_of(b, view, sets, b->at, b->bits, words);
}

static uint32_t all_dims(const struct build *b)
{
    return (uint32_t)((UINT64_C(1) << b->rules->dims) - 1);
}

/* A table of so many entries of values below *values*, for step *step; VFDB_TOO_LARGE beyond the bound. */
static int table_new(struct build *b, struct step *step, uint64_t entries, uint64_t values)
{
    if (entries > b->most - b->entries)
        return VFDB_TOO_LARGE;
    step->wide = values > CHUNK_SIZE;
    step->table = bag_take(&b->db->bag, entries * (step->wide ? 4 : 2));
    if (!step->table)
        return VFDB_NO_MEMORY;
    b->entries += entries;
    return VFDB_OK;
}

static void table_drop(struct build *b, struct step *step, uint64_t entries)
{
    bag_drop(&b->db->bag, step->table);
    step->table = NULL;
    b->entries -= entries;
}

static inline void entry_set(const struct step *step, size_t entry, uint32_t value)
{
    if (step->wide)
        ((uint32_t *)step->table)[entry] = value;
    else
        ((uint16_t *)step->table)[entry] = (uint16_t)value;
}

static inline uint32_t entry_of(const struct step *step, size_t entry)
{
    return step->wide ? ((uint32_t *)step->table)[entry] : ((uint16_t *)step->table)[entry];
}

/* A dimension as runs of values of one class each: run i begins at start[i]. */
struct runs {
    uint32_t count, classes;
    uint32_t *start, *class;
};

/* The runs of a dimension, and its node's sets. */
static int sweep(struct build *b, uint32_t dim, struct node *node, struct runs *runs)
{
    struct view view;
    struct met met;
    struct bag bag = {.ledger = b->db->ledger};
    uint64_t *edge;
    uint32_t edges;
    int status = met_start(b, &met);
    node->dims = 1U << dim;
    node->bag.ledger = b->db->ledger;
    if (!status)
        status = classes_start(&node->sets, &node->bag) ? VFDB_NO_MEMORY : VFDB_OK;
    if (!status)
        status = view_from(b, &bag, all_dims(b) & ~node->dims, &view);
    if (!status)
        status = edges_sorted(&bag, b->rules, dim, &edge, &edges);
    if (!status) {
        runs->start = bag_take(&b->bag, (edges + (size_t)1) * sizeof *runs->start);
        runs->class = bag_take(&b->bag, (edges + (size_t)1) * sizeof *runs->class);
        status = runs->start && runs->class ? VFDB_OK : VFDB_NO_MEMORY;
    }
    runs->count = 0;
    memset(b->dense, 0, b->words * sizeof *b->dense);
    for (uint32_t i = 0, value = 0; status == VFDB_OK; value = edge_value(edge[i])) {
        for (; i < edges && edge_value(edge[i]) == value; i++)
            b->dense[edge_box(edge[i]) / 64] ^= UINT64_C(1) << edge_box(edge[i]) % 64;
        uint32_t words = 0;
        uint64_t hash = 0;
        for (uint32_t w = 0; w < b->words; w++)
            if (b->dense[w]) {
                b->at[words] = w;
                b->bits[words++] = b->dense[w];
                hash += classes_mix(w, b->dense[w]);
            }
        uint32_t class = class_of_met(b, &met, &view, &node->sets, words, hash);
        if (class == CLASSES_NO_MEMORY)
            status = VFDB_NO_MEMORY;
        if (!runs->count || runs->class[runs->count - 1] != class) {
            runs->start[runs->count] = value;
            runs->class[runs->count++] = class;
        }
        if (i == edges)
            break;
    }
    runs->classes = node->sets.count;
    bag_empty(&met.bag);
    bag_empty(&bag);
    return status;
}

static struct step *step_new(struct build *b)
{
    return &b->db->step[b->db->steps++];
}

static uint32_t run_end(const struct runs *runs, uint32_t run, uint32_t top)
{
    return run + 1 < runs->count ? runs->start[run + 1] - 1 : top;
}

/* The table of a dimension of one chunk. */
static int one_chunk(struct build *b, uint32_t dim, const struct runs *runs)
{
    uint32_t top = dim_top(b->rules, dim);
    struct step *step = step_new(b);
    *step = (struct step){.dim = (uint8_t)dim, .mask = CHUNK_SIZE - 1};
    int status = table_new(b, step, top + UINT64_C(1), runs->classes);
    for (uint32_t run = 0; status == VFDB_OK && run < runs->count; run++)
        for (uint32_t v = runs->start[run], end = run_end(runs, run, top);; v++) {
            entry_set(step, v, runs->class[run]);
            if (v == end)
                break;
        }
    return status;
}

/* Two chunks.  To each value of the upper one belongs a function from the lower one to classes, kept
 * as its pieces; values with the same function are one class of the upper chunk, and values of the
 * lower one that all functions treat alike are one class of the lower. */
struct halves {
    uint32_t functions, lows;
    uint32_t *first; /* [functions + 1] pieces of each */
    uint32_t *from, *class; /* [pieces] first lower value, class */
    uint16_t *upper; /* [upper values] function */
    uint16_t *lower; /* [CHUNK_SIZE] class of the lower chunk */
    uint32_t *sample; /* [lows] the least value of each, ascending */
    uint32_t breaks;
    uint32_t *at; /* [breaks] where any function changes, ascending */
};

static bool same_pieces(const struct halves *h, uint32_t one, uint32_t other)
{
    uint32_t pieces = h->first[one + 1] - h->first[one];
    return pieces == h->first[other + 1] - h->first[other] &&
           !memcmp(h->from + h->first[one], h->from + h->first[other], pieces * sizeof *h->from) &&
           !memcmp(h->class + h->first[one], h->class + h->first[other], pieces * sizeof *h->class);
}

/* The function that was written last: its number, and it is kept if it is new. */
static uint32_t function_number(struct halves *h, uint32_t *slot, uint32_t mask)
{
    uint64_t hash = 0;
    for (uint32_t p = h->first[h->functions]; p < h->first[h->functions + 1]; p++)
        hash += classes_mix(h->from[p], h->class[p]);
    uint32_t at = (uint32_t)(hash >> 16) & mask;
    while (slot[at] && !same_pieces(h, slot[at] - 1, h->functions))
        at = (at + 1) & mask;
    if (!slot[at])
        slot[at] = ++h->functions;
    return slot[at] - 1;
}

static int split_upper(struct build *b, struct bag *bag, uint32_t dim, const struct runs *runs, struct halves *h)
{
    uint32_t uppers = (dim_top(b->rules, dim) >> CHUNK) + 1, mask = 4 * CHUNK_SIZE - 1;
    size_t pieces = (size_t)runs->count + 2 * (size_t)uppers + 1;
    uint32_t *slot = bag_take(bag, (mask + 1) * sizeof *slot);
    h->first = bag_take(bag, (uppers + 2) * sizeof *h->first);
    h->from = bag_take(bag, pieces * sizeof *h->from);
    h->class = bag_take(bag, pieces * sizeof *h->class);
    h->upper = bag_take(bag, uppers * sizeof *h->upper);
    if (!slot || !h->first || !h->from || !h->class || !h->upper)
        return VFDB_NO_MEMORY;
    for (uint32_t value = 0, run = 0; value < uppers;) {
        uint32_t low = value << CHUNK, high = low | (CHUNK_SIZE - 1), last = value, end;
        uint32_t *piece = &h->first[h->functions + 1];
        *piece = h->first[h->functions];
        for (;; run++) {
            h->from[*piece] = runs->start[run] > low ? runs->start[run] - low : 0;
            h->class[(*piece)++] = runs->class[run];
            end = run_end(runs, run, dim_top(b->rules, dim));
            if (end >= high)
                break;
        }
        if (*piece == h->first[h->functions] + 1) /* one class: so are the values up to the end of the run */
            last = (uint32_t)((end + UINT64_C(1)) >> CHUNK) - 1;
        uint32_t number = function_number(h, slot, mask);
        while (value <= last)
            h->upper[value++] = (uint16_t)number;
        while (run + 1 < runs->count && value < uppers && runs->start[run + 1] <= value << CHUNK)
            run++;
    }
    bag_drop(bag, slot);
    return VFDB_OK;
}

/* The classes of one function at the samples. */
static void function_row(const struct halves *h, uint32_t function, uint32_t *row)
{
    uint32_t p = h->first[function];
    for (uint32_t low = 0; low < h->lows; low++) {
        while (p + 1 < h->first[function + 1] && h->from[p + 1] <= h->sample[low])
            p++;
        row[low] = h->class[p];
    }
}

/* Classes of the lower chunk: values with one sum of hashes.  False when two that differ have one sum. */
static bool split_lower_by(struct halves *h, uint64_t *sum, uint32_t *slot, uint32_t *row, uint64_t seed)
{
    uint32_t mask = 4 * CHUNK_SIZE - 1;
    memset(sum, 0, CHUNK_SIZE * sizeof *sum);
    memset(slot, 0, (mask + (size_t)1) * sizeof *slot);
    for (uint32_t f = 0; f < h->functions; f++)
        for (uint32_t p = h->first[f]; p < h->first[f + 1]; p++) {
            uint64_t before = p > h->first[f] ? classes_mix(f, seed + h->class[p - 1]) : 0;
            sum[h->from[p]] += classes_mix(f, seed + h->class[p]) - before;
        }
    h->lows = 0;
    for (uint32_t i = 0; i < h->breaks; i++) {
        uint32_t v = h->at[i], end = i + 1 < h->breaks ? h->at[i + 1] : CHUNK_SIZE;
        sum[v] += i ? sum[h->at[i - 1]] : 0;
        uint32_t at = (uint32_t)(sum[v] >> 16) & mask;
        while (slot[at] && sum[h->sample[slot[at] - 1]] != sum[v])
            at = (at + 1) & mask;
        if (!slot[at]) {
            h->sample[h->lows++] = v;
            slot[at] = h->lows;
        }
        for (uint32_t fill = v; fill < end; fill++)
            h->lower[fill] = (uint16_t)(slot[at] - 1);
    }
    for (uint32_t f = 0; f < h->functions; f++) {
        uint32_t p = h->first[f];
        function_row(h, f, row);
        for (uint32_t i = 0; i < h->breaks; i++) {
            while (p + 1 < h->first[f + 1] && h->from[p + 1] <= h->at[i])
                p++;
            if (row[h->lower[h->at[i]]] != h->class[p])
                return false;
        }
    }
    return true;
}

static int split_lower(struct bag *bag, struct halves *h, uint32_t **row)
{
    uint64_t *sum = bag_take(bag, CHUNK_SIZE * sizeof *sum);
    uint32_t *slot = bag_take(bag, 4 * CHUNK_SIZE * sizeof *slot);
    uint8_t *breaks = bag_take(bag, CHUNK_SIZE);
    h->lower = bag_take(bag, CHUNK_SIZE * sizeof *h->lower);
    h->sample = bag_take(bag, CHUNK_SIZE * sizeof *h->sample);
    h->at = bag_take(bag, CHUNK_SIZE * sizeof *h->at);
    *row = bag_take(bag, CHUNK_SIZE * sizeof **row);
    if (!sum || !slot || !breaks || !h->lower || !h->sample || !h->at || !*row)
        return VFDB_NO_MEMORY;
    for (uint32_t p = 0; p < h->first[h->functions]; p++)
        breaks[h->from[p]] = 1;
    for (uint32_t v = 0; v < CHUNK_SIZE; v++)
        if (breaks[v])
            h->at[h->breaks++] = v;
    for (uint64_t seed = 0; !split_lower_by(h, sum, slot, *row, seed << 40); seed++)
        ;
    return VFDB_OK;
}

static int two_chunks(struct build *b, uint32_t dim, const struct runs *runs)
{
    struct bag bag = {.ledger = b->db->ledger};
    struct halves h = {0};
    uint32_t uppers = (dim_top(b->rules, dim) >> CHUNK) + 1, *row;
    int status = split_upper(b, &bag, dim, runs, &h);
    if (!status)
        status = split_lower(&bag, &h, &row);
    if (!status && h.lows > 1) {
        struct step *lower = step_new(b);
        *lower = (struct step){.dim = (uint8_t)dim, .mask = CHUNK_SIZE - 1};
        status = table_new(b, lower, CHUNK_SIZE, h.lows);
        for (uint32_t v = 0; !status && v < CHUNK_SIZE; v++)
            entry_set(lower, v, h.functions > 1 ? h.lower[v] : h.class[h.lower[v]]);
    }
    if (!status && (h.functions > 1 || h.lows == 1)) {
        struct step *upper = step_new(b);
        *upper = (struct step){.dim = (uint8_t)dim, .shift = CHUNK, .mask = CHUNK_SIZE - 1};
        status = table_new(b, upper, uppers, h.functions);
        for (uint32_t v = 0; !status && v < uppers; v++)
            entry_set(upper, v, h.lows > 1 ? h.upper[v] : h.class[h.upper[v]]);
    }
    if (!status && h.functions > 1 && h.lows > 1) {
        uint16_t last = (uint16_t)(b->db->steps - 1);
        struct step *both = step_new(b);
        *both = (struct step){.inputs = 2, .input = {last, (uint16_t)(last - 1)}, .stride = {h.lows, 1}};
        status = table_new(b, both, (uint64_t)h.functions * h.lows, runs->classes);
        for (uint32_t f = 0; !status && f < h.functions; f++) {
            function_row(&h, f, row);
            for (uint32_t low = 0; low < h.lows; low++)
                entry_set(both, (size_t)f * h.lows + low, row[low]);
        }
    }
    bag_empty(&bag);
    return status;
}

/* Tables for each dimension; those that all rules leave free but one, if all are, get none. */
static int read_dims(struct build *b)
{
    for (uint32_t dim = 0; dim < b->rules->dims; dim++) {
        struct runs runs = {0};
        struct node *node = &b->node[b->nodes++];
        int status = sweep(b, dim, node, &runs);
        if (status)
            return status;
        if (runs.classes == 1 && (b->nodes > 1 || dim + 1 < b->rules->dims)) {
            bag_empty(&node->bag);
            b->nodes--;
            continue;
        }
        status = b->rules->bits[dim] <= CHUNK ? one_chunk(b, dim, &runs) : two_chunks(b, dim, &runs);
        if (status)
            return status;
        node->step = b->db->steps - 1;
        bag_drop(&b->bag, runs.start);
        bag_drop(&b->bag, runs.class);
    }
    return VFDB_OK;
}

static uint64_t pairs(const struct node *one, const struct node *other)
{
    return (uint64_t)one->sets.count * other->sets.count;
}

static void spread(uint64_t *dense, const struct classes *sets, uint32_t set, bool put)
{
    for (size_t w = sets->first[set]; w < sets->first[set + 1]; w++)
        dense[sets->at[w]] = put ? sets->bits[w] : 0;
}

/* One node from two, and its table, which is not wide as long as there are few classes. */
static int reduce(struct build *b, const struct node *one, const struct node *other, struct step *step,
                  struct node *to)
{
    const struct node *outer = one->sets.count < other->sets.count ? other : one;
    const struct node *inner = outer == one ? other : one;
    const struct classes *sets = &inner->sets;
    struct view view;
    struct met met;
    struct bag bag = {.ledger = b->db->ledger};
    *step = (struct step){
        .inputs = 2, .input = {(uint16_t)outer->step, (uint16_t)inner->step}, .stride = {inner->sets.count, 1}};
    *to = (struct node){.dims = one->dims | other->dims, .bag.ledger = b->db->ledger};
    int status = met_start(b, &met);
    if (!status)
        status = classes_start(&to->sets, &to->bag) ? VFDB_NO_MEMORY : VFDB_OK;
    if (!status)
        status = view_from(b, &bag, all_dims(b) & ~to->dims, &view);
    if (!status)
        status = table_new(b, step, pairs(one, other), CHUNK_SIZE);
    memset(b->dense, 0, b->words * sizeof *b->dense);
    for (uint32_t o = 0; status == VFDB_OK && o < outer->sets.count; o++) {
        size_t entry = (size_t)o * sets->count;
        spread(b->dense, &outer->sets, o, true);
        for (uint32_t i = 0; i < sets->count; i++, entry++) {
            uint32_t words = 0;
            uint64_t hash = 0;
            for (size_t w = sets->first[i]; w < sets->first[i + 1]; w++) {
                uint64_t both = sets->bits[w] & b->dense[sets->at[w]];
                if (both) {
                    b->at[words] = sets->at[w];
                    b->bits[words++] = both;
                    hash += classes_mix(sets->at[w], both);
                }
            }
            uint32_t class = class_of_met(b, &met, &view, &to->sets, words, hash);
            if (class == CLASSES_NO_MEMORY) {
                status = VFDB_NO_MEMORY;
                break;
            }
            if (class >= CHUNK_SIZE && !step->wide) {
                uint32_t *wide = bag_take(&b->db->bag, pairs(one, other) * sizeof *wide);
                if (!wide) {
                    status = VFDB_NO_MEMORY;
                    break;
                }
                for (size_t e = 0; e < entry; e++)
                    wide[e] = ((uint16_t *)step->table)[e];
                bag_drop(&b->db->bag, step->table);
                step->table = wide;
                step->wide = true;
            }
            entry_set(step, entry, class);
        }
        spread(b->dense, &outer->sets, o, false);
    }
    bag_empty(&met.bag);
    bag_empty(&bag);
    return status;
}

/* Put the reduction of two nodes in their place. */
static void put(struct build *b, uint32_t one, uint32_t other, const struct step *step, const struct node *node)
{
    *step_new(b) = *step;
    bag_empty(&b->node[one].bag);
    bag_empty(&b->node[other].bag);
    b->node[one] = *node;
    b->node[one].step = b->db->steps - 1;
    b->node[other] = b->node[--b->nodes];
}

/* The pair whose table is smallest; false when it is beyond the bound. */
static bool smallest(const struct build *b, uint32_t *one, uint32_t *other)
{
    uint64_t least = UINT64_MAX;
    for (uint32_t i = 0; i < b->nodes; i++)
        for (uint32_t j = i + 1; j < b->nodes; j++)
            if (pairs(&b->node[i], &b->node[j]) < least) {
                least = pairs(&b->node[i], &b->node[j]);
                *one = i;
                *other = j;
            }
    return least <= b->most - b->entries;
}

static int reduce_smallest(struct build *b)
{
    uint32_t one, other;
    struct step step;
    struct node node;
    if (!smallest(b, &one, &other))
        return VFDB_TOO_LARGE;
    int status = reduce(b, &b->node[one], &b->node[other], &step, &node);
    if (status)
        bag_empty(&node.bag);
    else
        put(b, one, other, &step, &node);
    return status;
}

/* Three nodes are left: the pair is reduced after which least entries are needed in all. */
static int reduce_best(struct build *b)
{
    struct step best_step;
    struct node best_node;
    uint64_t least = UINT64_MAX;
    uint32_t rest = 3;
    int failed = VFDB_TOO_LARGE;
    for (uint32_t last = 0; last < 3; last++) {
        const struct node *one = &b->node[(last + 1) % 3], *other = &b->node[(last + 2) % 3];
        struct step step;
        struct node node;
        uint64_t table = pairs(one, other);
        if (table > b->most - b->entries || table >= least)
            continue;
        int status = reduce(b, one, other, &step, &node);
        uint64_t all = status ? UINT64_MAX : table + pairs(&node, &b->node[last]);
        bool better = all < least && all - table <= b->most - b->entries;
        failed = status ? status : failed;
        if (better && rest < 3) {
            bag_empty(&best_node.bag);
            table_drop(b, &best_step, pairs(&b->node[(rest + 1) % 3], &b->node[(rest + 2) % 3]));
        }
        if (better) {
            best_step = step;
            best_node = node;
            least = all;
            rest = last;
        } else {
            bag_empty(&node.bag);
            if (step.table)
                table_drop(b, &step, table);
        }
    }
    if (rest == 3)
        return failed;
    put(b, (rest + 1) % 3, (rest + 2) % 3, &best_step, &best_node);
    return VFDB_OK;
}

/* The first rule of both sets, or the number of rules; b->dense holds the one. */
static uint32_t first_common(const struct build *b, const struct classes *sets, uint32_t set)
{
    for (size_t w = sets->first[set]; w < sets->first[set + 1]; w++) {
        uint64_t both = sets->bits[w] & b->dense[sets->at[w]];
        if (both)
            return sets->at[w] * 64 + (uint32_t)__builtin_ctzll(both);
    }
    return b->rules->count;
}

/* One or two nodes are left: their classes, or pairs of them, have an answer. */
static int answer(struct build *b)
{
    const struct vfdb_rules *rules = b->rules;
    struct node all = {.sets = {.count = 1}};
    size_t everything[2] = {0, b->words};
    struct node *outer = &b->node[0], *inner = b->nodes > 1 ? &b->node[1] : &all;
    if (inner->sets.count > outer->sets.count) {
        struct node *swap = outer;
        outer = inner;
        inner = swap;
    }
    for (uint32_t w = 0; w < b->words; w++) {
        b->at[w] = w;
        b->bits[w] = UINT64_MAX;
    }
    if (inner == &all)
        all.sets = (struct classes){.count = 1, .first = everything, .at = b->at, .bits = b->bits};
    struct step *step = step_new(b);
    *step = (struct step){.inputs = inner == &all ? 1 : 2,
                          .input = {(uint16_t)outer->step, (uint16_t)inner->step},
                          .stride = {inner->sets.count, 1}};
    uint32_t *number = bag_take(&b->bag, (rules->count + (size_t)1) * sizeof *number), answers = 0;
    b->db->answer = bag_take(&b->db->bag, (rules->count + (size_t)1) * sizeof *b->db->answer);
    if (!number || !b->db->answer)
        return VFDB_NO_MEMORY;
    for (uint32_t i = 0; i < rules->count; i++) {
        answers += i && rules->priority[i] != rules->priority[i - 1];
        number[i] = answers;
        b->db->answer[answers] = rules->priority[i];
    }
    number[rules->count] = answers += rules->count > 0;
    b->db->answer[answers] = VFDB_NONE;
    int status = table_new(b, step, pairs(outer, inner), answers + UINT64_C(1));
    memset(b->dense, 0, b->words * sizeof *b->dense);
    size_t entry = 0;
    for (uint32_t o = 0; status == VFDB_OK && o < outer->sets.count; o++) {
        spread(b->dense, &outer->sets, o, true);
        for (uint32_t i = 0; i < inner->sets.count; i++)
            entry_set(step, entry++, number[first_common(b, &inner->sets, i)]);
        spread(b->dense, &outer->sets, o, false);
    }
    return status;
}

static int build_all(struct build *b)
{
    size_t words = b->words + 1;
    b->dense = bag_take(&b->bag, words * sizeof *b->dense);
    b->at = bag_take(&b->bag, words * sizeof *b->at);
    b->bits = bag_take(&b->bag, words * sizeof *b->bits);
    b->kept_at = bag_take(&b->bag, words * sizeof *b->kept_at);
    b->kept_bits = bag_take(&b->bag, words * sizeof *b->kept_bits);
    if (!b->dense || !b->at || !b->bits || !b->kept_at || !b->kept_bits)
        return VFDB_NO_MEMORY;
    int status = read_dims(b);
    while (status == VFDB_OK && b->nodes > 2)
        status = b->nodes == 3 ? reduce_best(b) : reduce_smallest(b);
    return status ? status : answer(b);
}

static int rfc_build(struct ledger *ledger, const struct vfdb_plan *plan, const struct vfdb_rules *rules, void **built)
{
    struct rfc *db = ledger_take(ledger, sizeof *db);
    struct build *b = db ? ledger_take(ledger, sizeof *b) : NULL;
    if (!b) {
        ledger_give(ledger, db, sizeof *db);
        return VFDB_NO_MEMORY;
    }
    db->ledger = db->bag.ledger = ledger;
    db->dims = rules->dims;
    *b = (struct build){.db = db, .rules = rules, .bag = {.ledger = ledger}, .most = (uint64_t)plan->value[0],
                        .words = rules->count / 64 + 1};
    int status = build_all(b);
    for (uint32_t i = 0; i < b->nodes; i++)
        bag_empty(&b->node[i].bag);
    bag_empty(&b->bag);
    ledger_give(ledger, b, sizeof *b);
    if (status)
        rfc_free(db);
    else
        *built = db;
    return status;
}

/* The values that one step gives to up to BLOCK headers. */
static inline void step_block(const struct step *step, uint32_t dims, const uint32_t *headers, uint32_t count,
                              uint32_t value[][BLOCK], uint32_t *out)
{
    const uint16_t *narrow = step->table;
    const uint32_t *wide = step->table;
    if (!step->inputs) {
        headers += step->dim;
        if (step->wide)
            for (uint32_t i = 0; i < count; i++)
                out[i] = wide[headers[(size_t)i * dims] >> step->shift & step->mask];
        else
            for (uint32_t i = 0; i < count; i++)
                out[i] = narrow[headers[(size_t)i * dims] >> step->shift & step->mask];
        return;
    }
    const uint32_t *one = value[step->input[0]], *other = value[step->input[1]];
    uint32_t stride = step->stride[0];
    if (step->inputs == 1) {
        for (uint32_t i = 0; i < count; i++)
            out[i] = entry_of(step, one[i]);
    } else if (step->wide) {
        for (uint32_t i = 0; i < count; i++)
            out[i] = wide[one[i] * stride + other[i]];
    } else {
        for (uint32_t i = 0; i < count; i++)
            out[i] = narrow[one[i] * stride + other[i]];
    }
}

static int rfc_search(const void *built, const uint32_t *headers, size_t count, uint32_t *found)
{
    const struct rfc *db = built;
    uint32_t value[MOST_STEPS][BLOCK];
    for (size_t done = 0; done < count; done += BLOCK) {
        uint32_t some = count - done < BLOCK ? (uint32_t)(count - done) : BLOCK;
        for (uint32_t s = 0; s < db->steps; s++)
            step_block(&db->step[s], db->dims, headers, some, value, value[s]);
        const uint32_t *last = value[db->steps - 1];
        for (uint32_t i = 0; i < some; i++)
            found[done + i] = db->answer[last[i]];
        headers += (size_t)BLOCK * db->dims;
    }
    return VFDB_OK;
}

const struct vfdb_ops vfdb_rfc = {
    .name = "rfc",
    .title = "recursive flow classification: tables from chunks to classes",
    .least_dims = 1,
    .most_dims = VFDB_DIMS,
    .param = {{"entries", "table entries at most", 1 << 26, 1, UINT32_MAX}},
    .build = rfc_build,
    .search = rfc_search,
    .free = rfc_free,
};
