#ifndef HITABLES_RFC_INTERNAL_H
#define HITABLES_RFC_INTERNAL_H
#include <stdbool.h>
#include <stdint.h>

#include "budget.h"
#include "rfc_chunks.h"
#include "rule_sets.h"
#include "scope.h"
#include "vfdb.h"

/* The tables of RFC, shared by their build (rfc_build.c, rfc_tables.c) and their search (rfc.c). */

enum {
    LARGE = 1 << 21, /* bytes of a table from which all entries are fetched before the first is read */
    MOST_STEPS = 4 * VFDB_DIMS
};

/* While it is built: a table of a chunk of a header's dimension, or of the values of two steps before it. */
struct build_step {
    bool pair; /* else a chunk */
    bool wide; /* entries of 32 bits, else of 16, as chunks have */
    uint8_t dim, shift;
    uint32_t mask;
    uint32_t one, other, stride; /* a pair's entry is one * stride + other */
    uint64_t bytes;
    void *table;
};

/* The tables of a search.  A table's index has two parts; each is the value of an earlier table, or is
 * read from a chunk of the header, or from a pair of chunks: so a search stores few values. */
enum part { VALUE, CHUNK_OF, CHUNKS_OF, PARTS };

/* Where it is the first part of an index, the entries of a chunk's table are multiplied already. */
struct chunk_source {
    const void *table; /* of 32 bits, multiplied, or of 16 */
    uint32_t offset;   /* of the two bytes in a header */
    uint32_t mask;     /* no value of a header leads out of the table */
};

struct index_source {
    enum part part;
    uint32_t value; /* number of the table */
    struct chunk_source chunk[2];
    const uint16_t *pair;
};

struct search_table {
    struct index_source one, other;
    uint32_t stride; /* of *one*, but if it is a chunk */
    bool wide, masked, large; /* masked: some chunk has less than 16 bits */
    const void *entry; /* NULL: the value is that of *one* */
};

struct rfc {
    struct scope scope;
    struct budget *budget;
    uint32_t dims, tables;
    struct search_table table[2 * VFDB_DIMS];
    uint32_t *answer; /* by the last table's value */
};

/* A class not reduced yet: the step that gives it, and the rules of each of its values. */
struct partial_class {
    uint32_t step, dims; /* dims: a bit for each dimension in it */
    struct scope scope;      /* of its sets */
    struct rule_sets sets;
};

struct rfc_builder {
    struct rfc *db;
    const struct vfdb_rules *rules;
    struct scope scope; /* memory of the build alone */
    uint64_t entries, most;
    uint32_t words;
    uint64_t *dense; /* [words] a set as a bitmap */
    uint32_t *at;    /* [words] a set as sets are kept */
    uint64_t *bits;
    uint32_t *kept_at;
    uint64_t *kept_bits;
    struct partial_class node[VFDB_DIMS];
    uint32_t nodes;
    struct build_step step[MOST_STEPS];
    uint32_t steps;
};

/* The value of an entry of the step's table. */
static inline uint32_t rfc_entry(const struct build_step *step, size_t entry)
{
    return step->wide ? ((uint32_t *)step->table)[entry] : ((uint16_t *)step->table)[entry];
}

/* rfc_build.c: fill all tables, in the order of a search; a status. */
int rfc_fill(struct rfc_builder *b);

/* rfc_tables.c: the tables of the steps in the order of a search, the last step's last; a status. */
int rfc_put_tables(struct rfc_builder *b);

#endif
