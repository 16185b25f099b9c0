/* The lists of PACARS as sqrt n buckets of sqrt n prefixes: prefix partitioning (Buddhikot, Suri and
 * Waldvogel, 1999; Sahasranaman and Buddhikot, section 2.2).
 *
 * Idea: the sorted prefixes are cut into buckets.  A prefix's parent lies in its own bucket; each bucket
 * stores its covers, the prefixes of the buckets before that hold its first start.  A value of the bucket is
 * held by parents and covers alone.
 * Cost: a search halves the first starts, then those of one bucket; an update changes the parents of one
 * bucket and the covers of the buckets inside its prefix, O(2 sqrt n).  The prefixes are dealt anew when
 * their number has doubled or halved, so that is O(1) per update.  (With one cover per bucket, and the next
 * one found in that prefix's own bucket, a search met up to DEPTH^2 / 2 prefixes: 7 us among 100,000.)
 * Invariant: no bucket is empty, and starts do not fall from one to the next; a woven record's bucket is in
 * the list, and its first start was at most the key.
 * Threading: changes are made by one thread at a time, never beside a search.
 */
#include "pacars_internal.h"

enum { LEAST_PLANNED = 16 };

/* room is even. */
static size_t bucket_bytes(uint32_t room)
{
    return room * (sizeof(uint32_t) + sizeof(struct linked_prefix *));
}

static size_t partition_bytes(uint32_t room)
{
    return room * (sizeof(uint32_t) + sizeof(struct bucket *));
}

static uint32_t root_of(uint32_t number)
{
    uint32_t root = 1;
    while ((uint64_t)root * root < number)
        root++;
    return root;
}

/* -- buckets ---------------------------------------------------------------------------------- */

static void free_bucket(struct budget *budget, struct bucket *bucket)
{
    budget_give(budget, bucket->low, bucket_bytes(bucket->room));
    budget_give(budget, bucket->cover, DEPTH * sizeof *bucket->cover);
    budget_give(budget, bucket, sizeof *bucket);
}

static struct bucket *new_bucket(struct budget *budget, uint32_t room, bool first)
{
    struct bucket *bucket = budget_take(budget, sizeof *bucket);
    if (!bucket)
        return NULL;
    bucket->room = room + room % 2;
    bucket->low = budget_take(budget, bucket_bytes(bucket->room));
    bucket->cover = first ? NULL : budget_take(budget, DEPTH * sizeof *bucket->cover);
    if (bucket->low && (first || bucket->cover))
        return bucket;
    free_bucket(budget, bucket);
    return NULL;
}

static bool widen(struct budget *budget, struct bucket *bucket)
{
    struct bucket wide = {.room = 2 * bucket->room};
    wide.low = budget_take(budget, bucket_bytes(wide.room));
    if (!wide.low)
        return false;
    memcpy(wide.low, bucket->low, bucket->count * sizeof *bucket->low);
    memcpy(bucket_prefixes(&wide), bucket_prefixes(bucket), bucket->count * sizeof(struct linked_prefix *));
    budget_give(budget, bucket->low, bucket_bytes(bucket->room));
    bucket->low = wide.low;
    bucket->room = wide.room;
    return true;
}

static void append(struct bucket *bucket, struct linked_prefix *prefix)
{
    bucket->low[bucket->count] = prefix->low;
    bucket_prefixes(bucket)[bucket->count++] = prefix;
}

/* The homes and parents of a bucket's prefixes, from the first to the last. */
static void set_parents(struct bucket *bucket)
{
    struct linked_prefix **prefix = bucket_prefixes(bucket);
    for (uint32_t i = 0; i < bucket->count; i++) {
        struct linked_prefix *parent = i ? prefix[i - 1] : NULL;
        while (parent && parent->high < prefix[i]->low)
            parent = parent->parent;
        prefix[i]->parent = parent;
        prefix[i]->home = bucket;
    }
}

/* The covers of a bucket, from those of the one before. */
static void set_covers_of(struct bucket *bucket, const struct bucket *before)
{
    uint32_t start = bucket->low[0];
    bucket->covers = 0;
    for (struct linked_prefix *prefix = bucket_prefixes(before)[before->count - 1]; prefix;
         prefix = prefix->parent)
        if (prefix->high >= start)
            bucket->cover[bucket->covers++] = prefix;
    for (uint32_t i = 0; i < before->covers; i++)
        if (before->cover[i]->high >= start)
            bucket->cover[bucket->covers++] = before->cover[i];
}

/* The links, first starts and covers of the buckets from *first* on: of the next two, and of those that start
 * at *high* at most. */
static void set_covers(struct partition *partition, uint32_t first, uint32_t high)
{
    struct bucket **bucket = buckets_of(partition);
    for (uint32_t b = first ? first - 1 : 0; b < partition->count; b++) {
        if (b > first + 2 && bucket[b]->low[0] > high)
            break;
        if (b)
            set_covers_of(bucket[b], bucket[b - 1]);
        else
            bucket[b]->covers = 0;
        bucket[b]->next = b + 1 < partition->count ? bucket[b + 1] : NULL;
        partition->low[b] = bucket[b]->low[0];
    }
}

