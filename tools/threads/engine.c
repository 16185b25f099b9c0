/* Threads that search while rules change, for the thread sanitizer: `make sanitize-threads`.
 *
 * Every classifier is tested alone and inside every wrapper.  The rule that is inserted and removed has
 * the worst priority, so at any moment a header has one of two answers. */
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "filters.h"
#include "pipeline.h"
#include "vfdb.h"

enum { DIMS = 5, RULES = 60, HEADERS = 300, SEARCHERS = 3, UPDATES = 20, LAST = 1000 };
static const uint8_t bits[DIMS] = {6, 6, 3, 3, 2};
static uint32_t box[RULES][DIMS][2], priority[RULES], header[HEADERS][DIMS], wanted[HEADERS];
static atomic_bool stop;
static atomic_uint wrong;

static void *search(void *db)
{
    uint32_t found[HEADERS];
    /* Priorities are positions at the start, and what goes in and out stands behind all of those rules. */
    for (uint32_t turn = 0; !turn || !atomic_load(&stop); turn++) {
        if (turn % 2 ? vfdb_search_positions(db, &header[0][0], HEADERS, found)
                     : vfdb_search(db, &header[0][0], HEADERS, found))
            wrong++;
        for (uint32_t i = 0; i < HEADERS; i++)
            if (found[i] != wanted[i] && (wanted[i] != VFDB_NONE || found[i] < RULES))
                wrong++;
    }
    return NULL;
}

static void try(const struct vfdb_plan *plan)
{
    struct vfdb_rules rules = {DIMS, RULES, bits, priority, &box[0][0][0]};
    struct vfdb *db;
    pthread_t thread[SEARCHERS];
    uint32_t all[DIMS][2] = {{0}};
    for (uint32_t d = 0; d < DIMS; d++)
        all[d][1] = (1U << bits[d]) - 1;
    int status = vfdb_open(plan, &rules, 0, &db);
    if (status) {
        printf("%s: status %d\n", plan->ops->name, status);
        exit(1);
    }
    atomic_store(&stop, false);
    for (uint32_t i = 0; i < SEARCHERS; i++)
        pthread_create(&thread[i], NULL, search, db);
    for (uint32_t i = 0; i < UPDATES; i++)
        if (i % 4 ? vfdb_insert(db, &all[0][0], 1, LAST) || vfdb_remove(db, LAST)
                  : vfdb_insert_at(db, &all[0][0], 1, RULES) || vfdb_remove_at(db, RULES))
            wrong++;
    atomic_store(&stop, true);
    for (uint32_t i = 0; i < SEARCHERS; i++)
        pthread_join(thread[i], NULL);
    vfdb_settle(db);
    vfdb_close(db);
    printf("%s%s%s: %u wrong\n", plan->ops->name, plan->inner ? " around " : "",
           plan->inner ? plan->inner->ops->name : "", atomic_load(&wrong));
    if (wrong)
        exit(1);
}

/* The usual parameters, but few buckets, so that the chains of flows(A) are long: *way* chooses how they are
 * kept; every packet a sample of storm(A), whose cache then changes all the time; and sfl(A) with few updates
 * between builds, in each of its ways to build. */
static void set_defaults(struct vfdb_plan *plan, const struct vfdb_ops *ops, uint32_t way)
{
    plan->ops = ops;
    for (uint32_t p = 0; p < VFDB_PARAMS; p++)
        plan->value[p] = ops->param[p].usual;
    for (uint32_t p = 0; p < VFDB_PARAMS && ops->param[p].name; p++) {
        if (!strcmp(ops->name, "flows") && !strcmp(ops->param[p].name, "scheme"))
            plan->value[p] = way % (ops->param[p].most + 1);
        if (!strcmp(ops->name, "flows") && !strcmp(ops->param[p].name, "buckets"))
            plan->value[p] = 5 + 200 * (way % 2);
        if (!strcmp(ops->name, "sfl") && !strcmp(ops->param[p].name, "delta"))
            plan->value[p] = 2 * (way % 2);
        if (!strcmp(ops->name, "sfl") && !strcmp(ops->param[p].name, "background"))
            plan->value[p] = way % 3;
        if (!strcmp(ops->name, "storm"))
            plan->value[p] = !strcmp(ops->param[p].name, "window") ? 50 : 1 + way % 3;
    }
}

