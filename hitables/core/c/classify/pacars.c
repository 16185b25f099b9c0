/* PACARS: the area-based quadtree (Buddhikot, Suri and Waldvogel, 1999), with fractional cascading.
 *
 * Idea: two prefixes are a rectangle whose longer side is a whole side of some square of the quadtree, the
 * smallest that holds it.  That square stores it in its crossing filter set: two lists of prefixes of one
 * dimension, those that cross from left to right and those that cross from top to bottom.  A header meets the
 * squares on its descent, and in each list looks for its longest prefix; the shorter ones that hold it follow
 * from there.
 * Cost: a search takes W / stride squares and in each O(1) steps with cascading (below), O(log n) without,
 * and the prefixes that hold the header; an update changes one list for each of up to 4^(stride - 1) squares
 * that the rectangle becomes.  Lists are sorted arrays, whose entries of 20 bytes move side by side (3 us
 * where one list has 10,000, 26 us where it has 100,000, and real lists are short), or the paper's: skip
 * lists (list=1), or sqrt n buckets (list=2).
 * Invariant: a list is sorted by rising start, at equal starts the larger prefix first; a prefix's parent is
 * the smallest other prefix of the list that holds it.
 * Threading: searches change nothing.
 *
 * Fractional cascading, which the paper proposes and does not build: each square weaves its list with every
 * fourth key of its children's woven lists.  A woven key stores its place in the list and in each child's
 * woven list, so a place in one square gives the place in the next, give or take four.  Here these places are
 * hints, from which the search gallops: updates leave them as they are, and a square weaves anew when a
 * quarter of its list has changed.  So an update stays cheap, and wrong hints only make a search slower.
 * Fewer than WORTH keys are not woven: halving them costs less than the cache lines of their hints.
 *
 * More than two dimensions: the rules of a prefix are sorted by priority, and each that can be the best is
 * compared as a whole.
 */
#include "pacars_internal.h"

#include <string.h>

enum { BLOCK = 16 }; /* headers that descend side by side, so that their cache misses overlap */

/* -- rectangles ------------------------------------------------------------------------------- */

/* The rectangle of a rule, cut into squares of one level. */
struct rectangle_pieces {
    uint32_t low[SIDES], length[SIDES], count[SIDES], step[SIDES];
    uint32_t level, side; /* side: the list that stores it */
};

static uint32_t ones_behind(uint32_t length)
{
    return length < 32 ? UINT32_MAX >> length : 0;
}

static struct rectangle_pieces cut(const struct pacars *db, const uint32_t *box)
{
    struct rectangle_pieces p;
    for (uint32_t d = 0; d < SIDES; d++) {
        uint32_t differ = box[2 * d] ^ box[2 * d + 1];
        p.length[d] = db->bits[d] - (differ ? 32 - (uint32_t)__builtin_clz(differ) : 0);
        p.low[d] = box[2 * d] << (32 - db->bits[d]);
    }
    uint32_t least = p.length[0] < p.length[1] ? p.length[0] : p.length[1];
    p.level = (least + db->stride - 1) / db->stride;
    uint32_t down = p.level * db->stride;
    p.side = p.length[0] <= down;
    for (uint32_t d = 0; d < SIDES; d++) {
        uint32_t length = down < db->bits[d] ? down : db->bits[d]; /* bits behind the last are 0 */
        p.count[d] = p.length[d] < length ? 1u << (length - p.length[d]) : 1;
        p.step[d] = length ? 1u << (32 - length) : 0;
        if (p.length[d] < down)
            p.length[d] = down;
    }
    return p;
}

static uint32_t pieces(const struct rectangle_pieces *p)
{
    return p->count[0] * p->count[1];
}

static uint64_t piece(const struct pacars *db, const struct rectangle_pieces *p, uint32_t number,
                      uint32_t *low, uint32_t *high)
{
    uint32_t at[SIDES] = {p->low[0] + number % p->count[0] * p->step[0],
                          p->low[1] + number / p->count[0] * p->step[1]};
    *low = at[p->side];
    *high = at[p->side] | ones_behind(p->length[p->side]);
    return key_of(db, at[0], at[1]);
}

static bool put_piece(struct pacars *db, const struct rectangle_pieces *p, uint32_t number,
                      const uint32_t *box, uint32_t priority)
{
    uint32_t low, high, kept;
    uint64_t key = piece(db, p, number, &low, &high);
    struct square **at = trie_reach(db->trie, key, p->level, true);
    if (!at)
        return false;
    if (!*at)
        *at = budget_take(db->budget, sizeof **at);
    struct pacars_rule *rule = *at ? slab_take(db->rules, &kept) : NULL;
    struct pacars_rule **next = rule ? db->lists->have(db, *at, p->side, low, high) : NULL;
    if (!next) {
        if (rule)
            slab_give(db->rules, kept);
        if (*at && square_is_idle(*at))
            square_drop(db, at);
        trie_prune(db->trie, key, p->level);
        return false;
    }
    while (*next && (*next)->priority < priority)
        next = &(*next)->next;
    *rule = (struct pacars_rule){*next, priority, kept};
    memcpy(rule->box, box, 2 * db->dims * sizeof *box);
    *next = rule;
    return true;
}

