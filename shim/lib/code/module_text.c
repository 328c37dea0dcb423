#include "code/module_text.h"

#include <stdbool.h>
#include <string.h>


#define MOST_TEXT (UINT64_C(256) << 20)
#define WORD 64

struct text {
    const struct hami_module_source *source;
    uint64_t at; /* of the next page */
    size_t used, filled;
    char page[4096];
    /* What was read last: a word, or one character in [0]. */
    char word[WORD];
};

/* Up to the end of a page of memory, so that a read fails only at text that is not there. */
static bool fill(struct text *text)
{
    const struct hami_module_source *source = text->source;
    size_t wanted = sizeof(text->page);

    if (source->image)
        wanted -= ((uintptr_t)source->image + text->at) % sizeof(text->page);
    text->used = 0;
    text->filled = text->at < MOST_TEXT ? hami_module_read(source, text->at, text->page, wanted) : 0;
    text->at += text->filled;
    return text->filled > 0;
}

/* 0: the end. */
static char look(struct text *text)
{
    return text->used < text->filled || fill(text) ? text->page[text->used] : 0;
}

static char take(struct text *text)
{
    char c = look(text);

    if (c)
        text->used++;
    return c;
}

static bool is_of_word(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           c == '_' || c == '.' || c == '$' || c == '%';
}

static void skip_line(struct text *text)
{
    for (char c = take(text); c && c != '\n';)
        c = take(text);
}

static void skip_comment(struct text *text)
{
    char before = 0, c;

    take(text); /* the asterisk, which does not end it as well */
    c = take(text);
    while (c && !(before == '*' && c == '/')) {
        before = c;
        c = take(text);
    }
}

static void skip_string(struct text *text)
{
    char c;

    do {
        c = take(text);
        if (c == '\\')
            take(text);
    } while (c && c != '"');
}

/* The next word or character, without comments and strings. False: the end. */
static bool next(struct text *text)
{
    size_t length = 0;
    char c;

    for (;;) {
        c = take(text);
        if (!c)
            return false;
        if (c == '"')
            skip_string(text);
        else if (c == '/' && look(text) == '/')
            skip_line(text);
        else if (c == '/' && look(text) == '*')
            skip_comment(text);
        else if (c != ' ' && c != '\t' && c != '\n' && c != '\r')
            break;
    }
    text->word[length++] = c;
    while (is_of_word(c) && is_of_word(look(text))) {
        c = take(text);
        if (length < WORD - 1)
            text->word[length++] = c;
    }
    text->word[length] = 0;
    return true;
}

static bool is(const struct text *text, const char *word)
{
    return strcmp(text->word, word) == 0;
}

static uint64_t times(uint64_t a, uint64_t b)
{
    uint64_t product;

    return __builtin_mul_overflow(a, b, &product) ? UINT64_MAX : product;
}

/* 123, 0x7b, 0173, 0b1111011, each perhaps with a U. False: not a number. */
static bool read_number(const char *word, uint64_t *value)
{
    unsigned int base = 10;

    if (word[0] == '0' && word[1]) {
        base = word[1] == 'x' || word[1] == 'X' ? 16 : word[1] == 'b' || word[1] == 'B' ? 2 : 8;
        word += base == 8 ? 1 : 2;
    }
    if (!*word)
        return false;
    for (*value = 0; *word && !(*word == 'U' && !word[1]); word++) {
        unsigned int digit = *word >= '0' && *word <= '9'   ? (unsigned int)(*word - '0')
                             : *word >= 'a' && *word <= 'f' ? (unsigned int)(*word - 'a') + 10
                             : *word >= 'A' && *word <= 'F' ? (unsigned int)(*word - 'A') + 10
                                                            : 99;
        if (digit >= base)
            return false;
        *value = times(*value, base);
        *value = *value > UINT64_MAX - digit ? UINT64_MAX : *value + digit;
    }
    return true;
}

