/* Cross product (Srinivasan et al. 1998): every answer written down, for sets of rules where that is
 * possible.
 *
 * Idea: the lists of a split product with one or two product tables are followed to their ends in advance.
 * An address leads in three steps (16, 8 and 8 bits) to its class, two classes lead to a list, and ports and
 * protocol to a *kind* of packet.  Lists of the same services share a *line*: a byte per kind, the index
 * within the list of the rule that such a packet matches.  So a search is a fixed sequence of reads, without
 * a branch and without a comparison.
 * Cost: 18 reads per search with those of the header, 5 more with two products; two or four bytes for each
 * pair of classes, one for each line and kind.  Time depends on the number of reads and writes, of which a
 * core does four a cycle, and on the cache lines that they move.  So values are packed and entries are
 * narrow; headers take a few steps at a time, for a read that waits for others delays later ones; and where
 * the CPU has AVX-512 and the ports few ranges, ports and protocol are not looked up but searched for in
 * registers, 32 at a time.
 * Bounds: five dimensions, 16,384 boxes, 2^16 classes of an address, 2^16 combinations of classes of ports
 * and protocol, 254 rules in a list, *bytes* in all.
 * Invariant: no value of a header leads out of the tables.
 * Threading: searches change nothing.
 */
#include "cross_product_internal.h"

#include <string.h>

#include "port_vectors.h"

enum {
    AHEAD = 640, /* words of headers to prefetch ahead: the hardware alone fetches them too late */
    BATCH = 64,
    MOST_BOXES = 16384
};

static void cross_product_free(void *built)
{
    struct cross_product *db = built;
    budget_give(db->budget, db->piece, db->bytes);
    budget_give(db->budget, db, sizeof *db);
}

enum { PRODUCTS, NARROW, BYTES, SIMD };

static int cross_product_build(struct budget *budget, const struct vfdb_plan *plan,
                               const struct vfdb_rules *rules, void **built)
{
    struct vfdb_plan with = {.ops = &vfdb_split_product,
                             .value = {plan->value[PRODUCTS], plan->value[NARROW], [SPLIT_TABULAR] = 1}};
    void *split;
    if (rules->count > MOST_BOXES)
        return VFDB_TOO_LARGE;
    int status = vfdb_split_product.build(budget, &with, rules, &split);
    if (status)
        return status;
    struct cross_product_builder b = {
        .from = split, .rules = rules, .scope.budget = budget, .most = (size_t)plan->value[BYTES]};
    struct cross_product *db = b.db = budget_take(budget, sizeof *db);
    status = db ? VFDB_OK : VFDB_NO_MEMORY;
    if (db) {
        db->budget = budget;
        db->products = 1 + b.from->products;
        db->plain = b.from->plain;
        db->vector = db->plain && have_port_vectors(plan->value[SIMD]);
        status = cross_product_fill(&b);
    }
    scope_empty(&b.scope);
    vfdb_split_product.free(split);
    if (!status)
        *built = db;
    else if (db)
        cross_product_free(db);
    return status;
}

/* -- search ----------------------------------------------------------------------------------- */

/* Where plain tables begin: roots in words, tables of ports in halves of words; constants take no registers.
 */
enum parts {
    SECOND = 1 << 16,
    TO_PORT = 1 << 18,
    PROTOCOL = TO_PORT + (1 << 16),
    FROM_PORT = PROTOCOL + (1 << 8)
};

/* The state of headers that take their steps together. */
struct header_batch {
    uint32_t from[BATCH], to[BATCH], kind[BATCH], list[BATCH];
    uint16_t sum[BATCH]; /* of the shares of ports and protocol */
};

#define INLINE inline __attribute__((always_inline))
#define UNROLL _Pragma("GCC unroll 4")

/* Two words in one read. */
static INLINE uint64_t two_words(const uint32_t *at)
{
    uint64_t read;
    memcpy(&read, at, sizeof read);
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    read = read << 32 | read >> 32;
#endif
    return read;
}

/* The place of the class that an address leads to, in halves of words. */
static INLINE uint32_t place(const uint32_t *words, const uint32_t *root, const uint32_t *bits,
                             uint32_t value)
{
    uint32_t at = root[value >> bits[2] >> bits[1] & ((1U << bits[0]) - 1)];
    return words[at + (value >> bits[2] & ((1U << bits[1]) - 1))] + (value & ((1U << bits[2]) - 1));
}

static void read_fields(const struct cross_product *db, const uint32_t *headers, uint32_t count,
                        struct header_batch *batch)
{
    const uint32_t *words = (const uint32_t *)db->piece;
    for (uint32_t i = 0; i < count; i++, headers += 5) {
        uint32_t sum = 0;
        for (uint32_t d = 0; d < 3; d++)
            sum += db->port[d].share[headers[d + 2] >> db->port[d].shift & db->port[d].mask];
        batch->from[i] = place(words, db->root[0], db->bits[0], headers[0]);
        batch->to[i] = place(words, db->root[1], db->bits[1], headers[1]);
        batch->kind[i] = db->kind[sum];
    }
}

