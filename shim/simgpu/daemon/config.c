/* The cards: a file with one line each, or so many of the same kind.
 *
 *   gpu name="NVIDIA H100 80GB HBM3" memory=81559 sms=132 cc=9.0 uuid=GPU-... pci=00000000:1B:00.0
 *       mig=0 nvlink=1,2 numa=0
 *
 * (on one line; memory in MiB). Everything has a default; of sms and cc it depends on the name.
 * Cards are listed in PCI order. */
#include "daemon.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define DEFAULT_NAME "NVIDIA H100 80GB HBM3"
#define DEFAULT_MEMORY_MIB 81559
#define DEFAULT_SMS 132

/* What a card has whose name has this in it, unless its line says otherwise. */
static const struct {
    const char *name;
    int32_t sms, major, minor;
} known[] = {
    {"A100", 108, 8, 0}, {"V100", 80, 7, 0}, {"T4", 40, 7, 5}, {"L4", 58, 8, 9},
};

static struct sim_board_unit *new_card(struct daemon *daemon)
{
    int card = daemon->board->cards;
    struct sim_board_unit *unit = &daemon->board->units[card];

    if (card >= SIM_MAX_CARDS)
        return NULL;
    memset(unit, 0, sizeof(*unit));
    unit->card = card;
    unit->gpu_instance = unit->compute_instance = -1;
    snprintf(unit->name, sizeof(unit->name), "%s", DEFAULT_NAME);
    snprintf(unit->uuid, sizeof(unit->uuid), "GPU-%08x-5349-4d00-a000-%012x",
             0x48414d49u + (unsigned)card * 0x01010101u, (unsigned)card + 1);
    snprintf(unit->pci, sizeof(unit->pci), "00000000:%02X:00.0", 0x0b + (unsigned)card * 8);
    unit->memory = UINT64_C(1048576) * DEFAULT_MEMORY_MIB;
    unit->numa = 0;
    for (int i = 0; i < SIM_MAX_LINKS; i++)
        unit->links[i] = SIM_LINK_NONE;
    return unit;
}

/* What the line did not say. */
static void complete(struct sim_board_unit *unit)
{
    int32_t sms = DEFAULT_SMS, major = 9, minor = 0;

    for (size_t i = 0; i < sizeof(known) / sizeof(*known); i++)
        if (strstr(unit->name, known[i].name)) {
            sms = known[i].sms;
            major = known[i].major;
            minor = known[i].minor;
        }
    if (unit->sms == 0)
        unit->sms = sms;
    if (unit->major == 0) {
        unit->major = major;
        unit->minor = minor;
    }
}

static bool add(struct daemon *daemon, struct sim_board_unit *unit)
{
    complete(unit);
    for (int i = 0; i < daemon->board->cards; i++) {
        const struct sim_board_unit *other = &daemon->board->units[i];

        if (strcmp(other->pci, unit->pci) >= 0 || strcmp(other->uuid, unit->uuid) == 0)
            return false;
    }
    if (!board_uuid(unit->uuid, unit->bytes))
        return false;
    unit->kind = SIM_UNIT_CARD;
    daemon->board->cards++;
    return true;
}

static bool number(const char *text, long low, long high, long *value)
{
    char *end;

    errno = 0;
    *value = strtol(text, &end, 10);
    return end != text && *end == '\0' && errno == 0 && *value >= low && *value <= high;
}

/* Cards at the other end, or "switch", separated by commas; "1x4" is four links to card 1. */
static bool read_links(struct sim_board_unit *unit, char *text)
{
    char *word;
    int count = 0;

    while ((word = strsep(&text, ",")) != NULL) {
        char *times = strchr(word, 'x');
        long far = SIM_LINK_SWITCH, many = 1;

        if (times) {
            *times = '\0';
            if (!number(times + 1, 1, SIM_MAX_LINKS, &many))
                return false;
        }
        if (strcmp(word, "switch") != 0 && !number(word, 0, SIM_MAX_CARDS - 1, &far))
            return false;
        for (; many > 0; many--) {
            if (count == SIM_MAX_LINKS)
                return false;
            unit->links[count++] = (int32_t)far;
        }
    }
    return true;
}

