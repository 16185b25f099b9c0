#ifndef HITABLES_SPLIT_PRODUCT_INTERNAL_H
#define HITABLES_SPLIT_PRODUCT_INTERNAL_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "budget.h"
#include "scope.h"
#include "split_product.h"
#include "vfdb.h"

/* The build of a split product, shared by its stages: axes and classes (split_axes.c), services
 * (split_services.c), buckets and lists (split_lists.c), and the choice of the split (split_product.c).
 * Each stage returns at once if memory.status is not VFDB_OK, and sets it when it fails. */

/* In which part a rule is found: buckets of its source or of its destination, the first or the second
 * product, the answers by kind. */
enum part { BY_SOURCE, BY_DESTINATION, CROSS, CROSS_TOO, OPEN, PARTS };

/* Memory of a build, given back at its end, and its status: once that is not VFDB_OK nothing more is taken.
 */
struct build_memory {
    struct scope scope;
    int status;
};

static inline void *borrow(struct build_memory *memory, size_t size)
{
    void *piece = memory->status ? NULL : scope_take(&memory->scope, size);
    if (!piece && !memory->status)
        memory->status = VFDB_NO_MEMORY;
    return piece;
}

/* Give back all that was borrowed since there were *pieces* pieces. */
static inline void give_back(struct build_memory *memory, size_t pieces)
{
    scope_shrink(&memory->scope, pieces);
}

/* A set of rules is known by the exclusive or of 128 random bits per rule. */
struct rule_set_hash {
    uint64_t a, b;
};

static inline uint64_t mix_bits(uint64_t x)
{
    x += UINT64_C(0x9E3779B97F4A7C15);
    x = (x ^ x >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
    x = (x ^ x >> 27) * UINT64_C(0x94D049BB133111EB);
    return x ^ x >> 31;
}

/* One address, cut at every end of a side into ranges, which have numbers. */
struct axis_ranges {
    uint32_t bits, ranges;
    uint32_t *start;        /* [ranges] rising, the first 0 */
    uint32_t *first, *last; /* [count] the ranges of each rule */
    struct rule_set_hash *mark;      /* [ranges + 1] */
};

/* The classes of an axis for the rules of some parts: ranges that the same rules meet. */
struct range_classes {
    uint32_t count;
    uint32_t *of;        /* [ranges] */
    uint32_t *stands_in; /* [count] one range of each class, rising */
    uint32_t *below;     /* [ranges + 1] how many of those are less */
    uint64_t pairs;      /* of a class and a rule in it */
    uint64_t squares;    /* the sum of the squares of their rules */
};

/* Which rules are in which class: those of class c are member[from[c]] to member[from[c + 1] - 1]. */
struct class_members {
    uint32_t *from, *member;
};

struct split_product_builder {
    struct build_memory memory;
    const struct vfdb_rules *rules;
    struct split_product *db;
    struct axis_ranges axis[2];
    uint8_t *part;      /* [count] */
    uint16_t *service;  /* [count] */
    uint32_t *covers;   /* [SPLIT_SERVICES][SPLIT_ROW] which services each covers */
    uint64_t *key;      /* room for sorting */
    uint64_t *spare;
    uint32_t *slot;     /* [mask + 1] hash table: index in list[] + 1, 0: empty */
    uint32_t *list;     /* [mask + 1] references to the lists written so far */
    uint32_t mask, lists;
    uint64_t compared;  /* pairs of rules, for lists */
};

/* An end of a rule's interval: 0 its low end, 1 its high end.  0 beyond the last dimension. */
static inline uint32_t side(const struct vfdb_rules *rules, uint32_t rule, uint32_t d, uint32_t end)
{
    return d < rules->dims ? rules->box[((size_t)rule * rules->dims + d) * 2 + end] : 0;
}

/* split_axes.c */

/* Cut dimension d at the ends of all rules. */
void axis_lay(struct split_product_builder *b, struct axis_ranges *axis, uint32_t d);
/* The classes that the rules of the parts in the mask *parts* make. */
void axis_classify(struct split_product_builder *b, const struct axis_ranges *axis, uint32_t parts,
                   struct range_classes *classes);
/* The rules of one part by class, in their order. */
void classes_gather(struct split_product_builder *b, const struct axis_ranges *axis,
                    const struct range_classes *classes, uint32_t part, struct class_members *members);
/* *words* more in a pool, within one cache line if they fit into one; their offset. */
size_t pool_extend(struct split_product_builder *b, uint32_t **pool, size_t *used, size_t *room,
                   size_t words);
/* Give back the room that a pool does not use. */
void pool_trim(struct split_product_builder *b, uint32_t **pool, size_t *used, size_t *room);
/* The map of an address: range i leads to pair[i]. */
void address_map_write(struct split_product_builder *b, const struct axis_ranges *axis,
                       struct address_map *map, uint32_t (*pair)[2]);

/* split_services.c: give the most used services a bit each, as many as the tables bear, and all others the
 * last. */
void services_cut(struct split_product_builder *b);
/* Write the answers by kind, and move rules without a bit for their service to the first product. */
void open_write(struct split_product_builder *b);
/* A copy of a borrowed table that stays with the database. */
void *split_keep(struct split_product_builder *b, const void *from, size_t size);

/* split_answers.c: follow the lists of the first product to their ends, where there are few, and no other. */
void answers_write(struct split_product_builder *b);

/* split_lists.c: write buckets, lists, product tables and address maps. */
void parts_write(struct split_product_builder *b);

#endif