static bool drop_piece(struct pacars *db, const struct rectangle_pieces *p, uint32_t number,
                       const uint32_t *box, uint32_t priority)
{
    uint32_t low, high;
    uint64_t key = piece(db, p, number, &low, &high);
    struct square **at = trie_reach(db->trie, key, p->level, false);
    struct pacars_rule **first = at && *at ? db->lists->find(&(*at)->list[p->side], low, high) : NULL;
    if (!first)
        return false;
    struct pacars_rule **next = first;
    while (*next && ((*next)->priority != priority || memcmp((*next)->box, box, 2 * db->dims * sizeof *box)))
        next = &(*next)->next;
    if (!*next)
        return false;
    uint32_t kept = (*next)->number;
    *next = (*next)->next;
    slab_give(db->rules, kept);
    if (!*first) {
        db->lists->drop(db, *at, p->side, low, high);
        squares_changed(db, key, p->level);
        trie_prune(db->trie, key, p->level);
    }
    return true;
}

/* -- build and updates ------------------------------------------------------------------------ */

static void free_square(void *owner, void *payload)
{
    struct pacars *db = owner;
    struct square *square = *(struct square **)payload;
    if (!square)
        return;
    for (uint32_t side = 0; side < SIDES; side++) {
        db->lists->free(db, &square->list[side]);
        square_unweave(db, square, side);
    }
    budget_give(db->budget, square, sizeof *square);
}

static void pacars_free(void *built)
{
    struct pacars *db = built;
    trie_free(db->trie, free_square, db);
    slab_free(db->rules);
    budget_give(db->budget, db, sizeof *db);
}

static int put(struct pacars *db, const uint32_t *box, uint32_t priority)
{
    struct rectangle_pieces p = cut(db, box);
    for (uint32_t i = 0; i < pieces(&p); i++)
        if (!put_piece(db, &p, i, box, priority)) {
            while (i-- > 0)
                drop_piece(db, &p, i, box, priority);
            return VFDB_NO_MEMORY;
        }
    return VFDB_OK;
}

static int pacars_build(struct budget *budget, const struct vfdb_plan *plan, const struct vfdb_rules *rules,
                        void **built)
{
    struct pacars *db = budget_take(budget, sizeof *db);
    if (!db)
        return VFDB_NO_MEMORY;
    db->budget = budget;
    db->dims = rules->dims;
    db->stride = plan->value[0] == 3 ? 2 : (uint32_t)plan->value[0];
    db->cascade = plan->value[2];
    db->form = (enum list_form)plan->value[3];
    db->lists = (const struct list_ops *[]){&pacars_arrays, &pacars_skip_lists, &pacars_buckets}[db->form];
    db->random = 0x9E3779B9; /* of the heights in skip lists: the same rules, the same lists */
    db->bits[0] = rules->bits[0];
    db->bits[1] = rules->bits[1];
    size_t size = sizeof(struct pacars_rule) + 2 * db->dims * sizeof(uint32_t);
    db->rules = slab_new(budget, (size + 7) / 8 * 8);
    db->trie = trie_new(budget, 64, 2 * db->stride, (enum trie_form)plan->value[1], sizeof(struct square *));
    int status = db->rules && db->trie ? VFDB_OK : VFDB_NO_MEMORY;
    /* The worst first: each rule then goes to the start of its list, however many have the same prefix. */
    for (uint32_t i = rules->count; i-- > 0 && status == VFDB_OK;)
        status = put(db, rules->box + (size_t)i * 2 * db->dims, rules->priority[i]);
    if (status) {
        pacars_free(db);
        return status;
    }
    if (db->cascade)
        squares_weave(db, db->trie->root, 0);
    *built = db;
    return VFDB_OK;
}

static int pacars_insert(void *built, const uint32_t *box, uint32_t priority)
{
    struct pacars *db = built;
    int status = put(db, box, priority);
    if (status)
        return status;
    struct rectangle_pieces p = cut(db, box);
    for (uint32_t i = 0; i < pieces(&p) && db->cascade; i++) {
        uint32_t low, high;
        uint64_t key = piece(db, &p, i, &low, &high);
        squares_changed(db, key, p.level);
    }
    return VFDB_OK;
}

static int pacars_remove(void *built, const uint32_t *box, uint32_t priority)
{
    struct pacars *db = built;
    struct rectangle_pieces p = cut(db, box);
    for (uint32_t i = 0; i < pieces(&p); i++)
        if (!drop_piece(db, &p, i, box, priority))
            return VFDB_ABSENT;
    return VFDB_OK;
}