static bool text(char *into, size_t size, const char *value)
{
    return *value && (size_t)snprintf(into, size, "%s", value) < size;
}

static bool set(struct sim_board_unit *unit, const char *key, char *value)
{
    long found = 0;

    if (strcmp(key, "name") == 0)
        return text(unit->name, sizeof(unit->name), value);
    if (strcmp(key, "uuid") == 0)
        return text(unit->uuid, sizeof(unit->uuid), value);
    if (strcmp(key, "pci") == 0)
        return text(unit->pci, sizeof(unit->pci), value);
    if (strcmp(key, "nvlink") == 0)
        return read_links(unit, value);
    if (strcmp(key, "cc") == 0)
        return sscanf(value, "%d.%d", &unit->major, &unit->minor) == 2;
    if (strcmp(key, "memory") == 0) {
        bool fits = number(value, 1, 16l << 20, &found);

        unit->memory = (uint64_t)found << 20;
        return fits;
    }
    if (strcmp(key, "sms") == 0)
        return number(value, 1, 10000, &found) && (unit->sms = (int32_t)found) != 0;
    if (strcmp(key, "numa") == 0) {
        bool fits = number(value, -1, 1024, &found);

        unit->numa = (int32_t)found;
        return fits;
    }
    if (strcmp(key, "mig") == 0) {
        bool fits = number(value, 0, 1, &found);

        unit->mig = (uint32_t)found;
        return fits;
    }
    return false;
}

/* The next word of a line, quotes taken off; NULL at its end. */
static char *next_word(char **rest)
{
    char *word = *rest + strspn(*rest, " \t"), *from = word, *to = word;
    bool quoted = false;

    if (*word == '\0' || *word == '#')
        return NULL;
    for (; *from && (quoted || (*from != ' ' && *from != '\t')); from++) {
        if (*from == '"')
            quoted = !quoted;
        else
            *to++ = *from;
    }
    *rest = *from ? from + 1 : from;
    *to = '\0';
    return word;
}

static bool read_line(struct daemon *daemon, char *line)
{
    struct sim_board_unit *unit;
    char *word, *value;

    line[strcspn(line, "\r\n")] = '\0';
    word = next_word(&line);
    if (!word)
        return true;
    unit = strcmp(word, "gpu") == 0 ? new_card(daemon) : NULL;
    if (!unit)
        return false;
    while ((word = next_word(&line)) != NULL) {
        value = strchr(word, '=');
        if (!value)
            return false;
        *value++ = '\0';
        if (!set(unit, word, value))
            return false;
    }
    return add(daemon, unit);
}

static bool links_end(const struct daemon *daemon)
{
    const struct sim_board *board = daemon->board;

    for (int card = 0; card < board->cards; card++)
        for (int i = 0; i < SIM_MAX_LINKS; i++)
            if (board->units[card].links[i] >= board->cards || board->units[card].links[i] == card)
                return false;
    return true;
}

bool config_read(struct daemon *daemon, const char *file)
{
    char line[4096];
    FILE *from = fopen(file, "re");
    int count = 0;
    bool good = from != NULL;

    if (!from)
        daemon_say(NULL, "%s: %s", file, strerror(errno));
    while (good && fgets(line, sizeof(line), from)) {
        count++;
        good = read_line(daemon, line);
        if (!good)
            daemon_say(NULL,
                       "%s:%d: not a card: gpu [name= memory= sms= cc= uuid= pci= mig= nvlink= "
                       "numa=], at most %d, in PCI order, each uuid once",
                       file, count, SIM_MAX_CARDS);
    }
    if (from)
        fclose(from);
    if (!good)
        return false;
    if (daemon->board->cards == 0)
        daemon_say(NULL, "%s: no card in it", file);
    else if (!links_end(daemon))
        daemon_say(NULL, "%s: an nvlink leads to no other card of the file", file);
    return daemon->board->cards > 0 && links_end(daemon);
}

bool config_default(struct daemon *daemon, int cards)
{
    for (int i = 0; i < cards; i++) {
        struct sim_board_unit *unit = new_card(daemon);

        if (!unit || !add(daemon, unit))
            return false;
    }
    return true;
}
