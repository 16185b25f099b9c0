/* Trees: the builders by name, and building with one of them.
 *
 * Idea: every builder grows nodes over one ranked space (regions.c), which are then written as flat arrays
 * (flatten.c) that both the printer and the search (tree_search.c) read.
 * Cost: that of the builder, and of ranking: the ends of all boxes are sorted, per axis.
 * Invariant: the paths of a tree tile space, and every point meets on its path all rules whose boxes hold it
 * there, in list order, up to a final one that covers the rest.  So a search of the tree gives the answer
 * that reading the list from the top gives.
 * Memory: what a build keeps comes from the space's arena, which the caller limits.  Scratch that grows and
 * shrinks comes from the space's scope, and flattened trees, the finished one too, have arenas of their own:
 * these are not limited.
 * Threading: one tree is built by one thread; tree_stop may be called from any.
 */
#include "tree_internal.h"

#include <string.h>

static const struct tree_builder *const builders[] = {
    &tree_shape_groups, &tree_bisect, &tree_hicuts, &tree_hypercuts, &tree_conext2014,
};

enum { BUILDERS = sizeof builders / sizeof *builders };

const char *tree_algorithm(uint32_t index)
{
    return index < BUILDERS ? builders[index]->name : NULL;
}

int tree_is_bounded(uint32_t index)
{
    return index < BUILDERS && builders[index]->bounded;
}

static volatile int stop_all;

void tree_stop(int stop)
{
    stop_all = stop;
}

static enum tree_status grow(const struct tree_builder *builder, struct space *space,
                             const struct tree_options *options, struct tree *tree)
{
    struct build_node *root = NULL;
    enum tree_status status = space_rank(space);
    if (status == TREE_OK)
        status = builder->grow(space, options, &root);
    if (status == TREE_OK)
        status = nodes_write(space, root, tree);
    if (status == TREE_OK)
        tree->bytes = arena_bytes(space->arena) + arena_bytes(tree->arena);
    return status;
}

struct tree *tree_grow(const char *algorithm, const struct tree_boxes *boxes,
                       const struct tree_options *options, enum tree_status *status)
{
    const struct tree_builder *builder = NULL;
    for (uint32_t i = 0; i < BUILDERS; i++)
        if (!strcmp(builders[i]->name, algorithm))
            builder = builders[i];
    if (!builder) {
        *status = TREE_BAD_OPTION;
        return NULL;
    }
    struct budget *budget = budget_new(0);
    struct space space = {.arena = arena_new(options->memory), .scratch.budget = budget, .in = boxes};
    struct arena *arena = arena_new(0); /* the tree's own */
    struct tree *tree = arena ? arena_take(arena, sizeof *tree) : NULL;
    *status = TREE_NO_MEMORY;
    if (budget && space.arena && tree) {
        arena_stops(space.arena, &stop_all);
        tree->arena = arena;
        *status = grow(builder, &space, options, tree);
        scope_empty(&space.scratch);
    }
    budget_free(budget);
    arena_free(space.arena);
    if (*status == TREE_OK)
        return tree;
    if (stop_all)
        *status = TREE_STOPPED;
    arena_free(arena);
    return NULL;
}

void tree_free(struct tree *tree)
{
    if (tree)
        arena_free(tree->arena);
}
