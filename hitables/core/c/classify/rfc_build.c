/* The build of RFC's tables.
 *
 * Idea: each dimension is swept for its runs of values that meet the same rules; then two nodes at a time are
 * reduced to one by a table of their pairs of classes, until two are left, whose pairs have answers.
 * Cost: each entry of a table takes time by the rules that its two classes share.
 * Invariant: as in rfc.c: a class's set holds at least the first rule that a header of the class meets.
 * Threading: none; all belongs to one build.
 */
#include "rfc_internal.h"

#include <string.h>

#include "dominance.h"
#include "endpoints.h"

enum { NARROW = 8 }; /* chunks of fewer bits are masked; others have a table of 16, for masks cost a tenth */

/* Every set seen so far, with its class. */
struct seen_sets {
    struct scope scope;
    struct rule_sets sets;
    uint32_t *class; /* [room] */
    uint32_t room;
};

static int seen_sets_start(struct rfc_builder *b, struct seen_sets *seen)
{
    *seen = (struct seen_sets){.scope = {.budget = b->db->budget}, .room = 64};
    seen->class = scope_take(&seen->scope, seen->room * sizeof *seen->class);
    return !seen->class || rule_sets_start(&seen->sets, &seen->scope) ? VFDB_NO_MEMORY : VFDB_OK;
}

/* The class of the set in b->at, b->bits; RULE_SETS_NO_MEMORY. */
static inline uint32_t class_of_met(struct rfc_builder *b, struct seen_sets *seen,
                                    struct dominance *dominance, struct rule_sets *sets, uint32_t words,
                                    uint64_t hash)
{
    uint32_t before = seen->sets.count;
    uint32_t number = rule_sets_number(&seen->sets, b->at, b->bits, words, hash);
    if (number == RULE_SETS_NO_MEMORY || number < before)
        return number == RULE_SETS_NO_MEMORY ? number : seen->class[number];
    if (number == seen->room) {
        uint32_t *moved = scope_resize(&seen->scope, seen->class, 2 * (size_t)seen->room * sizeof *moved);
        if (!moved)
            return RULE_SETS_NO_MEMORY;
        seen->class = moved;
        seen->room *= 2;
    }
    words = dominance_keep(dominance, b->at, b->bits, words, b->kept_at, b->kept_bits, &hash);
    return seen->class[number] = rule_sets_number(sets, b->kept_at, b->kept_bits, words, hash);
}

static uint32_t all_dims(const struct rfc_builder *b)
{
    return (uint32_t)((UINT64_C(1) << b->rules->dims) - 1);
}

/* A table of *entries* values below *values*, for step *step; VFDB_TOO_LARGE beyond the bound. */
static int table_new(struct rfc_builder *b, struct build_step *step, uint64_t entries, uint64_t values)
{
    if (entries > b->most - b->entries)
        return VFDB_TOO_LARGE;
    step->wide = values > CHUNK_SIZE;
    step->table = scope_take(&b->db->scope, entries * (step->wide ? 4 : 2));
    if (!step->table)
        return VFDB_NO_MEMORY;
    step->bytes = entries * (step->wide ? 4 : 2);
    b->entries += entries;
    return VFDB_OK;
}

static void table_drop(struct rfc_builder *b, struct build_step *step, uint64_t entries)
{
    scope_drop(&b->db->scope, step->table);
    step->table = NULL;
    b->entries -= entries;
}

static inline void entry_set(const struct build_step *step, size_t entry, uint32_t value)
{
    if (step->wide)
        ((uint32_t *)step->table)[entry] = value;
    else
        ((uint16_t *)step->table)[entry] = (uint16_t)value;
}

