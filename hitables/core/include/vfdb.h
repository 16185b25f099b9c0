#ifndef HITABLES_VFDB_H
#define HITABLES_VFDB_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The Virtual Filter Database (Sahasranaman and Buddhikot, section 3): one small interface, and
 * behind it every classifier.
 *
 * A header is a row of *dims* words, one per dimension; a box a row of (low, high) per dimension, both
 * included.  A field of more than 32 bits is several dimensions, most significant word first.  A rule
 * is one or several boxes that do not overlap, under one priority; the least priority wins, and is
 * what a search finds. */

enum vfdb_limits {
    VFDB_DIMS = 20, /* dimensions at most */
    VFDB_PARAMS = 8 /* parameters of an algorithm at most */
};

/* What a search gives where no rule matches; no rule may have it as priority. */
enum vfdb_none { VFDB_NONE = 0xFFFFFFFF };

enum vfdb_status {
    VFDB_OK,
    VFDB_NO_MEMORY, /* the machine's memory, or the limit */
    VFDB_TWICE,     /* a rule of that priority is there already */
    VFDB_ABSENT,    /* no rule of that priority is there */
    VFDB_BAD_BOX,   /* an empty side, or one that is wider than its dimension */
    VFDB_TOO_LARGE, /* a bound of the algorithm, which its head comment names */
    VFDB_ANEW,      /* from insert and remove: this one takes building anew; the dispatcher does */
    VFDB_DISAGREE   /* checked(A): A and linear gave different answers */
};

/* *count* boxes by rising priority; boxes of one priority stand together. */
struct vfdb_rules {
    uint32_t dims, count;
    const uint8_t *bits;      /* [dims] the width of each dimension, 1 to 32 */
    const uint32_t *priority; /* [count] */
    const uint32_t *box;      /* [count][dims][2] */
};

/* A number that an algorithm may be given by name. */
struct vfdb_param {
    const char *name, *meaning;
    int64_t usual, least, most;
};

/* An algorithm, its parameters, and what it is wrapped around. */
struct vfdb_plan {
    const struct vfdb_ops *ops;
    int64_t value[8];
    const struct vfdb_plan *inner;
};

struct budget;

/* An algorithm: one C file, one exported name.  What it cannot do is NULL: without insert or remove the
 * dispatcher builds anew, as it does for one that is answered by VFDB_ANEW.
 *
 * build copies what it keeps.  It takes all its memory from the budget, and gives everything back when
 * it fails; insert and remove leave the structure as it was when they fail.  search may run in many
 * threads at a time, never beside insert or remove. */
struct vfdb_ops {
    const char *name, *title;
    uint32_t least_dims, most_dims;
    uint32_t prefix_dims; /* sides of the first so many dimensions are prefixes: the dispatcher cuts boxes */
    bool wraps;           /* takes an inner plan */
    struct vfdb_param param[8];
    int (*build)(struct budget *budget, const struct vfdb_plan *plan, const struct vfdb_rules *rules, void **built);
    int (*insert)(void *db, const uint32_t *box, uint32_t priority);
    int (*remove)(void *db, const uint32_t *box, uint32_t priority);
    int (*search)(const void *db, const uint32_t *headers, size_t count, uint32_t *found);
    int (*settle)(void *db); /* finish what runs in the background; a status */
    void (*free)(void *db);
};

struct vfdb;

const struct vfdb_ops *vfdb_algorithm(uint32_t number);
int vfdb_open(const struct vfdb_plan *plan, const struct vfdb_rules *rules, size_t limit, struct vfdb **opened);
int vfdb_open_under(struct budget *above, const struct vfdb_plan *plan, const struct vfdb_rules *rules, struct vfdb **opened);
int vfdb_insert(struct vfdb *db, const uint32_t *boxes, uint32_t count, uint32_t priority);
int vfdb_remove(struct vfdb *db, uint32_t priority);
int vfdb_put(struct vfdb *db, const uint32_t *box, uint32_t priority);
int vfdb_take(struct vfdb *db, const uint32_t *box, uint32_t priority);
int vfdb_update(struct vfdb *db, uint32_t count, const uint8_t *inserts, const uint32_t *boxes,
                const uint32_t *priority, uint32_t *done);
int vfdb_search(struct vfdb *db, const uint32_t *headers, size_t count, uint32_t *found);
int vfdb_settle(struct vfdb *db);
uint32_t vfdb_rule_count(const struct vfdb *db);
size_t vfdb_bytes(const struct vfdb *db);
size_t vfdb_peak(const struct vfdb *db);
size_t vfdb_list_bytes(const struct vfdb *db);
uint64_t vfdb_builds(const struct vfdb *db);
void vfdb_close(struct vfdb *db);

#endif
