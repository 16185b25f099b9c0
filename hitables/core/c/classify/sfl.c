/* SFL(A): The Small, the Fast and the Lazy (Hager, Brack, Scheuermann), around any A.
 *
 * Idea (section IV): A, the fast one, keeps the rules as they were; an update goes to a small buffer, which
 * corrects the preliminary answer of a search; after delta updates A is built anew, lazily.  Indices count
 * from 0 here.
 * Cost: an update takes O(delta + n) as in table I (the master list is an array), a search that of A and
 * O(delta), or O(n) where the rule that A returns is deleted.
 * Invariant: for every index of A's rules the buffer records whether it is deleted, and which rules were
 * inserted in front of it (index n: behind the last); so buffer and A together hold the master list.
 * Threading: searches share a lock; updates, and the exchange of A for a new one, have it alone.  One worker
 * at a time builds.
 *
 * Where we differ: the paper's nodes by index are three equivalent arrays: the inserted rules, best first,
 * each with its index, compared sixteen at a time (box_soa.c); a mark per deleted index; and A's rules in
 * columns, where the next rule that matches replaces a deleted one.  Algorithm 3 (whose loop must end at the
 * first node behind the preliminary index; its condition has "or", with which it would walk on) becomes: take
 * the first inserted rule that matches, if its index is not above that of A's rule.  Algorithm 1 takes the
 * node of the first rule of A behind the new one; here it is that of the first rule of any kind, for the rule
 * of A in front of which that one was inserted may be deleted, and then the two would be exchanged.  Updates
 * go on while A is built, and the buffer is made again from both lists at the end (background=0 builds at
 * once, as the paper does).  Answers are priorities, which are kept with A's rules.  A build that fails
 * leaves the buffer in place, and is tried again delta updates later.
 */
#include <string.h>

#include "box_soa.h"
#include "budget.h"
#include "vfdb.h"
#include "vfdb_lock.h"
#include "vfdb_work.h"

enum { CHUNK = 256 /* headers corrected at a time */ };

/* A box of the master list.  *index*: if it is *old* its index in A's rules, else that of the rule behind it.
 */
struct master_entry {
    uint64_t serial;
    uint32_t priority, index;
    bool old;
    uint32_t box[];
};

/* A, and the rules that it was built from, in order; the serials of all of them are below *mark*. */
struct snapshot {
    struct vfdb *db;
    uint32_t count;
    uint64_t *serial, mark;
    struct box_soa box;
    uint32_t *priority; /* [count + 1] the last: none */
    bool *deleted; /* [count + 1] */
};

/* Rules that A does not have, best first; so their indices never fall. */
struct inserted_list {
    struct box_soa box;
    struct master_entry **rule;
    uint32_t count, room;
};

struct sfl {
    struct budget *budget;
    const struct vfdb_plan *plan;
    uint32_t dims, delta;
    bool background, vector;
    uint8_t bits[VFDB_DIMS];
    pthread_rwlock_t lock;

    struct master_entry **master;
    uint32_t count, room;
    uint64_t serials;
    struct snapshot base;
    struct inserted_list inserted;
    uint64_t updates, due; /* updates in the buffer; A is built again when they exceed *due* */

    bool building, started; /* a build is going on; the worker is to be joined */
    pthread_t worker;
    struct snapshot next;
    uint32_t *next_priority, *next_box; /* the rules that it is built from, their indices as priorities */
    int ended; /* the status of the last build */
};

static size_t box_bytes(const struct sfl *db)
{
    return 2 * (size_t)db->dims * sizeof(uint32_t);
}

static size_t entry_bytes(const struct sfl *db)
{
    return sizeof(struct master_entry) + box_bytes(db);
}

/* ---- The buffer ---- */

static void drop_inserted(struct sfl *db, struct inserted_list *list)
{
    budget_give(db->budget, list->rule, list->room * sizeof *list->rule);
    box_soa_free(&list->box, db->budget);
    *list = (struct inserted_list){.box = list->box};
}