/* The runs of a dimension, and its node's sets. */
static int sweep(struct rfc_builder *b, uint32_t dim, struct partial_class *node, struct runs *runs)
{
    struct dominance dominance;
    struct seen_sets seen;
    struct scope scope = {.budget = b->db->budget};
    uint64_t *endpoint;
    uint32_t endpoints;
    int status = seen_sets_start(b, &seen);
    node->dims = 1U << dim;
    node->scope.budget = b->db->budget;
    if (!status)
        status = rule_sets_start(&node->sets, &node->scope) ? VFDB_NO_MEMORY : VFDB_OK;
    if (!status)
        status = dominance_build(&scope, b->rules, all_dims(b) & ~node->dims, &dominance);
    if (!status)
        status = endpoints_sorted(&scope, b->rules, dim, &endpoint, &endpoints);
    if (!status) {
        runs->start = scope_take(&b->scope, (endpoints + (size_t)1) * sizeof *runs->start);
        runs->class = scope_take(&b->scope, (endpoints + (size_t)1) * sizeof *runs->class);
        status = runs->start && runs->class ? VFDB_OK : VFDB_NO_MEMORY;
    }
    runs->count = 0;
    memset(b->dense, 0, b->words * sizeof *b->dense);
    for (uint32_t i = 0, value = 0; status == VFDB_OK; value = endpoint_value(endpoint[i])) {
        for (; i < endpoints && endpoint_value(endpoint[i]) == value; i++)
            b->dense[endpoint_box(endpoint[i]) / 64] ^= UINT64_C(1) << endpoint_box(endpoint[i]) % 64;
        uint32_t words = 0;
        uint64_t hash = 0;
        for (uint32_t w = 0; w < b->words; w++)
            if (b->dense[w]) {
                b->at[words] = w;
                b->bits[words++] = b->dense[w];
                hash += rule_sets_mix(w, b->dense[w]);
            }
        uint32_t class = class_of_met(b, &seen, &dominance, &node->sets, words, hash);
        if (class == RULE_SETS_NO_MEMORY)
            status = VFDB_NO_MEMORY;
        if (!runs->count || runs->class[runs->count - 1] != class) {
            runs->start[runs->count] = value;
            runs->class[runs->count++] = class;
        }
        if (i == endpoints)
            break;
    }
    runs->classes = node->sets.count;
    scope_empty(&seen.scope);
    scope_empty(&scope);
    return status;
}

static struct build_step *step_new(struct rfc_builder *b)
{
    return &b->step[b->steps++];
}

/* The table of a dimension of one chunk. */
static int one_chunk(struct rfc_builder *b, uint32_t dim, const struct runs *runs)
{
    uint32_t top = dim_top(b->rules, dim);
    struct build_step *step = step_new(b);
    *step =
        (struct build_step){.dim = (uint8_t)dim, .mask = b->rules->bits[dim] < NARROW ? top : CHUNK_SIZE - 1};
    int status = table_new(b, step, step->mask + UINT64_C(1), runs->classes);
    for (uint32_t run = 0; status == VFDB_OK && run < runs->count; run++)
        for (uint32_t v = runs->start[run], end = run_end(runs, run, top);; v++) {
            entry_set(step, v, runs->class[run]);
            if (v == end)
                break;
        }
    return status;
}

static int two_chunks(struct rfc_builder *b, uint32_t dim, const struct runs *runs)
{
    struct scope scope = {.budget = b->db->budget};
    struct rfc_chunks h;
    uint32_t uppers = (dim_top(b->rules, dim) >> CHUNK) + 1;
    int status = rfc_chunks_split(&scope, runs, dim_top(b->rules, dim), &h);
    uint32_t *row = status ? NULL : scope_take(&scope, h.lows * sizeof *row);
    if (!row)
        status = status ? status : VFDB_NO_MEMORY;
    if (!status && h.lows > 1) {
        struct build_step *lower = step_new(b);
        *lower = (struct build_step){.dim = (uint8_t)dim, .mask = CHUNK_SIZE - 1};
        status = table_new(b, lower, CHUNK_SIZE, h.lows);
        for (uint32_t v = 0; !status && v < CHUNK_SIZE; v++)
            entry_set(lower, v, h.functions > 1 ? h.lower[v] : h.class[h.lower[v]]);
    }
    if (!status && (h.functions > 1 || h.lows == 1)) {
        struct build_step *upper = step_new(b);
        *upper = (struct build_step){.dim = (uint8_t)dim, .shift = CHUNK, .mask = uppers - 1};
        status = table_new(b, upper, uppers, h.functions);
        for (uint32_t v = 0; !status && v < uppers; v++)
            entry_set(upper, v, h.lows > 1 ? h.upper[v] : h.class[h.upper[v]]);
    }
    if (!status && h.functions > 1 && h.lows > 1) {
        uint32_t last = b->steps - 1;
        struct build_step *both = step_new(b);
        *both = (struct build_step){.pair = true, .one = last, .other = last - 1, .stride = h.lows};
        status = table_new(b, both, (uint64_t)h.functions * h.lows, runs->classes);
        for (uint32_t f = 0; !status && f < h.functions; f++) {
            rfc_chunks_row(&h, f, row);
            for (uint32_t low = 0; low < h.lows; low++)
                entry_set(both, (size_t)f * h.lows + low, row[low]);
        }
    }
    scope_empty(&scope);
    return status;
}

