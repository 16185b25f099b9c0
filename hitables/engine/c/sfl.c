/* SFL(A): The Small, the Fast and the Lazy (Hager, Brack, Scheuermann), around any A.
 *
 * Idea (section IV): A, the fast one, keeps the rules as they were; an update goes to a
 * small buffer of nodes by index, in which a header's preliminary answer is corrected;
 * after delta updates A is built anew, lazily.  Indices count from 0 here.
 * Cost: an update O(delta + n) as in table I (the master list is an array), a search
 * that of A and O(delta), or O(n) where the rule that A found is deleted.
 * Invariant: a node stands for every index of A's rules that is deleted, or in front of
 * which rules were inserted (index n: behind the last), and nodes rise by index; so
 * buffer and A together say what the master list says.
 * Where we differ: the loop of algorithm 3 ends at the first node behind the
 * preliminary index (its condition says "or", which would walk on).  Algorithm 1 takes
 * the node of the first rule of A behind the new one; here the first rule of any kind
 * decides, for the rule of A in whose front it was put may be gone, and then the two
 * would change places.  Updates go on while A is built, and the buffer is made again
 * from both lists at its end (background=0 builds at once, as the paper does).  Answers
 * are priorities, so an index is looked up in the master list at last.  A build that
 * fails leaves the buffer in place, and is tried again delta updates later.
 * Threading: searches share a lock; updates, and the moment when a new A is taken, have
 * it alone.  One worker at a time builds.
 */
#define _GNU_SOURCE
#include <assert.h>
#include <string.h>

#include "ledger.h"
#include "vfdb.h"
#include "vfdb_lock.h"

/* A box of the master list.  *index*: where it stands in A's rules if it is *old*, else that of its node. */
struct entry {
    uint64_t serial;
    uint32_t priority, index;
    bool old;
    uint32_t box[];
};

struct node {
    uint32_t index, inserted; /* how many */
    bool deleted;
    struct entry **rule; /* inserted just before the rule *index*, best first */
    uint32_t room;
};

/* A, and the serials of the rules that it was built from, in order; all of them are below *mark*. */
struct base {
    struct vfdb *db;
    uint32_t count;
    uint64_t *serial, mark;
};

struct sfl {
    struct ledger *ledger;
    const struct vfdb_plan *plan;
    uint32_t dims, delta;
    bool background;
    uint8_t bits[VFDB_DIMS];
    pthread_rwlock_t lock;

    struct entry **master;
    uint32_t count, room;
    uint64_t serials;
    struct base base;
    struct node *node;
    uint32_t nodes, node_room;
    uint64_t updates, due; /* in the buffer; A is built again when so many are exceeded */

    bool building, started; /* a build is going on; the worker is to be joined */
    pthread_t worker;
    struct base next;
    uint32_t *next_priority, *next_box; /* the rules that it is built from, their indices as priorities */
    int ended;                          /* the status of the last build */
};

static size_t box_bytes(const struct sfl *db)
{
    return 2 * (size_t)db->dims * sizeof(uint32_t);
}

static size_t entry_bytes(const struct sfl *db)
{
    return sizeof(struct entry) + box_bytes(db);
}

static bool matches(const struct sfl *db, const uint32_t *box, const uint32_t *header)
{
    for (uint32_t d = 0; d < db->dims; d++)
        if (header[d] - box[2 * d] > box[2 * d + 1] - box[2 * d])
            return false;
    return true;
}

/* ---- The buffer ---- */

static void empty_buffer(struct sfl *db)
{
    for (uint32_t i = 0; i < db->nodes; i++)
        ledger_give(db->ledger, db->node[i].rule, db->node[i].room * sizeof *db->node[i].rule);
    db->nodes = 0;
}

