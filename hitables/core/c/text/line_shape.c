/* The shape of iptables-save text: the text without its literals.
 *
 * Idea: lines that differ only in numbers, addresses, quoted text and chain names have one shape, so
 * expensive work is done once per shape.
 * Cost: one pass.
 * Invariant: a literal is a whole word, and a line's first only if it is [PACKETS:BYTES] in the first column;
 * shape and text have equally many lines.  The choice of literals affects speed alone: a word more or less
 * changes how many shapes there are, not the result.
 * Threading: any number of threads may call this.
 */
#include "line_shape.h"

#include <stdbool.h>
#include <string.h>

struct word {
    const char *at;
    size_t size;
};

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\r';
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

/* Whether the word is the option -name. */
static bool is_option(struct word word, char name)
{
    return word.size == 2 && word.at[0] == '-' && word.at[1] == name;
}

/* Names that are no literals behind -j, and the one that was found last: most rules have that of the rule
 * before. */
struct kept {
    const char *names;
    size_t size;
    struct word latest;
};

static bool is_kept(struct word word, struct kept *kept)
{
    if (word.size == kept->latest.size && !memcmp(word.at, kept->latest.at, word.size))
        return true;
    for (const char *name = kept->names; name < kept->names + kept->size; name += strlen(name) + 1)
        if (strlen(name) == word.size && !memcmp(name, word.at, word.size)) {
            kept->latest = word;
            return true;
        }
    return false;
}

/* The word that starts at *at*; blanks inside of quotes belong to it.  *quotes: how many quotes it has. */
static struct word word_at(const char *at, const char *end, unsigned *quotes)
{
    const char *next = at;
    bool open = false;
    *quotes = 0;
    for (; next < end && *next != '\n' && (open || !is_blank(*next)); next++) {
        if (*next == '"') {
            open = !open;
            ++*quotes;
        } else if (*next == '\\' && open && next + 1 < end && next[1] != '\n') {
            next++;
        }
    }
    return (struct word){at, (size_t)(next - at)};
}

/* Whether a letter begins a word that has a digit or a colon, and no = before. */
static bool is_mixed(struct word word)
{
    if (!is_letter(word.at[0]))
        return false;
    for (size_t i = 1; i < word.size && word.at[i] != '='; i++)
        if (is_digit(word.at[i]) || word.at[i] == ':')
            return true;
    return false;
}

/* Where digits that begin at *at* end. */
static const char *digits_end(const char *at, const char *end)
{
    while (at < end && is_digit(*at))
        at++;
    return at;
}

/* Whether the word is [PACKETS:BYTES] in decimal digits. */
static bool is_counters(struct word word)
{
    const char *end = word.at + word.size, *colon, *last;
    if (word.at[0] != '[')
        return false;
    colon = digits_end(word.at + 1, end);
    if (colon == word.at + 1 || colon == end || *colon != ':')
        return false;
    last = digits_end(colon + 1, end);
    return last > colon + 1 && last + 1 == end && *last == ']';
}

static bool is_literal(struct word word, struct word before, unsigned quotes, struct kept *kept)
{
    char first = word.at[0];
    if (quotes)
        return quotes == 2 && first == '"' && word.at[word.size - 1] == '"';
    if (first == '-' || first == '!' || is_option(before, 'p') || is_option(before, 'm'))
        return false;
    if (is_option(before, 'A') || is_option(before, 'g'))
        return true;
    if (is_option(before, 'j'))
        return !is_kept(word, kept);
    return is_digit(first) || is_mixed(word);
}

size_t shape_of(const char *text, size_t size, const char *kept, size_t kept_size, char *shape,
                uint32_t *start, uint32_t *end, size_t *literals)
{
    const char *at = text, *stop = text + size;
    char *out = shape;
    struct word before = {NULL, 0};
    struct kept names = {kept, kept_size, {"", 0}};
    *literals = 0;
    while (at < stop) {
        if (*at == '\n' || is_blank(*at)) {
            if (*at == '\n')
                before = (struct word){NULL, 0};
            *out++ = *at++;
            continue;
        }
        unsigned quotes;
        struct word word = word_at(at, stop, &quotes);
        bool begins = at == text || at[-1] == '\n';
        if (before.at ? is_literal(word, before, quotes, &names) : begins && is_counters(word)) {
            start[*literals] = (uint32_t)(at - text);
            end[*literals] = (uint32_t)(at - text + (ptrdiff_t)word.size);
            ++*literals;
            *out++ = '\0';
        } else {
            memcpy(out, at, word.size);
            out += word.size;
        }
        before = word;
        at += word.size;
    }
    return (size_t)(out - shape);
}
