/* libFuzzer on build and update: `make fuzz-engine`.
 *
 * The bytes choose an algorithm, rules of five small dimensions, and then updates; after each update the
 * answers to a few headers are compared with reading the rules.  Built with the sanitizers, so reads
 * beyond an end are found, too. */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "vfdb.h"

enum { DIMS = 5, RULES = 24, HEADERS = 48 };
static const uint8_t bits[DIMS] = {12, 9, 5, 4, 2};

struct input {
    const uint8_t *at, *end;
};

static uint32_t byte(struct input *in)
{
    return in->at < in->end ? *in->at++ : 0;
}

/* A range: anything, a value, a prefix, or two ends. */
static void side(struct input *in, uint32_t d, uint32_t *range)
{
    uint32_t top = (1U << bits[d]) - 1, kind = byte(in);
    uint32_t value = (byte(in) << 12 | byte(in)) & top, free = byte(in) % (bits[d] + 1U);
    range[0] = kind % 4 == 0 ? 0 : kind % 4 == 2 ? value >> free << free : value;
    range[1] = kind % 4 == 0 ? top : kind % 4 == 2 ? range[0] | ((1U << free) - 1) : value;
    if (kind % 4 == 3)
        range[1] = value + byte(in) > top ? top : value + byte(in) % (top - value + 1);
}

static uint32_t read_rules(const uint32_t box[RULES][DIMS][2], const bool *here, const uint32_t *header)
{
    for (uint32_t r = 0; r < RULES; r++) {
        uint32_t d = 0;
        while (here[r] && d < DIMS && box[r][d][0] <= header[d] && header[d] <= box[r][d][1])
            d++;
        if (d == DIMS)
            return r;
    }
    return VFDB_NONE;
}

static void check(struct vfdb *db, const struct vfdb_plan *plan, const uint32_t box[RULES][DIMS][2],
                  const bool *here, const uint32_t *headers)
{
    uint32_t found[HEADERS];
    if (vfdb_search(db, headers, HEADERS, found) != VFDB_OK)
        abort();
    for (uint32_t i = 0; i < HEADERS; i++)
        if (found[i] != read_rules(box, here, headers + i * DIMS)) {
            fprintf(stderr, "%s: header %u\n", plan->ops->name, i);
            abort();
        }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct input in = {data, data + size};
    static uint32_t algorithms;
    while (vfdb_algorithm(algorithms))
        algorithms++;
    struct vfdb_plan inner = {0}, plan = {0};
    plan.ops = vfdb_algorithm(byte(&in) % algorithms);
    inner.ops = vfdb_algorithm(byte(&in) % algorithms);
    if (plan.ops->least_dims > DIMS || plan.ops->most_dims < DIMS ||
        (plan.ops->wraps &&
         (inner.ops->wraps || inner.ops->least_dims > DIMS || inner.ops->most_dims < DIMS)))
        return -1;
    for (uint32_t p = 0; p < VFDB_PARAMS; p++) {
        plan.value[p] = plan.ops->param[p].usual;
        inner.value[p] = inner.ops->param[p].usual;
    }
    /* Few buckets, so that the chains of flows(A) are long, and each way to keep them; caches of storm(A)
     * that change all the time, for every packet is a sample of few; builds of sfl(A) after few updates; and
     * each form of tries, lists, tables. */
    bool varied = !strcmp(plan.ops->name, "flows") || !strcmp(plan.ops->name, "storm") ||
                  !strcmp(plan.ops->name, "sfl") || !strcmp(plan.ops->name, "pacars") ||
                  !strcmp(plan.ops->name, "tss_tries");
    for (uint32_t p = 0; varied && p < VFDB_PARAMS; p++) {
        const struct vfdb_param *param = &plan.ops->param[p];
        if (param->name && param->most - param->least < 8)
            plan.value[p] = param->least + byte(&in) % (param->most - param->least + 1);
        else if (param->name)
            plan.value[p] = param->least + byte(&in) % 8;
    }
    plan.inner = plan.ops->wraps ? &inner : NULL;

    uint32_t box[RULES][DIMS][2], priority[RULES], boxes[RULES][DIMS][2], headers[HEADERS * DIMS], count = 0;
    bool here[RULES];
    for (uint32_t r = 0; r < RULES; r++) {
        for (uint32_t d = 0; d < DIMS; d++)
            side(&in, d, box[r][d]);
        here[r] = byte(&in) % 2;
        if (here[r]) {
            memcpy(boxes[count], box[r], sizeof box[r]);
            priority[count++] = r;
        }
    }
    /* Headers at the ends of sides of several rules. */
    for (uint32_t i = 0; i < HEADERS; i++)
        for (uint32_t d = 0; d < DIMS; d++)
            headers[i * DIMS + d] = (box[(i + (i % 3 == 0) * d) % RULES][d][i / RULES % 2] + (i % 5 == 4)) &
                                    ((1U << bits[d]) - 1);

    struct vfdb_rules rules = {DIMS, count, bits, priority, &boxes[0][0][0]};
    struct vfdb *db;
    size_t limit = byte(&in) % 8 == 0 ? (size_t)byte(&in) << 10 : 0;
    int status = vfdb_open(&plan, &rules, limit, &db);
    if (status) {
        if (!limit)
            abort();
        return 0;
    }
    check(db, &plan, box, here, headers);
    while (in.at < in.end) {
        uint32_t r = byte(&in) % RULES;
        status = here[r] ? vfdb_remove(db, r) : vfdb_insert(db, &box[r][0][0], 1, r);
        if (status == VFDB_OK)
            here[r] = !here[r];
        else if (!limit)
            abort();
        check(db, &plan, box, here, headers);
    }
    vfdb_settle(db);
    check(db, &plan, box, here, headers);
    vfdb_close(db);
    return 0;
}