/* -- the partition ---------------------------------------------------------------------------- */

static void free_partition(struct budget *budget, struct partition *partition)
{
    for (uint32_t b = 0; b < partition->count; b++)
        free_bucket(budget, buckets_of(partition)[b]);
    budget_give(budget, partition->low, partition_bytes(partition->room));
    budget_give(budget, partition, sizeof *partition);
}

/* A partition of *count* empty buckets of that size. */
static struct partition *new_partition(struct budget *budget, uint32_t count, uint32_t size)
{
    struct partition *partition = budget_take(budget, sizeof *partition);
    uint32_t room = count + count % 2;
    if (partition && !(partition->low = budget_take(budget, partition_bytes(room)))) {
        budget_give(budget, partition, sizeof *partition);
        return NULL;
    }
    if (partition)
        partition->room = room;
    for (; partition && partition->count < count; partition->count++)
        if (!(buckets_of(partition)[partition->count] = new_bucket(budget, size, !partition->count))) {
            free_partition(budget, partition);
            return NULL;
        }
    return partition;
}

/* Deals the prefixes to sqrt n buckets; without memory for them they stay as they are. */
static void deal(struct pacars *db, struct square *square, uint32_t side)
{
    struct crossing_list *list = &square->list[side];
    uint32_t size = root_of(list->count), count = (list->count + size - 1) / size, number = 0;
    struct partition *old = list->partition, *partition = new_partition(db->budget, count, size);
    if (!partition)
        return;
    for (uint32_t b = 0; b < old->count; b++)
        for (uint32_t i = 0; i < buckets_of(old)[b]->count; i++, number++)
            append(buckets_of(partition)[number / size], bucket_prefixes(buckets_of(old)[b])[i]);
    for (uint32_t b = 0; b < count; b++)
        set_parents(buckets_of(partition)[b]);
    set_covers(partition, 0, UINT32_MAX);
    partition->planned = list->count > LEAST_PLANNED ? list->count : LEAST_PLANNED;
    free_partition(db->budget, old);
    list->partition = partition;
    if (square->woven[side])
        pacars_buckets.places(db, list, square->woven[side]);
}

/* Cuts a bucket that has outgrown the plan in halves; without memory it stays as it is. */
static void split(struct pacars *db, struct partition *partition, uint32_t number)
{
    struct bucket *first = buckets_of(partition)[number];
    if (first->count <= 2 * root_of(partition->planned))
        return;
    if (partition->count == partition->room) {
        struct partition wide = {.room = 2 * partition->room};
        wide.low = budget_take(db->budget, partition_bytes(wide.room));
        if (!wide.low)
            return;
        memcpy(wide.low, partition->low, partition->count * sizeof *wide.low);
        memcpy(buckets_of(&wide), buckets_of(partition), partition->count * sizeof(struct bucket *));
        budget_give(db->budget, partition->low, partition_bytes(partition->room));
        partition->low = wide.low;
        partition->room = wide.room;
    }
    uint32_t half = first->count / 2;
    struct bucket *second = new_bucket(db->budget, first->count, false), **bucket = buckets_of(partition);
    if (!second)
        return;
    for (uint32_t i = half; i < first->count; i++)
        append(second, bucket_prefixes(first)[i]);
    first->count = half;
    memmove(bucket + number + 2, bucket + number + 1,
            (partition->count - number - 1) * sizeof(struct bucket *));
    memmove(partition->low + number + 2, partition->low + number + 1,
            (partition->count - number - 1) * sizeof *partition->low);
    bucket[number + 1] = second;
    partition->count++;
    set_parents(first);
    set_parents(second);
}

/* The bucket of low to high, and how many of its prefixes stand before it or are it. */
static uint32_t bucket_of(const struct partition *partition, uint32_t low, uint32_t high, uint32_t *before)
{
    struct bucket **bucket = buckets_of(partition);
    uint32_t number = place_in(partition->low, partition->count, low, NULL);
    number -= number > 0;
    while (number && bucket[number]->low[0] == low && bucket_prefixes(bucket[number])[0]->high < high)
        number--;
    struct linked_prefix **prefix = bucket_prefixes(bucket[number]);
    uint32_t place = place_in(bucket[number]->low, bucket[number]->count, low, NULL);
    while (place && prefix[place - 1]->low == low && prefix[place - 1]->high < high)
        place--;
    *before = place;
    return number;
}

/* -- the list --------------------------------------------------------------------------------- */

static struct pacars_rule **buckets_find(const struct crossing_list *list, uint32_t low, uint32_t high)
{
    uint32_t before;
    if (!list->count)
        return NULL;
    const struct bucket *bucket = buckets_of(list->partition)[bucket_of(list->partition, low, high, &before)];
    struct linked_prefix *prefix = before ? bucket_prefixes(bucket)[before - 1] : NULL;
    return prefix && prefix->low == low && prefix->high == high ? &prefix->rule : NULL;
}

