/* PACARS: the area-based quadtree (Buddhikot, Suri and Waldvogel, 1999), with fractional cascading.
 *
 * Idea: two prefixes are a rectangle whose longer side is a whole side of some square of the quadtree,
 * the smallest that holds it.  There it stands in the square's crossing filter set: two lists of
 * prefixes of one dimension, those that cross from left to right and those that cross from top to
 * bottom.  A header meets the squares on its way down, and in each list looks for its longest prefix;
 * the shorter ones that hold it follow from there.
 * Cost: a search W / stride squares and in each O(1) steps with cascading (below), O(log n) without,
 * and the prefixes that hold the header; an update moves the entries of one list behind its place, n of
 * them at worst, for each of up to 4^(stride - 1) squares that the rectangle becomes.  (The paper cuts
 * lists into sqrt n buckets.  Here entries of 20 bytes move side by side: 3 us where one list has 10,000,
 * 26 us where it has 100,000, and real lists are short.)
 * Invariant: a list stands by rising start, at equal starts the larger first; a prefix's parent is the
 * smallest other prefix of the list that holds it.
 * Threading: searches change nothing.
 *
 * Fractional cascading, which the paper asks for and leaves out: each square weaves its list with
 * every fourth key of its children's woven lists.  A woven key knows its place in the list and in each
 * child's woven list, so a place found in one square is a place in the next, give or take four.  Here
 * these places are hints, from which the search gallops: updates leave them as they are, and a square
 * weaves anew when a quarter of its list has changed.  So an update stays cheap, and a search is
 * right whatever the hints say.  Fewer than WORTH keys are not woven: halving them costs less than the
 * cache lines of their hints.
 *
 * More than two dimensions: the rules of a prefix stand by priority, and each is compared as a whole,
 * as long as it can be the best.
 */
#include <stdlib.h>
#include <string.h>

#include "slab.h"
#include "sort.h"
#include "trie.h"
#include "vfdb.h"

/* WORTH: among 8, 16 and 64 the fastest on random and routed filters (`make papers-layer4`). */
enum { WORTH = 64, SAMPLE = 4, LEAST_ROOM = 2 };
/* Headers that go down side by side, so that their cache misses overlap. */
enum { BLOCK = 16, LEVELS = 33 };
/* A list along each of the two dimensions; its prefixes span the square in the other. */
enum { SIDES = 2 };

struct pacars_rule {
    struct pacars_rule *next; /* by rising priority */
    uint32_t priority, number;
    uint32_t box[];
};

/* A prefix of a list; what a search needs of it lies beside its neighbours. */
struct prefix {
    uint32_t high, parent; /* parent: its place in the list, 0: none, 1: the first */
    struct pacars_rule *rule;     /* NULL only while it is put in */
};

/* One piece of memory: [room] starts, then [room] prefixes. */
struct crossing_list {
    uint32_t count, room;
    uint32_t *low;
};

/* A list and its children's, woven: records of a key, its place in the list, and its place in each child's
 * woven list.  Place p: so many keys are at most the header's. */
struct woven {
    uint32_t count;
    uint32_t record[];
};

struct square {
    struct crossing_list list[SIDES];
    struct woven *woven[SIDES];
    uint32_t changes;
};

struct pacars {
    struct budget *budget;
    struct trie *trie; /* over both keys, stride bits of the one, stride bits of the other, and so on */
    struct slab *rules;
    uint32_t dims, stride, bits[SIDES];
    bool cascade;
};

/* -- lists ------------------------------------------------------------------------------------ */

static struct prefix *prefixes(const struct crossing_list *list)
{
    return (struct prefix *)(void *)(list->low + list->room);
}

/* room is even. */
static size_t list_bytes(uint32_t room)
{
    return room * (sizeof(uint32_t) + sizeof(struct prefix));
}

