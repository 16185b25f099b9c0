/* HyperSplit (Qi, Xu, Yang, Xue and Li, INFOCOM 2009).
 *
 * Idea: a binary tree whose nodes compare one dimension with one value.  A node's rules cut each
 * dimension into segments; the dimension whose segments hold fewest rules on the average is split
 * where half of all rules, counted per segment, lie on either side.
 * Cost: a search takes a comparison per level, then reads a leaf of at most *leaf* rules.  A build
 * sorts the ends of each node's rules; rules that lie on both sides are copied, so overlap costs
 * memory: a tree of more than *mb* megabytes is VFDB_TOO_LARGE.
 * Invariant: the leaves below a node tile its box, and a leaf lists every rule that meets it, by rising
 * priority, up to the first that covers it.
 * Threading: searches change nothing.
 *
 * Where we differ from the paper: its leaves hold one rule; longer ones take a part of the memory at
 * nearly the speed.  Short lists lose the rules that an earlier one covers within the node's
 * box.  Several packets go down the tree at a time, so that the misses of the cache overlap.
 */
#include <stdlib.h>
#include <string.h>

#include "bag.h"
#include "edges.h"
#include "ledger.h"
#include "tree_core.h"
#include "vfdb.h"

enum {
    LEAF = 31,          /* in place of a dimension */
    DIM_BITS = 5,
    MOST_NODES = 1 << (32 - DIM_BITS),
    IN_FLIGHT = 16,     /* packets */
    THIN = 64           /* lists so long lose their covered rules: that takes time by the square */
};

/* Of a leaf, *to* tells how many entries it has, from *value* on. */
struct node {
    uint32_t value; /* less goes to node *to*, the rest to the next */
    uint32_t to_dim;
};

/* A rule of a leaf; COVERS: it matches whatever comes here. */
enum { COVERS = 1U << 31 };

struct hypersplit {
    struct ledger *ledger;
    struct bag bag;
    uint32_t dims, rules;
    uint32_t *priority, *box; /* of the rules */
    struct node *node;
    uint32_t nodes, node_room, entries, entry_room;
    uint32_t *entry;
};

/* A node to be made, and its list: what was pushed last is on top of the lists, too. */
struct task {
    uint32_t node, count;
    size_t list;
};

struct build {
    struct hypersplit *db;
    struct bag bag;
    uint32_t leaf;
    size_t most_bytes;
    struct task *task;
    uint32_t *region; /* [tasks][dims][2] */
    uint32_t tasks, task_room;
    uint32_t *list;
    size_t listed, list_room;
    uint64_t *key; /* [4 * rules] */
};

struct split {
    uint32_t dim, value;
};

static void hypersplit_free(void *built)
{
    struct hypersplit *db = built;
    struct ledger *ledger = db->ledger;
    bag_empty(&db->bag);
    ledger_give(ledger, db, sizeof *db);
}

static int grow(struct bag *bag, void **array, size_t size)
{
    void *moved = bag_resize(bag, *array, size);
    if (moved)
        *array = moved;
    return moved ? VFDB_OK : VFDB_NO_MEMORY;
}

static inline const uint32_t *box_of(const struct hypersplit *db, uint32_t rule)
{
    return db->box + (size_t)rule * 2 * db->dims;
}

/* Whether the part of *inner* in the region lies in *outer*. */
static bool covers(const struct hypersplit *db, const uint32_t *outer, const uint32_t *inner, const uint32_t *region)
{
    for (uint32_t i = 0; i < 2 * db->dims; i += 2)
        if ((outer[i] > inner[i] && outer[i] > region[i]) || (outer[i + 1] < inner[i + 1] && outer[i + 1] < region[i + 1]))
            return false;
    return true;
}

static bool meets(const struct hypersplit *db, const uint32_t *box, const uint32_t *region)
{
    for (uint32_t i = 0; i < 2 * db->dims; i += 2)
        if (box[i] > region[i + 1] || box[i + 1] < region[i])
            return false;
    return true;
}