/* .b8 and the like, .f16x2, and the opaque ones. 0: no type. */
static uint64_t type_bytes(const char *word)
{
    static const char *const addresses[] = {".texref", ".samplerref", ".surfref"};
    uint64_t bits = 0;
    const char *at = word + 1;

    for (size_t i = 0; i < sizeof(addresses) / sizeof(*addresses); i++)
        if (strcmp(word, addresses[i]) == 0)
            return 8;
    if (strcmp(word, ".tf32") == 0)
        return 4;
    if (word[0] != '.' || !strchr("busfe", *at) || !*at)
        return 0;
    if (*at == 'e') /* .e4m3 and its like: a byte for each of them */
        return strstr(at, "x4") ? 4 : strstr(at, "x2") ? 2 : 1;
    at += strncmp(at, "bf", 2) == 0 ? 2 : 1;
    for (; *at >= '0' && *at <= '9' && bits < 1000; at++)
        bits = bits * 10 + (uint64_t)(*at - '0');
    return bits / 8 * (*at == 'x' && at[1] >= '0' && at[1] <= '9' ? (uint64_t)(at[1] - '0') : 1);
}

/* Behind "[": a number, or a product of some, or nothing. False: it cannot be read. */
static bool read_size(struct text *text, uint64_t *elements, bool *open)
{
    uint64_t value;

    if (!next(text))
        return false;
    if (is(text, "]")) {
        *open = true;
        return true;
    }
    for (;;) {
        if (!read_number(text->word, &value) || !next(text))
            return false;
        *elements = times(*elements, value);
        if (is(text, "]"))
            return true;
        if (!is(text, "*") || !next(text))
            return false;
    }
}

/* The values behind "=", up to what ends them: "," or ";". */
static uint64_t count_values(struct text *text)
{
    uint64_t count = 1, depth = 0;

    while (next(text)) {
        if (is(text, "{") || is(text, "("))
            depth++;
        else if ((is(text, "}") || is(text, ")")) && depth > 0)
            depth--;
        else if (is(text, ";") || (is(text, ",") && depth == 0))
            break;
        else if (is(text, ","))
            count++;
    }
    return count;
}

static void skip_parentheses(struct text *text)
{
    uint64_t depth = 0;

    do {
        if (!next(text))
            return;
        depth += is(text, "(");
        depth -= depth > 0 && is(text, ")");
    } while (depth > 0);
}

/* From its name on: how many elements it has. False: a size cannot be read. */
static bool variable(struct text *text, uint64_t *elements)
{
    uint64_t values;
    bool open = false, more = next(text);

    if (more && is(text, "<")) { /* name<3>: name0, name1 and name2 */
        if (!next(text) || !read_number(text->word, elements) || !next(text))
            return false;
        more = next(text);
    }
    while (more && is(text, "[")) {
        if (!read_size(text, elements, &open))
            return false;
        more = next(text);
    }
    if (more && is(text, "=")) {
        values = count_values(text);
        *elements = open || values > *elements ? values : *elements;
    }
    return true;
}

/* Behind ".global": of all variables up to the ";". */
static uint64_t declaration(struct text *text)
{
    uint64_t element = 0, vector = 1, total = 0;

    while (next(text) && text->word[0] == '.') {
        if (is(text, ".v2") || is(text, ".v4") || is(text, ".v8"))
            vector = (uint64_t)(text->word[2] - '0');
        else if (is(text, ".align"))
            next(text);
        else if (is(text, ".attribute"))
            skip_parentheses(text);
        else if (type_bytes(text->word))
            element = type_bytes(text->word);
    }
    if (element == 0) /* a qualifier of a pointer, or a type that nobody knew */
        return is(text, ";") || is(text, ",") || is(text, ")") ? 0 : UINT64_MAX;
    do {
        uint64_t elements = 1;

        if (!variable(text, &elements))
            return UINT64_MAX;
        total = hami_module_sum(total, times(times(elements, vector), element));
    } while (is(text, ",") && next(text));
    return total;
}

uint64_t hami_module_text(const struct hami_module_source *source, uint64_t *length)
{
    struct text text = {.source = source};
    uint64_t bytes = 0;
    bool foreign = false, pointer = false;

    while (next(&text)) {
        bool found = is(&text, ".global") && !pointer;

        pointer = is(&text, ".ptr");
        if (found) {
            uint64_t declared = declaration(&text);

            bytes = foreign ? bytes : hami_module_sum(bytes, declared);
        }
        foreign = is(&text, ".extern");
    }
    *length = text.at - text.filled + text.used;
    return bytes;
}
