/* RFC's tables in the order in which a search reads them.
 *
 * Idea: a table stands behind those that give the two parts of its index.  A chunk of a header, and a small
 * table of two chunks, are no tables of their own: their reader takes them from the header.
 * Cost: a step per table, and per entry of the chunks that are multiplied.
 * Invariant: a chunk that is the first part of an index has a table of entries that are multiplied already.
 * Threading: none; all belongs to one build.
 */
#include "rfc_internal.h"

static struct chunk_source chunk_of(const struct build_step *step)
{
    bool second = (step->shift != 0) == (__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__);
    return (struct chunk_source){step->table, step->dim * (uint32_t)sizeof(uint32_t) + 2 * second,
                                 step->mask};
}

/* The table of a chunk that is the first part of an index. */
static int multiply(struct rfc_builder *b, struct build_step *chunk, uint32_t stride)
{
    uint32_t *multiplied = scope_take(&b->db->scope, (chunk->mask + (size_t)1) * sizeof *multiplied);
    if (!multiplied)
        return VFDB_NO_MEMORY;
    for (uint32_t v = 0; v <= chunk->mask; v++)
        multiplied[v] = rfc_entry(chunk, v) * stride;
    scope_drop(&b->db->scope, chunk->table);
    chunk->table = multiplied;
    return VFDB_OK;
}

static int source_of(struct rfc_builder *b, uint32_t number, struct index_source *source);

static bool is_masked(const struct index_source *source)
{
    return (source->part == CHUNK_OF && source->chunk[0].mask < CHUNK_SIZE - 1) ||
           (source->part == CHUNKS_OF && (source->chunk[0].mask & source->chunk[1].mask) < CHUNK_SIZE - 1);
}

/* The table of a pair, behind those that it needs. */
static int put_table(struct rfc_builder *b, uint32_t number)
{
    const struct build_step *step = &b->step[number];
    struct search_table table = {
        .stride = step->stride, .wide = step->wide, .large = step->bytes >= LARGE, .entry = step->table};
    int status = b->step[step->one].pair ? VFDB_OK : multiply(b, &b->step[step->one], step->stride);
    if (!status)
        status = source_of(b, step->one, &table.one);
    if (!status)
        status = source_of(b, step->other, &table.other);
    table.masked = is_masked(&table.one) || is_masked(&table.other);
    b->db->table[b->db->tables++] = table;
    return status;
}

/* Where a search takes the value of a step from. */
static int source_of(struct rfc_builder *b, uint32_t number, struct index_source *source)
{
    const struct build_step *step = &b->step[number];
    int status = VFDB_OK;
    *source = (struct index_source){.part = CHUNK_OF};
    if (!step->pair) {
        source->chunk[0] = chunk_of(step);
    } else if (!b->step[step->one].pair && !b->step[step->other].pair && !step->wide && step->bytes < LARGE) {
        status = multiply(b, &b->step[step->one], step->stride);
        *source =
            (struct index_source){.part = CHUNKS_OF,
                                  .pair = step->table,
                                  .chunk = {chunk_of(&b->step[step->one]), chunk_of(&b->step[step->other])}};
    } else {
        status = put_table(b, number);
        *source = (struct index_source){.part = VALUE, .value = b->db->tables - 1};
    }
    return status;
}

int rfc_put_tables(struct rfc_builder *b)
{
    if (b->step[b->steps - 1].pair)
        return put_table(b, b->steps - 1);
    return source_of(b, b->steps - 1, &b->db->table[b->db->tables++].one);
}
