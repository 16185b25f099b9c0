/* Trees of equal cuts, searched in memory.
 *
 * Idea: a node cuts its region into 2^k equal parts along one dimension or two; the part is found by
 * taking bits of the header.
 * Cost: a search reads one node of eight bytes per level, and a leaf.  A build reads each node's list once
 * per part.  A tree of more than *mb* megabytes is VFDB_TOO_LARGE.
 * Invariant: the leaves below a node tile its region, and list every rule that can be the first there, by
 * rising priority.  Regions are as wide as a power of two and start at a multiple of it.
 * Threading: searches change nothing.
 *
 * Neighbouring parts share what is below them if their rules are the same and reach through both, or if
 * they are the same leaf.  Several packets go down the tree at a time, so that the misses of the cache
 * overlap.
 */
#include "cut_tree.h"

#include <string.h>

#include "tree_internal.h"

enum {
    IN_FLIGHT = 16, /* packets */
    NONE = -1
};

/* Which bits of a header choose the part: *first* is its node.  Packed, for one node is what a level of a
 * search reads: dimension (5 bits), shift (5), bits (4), twice.  Of a leaf, *how* is IS_LEAF and the number of
 * its entries, the first of which is *first*. */
struct node {
    uint32_t first, how;
};
enum { IS_LEAF = 1U << 31, DIM_BITS = 5, SHIFT_BITS = 5, WIDTH_BITS = 4, ONE_BITS = DIM_BITS + SHIFT_BITS + WIDTH_BITS };

struct cuttings {
    struct ledger *ledger;
    struct bag bag;
    struct leaves leaves;
    struct node *node;
    uint32_t nodes, room;
};

/* Node *of* is the same as node *as*, once that is made. */
struct twin {
    uint32_t of, as;
};

struct build {
    struct cuttings *db;
    struct bag bag;
    struct parcels parcels;
    cuttings_choose *choose;
    uint32_t leaf;
    double spfac;
    size_t most_bytes;
    uint64_t *key;
    struct twin *twin;
    size_t twins, twin_room;
    int32_t *parcel_of; /* [parts] in the node that is being cut: the parcel of each, or NONE */
};

static uint32_t packed(uint32_t dim, uint32_t shift, uint32_t bits)
{
    return (dim << SHIFT_BITS | shift) << WIDTH_BITS | bits;
}

static inline uint32_t part_of(uint32_t how, const uint32_t *header)
{
    uint32_t bits = how & ((1 << WIDTH_BITS) - 1), shift = how >> WIDTH_BITS & ((1 << SHIFT_BITS) - 1);
    uint32_t dim = how >> (WIDTH_BITS + SHIFT_BITS) & ((1 << DIM_BITS) - 1);
    return header[dim] >> shift & ((1U << bits) - 1);
}

static inline uint32_t width_of(uint32_t how)
{
    return how & ((1 << WIDTH_BITS) - 1);
}

/* The bits of a dimension that are not cut yet. */
uint32_t cuttings_bits_left(const struct cuttings_node *node, uint32_t dim)
{
    uint64_t size = (uint64_t)node->region[2 * dim + 1] - node->region[2 * dim] + 1;
    return (uint32_t)__builtin_ctzll(size);
}

static struct side clipped(const struct cuttings_node *node, uint32_t rule, uint32_t dim)
{
    const uint32_t *box = leaves_box(node->leaves, rule) + 2 * dim, *side = node->region + 2 * dim;
    return (struct side){box[0] > side[0] ? box[0] : side[0], box[1] < side[1] ? box[1] : side[1]};
}

/* How many different sides its rules have along a dimension, within the region. */
uint32_t cuttings_distinct(const struct cuttings_node *node, uint32_t dim)
{
    uint32_t different = 0;
    for (uint32_t i = 0; i < node->count; i++) {
        struct side side = clipped(node, node->list[i], dim);
        node->key[i] = (uint64_t)side.low << 32 | side.high;
    }
    sort_keys(node->key, node->key + node->count, node->count, 0);
    for (uint32_t i = 0; i < node->count; i++)
        different += !i || node->key[i] != node->key[i - 1];
    return different;
}

