/* Stack distances: how many other keys were used since a key was used before (Mattson 1970).
 *
 * Idea: each use takes the next place in a long row, and marks it; the key's place before is unmarked.  The
 * distance is the number of marks behind that place.  Marks are bits, with a Fenwick tree (Fenwick 1994) over
 * blocks of them, so a count reads some words of a block and a few nodes, which stay in the caches.
 * Cost: O(log blocks) for each use; every *room* uses the marks are moved together, which is O(1) a use.
 * Invariant: a key has one marked place at most, and key[place] names it.
 * Threading: a stack belongs to one thread at a time.
 */
#include "stack_distance.h"

#include <string.h>

enum { PLACES = 512, WORDS = PLACES / 64, NEAR = 8 * PLACES, LEAST_ROOM = 1 << 14 };

static void add(struct use_stack *stack, uint32_t block, uint32_t change)
{
    for (uint32_t blocks = stack->room / PLACES, i = block + 1; i <= blocks; i += i & -i)
        stack->sum[i] += change;
}

/* Marks in the blocks before this one. */
static uint32_t before(const struct use_stack *stack, uint32_t block)
{
    uint32_t sum = 0;
    for (uint32_t i = block; i; i -= i & -i)
        sum += stack->sum[i];
    return sum;
}

static uint32_t marks(const struct use_stack *stack, uint32_t first_word, uint32_t last_word)
{
    uint32_t sum = 0;
    for (uint32_t word = first_word; word < last_word; word++)
        sum += (uint32_t)__builtin_popcountll(stack->bit[word]);
    return sum;
}

/* Marks behind *place*. */
static uint32_t above(const struct use_stack *stack, uint32_t place)
{
    uint32_t word = place / 64, used = (stack->next + 63) / 64;
    uint32_t in_word = (uint32_t)__builtin_popcountll(stack->bit[word] >> (place % 64)) - 1;
    if (stack->next - place < NEAR)
        return in_word + marks(stack, word + 1, used);
    uint32_t block = place / PLACES;
    return in_word + marks(stack, word + 1, (block + 1) * WORDS) + stack->keys - before(stack, block + 1);
}

/* Move all marks to the front, in their order. */
static void compact(struct use_stack *stack, uint32_t *place_of)
{
    uint32_t next = 0;
    for (uint32_t word = 0; word < (stack->next + 63) / 64; word++) {
        uint64_t bits = stack->bit[word];
        stack->bit[word] = 0;
        for (; bits; bits &= bits - 1) { /* the target is never behind the source */
            uint32_t key = stack->key[word * 64 + (uint32_t)__builtin_ctzll(bits)];
            stack->key[next] = key;
            place_of[key] = next++;
        }
    }
    for (uint32_t place = 0; place < next; place += 64)
        stack->bit[place / 64] = next - place < 64 ? ((uint64_t)1 << (next - place)) - 1 : UINT64_MAX;
    stack->next = stack->keys = next;
    stack->oldest = 0;
    uint32_t blocks = stack->room / PLACES;
    memset(stack->sum, 0, (blocks + 1) * sizeof *stack->sum);
    for (uint32_t i = 1; i <= blocks; i++) {
        uint32_t parent = i + (i & -i);
        stack->sum[i] += marks(stack, (i - 1) * WORDS, i * WORDS);
        if (parent <= blocks)
            stack->sum[parent] += stack->sum[i];
    }
}

static bool grow(struct use_stack *stack)
{
    uint32_t room = stack->room ? 2 * stack->room : LEAST_ROOM;
    void *bit = scope_resize(stack->scope, stack->bit, room / 8);
    if (bit)
        stack->bit = bit;
    void *key = bit ? scope_resize(stack->scope, stack->key, room * sizeof *stack->key) : NULL;
    if (key)
        stack->key = key;
    void *sum = key ? scope_resize(stack->scope, stack->sum, (room / PLACES + 1) * sizeof *stack->sum) : NULL;
    if (!sum)
        return false;
    stack->sum = sum;
    stack->room = room;
    return true;
}

bool stack_use(struct use_stack *stack, uint32_t key, uint32_t *place_of, uint32_t *distance)
{
    if (stack->next == stack->room) {
        if (stack->keys >= stack->room / 2 && !grow(stack))
            return false;
        compact(stack, place_of);
    }
    uint32_t place = place_of[key];
    if (place != STACK_NONE) {
        *distance = above(stack, place);
        stack->bit[place / 64] &= ~((uint64_t)1 << (place % 64));
        add(stack, place / PLACES, UINT32_MAX);
        stack->keys--;
    }
    place = stack->next++;
    stack->bit[place / 64] |= (uint64_t)1 << (place % 64);
    stack->key[place] = key;
    add(stack, place / PLACES, 1);
    stack->keys++;
    place_of[key] = place;
    return true;
}

uint32_t stack_drop_oldest(struct use_stack *stack)
{
    while (!stack->bit[stack->oldest])
        stack->oldest++;
    uint64_t *bits = &stack->bit[stack->oldest];
    uint32_t place = stack->oldest * 64 + (uint32_t)__builtin_ctzll(*bits);
    *bits &= *bits - 1;
    add(stack, place / PLACES, UINT32_MAX);
    stack->keys--;
    return stack->key[place];
}

bool stack_visit(const struct use_stack *stack, uint32_t most, bool (*visit)(void *context, uint32_t key),
                 void *context)
{
    uint32_t skipped = stack->keys > most ? stack->keys - most : 0;
    for (uint32_t word = 0; word < (stack->next + 63) / 64; word++)
        for (uint64_t bits = stack->bit[word]; bits; bits &= bits - 1) {
            uint32_t key = stack->key[word * 64 + (uint32_t)__builtin_ctzll(bits)];
            if (skipped)
                skipped--;
            else if (!visit(context, key))
                return false;
        }
    return true;
}

void stack_renumber(struct use_stack *stack, const uint32_t *new_number, uint32_t *place_of)
{
    for (uint32_t word = 0; word < (stack->next + 63) / 64; word++)
        for (uint64_t bits = stack->bit[word]; bits; bits &= bits - 1) {
            uint32_t place = word * 64 + (uint32_t)__builtin_ctzll(bits);
            uint32_t number = new_number[stack->key[place]];
            if (number == STACK_NONE)
                stack->bit[word] &= ~(bits & -bits);
            else
                stack->key[place] = number;
        }
    if (stack->room)
        compact(stack, place_of);
}