/* The same for plain headers; *summed*: the ports have been read. */
static INLINE void read_plain(const struct cross_product *db, const uint32_t *headers, uint32_t count,
                              struct header_batch *batch, bool sources, bool summed)
{
    const uint32_t *words = (const uint32_t *)db->piece;
    const uint16_t *halves = (const uint16_t *)db->piece, *kinds = db->kind;
    for (uint32_t i = 0; i < count; i++, headers += 5) {
        uint64_t both = two_words(headers);
        uint32_t from = (uint32_t)both, to = both >> 32;
        batch->from[i] = words[words[from >> 16] + (uint8_t)(from >> 8)] + (uint8_t)from;
        batch->to[i] = words[words[SECOND + (to >> 16)] + (uint8_t)(to >> 8)] + (uint8_t)to;
        uint32_t sum;
        if (summed) {
            sum = batch->sum[i];
        } else {
            both = two_words(headers + 2);
            sum = (uint32_t)halves[TO_PORT + (uint16_t)(both >> 32)] + halves[PROTOCOL + (uint8_t)headers[4]];
            if (sources)
                sum += halves[FROM_PORT + (uint16_t)both];
        }
        batch->kind[i] = kinds[sum];
        __builtin_prefetch(headers + AHEAD);
    }
}

static INLINE void read_cells(const struct cross_product *db, uint32_t p, uint32_t count,
                              struct header_batch *batch, bool narrow)
{
    const uint16_t *from = (const uint16_t *)db->piece, *to = from, *halves = db->product[p].cell;
    const uint32_t *words = db->product[p].cell;
    const uint32_t columns = db->product[p].columns;
    if (p) { /* its classes follow those of the first, block by block */
        from += (size_t)1 << db->bits[0][2];
        to += (size_t)1 << db->bits[1][2];
    }
    UNROLL
    for (uint32_t i = 0; i < count; i++) {
        size_t cell = (size_t)from[batch->from[i]] * columns + to[batch->to[i]];
        batch->list[i] = narrow ? halves[cell] : words[cell];
    }
}

static INLINE void read_lists(const struct cross_product *db, uint32_t p, uint32_t count,
                              const struct header_batch *batch, uint32_t *answers, bool narrow)
{
    const uint32_t *pool = db->pool;
    const uint8_t *line = db->line;
    const uint32_t shift = db->product[p].shift, kinds = db->kinds;
    UNROLL
    for (uint32_t i = 0; i < count; i++) {
        uint32_t list = batch->list[i], start = narrow ? pool[list] : (list >> shift) * kinds;
        if (!narrow)
            list &= (1U << shift) - 1;
        uint32_t answer = pool[list + line[start + batch->kind[i]]];
        answers[i] = p && answers[i] < answer ? answers[i] : answer;
    }
}

#ifdef HAVE_X86
static PORTS_TARGET void read_whole(const struct cross_product *db, const uint32_t *headers,
                                    struct header_batch *batch)
{
    for (uint32_t done = 0; done < BATCH; done += PORTS_GROUP)
        sum_ports(db->ranges, headers + 5 * done, batch->sum + done, db->sources);
    read_plain(db, headers, BATCH, batch, db->sources, true);
}
#endif

static void read_headers(const struct cross_product *db, const uint32_t *headers, uint32_t count,
                         struct header_batch *batch)
{
#ifdef HAVE_X86
    if (db->vector && count == BATCH) {
        read_whole(db, headers, batch);
        return;
    }
#endif
    if (!db->plain)
        read_fields(db, headers, count, batch);
    else if (db->sources)
        read_plain(db, headers, count, batch, true, false);
    else
        read_plain(db, headers, count, batch, false, false);
}

static int cross_product_search(const void *built, const uint32_t *headers, size_t count, uint32_t *answers)
{
    const struct cross_product *db = built;
    struct header_batch batch;
    for (size_t start = 0; start < count; start += BATCH, headers += 5 * BATCH, answers += BATCH) {
        uint32_t some = count - start < BATCH ? (uint32_t)(count - start) : BATCH;
        read_headers(db, headers, some, &batch);
        if (db->product[0].shift) {
            read_cells(db, 0, some, &batch, false);
            read_lists(db, 0, some, &batch, answers, false);
        } else {
            read_cells(db, 0, some, &batch, true);
            read_lists(db, 0, some, &batch, answers, true);
        }
        if (db->products == 2) {
            read_cells(db, 1, some, &batch, false);
            read_lists(db, 1, some, &batch, answers, false);
        }
    }
    return VFDB_OK;
}

/* Every search reads the same: three tables per address, a share per other field, the kind, and for each
 * product a cell and a list. */
static int cross_product_search_counted(const void *built, const uint32_t *headers, size_t count,
                                        uint32_t *answers, struct vfdb_work *work)
{
    const struct cross_product *db = built;
    for (size_t i = 0; i < count; i++) {
        work[i].nodes += 2 * 3 + 3 + 1 + db->products;
        work[i].lists += db->products;
    }
    return cross_product_search(built, headers, count, answers);
}

const struct vfdb_ops vfdb_cross_product = {
    .name = "tables",
    .title = "every answer written down: one or two product tables, for small sets",
    .least_dims = 5,
    .most_dims = 5,
    .param = {{"products", "1, or 2: narrow sources apart", 1, 1, 2},
              {"narrow", "bits that a narrow source fixes", 8, 0, 32},
              {"bytes", "bytes that the tables may take", 1 << 25, 1, UINT32_MAX},
              {"simd", "bits of the widest vectors that a search may use: 0, 512", 512, 0, 512}},
    .build = cross_product_build,
    .search = cross_product_search,
    .search_counted = cross_product_search_counted,
    .free = cross_product_free,
};