/* Tables for each dimension; those that all rules leave free but one, if all are, get none. */
static int read_dims(struct rfc_builder *b)
{
    for (uint32_t dim = 0; dim < b->rules->dims; dim++) {
        struct runs runs = {0};
        struct partial_class *node = &b->node[b->nodes++];
        int status = sweep(b, dim, node, &runs);
        if (status)
            return status;
        if (runs.classes == 1 && (b->nodes > 1 || dim + 1 < b->rules->dims)) {
            scope_empty(&node->scope);
            b->nodes--;
            continue;
        }
        status = b->rules->bits[dim] <= CHUNK ? one_chunk(b, dim, &runs) : two_chunks(b, dim, &runs);
        if (status)
            return status;
        node->step = b->steps - 1;
        scope_drop(&b->scope, runs.start);
        scope_drop(&b->scope, runs.class);
    }
    return VFDB_OK;
}

static uint64_t pairs(const struct partial_class *one, const struct partial_class *other)
{
    return (uint64_t)one->sets.count * other->sets.count;
}

static void spread(uint64_t *dense, const struct rule_sets *sets, uint32_t set, bool put)
{
    for (size_t w = sets->first[set]; w < sets->first[set + 1]; w++)
        dense[sets->at[w]] = put ? sets->bits[w] : 0;
}

/* One node from two, and its table, which is not wide as long as there are few classes. */
static int reduce(struct rfc_builder *b, const struct partial_class *one, const struct partial_class *other,
                  struct build_step *step, struct partial_class *to)
{
    const struct partial_class *outer = one->sets.count < other->sets.count ? other : one;
    const struct partial_class *inner = outer == one ? other : one;
    const struct rule_sets *sets = &inner->sets;
    struct dominance dominance;
    struct seen_sets seen;
    struct scope scope = {.budget = b->db->budget};
    *step =
        (struct build_step){.pair = true, .one = outer->step, .other = inner->step, .stride = sets->count};
    *to = (struct partial_class){.dims = one->dims | other->dims, .scope.budget = b->db->budget};
    int status = seen_sets_start(b, &seen);
    if (!status)
        status = rule_sets_start(&to->sets, &to->scope) ? VFDB_NO_MEMORY : VFDB_OK;
    if (!status)
        status = dominance_build(&scope, b->rules, all_dims(b) & ~to->dims, &dominance);
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
                    hash += rule_sets_mix(sets->at[w], both);
                }
            }
            uint32_t class = class_of_met(b, &seen, &dominance, &to->sets, words, hash);
            if (class == RULE_SETS_NO_MEMORY) {
                status = VFDB_NO_MEMORY;
                break;
            }
            if (class >= CHUNK_SIZE && !step->wide) {
                uint32_t *wide = scope_take(&b->db->scope, pairs(one, other) * sizeof *wide);
                if (!wide) {
                    status = VFDB_NO_MEMORY;
                    break;
                }
                for (size_t e = 0; e < entry; e++)
                    wide[e] = ((uint16_t *)step->table)[e];
                scope_drop(&b->db->scope, step->table);
                step->table = wide;
                step->wide = true;
            }
            entry_set(step, entry, class);
        }
        spread(b->dense, &outer->sets, o, false);
    }
    scope_empty(&seen.scope);
    scope_empty(&scope);
    return status;
}

/* Replace two nodes by their reduction. */
static void put(struct rfc_builder *b, uint32_t one, uint32_t other, const struct build_step *step,
                const struct partial_class *node)
{
    *step_new(b) = *step;
    scope_empty(&b->node[one].scope);
    scope_empty(&b->node[other].scope);
    b->node[one] = *node;
    b->node[one].step = b->steps - 1;
    b->node[other] = b->node[--b->nodes];
}

/* The pair whose table is smallest; false when it is beyond the bound. */
static bool smallest(const struct rfc_builder *b, uint32_t *one, uint32_t *other)
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

static int reduce_smallest(struct rfc_builder *b)
{
    uint32_t one, other;
    struct build_step step;
    struct partial_class node;
    if (!smallest(b, &one, &other))
        return VFDB_TOO_LARGE;
    int status = reduce(b, &b->node[one], &b->node[other], &step, &node);
    if (status)
        scope_empty(&node.scope);
    else
        put(b, one, other, &step, &node);
    return status;
}

