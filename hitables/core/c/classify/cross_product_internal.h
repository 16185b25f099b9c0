#ifndef HITABLES_CROSS_PRODUCT_INTERNAL_H
#define HITABLES_CROSS_PRODUCT_INTERNAL_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "budget.h"
#include "scope.h"
#include "split_product.h"
#include "vfdb.h"

/* The tables of a cross product, and their build. */

/* The share of a dimension that is no address in the index into *kind*. */
struct port_table {
    uint32_t shift, mask;
    const uint16_t *share;
};

/* The same as ranges: the first value of each, ascending, and its share; unused entries repeat the last. */
enum { RANGES = 128, FEW = 64 };
struct port_ranges {
    uint16_t start[RANGES], share[RANGES];
};

struct product_cells {
    uint32_t columns;
    uint32_t shift;   /* of the line in a cell, 0 for narrow ones */
    const void *cell; /* [rows][columns] line and place of a list in *pool*; narrow ones, of 16 bits, have the
                         place alone */
};

struct cross_product {
    struct budget *budget;
    uint32_t products;
    bool plain; /* addresses of 32 bits, ports of 16, a protocol of 8 */
    uint32_t bits[2][3]; /* the steps of addresses */
    const uint32_t *root[2];
    struct port_table port[3];
    bool vector, sources; /* sources: some rules test the source port */
    struct port_ranges ranges[3]; /* of ports, if vector; RANGES of destination ports, else FEW */
    const uint16_t *kind;
    uint32_t kinds;
    struct product_cells product[2];
    const uint32_t *pool; /* lists: the place of their line, priorities, VFDB_NONE */
    const uint8_t *line; /* [lines][kinds] place in the list */
    char *piece;
    size_t bytes;
};

/* A table that grows. */
struct growing_table {
    char *at;
    size_t size, used, room; /* of an entry; entries */
};

struct cross_product_builder {
    struct cross_product *db;
    const struct split_product *from;
    const struct vfdb_rules *rules;
    struct scope scope;
    size_t most;
    struct growing_table root[2], share[3], middle[2], leaf[2], kind, cell[2], pool,
        line; /* in the order of the piece */
};

/* A list of rules that match a header if their service does. */
struct product_list {
    uint32_t rules, at, line; /* at: its place in the pool */
    bool second; /* the first product does not have it */
    const uint16_t *service; /* [rules] */
    const uint32_t *box;     /* [rules] */
};

/* cross_product_build.c.  All return a status. */

/* Fill all tables and put them into one piece. */
int cross_product_fill(struct cross_product_builder *b);
/* *entries* more entries, zeroed; *place: the index of the first. */
int cross_product_more(struct cross_product_builder *b, struct growing_table *table, size_t size,
                       size_t entries, size_t *place);
/* Ports and protocol lead to a kind. */
int cross_product_lay_kinds(struct cross_product_builder *b);
/* Write the pool and the lines of *lists* lists, which become sorted: those of the first product first. */
int cross_product_lay_lists(struct cross_product_builder *b, struct product_list **list, uint32_t lists);

#endif