/* Take from a list what an earlier rule covers. */
static uint32_t thin(const struct build *b, uint32_t *list, uint32_t count, const uint32_t *region)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < count; i++) {
        const uint32_t *box = box_of(b->db, list[i]);
        uint32_t before = 0;
        while (before < kept && !covers(b->db, box_of(b->db, list[before]), box, region))
            before++;
        if (before == kept)
            list[kept++] = list[i];
    }
    return kept;
}

/* A task for *node* with the rules of *from* that meet the region, which is copied. */
static int push(struct build *b, uint32_t node, const uint32_t *from, uint32_t count, const uint32_t *region)
{
    uint32_t dims = b->db->dims;
    if (b->tasks == b->task_room) {
        uint32_t room = 2 * b->task_room;
        if (grow(&b->bag, (void **)&b->task, room * sizeof *b->task) ||
            grow(&b->bag, (void **)&b->region, (size_t)room * 2 * dims * sizeof *b->region))
            return VFDB_NO_MEMORY;
        b->task_room = room;
    }
    uint32_t *kept = b->list + b->listed, some = 0;
    for (uint32_t i = 0; i < count; i++) {
        const uint32_t *box = box_of(b->db, from[i]);
        if (!meets(b->db, box, region))
            continue;
        kept[some++] = from[i];
        if (covers(b->db, box, region, region))
            break;
    }
    if (some <= THIN)
        some = thin(b, kept, some, region);
    memcpy(b->region + (size_t)b->tasks * 2 * dims, region, 2 * dims * sizeof *region);
    b->task[b->tasks++] = (struct task){node, some, b->listed};
    b->listed += some;
    return VFDB_OK;
}

/* The ends of the list's rules within the region, sorted; *first* counts the rules that begin with it.
 * An end at which one rule more begins is even, after the last value of a rule odd. */
static uint32_t ends_along(const struct build *b, const uint32_t *list, uint32_t count, const uint32_t *side, uint32_t dim,
                           uint32_t *first)
{
    uint32_t keys = 0;
    *first = 0;
    for (uint32_t i = 0; i < count; i++) {
        const uint32_t *of = box_of(b->db, list[i]) + 2 * dim;
        if (of[0] > side[0])
            b->key[keys++] = (uint64_t)of[0] << 1;
        else
            ++*first;
        if (of[1] < side[1])
            b->key[keys++] = (uint64_t)(of[1] + 1) << 1 | 1;
    }
    sort_keys(b->key, b->key + keys, keys, 0);
    return keys;
}

/* Segments and the rules that they hold, all counted; with *half*: the first value behind the segment that
 * makes half of them. */
static uint64_t segments(const struct build *b, uint32_t keys, uint32_t rules, uint32_t *count, uint64_t half,
                         uint32_t *value)
{
    uint64_t sum = rules;
    *count = 1;
    for (uint32_t i = 0; i < keys;) {
        uint64_t at = b->key[i] >> 1;
        if (half) {
            *value = (uint32_t)at;
            if (2 * sum >= half)
                return sum;
        }
        for (; i < keys && b->key[i] >> 1 == at; i++)
            rules += b->key[i] & 1 ? -1U : 1U;
        sum += rules;
        ++*count;
    }
    return sum;
}

/* False: no rule ends within the region. */
static bool choose(const struct build *b, const uint32_t *list, uint32_t count, const uint32_t *region, struct split *split)
{
    double least = 0;
    bool any = false;
    uint32_t first, keys, some;
    for (uint32_t d = 0; d < b->db->dims; d++) {
        keys = ends_along(b, list, count, region + 2 * d, d, &first);
        double average = (double)segments(b, keys, first, &some, 0, NULL) / some;
        if (keys && (!any || average < least)) {
            least = average;
            split->dim = d;
            any = true;
        }
    }
    if (!any)
        return false;
    keys = ends_along(b, list, count, region + 2 * split->dim, split->dim, &first);
    uint64_t sum = segments(b, keys, first, &some, 0, NULL);
    segments(b, keys, first, &some, sum, &split->value);
    return true;
}

static size_t tree_bytes(const struct hypersplit *db)
{
    return db->nodes * sizeof *db->node + db->entries * sizeof *db->entry;
}

