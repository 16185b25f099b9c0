/* DPDK's rte_acl over one list of rules and one trace: what `make bench-engine` compares with.
 *
 *     rte_acl_bench RULES HEADERS FOUND SECONDS
 *
 * RULES holds rows of ten 32-bit words, a range for each of source, destination, source port,
 * destination port and protocol, best rule first; HEADERS rows of five.  FOUND receives the number
 * of the rule found for each header, 2^32 - 1 for none.  Writes one line of JSON to standard output: seconds
 * of the build, bytes that it keeps, and lookups a second of the fastest of the methods that the CPU has,
 * each run for so many CPU seconds, in batches of 256.  Its memory may lie in huge pages. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include <rte_acl.h>
#include <rte_common.h>
#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_malloc.h>
#include <rte_memory.h>

enum { BATCH = 256, PART = 32768 };

/* One header as rte_acl reads it: network order, fields aligned to four bytes behind the first. */
struct packet {
    uint8_t protocol, pad[3];
    uint32_t source, destination;
    uint16_t source_port, destination_port;
};

static struct rte_acl_field_def fields[] = {
    {RTE_ACL_FIELD_TYPE_BITMASK, 1, 0, 0, offsetof(struct packet, protocol)},
    {RTE_ACL_FIELD_TYPE_MASK, 4, 1, 1, offsetof(struct packet, source)},
    {RTE_ACL_FIELD_TYPE_MASK, 4, 2, 2, offsetof(struct packet, destination)},
    {RTE_ACL_FIELD_TYPE_RANGE, 2, 3, 3, offsetof(struct packet, source_port)},
    {RTE_ACL_FIELD_TYPE_RANGE, 2, 4, 3, offsetof(struct packet, destination_port)},
};
enum { FIELDS = RTE_DIM(fields) };
RTE_ACL_RULE_DEF(rule, RTE_DIM(fields));

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static void fail(const char *what)
{
    fprintf(stderr, "rte_acl_bench: %s: %s\n", what, rte_strerror(rte_errno));
    exit(1);
}

static uint32_t *words(const char *path, size_t row, size_t *rows)
{
    FILE *file = fopen(path, "rb");
    if (!file || fseek(file, 0, SEEK_END))
        fail(path);
    long size = ftell(file);
    rewind(file);
    uint32_t *read = malloc((size_t)size + 1);
    if (!read || fread(read, 1, (size_t)size, file) != (size_t)size)
        fail(path);
    fclose(file);
    *rows = (size_t)size / 4 / row;
    return read;
}

static uint32_t prefix(const uint32_t *side)
{
    uint32_t open = side[1] - side[0];
    if (open & (open + 1) || side[0] & open) {
        fprintf(stderr, "rte_acl_bench: an address that is no prefix\n");
        exit(1);
    }
    return open ? (uint32_t)__builtin_clz(open) : 32;
}

static int advise(const struct rte_memseg_list *list, const struct rte_memseg *segment, size_t length,
                  void *unused)
{
    (void)list;
    (void)unused;
    madvise(segment->addr, length, MADV_HUGEPAGE);
    return 0;
}

static size_t taken(void)
{
    struct rte_malloc_socket_stats stats;
    return rte_malloc_get_socket_stats(0, &stats) ? 0 : stats.heap_allocsz_bytes;
}

static struct rte_acl_ctx *build(const uint32_t *box, size_t rules)
{
    struct rte_acl_param param = {.name = "bench",
                                  .socket_id = SOCKET_ID_ANY,
                                  .rule_size = RTE_ACL_RULE_SZ(FIELDS),
                                  .max_rule_num = (uint32_t)rules + 1};
    struct rte_acl_ctx *acl = rte_acl_create(&param);
    if (!acl)
        fail("create");
    for (size_t i = 0; i < rules; i++) {
        const uint32_t *side = box + 10 * i;
        struct rule rule = {.data = {.category_mask = 1,
                                     .priority = (int32_t)(RTE_ACL_MAX_PRIORITY - i),
                                     .userdata = (uint32_t)i + 1}};
        rule.field[0].value.u8 = (uint8_t)side[8];
        rule.field[0].mask_range.u8 = side[9] == side[8] ? 0xFF : 0;
        rule.field[1].value.u32 = side[0];
        rule.field[1].mask_range.u32 = prefix(side);
        rule.field[2].value.u32 = side[2];
        rule.field[2].mask_range.u32 = prefix(side + 2);
        rule.field[3].value.u16 = (uint16_t)side[4];
        rule.field[3].mask_range.u16 = (uint16_t)side[5];
        rule.field[4].value.u16 = (uint16_t)side[6];
        rule.field[4].mask_range.u16 = (uint16_t)side[7];
        if (rte_acl_add_rules(acl, (const struct rte_acl_rule *)&rule, 1))
            fail("add");
    }
    struct rte_acl_config config = {.num_categories = 1, .num_fields = FIELDS};
    memcpy(config.defs, fields, sizeof fields);
    if (rte_acl_build(acl, &config))
        fail("build");
    return acl;
}