/* The rules of all parts of a cutting, counted. */
uint64_t cuttings_copies(const struct cuttings_node *node, const struct cutting *cutting)
{
    uint64_t copies = 0;
    uint32_t shift[CUTTINGS_DIMS];
    for (uint32_t i = 0; i < CUTTINGS_DIMS; i++)
        shift[i] = cuttings_bits_left(node, cutting->dim[i]) - cutting->bits[i];
    for (uint32_t rule = 0; rule < node->count; rule++) {
        uint64_t parts = 1;
        for (uint32_t i = 0; i < CUTTINGS_DIMS; i++)
            if (cutting->bits[i]) {
                struct side side = clipped(node, node->list[rule], cutting->dim[i]);
                parts *= (side.high >> shift[i]) - (side.low >> shift[i]) + UINT64_C(1);
            }
        copies += parts;
    }
    return copies;
}

void cuttings_free(void *built)
{
    struct cuttings *db = built;
    struct ledger *ledger = db->ledger;
    bag_empty(&db->bag);
    ledger_give(ledger, db, sizeof *db);
}

static int nodes_new(struct cuttings *db, uint32_t count, uint32_t *first)
{
    if (count > db->room - db->nodes) {
        uint64_t room = 2 * (uint64_t)db->room + count;
        struct node *moved = room >= IS_LEAF ? NULL : bag_resize(&db->bag, db->node, room * sizeof *moved);
        if (!moved)
            return room >= IS_LEAF ? VFDB_TOO_LARGE : VFDB_NO_MEMORY;
        db->node = moved;
        db->room = (uint32_t)room;
    }
    *first = db->nodes;
    db->nodes += count;
    return VFDB_OK;
}

static int twin_new(struct build *b, uint32_t of, uint32_t as)
{
    if (b->twins == b->twin_room) {
        struct twin *moved = bag_resize(&b->bag, b->twin, 2 * b->twin_room * sizeof *moved);
        if (!moved)
            return VFDB_NO_MEMORY;
        b->twin = moved;
        b->twin_room *= 2;
    }
    b->twin[b->twins++] = (struct twin){of, as};
    return VFDB_OK;
}

/* Whether all rules of a parcel reach through its region along the dimensions that are cut. */
static bool reaches_through(const struct build *b, const struct parcel *parcel, const uint32_t *region,
                            const struct cutting *cutting)
{
    for (uint32_t i = 0; i < parcel->count; i++)
        for (uint32_t k = 0; k < CUTTINGS_DIMS; k++) {
            const uint32_t *side = region + 2 * cutting->dim[k];
            const uint32_t *box = leaves_box(&b->db->leaves, b->parcels.list[parcel->list + i]) + 2 * cutting->dim[k];
            if (cutting->bits[k] && (box[0] > side[0] || box[1] < side[1]))
                return false;
        }
    return true;
}

/* Whether the last rule of a parcel covers its region. */
static bool is_closed(const struct build *b, const struct parcel *parcel, const uint32_t *region)
{
    return parcel->count &&
           box_covers_in(b->db->leaves.dims,
                         leaves_box(&b->db->leaves, b->parcels.list[parcel->list + parcel->count - 1]), region, region);
}

/* Whether the last parcel that was pushed needs no node of its own beside number *other*. */
static bool is_twin(const struct build *b, uint32_t other, const struct cutting *cutting)
{
    const struct parcels *p = &b->parcels;
    const struct parcel *one = &p->parcel[other], *two = &p->parcel[p->count - 1];
    size_t row = 2 * (size_t)b->db->leaves.dims;
    const uint32_t *here = p->region + other * row, *there = p->region + (p->count - 1) * row;
    if (one->count != two->count || memcmp(p->list + one->list, p->list + two->list, one->count * sizeof *p->list))
        return false;
    if (one->count <= b->leaf && is_closed(b, one, here) == is_closed(b, two, there))
        return true;
    return reaches_through(b, one, here, cutting) && reaches_through(b, two, there, cutting);
}