/* The pipeline of Storm: partitions, forms of the cache, queues. */
static void try_pipeline(void)
{
    static const struct pipeline_options base = {
        .evolve = {.window = 30, .leaf = 4}, .entries = 5, .copies = 2, .publish = 1, .every = 3, .low = 20,
        .high = 80, .batch = 8, .ring_room = 24, .input_room = 64, .block = 1, .fault_kind = KINDS};
    static const struct {
        uint32_t threads[3], copies, form, idle, own, queue, locked, lose;
    } way[] = {
        {{2, 1, 1}, 2, 0, 0, 0, 0, 0, 0}, {{1, 2, 1}, 1, 1, 0, 0, 0, 1, 0}, {{3, 3, 1}, 3, 2, 0, 0, 9, 0, 1},
        {{4, 4, 1}, 2, 0, 2, 0, 0, 0, 0}, {{4, 4, 1}, 2, 0, 2, 0, 0, 0, 1}, {{2, 0, 0}, 2, 0, 0, 1, 0, 0, 0},
        {{2, 2, 2}, 2, 0, 0, 0, 0, 0, 0}};
    enum { TIMES = 60, SENT = HEADERS * TIMES };
    static uint32_t sent[SENT][DIMS], answers[SENT];
    static uint8_t by[SENT];
    static struct pipeline_stats stats;
    struct vfdb_rules rules = {DIMS, RULES, bits, priority, &box[0][0][0]};
    struct vfdb_plan plan = {0};
    struct vfdb *db;
    set_defaults(&plan, vfdb_algorithm(0), 0);
    for (uint32_t i = 0; i < SENT; i++)
        memcpy(sent[i], header[i / 200 + (uint32_t)rand() % 20], sizeof sent[i]);
    if (vfdb_open(&plan, &rules, 0, &db))
        exit(1);
    for (uint32_t w = 0; w < sizeof way / sizeof *way; w++) {
        struct pipeline_options options = base;
        memcpy(options.threads, way[w].threads, sizeof options.threads);
        options.copies = way[w].copies;
        options.form = way[w].form;
        options.idle = way[w].idle;
        options.own = way[w].own;
        options.queue_room = way[w].queue;
        options.ring_locked = way[w].locked;
        options.block = !way[w].lose;
        int status =
            pipeline_run(&options, &rules, NULL, db, &sent[0][0], SENT, answers, by, 0, NULL, &stats);
        for (uint32_t i = 0; i < SENT; i++)
            for (uint32_t k = i / 200; by[i] <= BY_CLASSIFIER && k < i / 200 + 20; k++)
                if (!memcmp(sent[i], header[k], sizeof sent[i]) && answers[i] != wanted[k])
                    wrong++;
        if (status || stats.offered != stats.hits + stats.classified + stats.lost_input + stats.lost_ring)
            wrong++;
        printf("pipeline %u-%u-%u: %llu hits, %u wrong\n", options.threads[0], options.threads[1],
               options.threads[2], (unsigned long long)stats.hits, atomic_load(&wrong));
        if (wrong)
            exit(1);
    }
    vfdb_close(db);
}

/* Filters with actions: threads classify and monitors read while filters change. */
static struct filters *filters;
static atomic_ullong delivered, lost;

static void *classify(void *unused)
{
    static _Thread_local uint32_t found[HEADERS];
    static _Thread_local uint8_t action[HEADERS];
    size_t done;
    do {
        if (filters_classify(filters, &header[0][0], NULL, HEADERS, action, found, &done) || done != HEADERS)
            wrong++;
        for (uint32_t i = 0; i < HEADERS; i++)
            if (found[i] != VFDB_NONE && found[i] != LAST && action[i] != found[i] % 4)
                wrong++;
    } while (!atomic_load(&stop));
    return unused;
}

static void *monitor(void *opened)
{
    struct filter_event event[32];
    uint32_t word[32 * DIMS];
    struct filter_monitor_stats stats;
    uint64_t next = 0;
    while (!filter_monitor_ended(opened)) {
        struct pollfd wait = {filter_monitor_fd(opened), POLLIN, 0};
        poll(&wait, 1, -1);
        for (uint32_t i = 0, count = filter_monitor_read(opened, 32, event, word); i < count; i++) {
            if (event[i].number < next || (event[i].priority != LAST && event[i].priority % 4 < 2))
                wrong++;
            next = event[i].number + 1;
        }
    }
    filter_monitor_stats_of(opened, &stats);
    delivered += stats.delivered;
    lost += stats.lost;
    return NULL;
}

