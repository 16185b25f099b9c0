#ifndef HITABLES_VFDB_H
#define HITABLES_VFDB_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The Virtual Filter Database (Sahasranaman and Buddhikot, section 3): one small interface, and behind it
 * every classifier.  See vfdb.c.
 *
 * A header is a row of *dims* words, one per dimension; a box is a row of (low, high) per dimension, both
 * included.  A field of more than 32 bits is several dimensions, most significant word first.  A rule is
 * one or several boxes that do not overlap, under one priority; the least priority wins, and is what a
 * search returns.  Functions return an enum vfdb_status as an int. */

enum vfdb_limits {
    VFDB_DIMS = 20, /* dimensions at most */
    VFDB_PARAMS = 8 /* parameters of an algorithm at most */
};

/* The answer where no rule matches; no rule may have it as priority. */
enum vfdb_none { VFDB_NONE = 0xFFFFFFFF };

enum vfdb_status {
    VFDB_OK,
    VFDB_NO_MEMORY, /* of the machine, or of the limit */
    VFDB_TWICE,     /* the database has a rule of that priority already */
    VFDB_ABSENT,    /* the database has no rule of that priority */
    VFDB_BAD_BOX,   /* an interval is empty, or wider than its dimension */
    VFDB_TOO_LARGE, /* a bound of the algorithm is exceeded; its head comment names the bounds */
    VFDB_ANEW, /* from insert and remove only: this update requires a new build, which the dispatcher does */
    VFDB_DISAGREE, /* checked(A): A and linear search gave different answers */
    VFDB_UNCOUNTED, /* the algorithm does not count what is asked for */
    VFDB_NO_POSITION, /* beyond the last rule */
    VFDB_WIDE_HEADER, /* checked(A): a value of a header is wider than its dimension */
    VFDB_STOPPED /* a build was stopped by its plan's flag */
};

/* What the search of one header read.  An algorithm counts what it has; the rest stays as it is. */
struct vfdb_work {
    uint32_t nodes;  /* of trees and tries, entries of tables */
    uint32_t lists;  /* of rules, or of bits of rules, that were begun */
    uint32_t hashes; /* computed */
    uint32_t tuples; /* tried */
    uint32_t rules;  /* compared with the header */
    uint32_t flows;  /* of a flow state table, compared with the header */
    uint32_t keys;   /* of sorted lists of prefixes, compared with a field (pacars) */
};

/* *count* boxes by rising priority; boxes of one priority are adjacent. */
struct vfdb_rules {
    uint32_t dims, count;
    const uint8_t *bits; /* [dims] the width of each dimension, 1 to 32 */
    const uint32_t *priority; /* [count] */
    const uint32_t *box; /* [count][dims][2] */
};

/* A parameter of an algorithm: its name, its meaning, its default and its bounds. */
struct vfdb_param {
    const char *name, *meaning;
    int64_t usual, least, most;
};

/* An algorithm, its parameters, and the plan that it wraps. */
struct vfdb_plan {
    const struct vfdb_ops *ops;
    int64_t value[VFDB_PARAMS];
    const struct vfdb_plan *inner;
    const volatile int *stop; /* if any, a build ends soon with VFDB_STOPPED when it is not 0 */
};

struct budget;
struct flow_stats;
struct storm_cache_stats;

/* An algorithm: one C file with one exported name.  Operations that it lacks are NULL: without insert or
 * remove the dispatcher builds anew, as it does for one that returns VFDB_ANEW.
 *
 * build copies what it keeps, takes all its memory from the budget, and gives everything back when it
 * fails; insert and remove leave the structure as it was when they fail.  search may run in many threads
 * at a time, never beside insert or remove.  A rule of several boxes is inserted and removed box by box. */
struct vfdb_ops {
    const char *name, *title;
    uint32_t least_dims, most_dims;
    uint32_t
        prefix_dims; /* leading dimensions whose intervals must be prefixes: the dispatcher cuts boxes */
    bool wraps; /* takes an inner plan */
    struct vfdb_param param[VFDB_PARAMS];
    int (*build)(struct budget *budget, const struct vfdb_plan *plan, const struct vfdb_rules *rules,
                 void **built);
    int (*insert)(void *db, const uint32_t *box, uint32_t priority);
    int (*remove)(void *db, const uint32_t *box, uint32_t priority);
    int (*search)(const void *db, const uint32_t *headers, size_t count, uint32_t *answers);
    /* The same answers; adds to work[i] what header i took.  Slower than search, which counts nothing.  The
     * tests want it of each algorithm. */
    int (*search_counted)(const void *db, const uint32_t *headers, size_t count, uint32_t *answers,
                          struct vfdb_work *work);
    /* Whether an update may begin; *wait*: wait until one may, beside searches.  NULL: always. */
    bool (*ready)(void *db, bool wait);
    void (*updated)(void *db); /* all boxes of an update are in, or out; not beside searches */
    /* steps[i]: the nodes of its tries that header i meets, found without reading what they hold.  For
     * measurements of the descent alone. */
    int (*walk)(const void *db, const uint32_t *headers, size_t count, uint32_t *steps);
    int (*settle)(void *db); /* wait for what runs in the background; a status */
    uint64_t (*rebuilds)(const void *db); /* how often it built what it wraps again */
    void (*flow_stats)(const void *db, struct flow_stats *stats);
    void (*storm_stats)(const void *db, struct storm_cache_stats *stats);
    void (*free)(void *db);
};