static void pop_last(struct parcels *p)
{
    p->listed = p->parcel[--p->count].list;
}

/* Node and parcel of part number *part*. */
static int make_part(struct build *b, const struct parcel *parcel, uint32_t first, uint32_t part,
                     const struct cutting *cutting, const uint32_t *region)
{
    struct parcels *p = &b->parcels;
    uint32_t row = 1U << cutting->bits[1];
    int status = parcels_push(p, first + part, parcel, region);
    b->parcel_of[part] = NONE;
    if (status)
        return status;
    if (!p->parcel[p->count - 1].count) {
        pop_last(p);
        b->db->node[first + part] = (struct node){0, IS_LEAF};
        return VFDB_OK;
    }
    int32_t beside = part % row ? b->parcel_of[part - 1] : NONE, above = part >= row ? b->parcel_of[part - row] : NONE;
    for (uint32_t i = 0; i < 2; i++) {
        int32_t other = i ? above : beside;
        if (other != NONE && is_twin(b, (uint32_t)other, cutting)) {
            pop_last(p);
            b->parcel_of[part] = other;
            return twin_new(b, first + part, p->parcel[other].node);
        }
    }
    b->parcel_of[part] = (int32_t)p->count - 1;
    return VFDB_OK;
}

static int make_cuts(struct build *b, const struct parcel *parcel, uint32_t *region, const struct cutting *cutting)
{
    struct cuttings *db = b->db;
    uint32_t first, shift[CUTTINGS_DIMS], low[CUTTINGS_DIMS], how[CUTTINGS_DIMS];
    struct cuttings_node node = {.region = region};
    int status = nodes_new(db, 1U << (cutting->bits[0] + cutting->bits[1]), &first);
    if (status)
        return status;
    for (uint32_t i = 0; i < CUTTINGS_DIMS; i++) {
        shift[i] = cutting->bits[i] ? cuttings_bits_left(&node, cutting->dim[i]) - cutting->bits[i] : 0;
        low[i] = region[2 * cutting->dim[i]];
        how[i] = packed(cutting->dim[i], shift[i], cutting->bits[i]);
    }
    db->node[parcel->node] = (struct node){first, how[0] << ONE_BITS | how[1]};
    for (uint32_t part = 0; !status && part < 1U << (cutting->bits[0] + cutting->bits[1]); part++) {
        uint32_t number[CUTTINGS_DIMS] = {part >> cutting->bits[1], part & ((1U << cutting->bits[1]) - 1)};
        for (uint32_t i = 0; i < CUTTINGS_DIMS; i++)
            if (cutting->bits[i]) {
                region[2 * cutting->dim[i]] = low[i] + (number[i] << shift[i]);
                region[2 * cutting->dim[i] + 1] = low[i] + (number[i] << shift[i]) + ((1U << shift[i]) - 1);
            }
        status = parcels_room(&b->parcels, parcel->count);
        if (!status)
            status = make_part(b, parcel, first, part, cutting, region);
    }
    return status;
}

/* Make the node of the last parcel, and parcels of its parts. */
static int next(struct build *b)
{
    struct cuttings *db = b->db;
    uint32_t region[2 * VFDB_DIMS];
    struct parcel parcel = parcels_pop(&b->parcels, region);
    struct cutting cutting = {{0}, {0}};
    struct cuttings_node node = {&db->leaves, b->parcels.list + parcel.list, region, parcel.count, b->spfac, b->key};
    int status;
    if (parcel.count <= b->leaf || !b->choose(&node, &cutting)) {
        db->node[parcel.node].how = IS_LEAF | parcel.count;
        status = leaves_add(&db->leaves, node.list, parcel.count, region, &db->node[parcel.node].first);
    } else {
        status = make_cuts(b, &parcel, region, &cutting);
    }
    parcels_close_up(&b->parcels, &parcel);
    if (db->nodes * sizeof *db->node + db->leaves.entries * sizeof *db->leaves.entry > b->most_bytes)
        return VFDB_TOO_LARGE;
    return status;
}

