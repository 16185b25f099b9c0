#ifndef HITABLES_SPLIT_PRODUCT_H
#define HITABLES_SPLIT_PRODUCT_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The structure that a search of split_product.c reads. */

enum {
    SPLIT_BATCH = 32,     /* headers whose memory accesses overlap */
    SPLIT_SERVICES = 512, /* bits of a row of services */
    SPLIT_ROW = SPLIT_SERVICES / 32,
    SPLIT_LONG = 63, /* a count that a reference cannot hold: it precedes the list */
    SPLIT_TABLE = 63 /* a count of bounds with a meaning of its own: 256 further entries */
};

/* One address: ranges -> two words each.  An entry is offset * 64 + bounds: at the offset are the bounds,
 * 16 bits each, then two words for each range between them. */
struct address_map {
    uint32_t shift;  /* of the value, for the root */
    uint32_t mask;   /* of the value shifted: roots - 1 */
    uint32_t depth;  /* further tables on the longest way */
    uint32_t roots;
    uint32_t *root;  /* [roots] entries */
    uint32_t *pool;
    size_t used, room; /* words */
};

/* A dimension that is no address: value -> class. */
struct value_classes {
    uint32_t shift, classes;
    uint32_t mask; /* of the value shifted: bytes - 1 */
    uint8_t *of;   /* [bytes] */
    size_t bytes;
};

/* A product table: the sum of the results of the two maps is the index of a reference. */
struct product_table {
    uint32_t *list; /* [rows][columns] references to the pool of lists */
    uint32_t columns;
    size_t cells;
};

struct split_product {
    struct budget *budget;
    uint32_t dims, count;
    uint32_t level; /* 0, 256 or 512: what the search may use */
    bool plain;     /* fields of 32, 32, 16, 16 and 8 bits */
    bool by_source, by_destination, products; /* which parts there are; products: a second one */
    bool checks;   /* some rules must be read in full */
    bool numbered; /* priorities are the numbers of the boxes */
    struct address_map map[2];
    struct value_classes class[18];
    uint16_t *kind;   /* [product of classes] */
    uint32_t *row;    /* [kinds][SPLIT_ROW] the services that match */
    uint32_t *open;   /* [kinds] the first rule that leaves both addresses open, or VFDB_NONE */
    uint32_t kinds, combinations;
    struct product_table product[2];
    uint32_t *answer; /* [lists][kinds] the first rule that matches; NULL: lists must be searched */
    uint32_t *cell;   /* [cells of the first product] of the list's first answer */
    size_t answers;
    uint32_t *pool;   /* lists and buckets */
    size_t used, room;
    uint32_t *priority; /* [count], unless numbered */
    uint32_t *rest;     /* [count][dims - 2][2], where some must be read in full */
};

extern const struct vfdb_ops vfdb_split_product;

/* A parameter for cross_product.c and wildcards.c alone: other than 0, rules are refused before their lists
 * are written if some must be read in full, or there are more than 2^16 kinds. */
enum { SPLIT_TABULAR = 4 };

/* A value of its first parameter, for wildcards.c alone: buckets of the rules that leave the other address
 * open, a product for those that limit both. */
enum { SPLIT_OPEN_SIDES = 7 };

/* The entries that a value leads to.  The mask keeps a value that is wider than its field inside. */
static inline uint32_t address_map_root(const struct address_map *map, uint32_t value)
{
    return map->root[value >> map->shift & map->mask];
}

static inline uint32_t value_class(const struct value_classes *class, uint32_t value)
{
    return class->of[value >> class->shift & class->mask];
}

/* The two words to which the value leads. */
const uint32_t *address_map_leaf(const struct address_map *map, uint32_t value);

#endif
