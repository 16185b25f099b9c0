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
 * go on while A is built, and the buffer is made again from both lists at the end.  As published
 * (background=2), the list answers while A is built, and updates wait; with background=0 searches wait, too.
 * Answers are priorities, which are kept with A's rules.  A build that fails leaves the buffer in place, and
 * is tried again delta updates later.
 */
#include "box_soa.h"
#include "budget.h"
#include "sfl_internal.h"
#include "vfdb.h"
#include "vfdb_lock.h"
#include "vfdb_work.h"

#include <string.h>

enum { CHUNK = 256 /* headers corrected at a time */ };

static size_t entry_bytes(const struct sfl *db)
{
    return sizeof(struct master_entry) + sfl_box_bytes(db);
}

/* ---- The buffer ---- */

void sfl_drop_inserted(struct sfl *db, struct inserted_list *list)
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

int sfl_note_inserted(struct sfl *db, struct inserted_list *list, uint32_t at, struct master_entry *rule)
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
        memcpy(rule->box, box, sfl_box_bytes(db));
    }
    return rule;
}

/* ---- The operations ---- */

static void sfl_free(void *built)
{
    struct sfl *db = built;
    build_thread_end(&db->build);
    sfl_drop_base(db, &db->base);
    sfl_drop_inserted(db, &db->inserted);
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
                       .background = (uint32_t)plan->value[1],
                       .due = (uint64_t)plan->value[0]};
#ifdef __x86_64__
    db->vector = plan->value[2] && __builtin_cpu_supports("avx512f");
#endif
    memcpy(db->bits, rules->bits, rules->dims);
    vfdb_lock_init(&db->lock);
    build_thread_init(&db->build);
    int status = VFDB_OK;
    for (uint32_t i = 0; status == VFDB_OK && i < rules->count; i++) {
        struct master_entry *rule = new_entry(db, rules->box + i * 2 * (size_t)db->dims, rules->priority[i]);
        status = rule ? put_entry(db, i, rule) : VFDB_NO_MEMORY;
        if (rule && status)
            budget_give(budget, rule, entry_bytes(db));
    }
    if (status == VFDB_OK)
        status = sfl_first_build(db);
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
        status = sfl_note_inserted(db, &db->inserted,
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
           memcmp(db->master[at]->box, box, sfl_box_bytes(db)))
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
    db->updates += status == VFDB_OK;
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

/* The published form, while A is built: no update comes between, so the snapshot is the master list. */
static void read_list(const struct sfl *db, const uint32_t *headers, uint32_t count, uint32_t *answers,
                      struct vfdb_work *work)
{
    const struct snapshot *list = &db->next;
    uint32_t first[CHUNK];
    box_soa_first(&list->box, headers, count, first);
    for (uint32_t i = 0; i < count; i++) {
        answers[i] = list->priority[first[i]];
        if (work) {
            work[i].lists++;
            work[i].rules += first[i] + (first[i] < list->count);
        }
    }
}

VFDB_BODY int search_all(struct sfl *db, const uint32_t *headers, size_t count, uint32_t *answers,
                         struct vfdb_work *work, bool counted)
{
    pthread_rwlock_rdlock(&db->lock);
    bool listed = db->building && db->background == SFL_PUBLISHED;
    int status = VFDB_OK;
    if (!listed)
        status = counted ? vfdb_search_counted(db->base.db, headers, count, answers, work)
                         : vfdb_search(db->base.db, headers, count, answers);
    for (size_t at = 0; status == VFDB_OK && at < count; at += CHUNK) {
        uint32_t some = count - at < CHUNK ? (uint32_t)(count - at) : CHUNK;
        if (listed)
            read_list(db, headers + at * db->dims, some, answers + at, work ? work + at : NULL);
        else
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

static void sfl_updated(void *built)
{
    struct sfl *db = built;
    pthread_rwlock_wrlock(&db->lock);
    sfl_build_if_due(db);
    pthread_rwlock_unlock(&db->lock);
}

static bool sfl_ready(void *built, bool wait)
{
    struct sfl *db = built;
    if (db->background != SFL_PUBLISHED)
        return true;
    if (wait)
        build_thread_join(&db->build);
    pthread_rwlock_rdlock(&db->lock);
    bool ready = !db->building;
    pthread_rwlock_unlock(&db->lock);
    return ready;
}

static int sfl_settle(void *built)
{
    struct sfl *db = built;
    build_thread_join(&db->build);
    if (db->ended == VFDB_STOPPED) { /* perhaps by an interrupt of another call */
        sfl_updated(db);
        build_thread_join(&db->build);
    }
    return db->ended;
}

static uint64_t sfl_rebuilds(const void *built)
{
    struct sfl *db = (struct sfl *)built; /* the lock changes */
    pthread_rwlock_rdlock(&db->lock);
    uint64_t rebuilds = db->rebuilds;
    pthread_rwlock_unlock(&db->lock);
    return rebuilds;
}

const struct vfdb_ops vfdb_sfl = {
    .name = "sfl",
    .title = "The Small, the Fast and the Lazy: another algorithm, made updatable by a buffer",
    .least_dims = 1,
    .most_dims = VFDB_DIMS,
    .wraps = true,
    .param = {{"delta", "updates in the buffer before the other is built again", 20, 0, 1000000},
              {"background", "1: all goes on while it is built, 2: the list answers, updates wait, 0: all", 1,
               0, 2},
              {"vector", "0: not with AVX-512, even where the CPU has it", 1, 0, 1}},
    .build = sfl_build,
    .insert = sfl_insert,
    .remove = sfl_remove,
    .search = sfl_search,
    .search_counted = sfl_search_counted,
    .ready = sfl_ready,
    .updated = sfl_updated,
    .settle = sfl_settle,
    .rebuilds = sfl_rebuilds,
    .free = sfl_free,
};