/* How many keys, *apart* words from one another, are at most *value*, looked for from *hint* on. */
static inline uint32_t place_from(const uint32_t *key, uint32_t apart, uint32_t count, uint32_t value, uint32_t hint)
{
    uint32_t low, high, step = 1;
    hint = hint < count ? hint : count;
    if (hint < count && key[(size_t)hint * apart] <= value) {
        low = hint + 1;
        while (low + step <= count && key[(size_t)(low + step - 1) * apart] <= value) {
            low += step;
            step *= 2;
        }
        high = low + step - 1 < count ? low + step - 1 : count;
    } else {
        high = hint;
        while (high >= step && key[(size_t)(high - step) * apart] > value) {
            high -= step;
            step *= 2;
        }
        low = high >= step ? high - step + 1 : 0;
    }
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (key[(size_t)middle * apart] <= value)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static uint32_t place_in(const uint32_t *key, uint32_t count, uint32_t value)
{
    const uint32_t *base = key;
    if (!count)
        return 0;
    for (uint32_t left = count; left > 1; left -= left / 2)
        base += base[left / 2] <= value ? left / 2 : 0;
    return (uint32_t)(base - key) + (*base <= value);
}

static bool resize(struct budget *budget, struct crossing_list *list, uint32_t room)
{
    struct crossing_list other = {list->count, room, room ? budget_take(budget, list_bytes(room)) : NULL};
    if (room && !other.low)
        return false;
    if (list->count) {
        memcpy(other.low, list->low, list->count * sizeof *list->low);
        memcpy(prefixes(&other), prefixes(list), list->count * sizeof(struct prefix));
    }
    budget_give(budget, list->low, list_bytes(list->room));
    *list = other;
    return true;
}

/* The place of the smallest prefix, from *place* back, that holds low to high; 0: none. */
static inline uint32_t holder(const struct crossing_list *list, uint32_t place, uint32_t low, uint32_t high)
{
    while (place && (list->low[place - 1] > low || prefixes(list)[place - 1].high < high))
        place = prefixes(list)[place - 1].parent;
    return place;
}

/* The place of that very prefix, 0: it is not there. */
static uint32_t place_of(const struct crossing_list *list, uint32_t low, uint32_t high)
{
    uint32_t place = holder(list, place_in(list->low, list->count, low), low, high);
    return place && list->low[place - 1] == low && prefixes(list)[place - 1].high == high ? place : 0;
}

/* The prefix of the list, or a new one; NULL when memory is exhausted. */
static struct prefix *have_prefix(struct budget *budget, struct crossing_list *list, uint32_t low, uint32_t high)
{
    uint32_t place = place_in(list->low, list->count, low), parent = holder(list, place, low, high);
    if (parent && list->low[parent - 1] == low && prefixes(list)[parent - 1].high == high)
        return prefixes(list) + parent - 1;
    if (list->count == list->room && !resize(budget, list, list->room ? 2 * list->room : LEAST_ROOM))
        return NULL;
    struct prefix *prefix = prefixes(list);
    while (place && list->low[place - 1] == low && prefix[place - 1].high < high)
        place--;
    memmove(list->low + place + 1, list->low + place, (list->count - place) * sizeof *list->low);
    memmove(prefix + place + 1, prefix + place, (list->count - place) * sizeof *prefix);
    list->low[place] = low;
    prefix[place] = (struct prefix){high, parent, NULL};
    list->count++;
    for (uint32_t i = place + 1; i < list->count; i++) {
        if (prefix[i].parent > place)
            prefix[i].parent++;
        else if (prefix[i].parent == parent && list->low[i] <= high)
            prefix[i].parent = place + 1;
    }
    return prefix + place;
}

static void drop_prefix(struct budget *budget, struct crossing_list *list, uint32_t place)
{
    struct prefix *prefix = prefixes(list);
    uint32_t parent = prefix[place - 1].parent;
    list->count--;
    memmove(list->low + place - 1, list->low + place, (list->count + 1 - place) * sizeof *list->low);
    memmove(prefix + place - 1, prefix + place, (list->count + 1 - place) * sizeof *prefix);
    for (uint32_t i = place - 1; i < list->count; i++) {
        if (prefix[i].parent > place)
            prefix[i].parent--;
        else if (prefix[i].parent == place)
            prefix[i].parent = parent;
    }
    if (!list->count)
        resize(budget, list, 0);
    else if (list->room > LEAST_ROOM && list->count <= list->room / 4)
        resize(budget, list, list->room / 2);
}

/* -- squares ---------------------------------------------------------------------------------- */

/* Two keys of 32 bits, *stride* bits of the one, *stride* of the other, and so on. */
static uint64_t spread(uint32_t key, uint32_t stride)
{
    static const uint64_t mask[] = {0x5555555555555555, 0x3333333333333333, 0x0F0F0F0F0F0F0F0F,
                                    0x00FF00FF00FF00FF, 0x0000FFFF0000FFFF};
    uint64_t spread = key;
    for (uint32_t step = 5; step-- > 0 && 1u << step >= stride;)
        spread = (spread | spread << (1u << step)) & mask[step];
    return spread;
}

static uint64_t key_of(const struct pacars *db, uint32_t x, uint32_t y)
{
    return spread(x, db->stride) << db->stride | spread(y, db->stride);
}

/* The child that holds slot *along* of the list's dimension and slot *across* of the other. */
static uint32_t digit_of(const struct pacars *db, uint32_t side, uint32_t along, uint32_t across)
{
    return side ? across << db->stride | along : along << db->stride | across;
}

static uint32_t slot_of(const struct pacars *db, uint32_t key, uint32_t level)
{
    return key << level * db->stride >> (32 - db->stride);
}

/* The square of a child, or NULL. */
static struct square *square_below(const struct pacars *db, const void *node, uint32_t digit)
{
    const void *child = trie_child(db->trie, node, digit);
    return child ? *(struct square **)trie_payload(db->trie, child) : NULL;
}

/* Words of a record. */
static uint32_t record(const struct pacars *db)
{
    return 2 + (1u << db->stride);
}

static uint32_t woven_count(const struct square *square, uint32_t side)
{
    return square && square->woven[side] ? square->woven[side]->count : 0;
}

static size_t woven_bytes(const struct pacars *db, uint32_t count)
{
    return sizeof(struct woven) + (size_t)count * record(db) * sizeof(uint32_t);
}

static void unweave(const struct pacars *db, struct square *square, uint32_t side)
{
    budget_give(db->budget, square->woven[side], woven_bytes(db, woven_count(square, side)));
    square->woven[side] = NULL;
}

static uint32_t sampled(const struct square *square, uint32_t side)
{
    return woven_count(square, side) / SAMPLE;
}

/* Fills the places of woven keys in the lists of the children at that level. */
static void point_below(const struct pacars *db, const void *node, uint32_t level, uint32_t side, struct woven *woven)
{
    uint32_t slots = 1u << db->stride, apart = record(db);
    for (uint32_t along = 0, first = 0, end; along < slots; along++, first = end) {
        for (end = first; end < woven->count && slot_of(db, woven->record[end * apart], level) == along; end++)
            ;
        for (uint32_t across = 0; across < slots && end > first; across++) {
            const struct square *child = square_below(db, node, digit_of(db, side, along, across));
            uint32_t keys = woven_count(child, side);
            for (uint32_t i = first, at = 0; i < end; i++) {
                while (at < keys && child->woven[side]->record[at * apart] <= woven->record[i * apart])
                    at++;
                woven->record[i * apart + 2 + across] = at;
            }
        }
    }
}

/* Weaves the list of one side anew, or leaves it unwoven: little worth, or no memory. */
static void weave_side(const struct pacars *db, const void *node, uint32_t level, uint32_t side, struct square *square)
{
    const struct crossing_list *list = &square->list[side];
    uint32_t slots = 1u << db->stride, apart = record(db), count = list->count, kept = 0;
    unweave(db, square, side);
    for (uint32_t digit = 0; digit < slots * slots; digit++)
        count += sampled(square_below(db, node, digit), side);
    if (count < WORTH)
        return;
    uint32_t *key = budget_take(db->budget, count * sizeof *key);
    if (!key)
        return;
    if (list->count)
        memcpy(key, list->low, list->count * sizeof *key);
    for (uint32_t digit = 0, at = list->count; digit < slots * slots; digit++) {
        const struct square *child = square_below(db, node, digit);
        for (uint32_t i = 0; i < sampled(child, side); i++)
            key[at++] = child->woven[side]->record[(i * SAMPLE + SAMPLE - 1) * apart];
    }
    qsort(key, count, sizeof *key, compare_u32);
    for (uint32_t i = 0; i < count; i++)
        if (!i || key[i] != key[i - 1])
            key[kept++] = key[i];
    struct woven *woven = budget_take(db->budget, woven_bytes(db, kept));
    if (woven) {
        woven->count = kept;
        for (uint32_t i = 0, at = 0; i < kept; i++) {
            while (at < list->count && list->low[at] <= key[i])
                at++;
            woven->record[i * apart] = key[i];
            woven->record[i * apart + 1] = at;
        }
        point_below(db, node, level, side, woven);
        square->woven[side] = woven;
    }
    budget_give(db->budget, key, count * sizeof *key);
}

static bool is_idle(const struct square *square)
{
    return !(square->list[0].count | square->list[1].count) && !square->woven[0] && !square->woven[1];
}

static void drop_square(const struct pacars *db, struct square **at)
{
    for (uint32_t side = 0; side < SIDES; side++)
        resize(db->budget, &(*at)->list[side], 0);
    budget_give(db->budget, *at, sizeof **at);
    *at = NULL;
}

/* Weaves a square anew, and makes or drops it if need be. */
static void weave(const struct pacars *db, void *node, uint32_t level)
{
    struct square **at = trie_payload(db->trie, node), *square = *at;
    if (!square) {
        uint32_t samples[SIDES] = {0};
        for (uint32_t digit = 0; digit < 1u << 2 * db->stride; digit++)
            for (uint32_t side = 0; side < SIDES; side++)
                samples[side] += sampled(square_below(db, node, digit), side);
        if (samples[0] < WORTH && samples[1] < WORTH)
            return;
        square = *at = budget_take(db->budget, sizeof *square);
        if (!square)
            return;
    }
    square->changes = 0;
    for (uint32_t side = 0; side < SIDES; side++)
        weave_side(db, node, level, side, square);
    if (is_idle(square))
        drop_square(db, at);
}

static void weave_all(const struct pacars *db, void *node, uint32_t level)
{
    for (uint32_t digit = 0; digit < 1u << 2 * db->stride; digit++) {
        void *child = trie_child(db->trie, node, digit);
        if (child)
            weave_all(db, child, level + 1);
    }
    weave(db, node, level);
}

static uint32_t woven_keys(const struct square *square)
{
    return woven_count(square, 0) + woven_count(square, 1);
}

/* The list at that level of the way of *key* has changed.  A square weaves anew when a quarter of its keys
 * have changed; of the changes below, one in SAMPLE counts.  It does so at once where it may have to go: its
 * own list is empty, or what was woven below is gone. */
static void changed(const struct pacars *db, uint64_t key, uint32_t level)
{
    void *node[LEVELS];
    uint32_t changes = 1;
    bool gone = false;
    node[0] = db->trie->root;
    for (uint32_t l = 0; l < level; l++)
        node[l + 1] = trie_child(db->trie, node[l], trie_digit(db->trie, key, l));
    for (uint32_t l = level + 1; l-- > 0; changes /= SAMPLE) {
        struct square **at = trie_payload(db->trie, node[l]);
        uint32_t before = woven_keys(*at);
        if (*at && !gone && (l < level || (*at)->list[0].count || (*at)->list[1].count)) {
            changes = (*at)->changes += changes;
            if (!db->cascade || changes < WORTH || changes < before / 4)
                return;
        }
        weave(db, node[l], l);
        gone = !woven_keys(*at);
        if (gone && !before)
            return;
    }
}

/* -- rectangles ------------------------------------------------------------------------------- */

/* The rectangle of a rule as the squares of one level that it becomes. */
struct rectangle_pieces {
    uint32_t low[SIDES], length[SIDES], count[SIDES], step[SIDES];
    uint32_t level, side; /* side: the list that it stands in */
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

static uint64_t piece(const struct pacars *db, const struct rectangle_pieces *p, uint32_t number, uint32_t *low, uint32_t *high)
{
    uint32_t at[SIDES] = {p->low[0] + number % p->count[0] * p->step[0],
                          p->low[1] + number / p->count[0] * p->step[1]};
    *low = at[p->side];
    *high = at[p->side] | ones_behind(p->length[p->side]);
    return key_of(db, at[0], at[1]);
}

static bool put_piece(struct pacars *db, const struct rectangle_pieces *p, uint32_t number, const uint32_t *box,
                      uint32_t priority)
{
    uint32_t low, high, kept;
    uint64_t key = piece(db, p, number, &low, &high);
    struct square **at = trie_reach(db->trie, key, p->level, true);
    if (!at)
        return false;
    if (!*at)
        *at = budget_take(db->budget, sizeof **at);
    struct pacars_rule *rule = *at ? slab_take(db->rules, &kept) : NULL;
    struct prefix *prefix = rule ? have_prefix(db->budget, &(*at)->list[p->side], low, high) : NULL;
    if (!prefix) {
        if (rule)
            slab_give(db->rules, kept);
        if (*at && is_idle(*at))
            drop_square(db, at);
        trie_prune(db->trie, key, p->level);
        return false;
    }
    struct pacars_rule **next = &prefix->rule;
    while (*next && (*next)->priority < priority)
        next = &(*next)->next;
    *rule = (struct pacars_rule){*next, priority, kept};
    memcpy(rule->box, box, 2 * db->dims * sizeof *box);
    *next = rule;
    return true;
}

static bool drop_piece(struct pacars *db, const struct rectangle_pieces *p, uint32_t number, const uint32_t *box,
                       uint32_t priority)
{
    uint32_t low, high;
    uint64_t key = piece(db, p, number, &low, &high);
    struct square **at = trie_reach(db->trie, key, p->level, false);
    struct crossing_list *list = at && *at ? &(*at)->list[p->side] : NULL;
    uint32_t place = list ? place_of(list, low, high) : 0;
    if (!place)
        return false;
    struct prefix *prefix = prefixes(list) + place - 1;
    struct pacars_rule **next = &prefix->rule;
    while (*next && ((*next)->priority != priority || memcmp((*next)->box, box, 2 * db->dims * sizeof *box)))
        next = &(*next)->next;
    if (!*next)
        return false;
    uint32_t kept = (*next)->number;
    *next = (*next)->next;
    slab_give(db->rules, kept);
    if (!prefix->rule) {
        drop_prefix(db->budget, list, place);
        changed(db, key, p->level);
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
        budget_give(db->budget, square->list[side].low, list_bytes(square->list[side].room));
        unweave(db, square, side);
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
    db->bits[0] = rules->bits[0];
    db->bits[1] = rules->bits[1];
    size_t size = sizeof(struct pacars_rule) + 2 * db->dims * sizeof(uint32_t);
    db->rules = slab_new(budget, (size + 7) / 8 * 8);
    db->trie = trie_new(budget, 64, 2 * db->stride, (enum trie_form)plan->value[1], sizeof(struct square *));
    int status = db->rules && db->trie ? VFDB_OK : VFDB_NO_MEMORY;
    for (uint32_t i = 0; i < rules->count && status == VFDB_OK; i++)
        status = put(db, rules->box + (size_t)i * 2 * db->dims, rules->priority[i]);
    if (status) {
        pacars_free(db);
        return status;
    }
    if (db->cascade)
        weave_all(db, db->trie->root, 0);
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
        changed(db, key, p.level);
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

/* A header on its way: its node, and where in the woven lists of that node to look, if known. */
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

/* The best of the rules of the prefixes from that place on that hold the header. */
static void read_rules(const struct pacars *db, const struct crossing_list *list, uint32_t place, struct pacars_walk *walk)
{
    for (; place; place = prefixes(list)[place - 1].parent)
        for (const struct pacars_rule *rule = prefixes(list)[place - 1].rule; rule && rule->priority < walk->best;
             rule = rule->next)
            if (matches(rule->box, walk->header, db->dims)) {
                walk->best = rule->priority;
                break;
            }
}

static void read_list(const struct pacars *db, const struct square *square, uint32_t side, uint32_t level,
                      struct pacars_walk *walk)
{
    const struct crossing_list *list = &square->list[side];
    const struct woven *woven = square->woven[side];
    uint32_t value = walk->at[side], place, apart = record(db);
    if (woven) {
        uint32_t hint = walk->known[side] ? walk->hint[side] : woven->count / 2;
        if (hint + SAMPLE <= woven->count) {
            /* Where nothing has changed it is one of the next four: counted, as no guess would be right. */
            const uint32_t *key = woven->record + (size_t)hint * apart;
            hint += (key[0] <= value) + (key[apart] <= value) + (key[2 * apart] <= value) + (key[3 * apart] <= value);
        }
        uint32_t at = place_from(woven->record, apart, woven->count, value, hint);
        const uint32_t *record = at ? woven->record + (size_t)(at - 1) * apart : NULL;
        place = place_from(list->low, 1, list->count, value, at ? record[1] : 0);
        uint64_t differ = at ? record[0] ^ value : UINT32_MAX;
        bool same_slot = !(differ << (level + 1) * db->stride >> 32);
        walk->hint[side] = same_slot ? record[2 + slot_of(db, walk->at[!side], level)] : 0;
        walk->known[side] = true;
    } else {
        place = place_in(list->low, list->count, value);
        walk->known[side] = false;
    }
    read_rules(db, list, holder(list, place, value, value), walk);
}

static void begin(const struct pacars *db, const uint32_t *header, struct pacars_walk *walk)
{
    uint32_t x = header[0] << (32 - db->bits[0]), y = header[1] << (32 - db->bits[1]);
    bool beyond = (uint64_t)header[0] >> db->bits[0] || (uint64_t)header[1] >> db->bits[1];
    *walk = (struct pacars_walk){.node = beyond ? NULL : db->trie->root, .header = header, .key = key_of(db, x, y),
                          .at = {x, y}, .best = VFDB_NONE};
}

/* Three times over the headers: for their squares, for their lists, for what is in these. */
static void go_down(const struct pacars *db, struct pacars_walk *walk, uint32_t count)
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
            w->node = last ? NULL : trie_child(db->trie, w->node, trie_digit(db->trie, w->key, level));
            __builtin_prefetch(w->node);
            on += w->node != NULL;
            for (uint32_t side = 0; side < SIDES; side++)
                if (square[i] && (square[i]->list[side].count || square[i]->woven[side]))
                    read_list(db, square[i], side, last ? level - 1 : level, w);
                else
                    w->known[side] = false;
        }
    }
}

static int pacars_search(const void *built, const uint32_t *headers, size_t count, uint32_t *found)
{
    const struct pacars *db = built;
    struct pacars_walk walk[BLOCK];
    for (size_t first = 0; first < count; first += BLOCK) {
        uint32_t some = count - first < BLOCK ? (uint32_t)(count - first) : BLOCK;
        for (uint32_t i = 0; i < some; i++)
            begin(db, headers + (first + i) * db->dims, walk + i);
        go_down(db, walk, some);
        for (uint32_t i = 0; i < some; i++)
            found[first + i] = walk[i].best;
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
              {"form", "of its nodes: 0 plain, 1 bitmaps, 2 bitmaps counted by the CPU's instruction", 0, 0, 2},
              {"cascade", "0: each list is searched from its middle, as the paper measured", 1, 0, 1}},
    .build = pacars_build,
    .insert = pacars_insert,
    .remove = pacars_remove,
    .search = pacars_search,
    .free = pacars_free,
};