static int grow_tree(struct build *b, const struct vfdb_rules *rules)
{
    struct cuttings *db = b->db;
    int status = leaves_start(&db->leaves, &db->bag, rules);
    if (!status)
        status = parcels_start(&b->parcels, &b->bag, &db->leaves, rules);
    if (status)
        return status;
    b->twin_room = db->room = 64;
    b->key = bag_take(&b->bag, 2 * (size_t)rules->count * sizeof *b->key);
    b->twin = bag_take(&b->bag, b->twin_room * sizeof *b->twin);
    b->parcel_of = bag_take(&b->bag, (sizeof *b->parcel_of) << CUTTINGS_BITS);
    db->node = bag_take(&db->bag, db->room * sizeof *db->node);
    if (!b->key || !b->twin || !b->parcel_of || !db->node)
        return VFDB_NO_MEMORY;
    db->nodes = 1;
    while (!status && b->parcels.count)
        status = next(b);
    if (!status)
        status = leaves_finish(&db->leaves);
    struct node *node = status ? NULL : bag_resize(&db->bag, db->node, db->nodes * sizeof *node);
    if (!node)
        return status ? status : VFDB_NO_MEMORY;
    db->node = node;
    for (size_t i = 0; i < b->twins; i++)
        node[b->twin[i].of] = node[b->twin[i].as];
    return VFDB_OK;
}

/* The build of both classifiers, which give how they cut. */
int cuttings_build(struct ledger *ledger, const struct vfdb_plan *plan, const struct vfdb_rules *rules,
                   cuttings_choose *choose, void **built)
{
    struct cuttings *db = ledger_take(ledger, sizeof *db);
    if (!db)
        return VFDB_NO_MEMORY;
    *db = (struct cuttings){.ledger = ledger, .bag.ledger = ledger};
    struct build b = {.db = db, .bag.ledger = ledger, .choose = choose, .leaf = (uint32_t)plan->value[0],
                      .spfac = (double)plan->value[1], .most_bytes = (size_t)plan->value[2] << 20};
    int status = grow_tree(&b, rules);
    bag_empty(&b.bag);
    if (status)
        cuttings_free(db);
    else
        *built = db;
    return status;
}

int cuttings_search(const void *built, const uint32_t *headers, size_t count, uint32_t *found)
{
    const struct cuttings *db = built;
    const struct node *node = db->node;
    uint32_t dims = db->leaves.dims, flying = count < IN_FLIGHT ? (uint32_t)count : IN_FLIGHT;
    uint32_t at[IN_FLIGHT] = {0};
    size_t packet[IN_FLIGHT], next = flying;
    for (uint32_t i = 0; i < flying; i++)
        packet[i] = i;
    while (flying)
        for (uint32_t i = 0; i < flying; i++) {
            const uint32_t *header = headers + packet[i] * dims;
            struct node here = node[at[i]];
            if (!(here.how & IS_LEAF)) {
                uint32_t part = part_of(here.how >> ONE_BITS, header) << width_of(here.how) | part_of(here.how, header);
                at[i] = here.first + part;
                __builtin_prefetch(node + at[i]);
                continue;
            }
            found[packet[i]] = leaf_search(&db->leaves, here.first, here.how & ~(uint32_t)IS_LEAF, header);
            at[i] = 0;
            if (next < count) {
                packet[i] = next++;
            } else {
                flying--;
                packet[i] = packet[flying];
                at[i--] = at[flying];
            }
        }
    return VFDB_OK;
}
