/* Answers of a split product written down: where there are few lists and kinds, for each pair of them.
 *
 * Idea: a firewall has some hundred rules that are wide in both addresses, which make few cells, but long
 * lists; a table of the first match by list and kind is then small, and takes one read.
 * Cost: a step per list, rule of it and kind; four bytes per list and kind.
 * Bounds: 2^19 pairs of a list and a kind; beyond, there is no such table, and lists are searched.
 * Invariant: an answer is the least number among the rules of the list, and of those that leave both
 * addresses open.
 * Threading: none; all belongs to one build.
 */
#include "split_product_internal.h"

#include <string.h>

enum { MOST_ANSWERS = 1 << 19 };

static void follow_list(const struct split_product *db, uint32_t reference, uint32_t *answer)
{
    const uint32_t *at = db->pool + (reference >> 6);
    uint32_t rules = reference & 63;
    if (rules == SPLIT_LONG)
        rules = *at++;
    const uint16_t *service = (const uint16_t *)at;
    const uint32_t *number = at + (rules + 1) / 2;
    memcpy(answer, db->open, db->kinds * sizeof *answer);
    for (uint32_t kind = 0; kind < db->kinds; kind++) {
        const uint32_t *row = db->row + (size_t)kind * SPLIT_ROW;
        uint32_t i = 0;
        while (i < rules && !(row[service[i] / 32] >> service[i] % 32 & 1))
            i++;
        if (i < rules && number[i] < answer[kind])
            answer[kind] = number[i];
    }
}

void answers_write(struct split_product_builder *b)
{
    struct split_product *db = b->db;
    const struct product_table *product = &db->product[0];
    size_t pieces = b->memory.scope.pieces;
    uint32_t most = MOST_ANSWERS / db->kinds, lists = 0;
    if (b->memory.status || db->checks || db->products)
        return;
    /* By place in the pool: list + 1, or 0. */
    uint32_t *number = borrow(&b->memory, db->used * sizeof *number);
    for (size_t i = 0; i < product->cells && !b->memory.status && lists <= most; i++)
        if (!number[product->list[i] >> 6])
            number[product->list[i] >> 6] = ++lists;
    if (!b->memory.status && lists <= most) {
        db->answers = (size_t)lists * db->kinds;
        db->answer = budget_take(b->memory.scope.budget, db->answers * sizeof *db->answer);
        db->cell = budget_take(b->memory.scope.budget, product->cells * sizeof *db->cell);
        if (!db->answer || !db->cell)
            b->memory.status = VFDB_NO_MEMORY;
        for (size_t i = 0, written = 0; i < product->cells && !b->memory.status; i++) {
            uint32_t list = number[product->list[i] >> 6] - 1;
            db->cell[i] = list * db->kinds;
            if (list == written) { /* lists are numbered as they are met */
                follow_list(db, product->list[i], db->answer + db->cell[i]);
                written++;
            }
        }
    }
    give_back(&b->memory, pieces);
}