static struct pacars_rule **buckets_have(struct pacars *db, struct square *square, uint32_t side,
                                         uint32_t low, uint32_t high)
{
    struct crossing_list *list = &square->list[side];
    struct pacars_rule **there = buckets_find(list, low, high);
    if (there)
        return there;
    bool first = !list->count;
    if (first && !(list->partition = new_partition(db->budget, 1, LEAST_ROOM)))
        return NULL;
    struct partition *partition = list->partition;
    uint32_t before = 0, number = first ? 0 : bucket_of(partition, low, high, &before);
    struct bucket *bucket = buckets_of(partition)[number];
    struct linked_prefix *prefix = budget_take(db->budget, sizeof *prefix);
    if (!prefix || (bucket->count == bucket->room && !widen(db->budget, bucket))) {
        budget_give(db->budget, prefix, sizeof *prefix);
        if (first) {
            free_partition(db->budget, partition);
            list->partition = NULL;
        }
        return NULL;
    }
    if (first)
        partition->planned = LEAST_PLANNED;
    *prefix = (struct linked_prefix){.low = low, .high = high};
    memmove(bucket->low + before + 1, bucket->low + before, (bucket->count - before) * sizeof *bucket->low);
    memmove(bucket_prefixes(bucket) + before + 1, bucket_prefixes(bucket) + before,
            (bucket->count - before) * sizeof prefix);
    bucket->low[before] = low;
    bucket_prefixes(bucket)[before] = prefix;
    bucket->count++;
    list->count++;
    set_parents(bucket);
    split(db, partition, number);
    set_covers(partition, number, high);
    if (list->count > 2 * partition->planned)
        deal(db, square, side);
    return &prefix->rule;
}

static void buckets_free(const struct pacars *db, struct crossing_list *list)
{
    struct partition *partition = list->partition;
    if (!list->count)
        return;
    for (uint32_t b = 0; b < partition->count; b++)
        for (uint32_t i = 0; i < buckets_of(partition)[b]->count; i++)
            budget_give(db->budget, bucket_prefixes(buckets_of(partition)[b])[i],
                        sizeof(struct linked_prefix));
    free_partition(db->budget, partition);
    *list = (struct crossing_list){0};
}

static void buckets_drop(struct pacars *db, struct square *square, uint32_t side, uint32_t low, uint32_t high)
{
    struct crossing_list *list = &square->list[side];
    struct partition *partition = list->partition;
    uint32_t before, number = bucket_of(partition, low, high, &before);
    struct bucket *bucket = buckets_of(partition)[number];
    struct linked_prefix *prefix = bucket_prefixes(bucket)[before - 1];
    bucket->count--;
    list->count--;
    memmove(bucket->low + before - 1, bucket->low + before,
            (bucket->count + 1 - before) * sizeof *bucket->low);
    memmove(bucket_prefixes(bucket) + before - 1, bucket_prefixes(bucket) + before,
            (bucket->count + 1 - before) * sizeof prefix);
    bool emptied = !bucket->count;
    if (emptied) {
        partition->count--;
        memmove(buckets_of(partition) + number, buckets_of(partition) + number + 1,
                (partition->count - number) * sizeof bucket);
        memmove(partition->low + number, partition->low + number + 1,
                (partition->count - number) * sizeof *partition->low);
        free_bucket(db->budget, bucket);
    } else {
        set_parents(bucket);
    }
    budget_give(db->budget, prefix, sizeof *prefix);
    set_covers(partition, number, high);
    if (emptied && square->woven[side])
        pacars_buckets.places(db, list, square->woven[side]);
    if (!list->count) {
        free_partition(db->budget, partition);
        *list = (struct crossing_list){0};
    } else if (partition->planned > LEAST_PLANNED && list->count < partition->planned / 2) {
        deal(db, square, side);
    }
}

static void buckets_starts(const struct crossing_list *list, uint32_t *start)
{
    for (uint32_t b = 0; list->count && b < list->partition->count; b++) {
        const struct bucket *bucket = buckets_of(list->partition)[b];
        memcpy(start, bucket->low, bucket->count * sizeof *start);
        start += bucket->count;
    }
}

static void buckets_places(const struct pacars *db, const struct crossing_list *list, struct woven *woven)
{
    uint32_t apart = record(db);
    for (uint32_t i = 0; i < woven->count; i++) {
        uint32_t *record = woven->record + i * apart;
        const struct partition *partition = list->count ? list->partition : NULL;
        uint32_t number = partition ? place_in(partition->low, partition->count, *record, NULL) : 0;
        const struct bucket *bucket = number ? buckets_of(partition)[number - 1] : NULL;
        record[1] = bucket ? place_in(bucket->low, bucket->count, *record, NULL) : 0;
        set_spot(db, record, bucket);
    }
}

const struct list_ops pacars_buckets = {
    .have = buckets_have,
    .find = buckets_find,
    .drop = buckets_drop,
    .starts = buckets_starts,
    .places = buckets_places,
    .free = buckets_free,
};
