/* Recursive flow classification (Gupta and McKeown, SIGCOMM 1999).
 *
 * Idea: two values of a dimension that meet the same rules are one class, and so are two pairs of classes; a
 * table from pairs to classes after each pair of dimensions leaves one class in the end, and with it the
 * rule.
 * Cost: a search reads one table per chunk of 16 bits and one per reduction, whatever the number of rules.  A
 * build fills all tables: each entry takes time by the rules that its two classes share.  The tables may
 * outgrow any memory: more than *entries* entries are VFDB_TOO_LARGE.
 * Invariant: of the rules that meet a class, its set holds at least the first that meets a header, whatever
 * the header's other dimensions are; every rule in the set meets the class.
 * Threading: searches change nothing.
 *
 * Where we differ from the paper: a dimension of up to 32 bits is swept as a whole and only then split into
 * two chunks, so that any range is one box.  A set drops each rule that another, earlier one covers in all
 * dimensions to come: classes that differ in such rules alone are one.  Dimensions that all rules leave free
 * have no table.  The paper fixes the order of reduction by hand; here the pair with the smallest table is
 * reduced first, and of the last three dimensions every order is tried.  Headers go from table to table in
 * blocks, in loops that are written once for each kind of index.
 */
#include "rfc_internal.h"

#include <string.h>

enum {
    BLOCK = 128, /* headers that go from table to table together; their values stay in the L1 cache */
    AHEAD = 2560 /* bytes further is fetched with each header: a block at once would fill the queues */
};

static void rfc_free(void *built)
{
    struct rfc *db = built;
    struct budget *budget = db->budget;
    scope_empty(&db->scope);
    budget_give(budget, db, sizeof *db);
}

static int rfc_build(struct budget *budget, const struct vfdb_plan *plan, const struct vfdb_rules *rules,
                     void **built)
{
    struct rfc *db = budget_take(budget, sizeof *db);
    struct rfc_builder *b = db ? budget_take(budget, sizeof *b) : NULL;
    if (!b) {
        budget_give(budget, db, sizeof *db);
        return VFDB_NO_MEMORY;
    }
    db->budget = db->scope.budget = budget;
    db->dims = rules->dims;
    *b = (struct rfc_builder){.db = db,
                              .rules = rules,
                              .scope = {.budget = budget},
                              .most = (uint64_t)plan->value[0],
                              .words = rules->count / 64 + 1};
    int status = rfc_fill(b);
    for (uint32_t i = 0; i < b->nodes; i++)
        scope_empty(&b->node[i].scope);
    scope_empty(&b->scope);
    budget_give(budget, b, sizeof *b);
    if (status)
        rfc_free(db);
    else
        *built = db;
    return status;
}

/* Constants of a loop: each combination of them is compiled into a loop of its own. */
struct loop_shape {
    enum part one, other;
    bool wide, masked, last;
};

static inline __attribute__((always_inline)) uint32_t chunk_value(const struct chunk_source *chunk,
                                                                  const char *header, bool multiplied,
                                                                  bool masked)
{
    uint16_t bits;
    memcpy(&bits, header + chunk->offset, sizeof bits);
    uint32_t at = masked ? bits & chunk->mask : bits;
    return multiplied ? ((const uint32_t *)chunk->table)[at] : ((const uint16_t *)chunk->table)[at];
}

/* One part of an index, but for what it is multiplied with if it is no chunk. */
static inline __attribute__((always_inline)) uint32_t index_part(const struct index_source *source,
                                                                 const char *header, uint32_t value,
                                                                 enum part part, bool first, bool masked)
{
    if (part == VALUE)
        return value;
    uint32_t chunk = chunk_value(&source->chunk[0], header, first || part == CHUNKS_OF, masked);
    return part == CHUNK_OF ? chunk
                            : source->pair[chunk + chunk_value(&source->chunk[1], header, false, masked)];
}