/* The headers as rte_acl reads them, and a pointer to each. */
static const uint8_t **packets(const uint32_t *header, size_t headers)
{
    struct packet *packet = calloc(headers + 1, sizeof *packet);
    const uint8_t **data = calloc(headers + BATCH, sizeof *data);
    if (!packet || !data)
        fail("memory");
    for (size_t i = 0; i < headers; i++) {
        const uint32_t *value = header + 5 * i;
        packet[i] = (struct packet){.protocol = (uint8_t)value[4],
                                    .source = __builtin_bswap32(value[0]),
                                    .destination = __builtin_bswap32(value[1]),
                                    .source_port = __builtin_bswap16((uint16_t)value[2]),
                                    .destination_port = __builtin_bswap16((uint16_t)value[3])};
        data[i] = (const uint8_t *)&packet[i];
    }
    return data;
}

/* Lookups a second of the method that is set: of each part of the headers the fastest of its runs counts. */
static double measure(struct rte_acl_ctx *acl, const uint8_t **data, size_t headers, uint32_t *found,
                      double wanted)
{
    size_t parts = (headers + PART - 1) / PART;
    double *least = calloc(parts + 1, sizeof *least), spent = 0, all = 0;
    if (!least)
        fail("memory");
    for (size_t p = 0; p < parts; p++)
        least[p] = 1e9;
    while (spent < wanted)
        for (size_t p = 0; p < parts; p++) {
            size_t end = RTE_MIN((p + 1) * PART, headers);
            double from = seconds();
            for (size_t i = p * PART; i < end; i += BATCH)
                rte_acl_classify(acl, data + i, found + i, (uint32_t)RTE_MIN((size_t)BATCH, end - i), 1);
            double once = seconds() - from;
            spent += once;
            least[p] = RTE_MIN(least[p], once);
        }
    for (size_t p = 0; p < parts; p++)
        all += least[p];
    free(least);
    return (double)headers / all;
}

/* The fastest of the methods that the CPU has. */
static double measure_all(struct rte_acl_ctx *acl, const uint8_t **data, size_t headers, uint32_t *found,
                          double wanted, const char **name)
{
    static const struct {
        const char *name;
        enum rte_acl_classify_alg method;
    } methods[] = {{"sse", RTE_ACL_CLASSIFY_SSE},
                   {"avx2", RTE_ACL_CLASSIFY_AVX2},
                   {"avx512x16", RTE_ACL_CLASSIFY_AVX512X16},
                   {"avx512x32", RTE_ACL_CLASSIFY_AVX512X32}};
    double best = 0;
    for (size_t m = 0; m < RTE_DIM(methods); m++) {
        if (rte_acl_set_ctx_classify(acl, methods[m].method))
            continue;
        double rate = measure(acl, data, headers, found, wanted);
        if (rate > best) {
            best = rate;
            *name = methods[m].name;
        }
    }
    return best;
}

int main(int count, char **argument)
{
    char *options[] = {"rte_acl_bench",
                       "--no-huge",
                       "--no-pci",
                       "--no-shconf",
                       "--no-telemetry",
                       "-l",
                       "0",
                       "-m",
                       "6144",
                       "--log-level=lib.*:error",
                       "--force-max-simd-bitwidth=512"};
    if (count != 5) {
        fprintf(stderr, "usage: rte_acl_bench RULES HEADERS FOUND SECONDS\n");
        return 2;
    }
    if (rte_eal_init(RTE_DIM(options), options) < 0)
        fail("no environment");
    rte_memseg_contig_walk(advise, NULL);
    size_t rules, headers;
    uint32_t *box = words(argument[1], 10, &rules), *header = words(argument[2], 5, &headers);

    size_t before = taken();
    double start = seconds();
    struct rte_acl_ctx *acl = build(box, rules);
    double built = seconds() - start;
    size_t bytes = taken() - before;

    uint32_t *found = calloc(headers + BATCH, sizeof *found);
    if (!found)
        fail("memory");
    const char *name = "";
    double rate = measure_all(acl, packets(header, headers), headers, found, atof(argument[4]), &name);
    for (size_t i = 0; i < headers; i++)
        found[i]--;
    FILE *out = fopen(argument[3], "wb");
    if (!out || fwrite(found, sizeof *found, headers, out) != headers || fclose(out))
        fail(argument[3]);
    printf("{\"method\": \"%s\", \"build_s\": %.4f, \"bytes\": %zu, \"lookups_per_s\": %.0f}\n", name, built,
           bytes, rate);
    return 0;
}