/* A database.  Any number of threads may call its functions at a time: searches share a lock, updates have
 * it alone.  An update that fails leaves the database as it was. */
struct vfdb;

/* Algorithm number *number*; NULL behind the last. */
const struct vfdb_ops *vfdb_algorithm(uint32_t number);

/* Open a database of those rules, whose structure takes at most *limit* bytes (0: any number); the list of
 * rules beside it is not counted.  The plan must outlive it.  *opened is NULL on failure, else to be
 * closed with vfdb_close. */
int vfdb_open(const struct vfdb_plan *plan, const struct vfdb_rules *rules, size_t limit,
              struct vfdb **opened);
/* Open a database inside another: its structure and its list count in the budget *above*. */
int vfdb_open_under(struct budget *above, const struct vfdb_plan *plan, const struct vfdb_rules *rules,
                    struct vfdb **opened);
void vfdb_close(struct vfdb *db);

/* Insert a rule of *count* boxes ([count][dims][2]) that do not overlap; remove one by its priority. */
int vfdb_insert(struct vfdb *db, const uint32_t *boxes, uint32_t count, uint32_t priority);
int vfdb_remove(struct vfdb *db, uint32_t priority);
/* For algorithms that wrap others, which receive rules box by box: add a box to a rule, which may be new;
 * remove one, and with its last box the rule. */
int vfdb_put(struct vfdb *db, const uint32_t *box, uint32_t priority);
int vfdb_take(struct vfdb *db, const uint32_t *box, uint32_t priority);
/* Many updates in a row, of rules of one box each: inserts[i] not 0 inserts box i, else priority[i] is
 * removed (its box is not read).  Stops at the first that fails; *done counts those before it. */
int vfdb_update(struct vfdb *db, uint32_t count, const uint8_t *inserts, const uint32_t *boxes,
                const uint32_t *priority, uint32_t *done);

/* answers[i] becomes the priority of the best rule that matches header i ([count][dims]), or VFDB_NONE.  A
 * value must not be wider than its dimension: nothing looks, and an answer to one that is means nothing. */
int vfdb_search(struct vfdb *db, const uint32_t *headers, size_t count, uint32_t *answers);
/* The same, and adds to work[i] what header i took; VFDB_UNCOUNTED where the algorithm, or one that it wraps,
 * does not count. */
int vfdb_search_counted(struct vfdb *db, const uint32_t *headers, size_t count, uint32_t *answers,
                        struct vfdb_work *work);
/* The same answers, one header at a time: where the next header lies is computed from the last answer, so no
 * search begins before the last has ended.  For measurements of what one search takes. */
int vfdb_search_chained(struct vfdb *db, const uint32_t *headers, size_t count, uint32_t *answers);
/* The descent in its tries alone of an algorithm that has them: steps[i] becomes the nodes that header i
 * meets; *chained* as above.  VFDB_UNCOUNTED for other algorithms. */
int vfdb_walk(struct vfdb *db, const uint32_t *headers, size_t count, bool chained, uint32_t *steps);
/* The statistics of the flow state table of flows(A); VFDB_UNCOUNTED for other algorithms. */
int vfdb_flow_stats(struct vfdb *db, struct flow_stats *stats);
/* The statistics of the rule cache of storm(A); VFDB_UNCOUNTED for other algorithms. */
int vfdb_storm_stats(struct vfdb *db, struct storm_cache_stats *stats);
/* Whether an update would go ahead at once; *wait*: wait until one would. */
bool vfdb_ready(struct vfdb *db, bool wait);
/* Wait for what runs in the background; its status. */
int vfdb_settle(struct vfdb *db);

/* By position, counted from 0 in the order of priorities: insert a rule in front of rule *position*, which
 * may be the number of rules; remove rule *position*; search, for positions.  An insertion may change the
 * priorities of other rules, but not their order. */
int vfdb_insert_at(struct vfdb *db, const uint32_t *boxes, uint32_t count, uint32_t position);
int vfdb_remove_at(struct vfdb *db, uint32_t position);
int vfdb_search_positions(struct vfdb *db, const uint32_t *headers, size_t count, uint32_t *answers);

uint32_t vfdb_rule_count(const struct vfdb *db);
/* Bytes of the structure that is searched; the most that building and changing it took at a time; bytes of
 * the list of rules beside it. */
size_t vfdb_bytes(const struct vfdb *db);
size_t vfdb_peak(const struct vfdb *db);
size_t vfdb_list_bytes(const struct vfdb *db);
/* How often the structure was built as a whole. */
uint64_t vfdb_builds(const struct vfdb *db);
/* How often the structure, or what it wraps, was built again after the first build. */
uint64_t vfdb_rebuilds(struct vfdb *db);

#endif
