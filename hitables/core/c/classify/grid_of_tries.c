/* Grid-of-Tries (Srinivasan, Varghese, Suri and Waldvogel, SIGCOMM 1998).
 *
 * Idea: a trie over destination prefixes; each prefix that rules have points to a trie over the sources of
 * these rules.  A header descends to the longest of its destination prefixes, then bit by bit through that
 * source trie.  Where a branch is missing, a switch pointer leads to the node of the same source bits in the
 * source trie of the nearest shorter destination prefix that has it.  A node stores the best of all rules
 * that match the bits on the path to it, whichever source trie they are in.
 * Cost: a search takes 2 W / stride steps, however many rules; space is linear in the rules' nodes.  An
 * update may change every switch pointer, so there is none.
 * Invariant: the entry of node s for digit x is the node s x of its own trie, else that of the nearest
 * shorter destination prefix that has one, else nothing.
 * Threading: searches change nothing.
 *
 * Built from the shorter destination prefix to the longer: a missing branch switches to the entry of the
 * shorter prefix's node, which is already complete.  With strides above 1 the paths are those of expanded
 * prefixes; a source trie belongs to its destination prefix as it was, so none is copied.
 *
 * More than two dimensions: rules of equal ranges in the others form a group with a grid of its own.  The
 * paper finds the groups by hashing ports that are given or any; here they may be ranges, so a bitmap per
 * elementary interval of each dimension marks the groups that hold it, and those in all bitmaps are searched,
 * best first.
 * Bound: 65,536 groups (grid_of_tries_build.c).
 */
#include "grid_of_tries.h"
#include "vfdb_work.h"

/* Headers that go down side by side, so that their cache misses overlap. */
enum { BLOCK = 16 };

/* A header on its way: the groups that may match and were not searched, and the nodes that it is at. */
struct grid_walk {
    const uint64_t *member[VFDB_DIMS];
    uint64_t left; /* of the 64 groups from 64 * word on */
    uint32_t word, best;
    const struct trie *trie;
    const void *node;
    uint64_t src, dst;
    uint32_t root;
};

static void begin(const struct grid_of_tries *db, const uint32_t *header, struct grid_walk *walk)
{
    walk->best = VFDB_NONE;
    walk->left = 0;
    bool beyond = (uint64_t)header[GRID_SRC] >> db->src_width || (uint64_t)header[GRID_DST] >> db->dst_width;
    walk->word = beyond ? db->group_words - 1 : UINT32_MAX; /* the next is behind all groups, or 0 */
    walk->src = (uint64_t)header[GRID_SRC] << (64 - db->src_width);
    for (uint32_t d = 2; d < db->dims; d++) {
        const struct other_dimension *other = db->other + d;
        const uint32_t *edge = other->edge;
        for (uint32_t count = other->edges; count > 1; count -= count / 2)
            edge += edge[count / 2] <= header[d] ? count / 2 : 0;
        walk->member[d] = other->member + (size_t)(edge - other->edge) * db->group_words;
    }
}

/* The next group that may have a better rule; false when there is none. */
static bool next_group(const struct grid_of_tries *db, const uint32_t *header, struct grid_walk *walk)
{
    while (!walk->left) {
        if (++walk->word >= db->group_words)
            return false;
        uint32_t rest = db->groups - walk->word * 64;
        walk->left = rest < 64 ? (UINT64_C(1) << rest) - 1 : UINT64_MAX;
        for (uint32_t d = 2; d < db->dims; d++)
            walk->left &= walk->member[d][walk->word];
    }
    const struct grid_group *group = db->group + walk->word * 64 + (uint32_t)__builtin_ctzll(walk->left);
    walk->left &= walk->left - 1;
    if (group->bound >= walk->best)
        return false;
    walk->trie = group->dst;
    walk->node = group->dst->root;
    walk->dst = trie_key(group->dst, header[GRID_DST]);
    walk->root = 0;
    return true;
}