/* -- search ----------------------------------------------------------------------------------- */

/* A header on its descent: its node, and where in the woven lists of that node to look, if known. */
struct pacars_walk {
    const void *node;
    const uint32_t *header;
    uint64_t key;
    uint32_t at[SIDES], hint[SIDES], best;
    bool known[SIDES];
};

static bool matches(const uint32_t *box, const uint32_t *header, uint32_t dims)
{
    for (uint32_t d = SIDES; d < dims; d++)
        if (header[d] - box[2 * d] > box[2 * d + 1] - box[2 * d])
            return false;
    return true;
}

/* The best of the rules of a prefix, which holds the header.  *work* NULL: not counted. */
VFDB_BODY void read_rules(const struct pacars *db, const struct pacars_rule *rule, struct pacars_walk *walk,
                          struct vfdb_work *work)
{
    for (; rule && rule->priority < walk->best; rule = rule->next) {
        if (work)
            work->rules++;
        if (matches(rule->box, walk->header, db->dims)) {
            walk->best = rule->priority;
            break;
        }
    }
}

VFDB_BODY void read_array(const struct pacars *db, const struct crossing_list *list, uint32_t place,
                          uint32_t value, struct pacars_walk *walk, struct vfdb_work *work)
{
    for (place = holder(list, place, value, value); place; place = prefixes(list)[place - 1].parent)
        read_rules(db, prefixes(list)[place - 1].rule, walk, work);
}

/* The prefixes of a skip list that hold a value, or of a bucket and those that cover it. */
VFDB_BODY void read_linked(const struct pacars *db, const struct linked_prefix *prefix, uint32_t value,
                           struct pacars_walk *walk, struct vfdb_work *work)
{
    const struct bucket *home = prefix ? prefix->home : NULL;
    for (; prefix; prefix = prefix->parent)
        if (prefix->high >= value)
            read_rules(db, prefix->rule, walk, work);
    for (uint32_t i = 0; home && i < home->covers; i++)
        if (home->cover[i]->high >= value)
            read_rules(db, home->cover[i]->rule, walk, work);
}

/* The place of a value in the woven keys of a square, from the hint of the square above; the hint of the
 * square below goes into the walk. */
VFDB_BODY const uint32_t *read_woven(const struct pacars *db, const struct woven *woven, uint32_t side,
                                     uint32_t level, struct pacars_walk *walk, uint32_t *keys)
{
    uint32_t value = walk->at[side], apart = record(db);
    uint32_t hint = walk->known[side] ? walk->hint[side] : woven->count / 2;
    if (hint + SAMPLE <= woven->count) {
        /* Where nothing has changed the place is one of the next four: counted, since a branch could
         * not be predicted. */
        const uint32_t *key = woven->record + (size_t)hint * apart;
        hint += (key[0] <= value) + (key[apart] <= value) + (key[2 * apart] <= value) +
                (key[3 * apart] <= value);
        if (keys)
            *keys += SAMPLE;
    }
    uint32_t at = place_from(woven->record, apart, woven->count, value, hint, keys);
    const uint32_t *record = at ? woven->record + (size_t)(at - 1) * apart : NULL;
    uint64_t differ = at ? record[0] ^ value : UINT32_MAX;
    bool same_slot = !(differ << (level + 1) * db->stride >> 32);
    walk->hint[side] = same_slot ? record[2 + slot_of(db, walk->at[!side], level)] : 0;
    return record;
}

VFDB_BODY void read_list(const struct pacars *db, const struct square *square, uint32_t side, uint32_t level,
                         struct pacars_walk *walk, struct vfdb_work *work)
{
    const struct crossing_list *list = &square->list[side];
    const struct woven *woven = square->woven[side];
    uint32_t value = walk->at[side], *keys = work ? &work->keys : NULL;
    const uint32_t *record = woven ? read_woven(db, woven, side, level, walk, keys) : NULL;
    void *spot = record && db->form != LIST_ARRAY ? spot_of(db, record) : NULL;
    walk->known[side] = woven != NULL;
    if (work)
        work->lists++;
    if (db->form == LIST_ARRAY) {
        uint32_t place = woven
                             ? place_from(list->low, 1, list->count, value, record ? record[1] : 0, keys)
                             : place_in(list->low, list->count, value, keys);
        read_array(db, list, place, value, walk, work);
    } else if (db->form == LIST_SKIP) {
        read_linked(db, spot ? skip_from(spot, value, keys) : skip_last(list, value, keys), value, walk,
                    work);
    } else {
        read_linked(db,
                    spot ? buckets_from(list, spot, record[1], value, keys) : buckets_last(list, value, keys),
                    value, walk, work);
    }
}