static int make_leaf(struct build *b, uint32_t node, const uint32_t *list, uint32_t count, const uint32_t *region)
{
    struct hypersplit *db = b->db;
    if (db->entries + count > db->entry_room) {
        uint32_t room = 2 * db->entry_room + count;
        if (room >= UINT32_MAX / 4)
            return VFDB_TOO_LARGE;
        if (grow(&db->bag, (void **)&db->entry, room * sizeof *db->entry))
            return VFDB_NO_MEMORY;
        db->entry_room = room;
    }
    db->node[node] = (struct node){db->entries, count << DIM_BITS | LEAF};
    if (count)
        memcpy(db->entry + db->entries, list, count * sizeof *list);
    db->entries += count;
    if (count && covers(db, box_of(db, list[count - 1]), region, region))
        db->entry[db->entries - 1] |= COVERS;
    return VFDB_OK;
}

static int make_split(struct build *b, uint32_t node, const struct split *split)
{
    struct hypersplit *db = b->db;
    if (db->nodes + 2 > db->node_room) {
        uint32_t room = 2 * db->node_room;
        if (room > MOST_NODES)
            return VFDB_TOO_LARGE;
        if (grow(&db->bag, (void **)&db->node, room * sizeof *db->node))
            return VFDB_NO_MEMORY;
        db->node_room = room;
    }
    db->node[node] = (struct node){split->value, db->nodes << DIM_BITS | split->dim};
    db->nodes += 2;
    return VFDB_OK;
}

/* Make the node of the last task, and tasks of its halves. */
static int next(struct build *b)
{
    struct hypersplit *db = b->db;
    struct task task = b->task[--b->tasks];
    uint32_t region[2 * VFDB_DIMS], *side;
    struct split split;
    memcpy(region, b->region + (size_t)b->tasks * 2 * db->dims, 2 * db->dims * sizeof *region);
    if (task.count <= b->leaf || !choose(b, b->list + task.list, task.count, region, &split)) {
        b->listed = task.list;
        return make_leaf(b, task.node, b->list + task.list, task.count, region);
    }
    if (b->listed + 2 * (size_t)task.count > b->list_room) {
        size_t room = 2 * b->list_room + 2 * (size_t)task.count;
        if (grow(&b->bag, (void **)&b->list, room * sizeof *b->list))
            return VFDB_NO_MEMORY;
        b->list_room = room;
    }
    int status = make_split(b, task.node, &split);
    if (status)
        return status;
    /* Written behind the list of the task, then moved in its place. */
    uint32_t below = db->node[task.node].to_dim >> DIM_BITS, low, tasks = b->tasks;
    size_t from = b->listed;
    side = region + 2 * split.dim;
    low = side[0];
    side[0] = split.value;
    status = push(b, below + 1, b->list + task.list, task.count, region);
    side[0] = low;
    side[1] = split.value - 1;
    if (!status)
        status = push(b, below, b->list + task.list, task.count, region);
    if (status)
        return status;
    memmove(b->list + task.list, b->list + from, (b->listed - from) * sizeof *b->list);
    for (; tasks < b->tasks; tasks++)
        b->task[tasks].list -= from - task.list;
    b->listed -= from - task.list;
    return tree_bytes(db) > b->most_bytes ? VFDB_TOO_LARGE : VFDB_OK;
}