static void try_filters(const struct vfdb_plan *plan)
{
    enum { MONITORS = 2, ROOM = 500 };
    struct vfdb_rules rules = {DIMS, RULES, bits, priority, &box[0][0][0]};
    struct filters_stats stats;
    struct filter_monitor *opened[MONITORS];
    pthread_t classifier[SEARCHERS], reader[MONITORS];
    uint8_t action[RULES];
    uint32_t all[DIMS][2] = {{0}};
    for (uint32_t d = 0; d < DIMS; d++)
        all[d][1] = (1U << bits[d]) - 1;
    for (uint32_t r = 0; r < RULES; r++)
        action[r] = priority[r] % 4;
    atomic_store(&stop, false);
    delivered = lost = 0;
    if (filters_open(plan, &rules, action, ROOM, 0, &filters))
        exit(1);
    for (uint32_t i = 0; i < MONITORS; i++) {
        if (filter_monitor_open(filters, &opened[i]))
            exit(1);
        pthread_create(&reader[i], NULL, monitor, opened[i]);
    }
    for (uint32_t i = 0; i < SEARCHERS; i++)
        pthread_create(&classifier[i], NULL, classify, NULL);
    for (uint32_t i = 0; i < UPDATES; i++) {
        uint64_t packets;
        if (filters_insert(filters, &all[0][0], 1, LAST, FILTER_ADD_EVENT) ||
            filters_change(filters, LAST, FILTER_ALLOW) || filters_packets(filters, LAST, &packets) ||
            filters_remove(filters, LAST))
            wrong++;
        filters_stats_of(filters, &stats);
        if (stats.packets != stats.allowed + stats.denied + stats.unmatched)
            wrong++;
        if (filters_count(filters) != RULES)
            wrong++;
    }
    atomic_store(&stop, true);
    for (uint32_t i = 0; i < SEARCHERS; i++)
        pthread_join(classifier[i], NULL);
    filters_stats_of(filters, &stats);
    filters_end(filters);
    for (uint32_t i = 0; i < MONITORS; i++) {
        pthread_join(reader[i], NULL);
        filter_monitor_close(opened[i]);
    }
    if (delivered + lost != MONITORS * stats.events || !stats.events)
        wrong++;
    filters_close(filters);
    printf("filters of %s: %llu events, %llu lost, %u wrong\n", plan->ops->name,
           (unsigned long long)stats.events, (unsigned long long)lost, atomic_load(&wrong));
    if (wrong)
        exit(1);
}

int main(void)
{
    srand(1);
    for (uint32_t r = 0; r < RULES; r++) {
        priority[r] = r;
        for (uint32_t d = 0; d < DIMS; d++) {
            uint32_t free = (uint32_t)rand() % (bits[d] + 1U);
            box[r][d][0] = (uint32_t)rand() % (1U << bits[d]) >> free << free;
            box[r][d][1] = box[r][d][0] | ((1U << free) - 1);
        }
    }
    for (uint32_t i = 0; i < HEADERS; i++) {
        for (uint32_t d = 0; d < DIMS; d++)
            header[i][d] = (uint32_t)rand() % (1U << bits[d]);
        wanted[i] = VFDB_NONE;
        for (uint32_t r = RULES; r-- > 0;) {
            uint32_t d = 0;
            while (d < DIMS && box[r][d][0] <= header[i][d] && header[i][d] <= box[r][d][1])
                d++;
            wanted[i] = d == DIMS ? r : wanted[i];
        }
    }
    for (uint32_t n = 0; vfdb_algorithm(n); n++) {
        const struct vfdb_ops *ops = vfdb_algorithm(n);
        struct vfdb_plan plan = {0}, inner = {0};
        set_defaults(&plan, ops, n);
        if (!ops->wraps && ops->least_dims <= DIMS && DIMS <= ops->most_dims) {
            try(&plan);
            try_filters(&plan);
        }
        /* Its other lists, or its other hash table. */
        for (uint32_t p = 0; p < VFDB_PARAMS && ops->param[p].name; p++)
            if ((!strcmp(ops->name, "pacars") && !strcmp(ops->param[p].name, "list")) ||
                (!strcmp(ops->name, "tss_tries") && !strcmp(ops->param[p].name, "table")))
                while (plan.value[p]++ < ops->param[p].most)
                    try(&plan);
        for (uint32_t k = 0; ops->wraps && vfdb_algorithm(k); k++) {
            const struct vfdb_ops *within = vfdb_algorithm(k);
            set_defaults(&inner, within, k);
            set_defaults(&plan, ops, k);
            plan.inner = &inner;
            if (!within->wraps && within->least_dims <= DIMS && DIMS <= within->most_dims)
                try(&plan);
        }
    }
    try_pipeline();
    return 0;
}