/* Three nodes are left: the pair is reduced after which least entries are needed in all. */
static int reduce_best(struct rfc_builder *b)
{
    struct build_step best_step;
    struct partial_class best_node;
    uint64_t least = UINT64_MAX;
    uint32_t rest = 3;
    int failed = VFDB_TOO_LARGE;
    for (uint32_t last = 0; last < 3; last++) {
        const struct partial_class *one = &b->node[(last + 1) % 3], *other = &b->node[(last + 2) % 3];
        struct build_step step;
        struct partial_class node;
        uint64_t table = pairs(one, other);
        if (table > b->most - b->entries || table >= least)
            continue;
        int status = reduce(b, one, other, &step, &node);
        uint64_t all = status ? UINT64_MAX : table + pairs(&node, &b->node[last]);
        bool better = all < least && all - table <= b->most - b->entries;
        failed = status ? status : failed;
        if (better && rest < 3) {
            scope_empty(&best_node.scope);
            table_drop(b, &best_step, pairs(&b->node[(rest + 1) % 3], &b->node[(rest + 2) % 3]));
        }
        if (better) {
            best_step = step;
            best_node = node;
            least = all;
            rest = last;
        } else {
            scope_empty(&node.scope);
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
static uint32_t first_common(const struct rfc_builder *b, const struct rule_sets *sets, uint32_t set)
{
    for (size_t w = sets->first[set]; w < sets->first[set + 1]; w++) {
        uint64_t both = sets->bits[w] & b->dense[sets->at[w]];
        if (both)
            return sets->at[w] * 64 + (uint32_t)__builtin_ctzll(both);
    }
    return b->rules->count;
}

/* A number for each answer that there may be, and after them one for none. */
static int number_answers(struct rfc_builder *b, uint32_t **number, uint32_t *answers)
{
    const struct vfdb_rules *rules = b->rules;
    *number = scope_take(&b->scope, (rules->count + (size_t)1) * sizeof **number);
    b->db->answer = scope_take(&b->db->scope, (rules->count + (size_t)1) * sizeof *b->db->answer);
    if (!*number || !b->db->answer)
        return VFDB_NO_MEMORY;
    *answers = 0;
    for (uint32_t i = 0; i < rules->count; i++) {
        if (!i || rules->priority[i] != rules->priority[i - 1])
            b->db->answer[(*answers)++] = rules->priority[i];
        (*number)[i] = *answers - 1;
    }
    (*number)[rules->count] = *answers;
    b->db->answer[(*answers)++] = VFDB_NONE;
    return VFDB_OK;
}

/* Two nodes are left: their pairs of classes have answers. */
static int answer_pairs(struct rfc_builder *b)
{
    struct partial_class *one = &b->node[0], *other = &b->node[1];
    uint32_t *number, answers;
    struct build_step *step = step_new(b);
    *step = (struct build_step){
        .pair = true, .one = one->step, .other = other->step, .stride = other->sets.count};
    int status = number_answers(b, &number, &answers);
    if (!status)
        status = table_new(b, step, pairs(one, other), answers);
    memset(b->dense, 0, b->words * sizeof *b->dense);
    size_t entry = 0;
    for (uint32_t o = 0; status == VFDB_OK && o < one->sets.count; o++) {
        spread(b->dense, &one->sets, o, true);
        for (uint32_t i = 0; i < other->sets.count; i++)
            entry_set(step, entry++, number[first_common(b, &other->sets, i)]);
        spread(b->dense, &one->sets, o, false);
    }
    return status;
}

/* One node is left: its classes have answers. */
static int answer_classes(struct rfc_builder *b)
{
    const struct rule_sets *sets = &b->node[0].sets;
    b->db->answer = scope_take(&b->db->scope, sets->count * sizeof *b->db->answer);
    if (!b->db->answer)
        return VFDB_NO_MEMORY;
    memset(b->dense, 255, b->words * sizeof *b->dense);
    for (uint32_t i = 0; i < sets->count; i++) {
        uint32_t rule = first_common(b, sets, i);
        b->db->answer[i] = rule < b->rules->count ? b->rules->priority[rule] : VFDB_NONE;
    }
    return VFDB_OK;
}

int rfc_fill(struct rfc_builder *b)
{
    size_t words = b->words + 1;
    b->dense = scope_take(&b->scope, words * sizeof *b->dense);
    b->at = scope_take(&b->scope, words * sizeof *b->at);
    b->bits = scope_take(&b->scope, words * sizeof *b->bits);
    b->kept_at = scope_take(&b->scope, words * sizeof *b->kept_at);
    b->kept_bits = scope_take(&b->scope, words * sizeof *b->kept_bits);
    if (!b->dense || !b->at || !b->bits || !b->kept_at || !b->kept_bits)
        return VFDB_NO_MEMORY;
    int status = read_dims(b);
    while (status == VFDB_OK && b->nodes > 2)
        status = b->nodes == 3 ? reduce_best(b) : reduce_smallest(b);
    if (!status)
        status = b->nodes > 1 ? answer_pairs(b) : answer_classes(b);
    return status ? status : rfc_put_tables(b);
}
