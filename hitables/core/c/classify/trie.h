#ifndef HITABLES_TRIE_H
#define HITABLES_TRIE_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "budget.h"

/* A trie over keys of up to 64 bits, *stride* bits to a node (the paper's compression factor), with
 * *payload* bytes of its user's at each node. */

enum trie_form {
    TRIE_PLAIN,  /* a pointer for every child that could be */
    TRIE_BITMAP, /* a bit for every child that could be, the children side by side */
    TRIE_POPCNT  /* the same, its bits counted by one instruction where the CPU has it */
};

struct trie {
    struct budget *budget;
    uint32_t width, stride, levels;
    enum trie_form form;
    size_t payload, head; /* bytes; head: before the payload */
    void *root;
    uint64_t nodes;
};

/* The nodes of one level that a prefix becomes: *count* keys from *first* on, *step* apart. */
struct trie_span {
    uint64_t first, step;
    uint32_t count, level;
};

struct trie *trie_new(struct budget *budget, uint32_t width, uint32_t stride, enum trie_form form,
                      size_t payload);
void trie_free(struct trie *trie, void (*drop)(void *owner, void *payload), void *owner);
struct trie_span trie_span(const struct trie *trie, uint64_t low, uint32_t length);
void *trie_reach(struct trie *trie, uint64_t key, uint32_t level, bool make);
void trie_prune(struct trie *trie, uint64_t key, uint32_t level);
/* Adds to steps[i] the nodes on the path of key i, the root included; payloads are not read. */
void trie_walk(const struct trie *trie, const uint64_t *key, size_t count, uint32_t *steps);

/* A key of the trie's width as spans and steps have it: its first bit on top. */
static inline uint64_t trie_key(const struct trie *trie, uint64_t value)
{
    return value << (64 - trie->width);
}

static inline uint32_t trie_digit(const struct trie *trie, uint64_t key, uint32_t level)
{
    return (uint32_t)(key << level * trie->stride >> (64 - trie->stride));
}

static inline void *trie_payload(const struct trie *trie, const void *node)
{
    return (char *)node + trie->head;
}

/* Head of a node in plain form; its children's pointers follow the payload unless it is bare. */
struct trie_plain {
    uint32_t children, bare;
};

/* Head of a node in bitmap form; 2^stride bits. */
struct trie_bitmap {
    char *below;
    uint64_t bits[];
};

static inline void **trie_pointers(const struct trie *trie, const void *node)
{
    return (void **)((char *)node + trie->head + trie->payload);
}

static inline uint32_t trie_ones(uint64_t bits, enum trie_form form)
{
#ifdef __x86_64__
    if (form == TRIE_POPCNT) {
        uint64_t ones;
        __asm__("popcnt %1, %0" : "=r"(ones) : "r"(bits) : "cc");
        return (uint32_t)ones;
    }
#endif
    (void)form;
    return (uint32_t)__builtin_popcountll(bits);
}

/* Children before that one. */
static inline uint32_t trie_rank(const struct trie_bitmap *node, uint32_t digit, enum trie_form form)
{
    uint32_t before = 0;
    for (uint32_t w = 0; w < digit / 64; w++)
        before += trie_ones(node->bits[w], form);
    return before + trie_ones(node->bits[digit / 64] & ((UINT64_C(1) << digit % 64) - 1), form);
}

/* The child, or NULL. */
static inline void *trie_child(const struct trie *trie, const void *node, uint32_t digit)
{
    if (trie->form == TRIE_PLAIN) {
        const struct trie_plain *plain = node;
        return plain->bare ? NULL : trie_pointers(trie, node)[digit];
    }
    const struct trie_bitmap *bitmap = node;
    if (!(bitmap->bits[digit / 64] >> digit % 64 & 1))
        return NULL;
    return bitmap->below + trie_rank(bitmap, digit, trie->form) * (trie->head + trie->payload);
}

#endif