/* The first node whose index is not lower. */
static uint32_t node_at(const struct sfl *db, uint32_t index)
{
    uint32_t low = 0, high = db->nodes;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (db->node[middle].index < index)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* The node of that index, made if there is none; NULL without memory. */
static struct node *node_for(struct sfl *db, uint32_t index)
{
    uint32_t at = node_at(db, index);
    if (at < db->nodes && db->node[at].index == index)
        return &db->node[at];
    if (db->nodes == db->node_room) {
        uint32_t room = db->node_room ? 2 * db->node_room : 32;
        struct node *moved =
            ledger_resize(db->ledger, db->node, db->node_room * sizeof *moved, room * sizeof *moved);
        if (!moved)
            return NULL;
        db->node = moved;
        db->node_room = room;
    }
    memmove(db->node + at + 1, db->node + at, (db->nodes - at) * sizeof *db->node);
    db->nodes++;
    db->node[at] = (struct node){.index = index};
    return &db->node[at];
}

static void drop_if_empty(struct sfl *db, struct node *node)
{
    if (node->deleted || node->inserted)
        return;
    ledger_give(db->ledger, node->rule, node->room * sizeof *node->rule);
    memmove(node, node + 1, (size_t)(db->node + db->nodes - node - 1) * sizeof *node);
    db->nodes--;
}

/* The rule goes into the node's list, which stays in the order of the master list. */
static int note_inserted(struct sfl *db, uint32_t index, struct entry *rule)
{
    struct node *node = node_for(db, index);
    if (!node)
        return VFDB_NO_MEMORY;
    if (node->inserted == node->room) {
        uint32_t room = node->room ? 2 * node->room : 4;
        struct entry **moved =
            ledger_resize(db->ledger, node->rule, node->room * sizeof *moved, room * sizeof *moved);
        if (!moved) {
            drop_if_empty(db, node);
            return VFDB_NO_MEMORY;
        }
        node->rule = moved;
        node->room = room;
    }
    uint32_t at = node->inserted++;
    for (; at && node->rule[at - 1]->priority >= rule->priority; at--)
        node->rule[at] = node->rule[at - 1];
    node->rule[at] = rule;
    return VFDB_OK;
}

static int note_deleted(struct sfl *db, uint32_t index)
{
    struct node *node = node_for(db, index);
    if (!node)
        return VFDB_NO_MEMORY;
    node->deleted = true;
    return VFDB_OK;
}

/* ---- The master list ---- */

/* The first entry whose priority is not better. */
static uint32_t place_of(const struct sfl *db, uint32_t priority)
{
    uint32_t low = 0, high = db->count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (db->master[middle]->priority < priority)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static int put_entry(struct sfl *db, uint32_t at, struct entry *rule)
{
    if (db->count == db->room) {
        uint32_t room = db->room ? 2 * db->room : 16;
        struct entry **moved = ledger_resize(db->ledger, db->master, db->room * sizeof *moved, room * sizeof *moved);
        if (!moved)
            return VFDB_NO_MEMORY;
        db->master = moved;
        db->room = room;
    }
    memmove(db->master + at + 1, db->master + at, (db->count - at) * sizeof *db->master);
    db->master[at] = rule;
    db->count++;
    return VFDB_OK;
}

static void take_entry(struct sfl *db, uint32_t at)
{
    db->count--;
    memmove(db->master + at, db->master + at + 1, (db->count - at) * sizeof *db->master);
}

/* A new box, on its way into the list. */
static struct entry *new_entry(struct sfl *db, const uint32_t *box, uint32_t priority)
{
    struct entry *rule = ledger_take(db->ledger, entry_bytes(db));
    if (rule) {
        *rule = (struct entry){.serial = db->serials++, .priority = priority};
        memcpy(rule->box, box, box_bytes(db));
    }
    return rule;
}

/* ---- Building A anew ---- */

static void drop_base(struct sfl *db, struct base *base)
{
    vfdb_close(base->db);
    ledger_give(db->ledger, base->serial, base->count * sizeof *base->serial);
    *base = (struct base){.db = NULL};
}

static void drop_snapshot(struct sfl *db)
{
    ledger_give(db->ledger, db->next_priority, db->next.count * sizeof *db->next_priority);
    ledger_give(db->ledger, db->next_box, db->next.count * box_bytes(db));
    db->next_priority = db->next_box = NULL;
}

/* Notes the master list as it is for the next A. */
static int take_snapshot(struct sfl *db)
{
    struct base *next = &db->next;
    *next = (struct base){.count = db->count, .mark = db->serials};
    if (!db->count)
        return VFDB_OK;
    next->serial = ledger_take(db->ledger, db->count * sizeof *next->serial);
    db->next_priority = ledger_take(db->ledger, db->count * sizeof *db->next_priority);
    db->next_box = ledger_take(db->ledger, db->count * box_bytes(db));
    if (!next->serial || !db->next_priority || !db->next_box) {
        drop_snapshot(db);
        drop_base(db, next);
        return VFDB_NO_MEMORY;
    }
    for (uint32_t i = 0; i < db->count; i++) {
        next->serial[i] = db->master[i]->serial;
        db->next_priority[i] = i;
        memcpy(db->next_box + i * 2 * (size_t)db->dims, db->master[i]->box, box_bytes(db));
    }
    return VFDB_OK;
}

static int build_next(struct sfl *db)
{
    struct vfdb_rules rules = {db->dims, db->next.count, db->bits, db->next_priority, db->next_box};
    return vfdb_open_under(db->ledger, db->plan->inner, &rules, &db->next.db);
}

/* What the master list and the next A differ in becomes the buffer, and the next A takes the place of A. */
static int adopt(struct sfl *db)
{
    struct base *next = &db->next;
    struct sfl fresh = {.ledger = db->ledger};
    uint32_t old = next->count; /* the index of the last old rule seen, from behind */
    int status = VFDB_OK;
    for (uint32_t i = db->count; status == VFDB_OK && i-- > 0;) {
        struct entry *rule = db->master[i];
        if (rule->serial >= next->mark) {
            status = note_inserted(&fresh, old, rule);
            fresh.updates++;
        } else {
            while (status == VFDB_OK && next->serial[--old] != rule->serial) {
                status = note_deleted(&fresh, old);
                fresh.updates++;
            }
        }
    }
    while (status == VFDB_OK && old > 0) {
        status = note_deleted(&fresh, --old);
        fresh.updates++;
    }
    struct sfl *loser = status ? &fresh : db;
    empty_buffer(loser);
    ledger_give(db->ledger, loser->node, loser->node_room * sizeof *loser->node);
    if (status)
        return status;
    db->node = fresh.node;
    db->nodes = fresh.nodes;
    db->node_room = fresh.node_room;
    db->updates = fresh.updates;
    old = next->count;
    for (uint32_t i = db->count; i-- > 0;) {
        struct entry *rule = db->master[i];
        rule->old = rule->serial < next->mark;
        if (rule->old)
            while (next->serial[--old] != rule->serial)
                ;
        rule->index = old;
    }
    drop_base(db, &db->base);
    db->base = *next;
    *next = (struct base){.db = NULL};
    return VFDB_OK;
}

/* Ends a build, with the lock held alone. */
static void finish(struct sfl *db, int status)
{
    drop_snapshot(db);
    if (status == VFDB_OK)
        status = adopt(db);
    if (status)
        drop_base(db, &db->next);
    db->due = (status ? db->updates : 0) + db->delta;
    db->ended = status;
    db->building = false;
}

static void *work(void *given)
{
    struct sfl *db = given;
    int status = build_next(db);
    pthread_rwlock_wrlock(&db->lock);
    finish(db, status);
    pthread_rwlock_unlock(&db->lock);
    return NULL;
}

static void join(struct sfl *db)
{
    if (db->started)
        pthread_join(db->worker, NULL);
    db->started = false;
}

/* After each update, with the lock held alone. */
static void build_if_due(struct sfl *db)
{
    if (db->building || db->updates <= db->due)
        return;
    join(db); /* it has ended, for this thread has the lock */
    int status = take_snapshot(db);
    if (status) {
        db->due = db->updates + db->delta;
        db->ended = status;
        return;
    }
    db->building = true;
    if (db->background && db->delta && !pthread_create(&db->worker, NULL, work, db))
        db->started = true;
    else
        finish(db, build_next(db));
}

/* ---- The operations ---- */

static void sfl_free(void *built)
{
    struct sfl *db = built;
    join(db);
    drop_base(db, &db->base);
    empty_buffer(db);
    ledger_give(db->ledger, db->node, db->node_room * sizeof *db->node);
    for (uint32_t i = 0; i < db->count; i++)
        ledger_give(db->ledger, db->master[i], entry_bytes(db));
    ledger_give(db->ledger, db->master, db->room * sizeof *db->master);
    pthread_rwlock_destroy(&db->lock);
    ledger_give(db->ledger, db, sizeof *db);
}

static int sfl_build(struct ledger *ledger, const struct vfdb_plan *plan, const struct vfdb_rules *rules, void **built)
{
    struct sfl *db = ledger_take(ledger, sizeof *db);
    if (!db)
        return VFDB_NO_MEMORY;
    *db = (struct sfl){.ledger = ledger, .plan = plan, .dims = rules->dims, .delta = (uint32_t)plan->value[0],
                       .background = plan->value[1], .due = (uint64_t)plan->value[0]};
    memcpy(db->bits, rules->bits, rules->dims);
    vfdb_lock_init(&db->lock);
    int status = VFDB_OK;
    for (uint32_t i = 0; status == VFDB_OK && i < rules->count; i++) {
        struct entry *rule = new_entry(db, rules->box + i * 2 * (size_t)db->dims, rules->priority[i]);
        status = rule ? put_entry(db, i, rule) : VFDB_NO_MEMORY;
        if (rule && status)
            ledger_give(ledger, rule, entry_bytes(db));
    }
    if (status == VFDB_OK)
        status = take_snapshot(db);
    if (status == VFDB_OK) {
        finish(db, build_next(db));
        status = db->ended;
    }
    if (status)
        sfl_free(db);
    else
        *built = db;
    return status;
}

/* Algorithm 1. */
static int insert(struct sfl *db, const uint32_t *box, uint32_t priority)
{
    struct entry *rule = new_entry(db, box, priority);
    if (!rule)
        return VFDB_NO_MEMORY;
    uint32_t at = place_of(db, priority);
    rule->index = at < db->count ? db->master[at]->index : db->base.count;
    int status = put_entry(db, at, rule);
    if (status == VFDB_OK) {
        status = note_inserted(db, rule->index, rule);
        if (status)
            take_entry(db, at);
    }
    if (status)
        ledger_give(db->ledger, rule, entry_bytes(db));
    return status;
}

/* Algorithm 2. */
static int delete(struct sfl *db, const uint32_t *box, uint32_t priority)
{
    uint32_t at = place_of(db, priority);
    while (at < db->count && db->master[at]->priority == priority && memcmp(db->master[at]->box, box, box_bytes(db)))
        at++;
    if (at == db->count || db->master[at]->priority != priority)
        return VFDB_ABSENT;
    struct entry *rule = db->master[at];
    if (rule->old) {
        int status = note_deleted(db, rule->index);
        if (status)
            return status;
    } else {
        struct node *node = &db->node[node_at(db, rule->index)];
        uint32_t i = 0;
        while (node->rule[i] != rule)
            i++;
        node->inserted--;
        memmove(node->rule + i, node->rule + i + 1, (node->inserted - i) * sizeof *node->rule);
        drop_if_empty(db, node);
    }
    take_entry(db, at);
    ledger_give(db->ledger, rule, entry_bytes(db));
    return VFDB_OK;
}

static int update(struct sfl *db, int (*change)(struct sfl *, const uint32_t *, uint32_t), const uint32_t *box,
                  uint32_t priority)
{
    pthread_rwlock_wrlock(&db->lock);
    int status = change(db, box, priority);
    if (status == VFDB_OK) {
        db->updates++;
        build_if_due(db);
    }
    pthread_rwlock_unlock(&db->lock);
    return status;
}

static int sfl_insert(void *built, const uint32_t *box, uint32_t priority)
{
    return update(built, insert, box, priority);
}

static int sfl_remove(void *built, const uint32_t *box, uint32_t priority)
{
    return update(built, delete, box, priority);
}

/* Algorithm 3, from the preliminary index on (the number of A's rules where none matches). */
static uint32_t correct(const struct sfl *db, const uint32_t *header, uint32_t index)
{
    int64_t offset = 0;
    for (uint32_t i = 0; i < db->nodes && db->node[i].index <= index; i++) {
        const struct node *node = &db->node[i];
        for (uint32_t r = 0; r < node->inserted; r++)
            if (matches(db, node->rule[r]->box, header))
                return node->rule[r]->priority;
        offset += node->inserted;
        if (node->deleted && node->index == index) {
            for (uint64_t at = (uint64_t)(index + offset); at < db->count; at++)
                if (matches(db, db->master[at]->box, header))
                    return db->master[at]->priority;
            return VFDB_NONE;
        }
        offset -= node->deleted;
    }
    if (index == db->base.count)
        return VFDB_NONE;
    assert(db->master[index + offset]->old && db->master[index + offset]->index == index);
    return db->master[index + offset]->priority;
}

static int sfl_search(const void *built, const uint32_t *headers, size_t count, uint32_t *found)
{
    struct sfl *db = (struct sfl *)built; /* the lock changes */
    pthread_rwlock_rdlock(&db->lock);
    int status = vfdb_search(db->base.db, headers, count, found);
    if (status == VFDB_OK)
        for (size_t i = 0; i < count; i++, headers += db->dims)
            found[i] = correct(db, headers, found[i] == VFDB_NONE ? db->base.count : found[i]);
    pthread_rwlock_unlock(&db->lock);
    return status;
}

static int sfl_settle(void *built)
{
    struct sfl *db = built;
    join(db);
    return db->ended;
}

const struct vfdb_ops vfdb_sfl = {
    .name = "sfl",
    .title = "The Small, the Fast and the Lazy: another algorithm, made updatable by a buffer",
    .least_dims = 1,
    .most_dims = VFDB_DIMS,
    .wraps = true,
    .param = {{"delta", "updates in the buffer before the other is built again", 20, 0, 1000000},
              {"background", "1: searches and updates go on while it is built", 1, 0, 1}},
    .build = sfl_build,
    .insert = sfl_insert,
    .remove = sfl_remove,
    .search = sfl_search,
    .settle = sfl_settle,
    .free = sfl_free,
};
