#ifndef HITABLES_GRID_OF_TRIES_H
#define HITABLES_GRID_OF_TRIES_H
#include "trie.h"
#include "vfdb.h"

/* The structure of grid_of_tries.c, built by grid_of_tries_build.c. */

enum { GRID_SRC, GRID_DST };

/* The payload of the destination trie: the root of a source trie, 0: none. */
struct source_root {
    uint32_t root, length;
};

struct grid_group {
    struct trie *dst;
    uint32_t bound; /* its best priority */
    uint32_t rule;  /* one of its rules, while building */
};

/* One of the other dimensions. */
struct other_dimension {
    uint32_t edges;
    uint32_t *edge;   /* [edges] rising: where intervals start */
    uint64_t *member; /* [edges][groups / 64]: the groups that hold that interval */
};

struct grid_of_tries {
    struct budget *budget;
    uint32_t dims, groups, group_words, stride;
    uint32_t src_width, dst_width;
    enum trie_form form;
    struct grid_group *group; /* [groups] by rising bound */
    struct other_dimension other[VFDB_DIMS];
    /* Nodes of source tries: the best priority; in bitmap form 2^stride bits; then an entry for each
     * digit, or for each bit.  Entries and roots are places in here, 0: none. */
    uint32_t *word;
    size_t words, room;
};

static inline uint32_t grid_mask_words(const struct grid_of_tries *db)
{
    return db->form == TRIE_PLAIN ? 0 : ((1u << db->stride) + 31) / 32;
}

/* The entry of a node for a digit, or 0. */
static inline uint32_t grid_entry(const struct grid_of_tries *db, uint32_t node, uint32_t digit)
{
    const uint32_t *at = db->word + node + 1;
    if (db->form == TRIE_PLAIN)
        return at[digit];
    if (!(at[digit / 32] >> digit % 32 & 1))
        return 0;
    uint32_t before = trie_ones(at[digit / 32] & ((1u << digit % 32) - 1), db->form);
    for (uint32_t w = 0; w < digit / 32; w++)
        before += trie_ones(at[w], db->form);
    return at[grid_mask_words(db) + before];
}

int grid_build(struct budget *budget, const struct vfdb_plan *plan, const struct vfdb_rules *rules,
               void **built);
void grid_free(void *built);

#endif
