#ifndef HITABLES_GRIDS_CORE_H
#define HITABLES_GRIDS_CORE_H
#include "tree_internal.h"

/* What the builders of grids share: patches, the growing of them, what they are written as. */

enum { GRIDS_CELLS = 4096 }; /* parts of a node, at most */

/* Parts of 2^shift values each, from *low* on, which hold all of a region along the axis. */
struct cut {
    uint32_t axis, parts;
    u128 low;
    unsigned shift;
};

enum plan_kind { PLAN_LEAF, PLAN_TEST, PLAN_GRID };

/* What is to become of a patch.  A patch keeps so many cuts as it has. */
struct plan {
    enum plan_kind kind;
    uint32_t cuts;
    struct probe probe;
    struct cut cut[TREE_AXES];
};

/* A node while the tree grows: the boxes that meet its region, ascending. */
struct patch {
    struct patch *next; /* in order of birth */
    uint32_t boxes, *box, rules;
    struct range *region; /* this and *box* until its parts are made */
    const struct hole *holes;
    uint32_t nesting;      /* tests taken on the way, at most */
    uint32_t refs;         /* tests of its parent's that lead here, sides that stand in line */
    uint32_t held, *entry; /* rules of a leaf, or that all parts have in common */
    struct plan *plan;
    uint32_t cells;
    struct patch **part; /* [cells]; of a test what it takes, what it leaves */
    uint32_t number;     /* once it is in the queue: not 0 */
    struct twig *twig;
};

struct plotter {
    struct space *space;
    const struct grid_builder *builder;
    uint32_t leaf_size;
    double spfac;
    uint64_t budget, printed;
    uint32_t max_nesting;
    size_t memory;
    uint64_t *key, *spare; /* scratch: one slot per box */
    uint32_t *listed;
    struct plan plan;           /* of the patch being split */
    struct arena *list, *later; /* lists of the patches being split, and of their parts */
    struct patch *empty, *first, *last;
};

/* One C file per builder.  *choose* decides what becomes of a patch of too many rules. */
struct grid_builder {
    bool shares; /* rules that all parts have in common stand above them */
    void (*choose)(struct plotter *plotter, const struct patch *patch, struct plan *plan);
};
extern const struct grid_builder grid_hicuts, grid_hypercuts;

/* What printed trees ask for first; true if *plan* is made. */
bool plan_test(struct plotter *plotter, const struct patch *patch, uint32_t axis, struct plan *plan);
bool plan_narrows(const struct plotter *plotter, const struct patch *patch, uint32_t axis, struct plan *plan);
bool can_grid(const struct plotter *plotter, const struct patch *patch, uint32_t axis);
struct cut cut_into(const struct space *space, const struct range *region, uint32_t axis, uint32_t parts);
struct side cut_span(const struct space *space, const struct cut *cut, const struct range *along, struct side side);
uint32_t count_distinct(struct plotter *plotter, const struct patch *patch, uint32_t axis);
uint32_t floor_log2(uint32_t value);
enum tree_status grids_print(struct space *space, const struct tree_options *options,
                             const struct grid_builder *builder, struct twig **root);

#endif
