/* A table for the interpreter: its code checked and copied.
 *
 * Cost: one pass over the stream.
 * Invariant: every instruction of an accepted stream lies within its rule, every rule within its chain, and
 * every key, chain and rule number is in range; so a run need not check them.
 * Threading: a table is built by one thread.
 */
#include "interp_internal.h"

#include <string.h>

#include "arena.h"

/* Words of the test at code; 0: it is malformed or no test. */
static size_t test_size(struct interp *table, const uint32_t *code, size_t room)
{
    if (room < 3 || (code[0] >> 8 & 255) >= INTERP_SLOTS)
        return 0;
    size_t each = 0;
    switch (code[0] & 255) {
    case INTERP_RANGE:
        return 3;
    case INTERP_RANGES:
        each = 2;
        break;
    case INTERP_WIDE:
        each = 8;
        table->has_wide = true;
        break;
    default:
        return 0;
    }
    /* An empty list has one word of padding, so every test has three words. */
    size_t size = code[1] ? 2 + (size_t)code[1] * each : 3;
    return size <= room ? size : 0;
}

/* Words of the instruction at code; 0: it is malformed.  *last: it is a target. */
static size_t check_instruction(struct interp *table, const uint32_t *code, size_t room, bool *last)
{
    if (!room)
        return 0;
    uint32_t op = code[0] & 255;
    *last = op >= INTERP_COUNT;
    switch (op) {
    case INTERP_RANGE:
    case INTERP_RANGES:
    case INTERP_WIDE:
        return test_size(table, code, room);
    case INTERP_EITHER: {
        if (room < 3 || code[2] > room - 3)
            return 0;
        size_t at = 3, end = 3 + (size_t)code[2];
        for (uint32_t n = 0; n < code[1]; n++) {
            size_t size = test_size(table, code + at, end - at);
            if (!size)
                return 0;
            at += size;
        }
        return at == end ? at : 0;
    }
    case INTERP_GUARD:
    case INTERP_CUT:
    case INTERP_OPTION:
    case INTERP_RETURN:
        return 1;
    case INTERP_FACT:
        return room >= 8 && code[1] < table->keys && code[2] < table->keys && code[3] < table->keys &&
                       code[4] < 1u << INTERP_STATES && code[7] <= (room - 8) / 4
                   ? 8 + 4 * (size_t)code[7]
                   : 0;
    case INTERP_EVENT:
        return room >= 4 && code[1] < table->keys && (uint64_t)code[2] + 2 < table->keys &&
                       code[3] < 1u << INTERP_STATES
                   ? 4
                   : 0;
    case INTERP_COUNT:
    case INTERP_VERDICT:
        return room >= 2 && code[1] < table->keys ? 2 : 0;
    case INTERP_FIRE:
        return room >= 9 && code[1] < table->keys && code[2] < 1u << INTERP_STATES &&
                       code[3] < 1u << INTERP_STATES && code[4] < table->keys
                   ? 9
                   : 0;
    case INTERP_JUMP:
    case INTERP_GOTO:
        return room >= 2 && code[1] < table->chains ? 2 : 0;
    default:
        return 0;
    }
}

static bool check_rule(struct interp *table, const uint32_t *rule, size_t length)
{
    if (length < 3 || rule[1] >= table->rules)
        return false;
    size_t at = 2;
    bool last = false;
    while (!last) {
        size_t size = check_instruction(table, rule + at, length - at, &last);
        if (!size)
            return false;
        at += size;
    }
    return at == length;
}

static bool check_chain(struct interp *table, size_t chain)
{
    size_t at = table->starts[chain];
    size_t end = chain + 1 < table->chains ? table->starts[chain + 1] : table->words;
    if (end > table->words || at >= end || table->ends[chain] >= table->keys)
        return false;
    while (table->code[at]) {
        size_t length = table->code[at];
        /* The 0 that ends the chain must still fit behind the rule. */
        if (length >= end - at || !check_rule(table, table->code + at, length))
            return false;
        at += length;
    }
    return at + 1 == end;
}

static void *copy(struct arena *arena, const void *from, size_t count, size_t size)
{
    void *to = arena_take(arena, count * size);
    if (to && count)
        memcpy(to, from, count * size);
    return to;
}

static enum interp_status compile(struct interp *table, const struct interp_code *code)
{
    struct arena *arena = table->arena;
    table->words = code->words;
    table->chains = code->chains;
    table->keys = code->keys;
    table->rules = code->rules;
    table->depth = code->depth;
    table->drop = code->drop;
    memcpy(table->field_writers, code->field_writers, sizeof table->field_writers);
    table->code = copy(arena, code->code, code->words, sizeof *code->code);
    table->starts = copy(arena, code->starts, code->chains, sizeof *code->starts);
    table->ends = copy(arena, code->ends, code->chains, sizeof *code->ends);
    table->hashes = copy(arena, code->hashes, code->keys, sizeof *code->hashes);
    if (!table->code || !table->starts || !table->ends || !table->hashes)
        return INTERP_NO_MEMORY;
    if (code->drop >= code->keys)
        return INTERP_BAD_CODE;
    for (size_t chain = 0; chain < code->chains; chain++)
        if (!check_chain(table, chain))
            return INTERP_BAD_CODE;
    bool filtered =
        address_filter_build(&table->filter, arena, table->code, table->starts, code->chains, code->rules);
    return filtered ? INTERP_OK : INTERP_NO_MEMORY;
}

struct interp *interp_new(const struct interp_code *code, enum interp_status *status)
{
    struct arena *arena = arena_new(0);
    struct interp *table = arena ? arena_take(arena, sizeof *table) : NULL;
    *status = INTERP_NO_MEMORY;
    if (table) {
        table->arena = arena;
        *status = compile(table, code);
    }
    if (*status == INTERP_OK)
        return table;
    arena_free(arena);
    return NULL;
}

size_t interp_bytes(const struct interp *table)
{
    return arena_bytes(table->arena);
}

void interp_free(struct interp *table)
{
    if (table)
        arena_free(table->arena);
}