/* The first of *count* entries, best first, whose priority is not better. */
static uint32_t first_not_better(struct master_entry *const *entry, uint32_t count, uint32_t priority)
{
    uint32_t low = 0, high = count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (entry[middle]->priority < priority)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static int note_inserted(struct sfl *db, struct inserted_list *list, uint32_t at, struct master_entry *rule)
{
    if (!box_soa_reserve(&list->box, db->budget, list->count + 1))
        return VFDB_NO_MEMORY;
    if (list->count == list->room) {
        uint32_t room = list->room ? 2 * list->room : 32;
        struct master_entry **moved =
            budget_resize(db->budget, list->rule, list->room * sizeof *moved, room * sizeof *moved);
        if (!moved)
            return VFDB_NO_MEMORY;
        list->rule = moved;
        list->room = room;
    }
    box_soa_insert(&list->box, at, rule->box);
    memmove(list->rule + at + 1, list->rule + at, (list->count - at) * sizeof *list->rule);
    list->rule[at] = rule;
    list->count++;
    return VFDB_OK;
}

static void note_removed(struct inserted_list *list, const struct master_entry *rule)
{
    uint32_t at = first_not_better(list->rule, list->count, rule->priority);
    while (list->rule[at] != rule)
        at++;
    box_soa_remove(&list->box, at);
    list->count--;
    memmove(list->rule + at, list->rule + at + 1, (list->count - at) * sizeof *list->rule);
}

/* ---- The master list ---- */

static int put_entry(struct sfl *db, uint32_t at, struct master_entry *rule)
{
    if (db->count == db->room) {
        uint32_t room = db->room ? 2 * db->room : 16;
        struct master_entry **moved =
            budget_resize(db->budget, db->master, db->room * sizeof *moved, room * sizeof *moved);
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
static struct master_entry *new_entry(struct sfl *db, const uint32_t *box, uint32_t priority)
{
    struct master_entry *rule = budget_take(db->budget, entry_bytes(db));
    if (rule) {
        *rule = (struct master_entry){.serial = db->serials++, .priority = priority};
        memcpy(rule->box, box, box_bytes(db));
    }
    return rule;
}

/* ---- Building A anew ---- */

static void drop_base(struct sfl *db, struct snapshot *base)
{
    vfdb_close(base->db);
    budget_give(db->budget, base->serial, base->count * sizeof *base->serial);
    budget_give(db->budget, base->priority, (base->count + 1) * sizeof *base->priority);
    budget_give(db->budget, base->deleted, (base->count + 1) * sizeof *base->deleted);
    box_soa_free(&base->box, db->budget);
    *base = (struct snapshot){.db = NULL};
}

static void drop_snapshot(struct sfl *db)
{
    budget_give(db->budget, db->next_priority, db->next.count * sizeof *db->next_priority);
    budget_give(db->budget, db->next_box, db->next.count * box_bytes(db));
    db->next_priority = db->next_box = NULL;
}

/* Notes the master list as it is for the next A. */
static int take_snapshot(struct sfl *db)
{
    struct snapshot *next = &db->next;
    *next = (struct snapshot){
        .count = db->count, .mark = db->serials, .box = {.dims = db->dims, .vector = db->vector}};
    next->serial = budget_take(db->budget, db->count * sizeof *next->serial);
    next->priority = budget_take(db->budget, (db->count + 1) * sizeof *next->priority);
    next->deleted = budget_take(db->budget, (db->count + 1) * sizeof *next->deleted);
    db->next_priority = budget_take(db->budget, db->count * sizeof *db->next_priority);
    db->next_box = budget_take(db->budget, db->count * box_bytes(db));
    bool listed = next->serial && db->next_priority && db->next_box &&
                  box_soa_reserve(&next->box, db->budget, db->count);
    if (!next->priority || !next->deleted || (db->count && !listed)) {
        drop_snapshot(db);
        drop_base(db, next);
        return VFDB_NO_MEMORY;
    }
    for (uint32_t i = 0; i < db->count; i++) {
        const struct master_entry *rule = db->master[i];
        next->serial[i] = rule->serial;
        next->priority[i] = rule->priority;
        box_soa_insert(&next->box, i, rule->box);
        db->next_priority[i] = i;
        memcpy(db->next_box + i * 2 * (size_t)db->dims, rule->box, box_bytes(db));
    }
    next->priority[db->count] = VFDB_NONE;
    return VFDB_OK;
}

static int build_next(struct sfl *db)
{
    struct vfdb_rules rules = {db->dims, db->next.count, db->bits, db->next_priority, db->next_box};
    return vfdb_open_under(db->budget, db->plan->inner, &rules, &db->next.db);
}

/* The difference between the master list and the next A becomes the buffer, and the next A replaces A. */
static int adopt(struct sfl *db)
{
    struct snapshot *next = &db->next;
    struct inserted_list fresh = {.box = {.dims = db->dims, .vector = db->vector}};
    uint64_t updates = 0;
    uint32_t old = 0; /* the next rule of A's */
    int status = VFDB_OK;
    for (uint32_t i = 0; status == VFDB_OK && i < db->count; i++) {
        struct master_entry *rule = db->master[i];
        if (rule->serial >= next->mark) {
            status = note_inserted(db, &fresh, fresh.count, rule);
            updates++;
            continue;
        }
        for (; next->serial[old] != rule->serial; old++, updates++)
            next->deleted[old] = true;
        old++;
    }
    for (; status == VFDB_OK && old < next->count; old++, updates++)
        next->deleted[old] = true;
    if (status) {
        drop_inserted(db, &fresh);
        return status;
    }
    old = next->count;
    for (uint32_t i = db->count; i-- > 0;) {
        struct master_entry *rule = db->master[i];
        rule->old = rule->serial < next->mark;
        if (rule->old)
            while (next->serial[--old] != rule->serial)
                ;
        rule->index = old;
    }
    drop_inserted(db, &db->inserted);
    db->inserted = fresh;
    db->updates = updates;
    drop_base(db, &db->base);
    db->base = *next;
    *next = (struct snapshot){.db = NULL};
    return VFDB_OK;
}

/* End a build; the caller holds the lock alone. */
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

static void *work(void *argument)
{
    struct sfl *db = argument;
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

/* Start a build if one is due; the caller holds the lock alone. */
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
    drop_inserted(db, &db->inserted);
    for (uint32_t i = 0; i < db->count; i++)
        budget_give(db->budget, db->master[i], entry_bytes(db));
    budget_give(db->budget, db->master, db->room * sizeof *db->master);
    pthread_rwlock_destroy(&db->lock);
    budget_give(db->budget, db, sizeof *db);
}

static int sfl_build(struct budget *budget, const struct vfdb_plan *plan, const struct vfdb_rules *rules,
                     void **built)
{
    struct sfl *db = budget_take(budget, sizeof *db);
    if (!db)
        return VFDB_NO_MEMORY;
    *db = (struct sfl){.budget = budget,
                       .plan = plan,
                       .dims = rules->dims,
                       .delta = (uint32_t)plan->value[0],
                       .background = plan->value[1],
                       .due = (uint64_t)plan->value[0]};
#ifdef __x86_64__
    db->vector = plan->value[2] && __builtin_cpu_supports("avx512f");
#endif
    memcpy(db->bits, rules->bits, rules->dims);
    vfdb_lock_init(&db->lock);
    int status = VFDB_OK;
    for (uint32_t i = 0; status == VFDB_OK && i < rules->count; i++) {
        struct master_entry *rule = new_entry(db, rules->box + i * 2 * (size_t)db->dims, rules->priority[i]);
        status = rule ? put_entry(db, i, rule) : VFDB_NO_MEMORY;
        if (rule && status)
            budget_give(budget, rule, entry_bytes(db));
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
    struct master_entry *rule = new_entry(db, box, priority);
    if (!rule)
        return VFDB_NO_MEMORY;
    uint32_t at = first_not_better(db->master, db->count, priority);
    rule->index = at < db->count ? db->master[at]->index : db->base.count;
    int status = put_entry(db, at, rule);
    if (status == VFDB_OK) {
        status = note_inserted(db, &db->inserted,
                               first_not_better(db->inserted.rule, db->inserted.count, priority), rule);
        if (status)
            take_entry(db, at);
    }
    if (status)
        budget_give(db->budget, rule, entry_bytes(db));
    return status;
}

/* Algorithm 2. */
static int delete(struct sfl *db, const uint32_t *box, uint32_t priority)
{
    uint32_t at = first_not_better(db->master, db->count, priority);
    while (at < db->count && db->master[at]->priority == priority &&
           memcmp(db->master[at]->box, box, box_bytes(db)))
        at++;
    if (at == db->count || db->master[at]->priority != priority)
        return VFDB_ABSENT;
    struct master_entry *rule = db->master[at];
    if (rule->old)
        db->base.deleted[rule->index] = true;
    else
        note_removed(&db->inserted, rule);
    take_entry(db, at);
    budget_give(db->budget, rule, entry_bytes(db));
    return VFDB_OK;
}

static int update(struct sfl *db, int (*change)(struct sfl *, const uint32_t *, uint32_t),
                  const uint32_t *box, uint32_t priority)
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

/* Algorithm 3: preliminary indices (VFDB_NONE: behind A's last rule) become priorities. */
VFDB_BODY void correct(const struct sfl *db, const uint32_t *headers, uint32_t count, uint32_t *answers,
                       struct vfdb_work *work, bool counted)
{
    const struct snapshot *base = &db->base;
    uint32_t first[CHUNK];
    box_soa_first(&db->inserted.box, headers, count, first);
    for (uint32_t i = 0; i < count; i++) {
        uint32_t index = answers[i] == VFDB_NONE ? base->count : answers[i];
        uint32_t from = index;
        while (base->deleted[index])
            index = box_soa_next(&base->box, headers + (size_t)i * db->dims, index + 1);
        if (counted) {
            work[i].lists++;
            work[i].rules += first[i] + (first[i] < db->inserted.count) + index - from;
        }
        bool better = first[i] < db->inserted.count && db->inserted.rule[first[i]]->index <= index;
        answers[i] = better ? db->inserted.rule[first[i]]->priority : base->priority[index];
    }
}

VFDB_BODY int search_all(struct sfl *db, const uint32_t *headers, size_t count, uint32_t *answers,
                         struct vfdb_work *work, bool counted)
{
    pthread_rwlock_rdlock(&db->lock);
    int status = counted ? vfdb_search_counted(db->base.db, headers, count, answers, work)
                         : vfdb_search(db->base.db, headers, count, answers);
    for (size_t at = 0; status == VFDB_OK && at < count; at += CHUNK) {
        uint32_t some = count - at < CHUNK ? (uint32_t)(count - at) : CHUNK;
        correct(db, headers + at * db->dims, some, answers + at, counted ? work + at : NULL, counted);
    }
    pthread_rwlock_unlock(&db->lock);
    return status;
}

static int sfl_search(const void *built, const uint32_t *headers, size_t count, uint32_t *answers)
{
    return search_all((struct sfl *)built, headers, count, answers, NULL, false); /* the lock changes */
}

/* Besides those of A: the boxes of the buffer, and those of A that are read because one was removed. */
static int sfl_search_counted(const void *built, const uint32_t *headers, size_t count, uint32_t *answers,
                              struct vfdb_work *work)
{
    return search_all((struct sfl *)built, headers, count, answers, work, true);
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
              {"background", "1: searches and updates go on while it is built", 1, 0, 1},
              {"vector", "0: not with AVX-512, even where the CPU has it", 1, 0, 1}},
    .build = sfl_build,
    .insert = sfl_insert,
    .remove = sfl_remove,
    .search = sfl_search,
    .search_counted = sfl_search_counted,
    .settle = sfl_settle,
    .free = sfl_free,
};