/* All walks through their groups, level by level. */
VFDB_BODY void go(const struct grid_of_tries *db, struct grid_walk **walk, uint32_t count,
                  const struct grid_walk *first, struct vfdb_work *work, bool counted)
{
    uint32_t on = count;
    for (uint32_t level = 0; on; level++) {
        on = 0;
        for (uint32_t i = 0; i < count; i++) {
            struct grid_walk *w = walk[i];
            if (!w->node)
                continue;
            if (counted)
                work[w - first].nodes++;
            const struct source_root *target = trie_payload(w->trie, w->node);
            w->root = target->root ? target->root : w->root;
            bool last = level == w->trie->levels;
            w->node = last ? NULL : trie_child(w->trie, w->node, trie_digit(w->trie, w->dst, level));
            on += w->node != NULL;
        }
    }
    uint32_t levels = (db->src_width + db->stride - 1) / db->stride;
    on = count;
    for (uint32_t level = 0; on; level++) {
        on = 0;
        for (uint32_t i = 0; i < count; i++) {
            struct grid_walk *w = walk[i];
            if (!w->root)
                continue;
            if (counted)
                work[w - first].nodes++;
            if (db->word[w->root] < w->best)
                w->best = db->word[w->root];
            uint32_t digit = (uint32_t)(w->src << level % levels * db->stride >> (64 - db->stride));
            w->root = level < levels ? grid_entry(db, w->root, digit) : 0;
            on += w->root != 0;
        }
    }
}

VFDB_BODY int search_blocks(const struct grid_of_tries *db, const uint32_t *headers, size_t count,
                            uint32_t *answers, struct vfdb_work *work, bool counted)
{
    struct grid_walk walk[BLOCK], *going[BLOCK];
    for (size_t first = 0; first < count; first += BLOCK, headers += (size_t)BLOCK * db->dims) {
        uint32_t some = count - first < BLOCK ? (uint32_t)(count - first) : BLOCK, on = some;
        for (uint32_t i = 0; i < some; i++) {
            going[i] = walk + i;
            if (db->groups)
                begin(db, headers + (size_t)i * db->dims, walk + i);
            else
                walk[i].best = VFDB_NONE;
        }
        while (on && db->groups) {
            uint32_t kept = 0;
            for (uint32_t i = 0; i < on; i++)
                if (next_group(db, headers + (size_t)(going[i] - walk) * db->dims, going[i]))
                    going[kept++] = going[i];
            on = kept;
            for (uint32_t i = 0; counted && i < on; i++)
                work[first + (size_t)(going[i] - walk)].lists++;
            go(db, going, on, walk, counted ? work + first : NULL, counted);
        }
        for (uint32_t i = 0; i < some; i++)
            answers[first + i] = walk[i].best;
    }
    return VFDB_OK;
}

static int grid_search(const void *built, const uint32_t *headers, size_t count, uint32_t *answers)
{
    return search_blocks(built, headers, count, answers, NULL, false);
}

/* Lists are the groups of rules whose tries are walked. */
static int grid_search_counted(const void *built, const uint32_t *headers, size_t count, uint32_t *answers,
                               struct vfdb_work *work)
{
    return search_blocks(built, headers, count, answers, work, true);
}

const struct vfdb_ops vfdb_grid_of_tries = {
    .name = "grid_of_tries",
    .title = "a trie of destinations, tries of sources below it, and switch pointers between these",
    .least_dims = 2,
    .most_dims = VFDB_DIMS,
    .prefix_dims = 2,
    .param = {{"stride", "bits of a key per level of its trie (the compression factor)", 4, 1, 8},
              {"form", "of its nodes: 0 plain, 1 bitmaps, 2 bitmaps counted by the CPU's instruction", 0, 0,
               2}},
    .build = grid_build,
    .search = grid_search,
    .search_counted = grid_search_counted,
    .free = grid_free,
};