static int grow_tree(struct build *b, const struct vfdb_rules *rules)
{
    struct hypersplit *db = b->db;
    uint32_t all[2 * VFDB_DIMS];
    b->task_room = 64;
    b->list_room = 4 * (size_t)rules->count + 4;
    db->node_room = db->entry_room = 64;
    b->task = bag_take(&b->bag, b->task_room * sizeof *b->task);
    b->region = bag_take(&b->bag, (size_t)b->task_room * 2 * db->dims * sizeof *b->region);
    b->list = bag_take(&b->bag, b->list_room * sizeof *b->list);
    b->key = bag_take(&b->bag, 4 * (size_t)rules->count * sizeof *b->key);
    db->node = bag_take(&db->bag, db->node_room * sizeof *db->node);
    db->entry = bag_take(&db->bag, db->entry_room * sizeof *db->entry);
    db->priority = bag_take(&db->bag, rules->count * sizeof *db->priority);
    db->box = bag_take(&db->bag, (size_t)rules->count * 2 * db->dims * sizeof *db->box);
    if (!b->task || !b->region || !b->list || !b->key || !db->node || !db->entry || !db->priority || !db->box)
        return VFDB_NO_MEMORY;
    if (rules->count) {
        memcpy(db->priority, rules->priority, rules->count * sizeof *db->priority);
        memcpy(db->box, rules->box, (size_t)rules->count * 2 * db->dims * sizeof *db->box);
    }
    for (uint32_t d = 0; d < db->dims; d++) {
        all[2 * d] = 0;
        all[2 * d + 1] = dim_top(rules, d);
    }
    uint32_t *whole = b->list + rules->count;
    for (uint32_t i = 0; i < rules->count; i++)
        whole[i] = i;
    db->nodes = 1;
    int status = push(b, 0, whole, rules->count, all);
    while (!status && b->tasks)
        status = next(b);
    if (!status)
        status = grow(&db->bag, (void **)&db->node, db->nodes * sizeof *db->node);
    if (!status)
        status = grow(&db->bag, (void **)&db->entry, db->entries * sizeof *db->entry);
    return status;
}

static int hypersplit_build(struct ledger *ledger, const struct vfdb_plan *plan, const struct vfdb_rules *rules,
                            void **built)
{
    if (rules->count >= UINT32_MAX / 8)
        return VFDB_TOO_LARGE;
    struct hypersplit *db = ledger_take(ledger, sizeof *db);
    if (!db)
        return VFDB_NO_MEMORY;
    *db = (struct hypersplit){.ledger = ledger, .bag.ledger = ledger, .dims = rules->dims, .rules = rules->count};
    struct build b = {.db = db, .bag.ledger = ledger, .leaf = (uint32_t)plan->value[0],
                      .most_bytes = (size_t)plan->value[1] << 20};
    int status = grow_tree(&b, rules);
    bag_empty(&b.bag);
    if (status)
        hypersplit_free(db);
    else
        *built = db;
    return status;
}

static inline uint32_t leaf_search(const struct hypersplit *db, const struct node *leaf, const uint32_t *header)
{
    const uint32_t *entry = db->entry + leaf->value, *end = entry + (leaf->to_dim >> DIM_BITS);
    for (; entry < end; entry++) {
        if (*entry & COVERS)
            return db->priority[*entry & ~(uint32_t)COVERS];
        const uint32_t *box = box_of(db, *entry);
        uint32_t d = 0;
        while (d < db->dims && header[d] - box[2 * d] <= box[2 * d + 1] - box[2 * d])
            d++;
        if (d == db->dims)
            return db->priority[*entry];
    }
    return VFDB_NONE;
}

static int hypersplit_search(const void *built, const uint32_t *headers, size_t count, uint32_t *found)
{
    const struct hypersplit *db = built;
    const struct node *node = db->node, *at[IN_FLIGHT];
    uint32_t dims = db->dims, flying = count < IN_FLIGHT ? (uint32_t)count : IN_FLIGHT;
    size_t packet[IN_FLIGHT], next = flying;
    for (uint32_t i = 0; i < flying; i++) {
        packet[i] = i;
        at[i] = node;
    }
    while (flying)
        for (uint32_t i = 0; i < flying; i++) {
            const uint32_t *header = headers + packet[i] * dims;
            uint32_t dim = at[i]->to_dim & LEAF;
            if (dim != LEAF) {
                at[i] = node + (at[i]->to_dim >> DIM_BITS) + (header[dim] >= at[i]->value);
                __builtin_prefetch(at[i]);
                continue;
            }
            found[packet[i]] = leaf_search(db, at[i], header);
            at[i] = node;
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

const struct vfdb_ops vfdb_hypersplit = {
    .name = "hypersplit",
    .title = "a binary tree of comparisons that halve the rules",
    .least_dims = 1,
    .most_dims = VFDB_DIMS,
    .param = {{"leaf", "rules in a leaf at most", 4, 1, 1000}, {"mb", "megabytes of tree at most", 1024, 1, 1 << 20}},
    .build = hypersplit_build,
    .search = hypersplit_search,
    .free = hypersplit_free,
};