static void begin(const struct pacars *db, const uint32_t *header, struct pacars_walk *walk)
{
    uint32_t x = header[0] << (32 - db->bits[0]), y = header[1] << (32 - db->bits[1]);
    bool beyond = (uint64_t)header[0] >> db->bits[0] || (uint64_t)header[1] >> db->bits[1];
    *walk = (struct pacars_walk){.node = beyond ? NULL : db->trie->root,
                                 .header = header,
                                 .key = key_of(db, x, y),
                                 .at = {x, y},
                                 .best = VFDB_NONE};
}

/* At each level three passes over the headers: for their squares, their lists, and the lists' entries. */
VFDB_BODY void go_down(const struct pacars *db, struct pacars_walk *walk, uint32_t count,
                       struct vfdb_work *work, bool counted)
{
    const struct square *square[BLOCK];
    for (uint32_t level = 0, on = count; on; level++) {
        bool last = level == db->trie->levels;
        for (uint32_t i = 0; i < count; i++) {
            square[i] = walk[i].node ? *(struct square **)trie_payload(db->trie, walk[i].node) : NULL;
            __builtin_prefetch(square[i]);
        }
        for (uint32_t i = 0; i < count; i++)
            for (uint32_t side = 0; side < SIDES && square[i]; side++)
                if (square[i]->list[side].count)
                    __builtin_prefetch(square[i]->list[side].low);
        on = 0;
        for (uint32_t i = 0; i < count; i++) {
            struct pacars_walk *w = walk + i;
            if (!w->node)
                continue;
            if (counted)
                work[i].nodes++;
            w->node = last ? NULL : trie_child(db->trie, w->node, trie_digit(db->trie, w->key, level));
            __builtin_prefetch(w->node);
            on += w->node != NULL;
            for (uint32_t side = 0; side < SIDES; side++)
                if (square[i] && (square[i]->list[side].count || square[i]->woven[side]))
                    read_list(db, square[i], side, last ? level - 1 : level, w, counted ? work + i : NULL);
                else
                    w->known[side] = false;
        }
    }
}

VFDB_BODY int search_blocks(const struct pacars *db, const uint32_t *headers, size_t count,
                            uint32_t *answers, struct vfdb_work *work, bool counted)
{
    struct pacars_walk walk[BLOCK];
    for (size_t first = 0; first < count; first += BLOCK) {
        uint32_t some = count - first < BLOCK ? (uint32_t)(count - first) : BLOCK;
        for (uint32_t i = 0; i < some; i++)
            begin(db, headers + (first + i) * db->dims, walk + i);
        go_down(db, walk, some, counted ? work + first : NULL, counted);
        for (uint32_t i = 0; i < some; i++)
            answers[first + i] = walk[i].best;
    }
    return VFDB_OK;
}

static int pacars_search(const void *built, const uint32_t *headers, size_t count, uint32_t *answers)
{
    return search_blocks(built, headers, count, answers, NULL, false);
}

static int pacars_search_counted(const void *built, const uint32_t *headers, size_t count, uint32_t *answers,
                                 struct vfdb_work *work)
{
    return search_blocks(built, headers, count, answers, work, true);
}

static int pacars_walk_down(const void *built, const uint32_t *headers, size_t count, uint32_t *steps)
{
    const struct pacars *db = built;
    for (size_t i = 0; i < count; i += BLOCK) {
        uint64_t key[BLOCK];
        uint32_t some = count - i < BLOCK ? (uint32_t)(count - i) : BLOCK;
        for (uint32_t j = 0; j < some; j++) {
            const uint32_t *header = headers + (i + j) * db->dims;
            key[j] = key_of(db, header[0] << (32 - db->bits[0]), header[1] << (32 - db->bits[1]));
            steps[i + j] = 0;
        }
        trie_walk(db->trie, key, some, steps + i);
    }
    return VFDB_OK;
}

const struct vfdb_ops vfdb_pacars = {
    .name = "pacars",
    .title = "an area-based quadtree with crossing filter sets, and fractional cascading",
    .least_dims = 2,
    .most_dims = VFDB_DIMS,
    .prefix_dims = 2,
    .param = {{"stride", "bits of each key per level: half the compression factor (3 counts as 2)", 2, 1, 4},
              {"form", "of its nodes: 0 plain, 1 bitmaps, 2 bitmaps counted by the CPU's instruction", 0, 0,
               2},
              {"cascade", "0: each list is searched by itself, as the paper measured", 1, 0, 1},
              {"list", "of a square: 0 sorted arrays, 1 skip lists, 2 buckets of about sqrt(n)", 0, 0, 2}},
    .build = pacars_build,
    .insert = pacars_insert,
    .remove = pacars_remove,
    .search = pacars_search,
    .search_counted = pacars_search_counted,
    .walk = pacars_walk_down,
    .free = pacars_free,
};