/* The values that a table gives to up to BLOCK headers, or the answers of the last. */
static inline __attribute__((always_inline)) void read_table(const struct search_table *table,
                                                             const char *header, size_t row, uint32_t count,
                                                             uint32_t value[][BLOCK], const uint32_t *answer,
                                                             uint32_t *out, struct loop_shape shape)
{
    const struct index_source one = table->one, other = table->other;
    const uint32_t *one_value = value[one.value], *other_value = value[other.value];
    const uint32_t stride = shape.one == CHUNK_OF ? 1 : table->stride;
    const uint16_t *narrow = table->entry;
    const uint32_t *wide = table->entry;
    const bool large = table->large;
    for (uint32_t i = 0; i < count; i++, header += row) {
        if (shape.one != VALUE)
            __builtin_prefetch(header + AHEAD);
        uint32_t left = shape.one == VALUE ? one_value[i] : 0,
                 right = shape.other == VALUE ? other_value[i] : 0;
        uint32_t entry = index_part(&one, header, left, shape.one, true, shape.masked) * stride +
                         index_part(&other, header, right, shape.other, false, shape.masked);
        if (large) {
            out[i] = entry;
            __builtin_prefetch(shape.wide ? (const void *)(wide + entry) : (const void *)(narrow + entry));
            continue;
        }
        entry = shape.wide ? wide[entry] : narrow[entry];
        out[i] = shape.last ? answer[entry] : entry;
    }
    if (large)
        for (uint32_t i = 0; i < count; i++) {
            uint32_t entry = shape.wide ? wide[out[i]] : narrow[out[i]];
            out[i] = shape.last ? answer[entry] : entry;
        }
}

static void read_block(const struct search_table *table, const char *header, size_t row, uint32_t count,
                       uint32_t value[][BLOCK], const uint32_t *answer, uint32_t *out)
{
#define NUMBER(one, other, wide, masked, last) \
    (((((one) * PARTS + (other)) * 2 + (wide)) * 2 + (masked)) * 2 + (last))
#define CASE(one, other, wide, masked, last)                             \
    case NUMBER(one, other, wide, masked, last):                         \
        read_table(table, header, row, count, value, answer, out,        \
                   (struct loop_shape){one, other, wide, masked, last}); \
        break;
#define CASES(one, other, masked)          \
    CASE(one, other, false, masked, false) \
    CASE(one, other, false, masked, true)  \
    CASE(one, other, true, masked, false)  \
    CASE(one, other, true, masked, true)
    switch (NUMBER(table->one.part, table->other.part, table->wide, table->masked, answer != NULL)) {
        CASES(VALUE, VALUE, false)
        CASES(VALUE, CHUNK_OF, false)
        CASES(VALUE, CHUNK_OF, true)
        CASES(VALUE, CHUNKS_OF, false)
        CASES(VALUE, CHUNKS_OF, true)
        CASES(CHUNK_OF, VALUE, false)
        CASES(CHUNK_OF, VALUE, true)
        CASES(CHUNK_OF, CHUNK_OF, false)
        CASES(CHUNK_OF, CHUNK_OF, true)
        CASES(CHUNK_OF, CHUNKS_OF, false)
        CASES(CHUNK_OF, CHUNKS_OF, true)
        CASES(CHUNKS_OF, VALUE, false)
        CASES(CHUNKS_OF, VALUE, true)
        CASES(CHUNKS_OF, CHUNK_OF, false)
        CASES(CHUNKS_OF, CHUNK_OF, true)
        CASES(CHUNKS_OF, CHUNKS_OF, false)
        CASES(CHUNKS_OF, CHUNKS_OF, true)
    }
#undef CASES
#undef CASE
#undef NUMBER
}

static int rfc_search(const void *built, const uint32_t *headers, size_t count, uint32_t *answers)
{
    const struct rfc *db = built;
    const struct search_table *last = &db->table[db->tables - 1], *table;
    uint32_t value[2 * VFDB_DIMS][BLOCK];
    size_t row = db->dims * sizeof *headers;
    const char *header = (const char *)headers;
    for (size_t done = 0; done < count; done += BLOCK, header += BLOCK * row, answers += BLOCK) {
        uint32_t some = count - done < BLOCK ? (uint32_t)(count - done) : BLOCK;
        for (table = db->table; table < last; table++)
            read_block(table, header, row, some, value, NULL, value[table - db->table]);
        if (last->entry)
            read_block(last, header, row, some, value, db->answer, answers);
        else
            for (uint32_t i = 0; i < some; i++)
                answers[i] = db->answer[chunk_value(&last->one.chunk[0], header + i * row, false, true)];
    }
    return VFDB_OK;
}

/* Every search reads an entry of each table. */
static int rfc_search_counted(const void *built, const uint32_t *headers, size_t count, uint32_t *answers,
                              struct vfdb_work *work)
{
    for (size_t i = 0; i < count; i++)
        work[i].nodes += ((const struct rfc *)built)->tables;
    return rfc_search(built, headers, count, answers);
}

const struct vfdb_ops vfdb_rfc = {
    .name = "rfc",
    .title = "recursive flow classification: tables from chunks to classes",
    .least_dims = 1,
    .most_dims = VFDB_DIMS,
    .param = {{"entries", "table entries at most", 1 << 26, 1, UINT32_MAX}},
    .build = rfc_build,
    .search = rfc_search,
    .search_counted = rfc_search_counted,
    .free = rfc_free,
};
