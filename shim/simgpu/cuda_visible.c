/* Which devices a process sees, and in which order: CUDA_VISIBLE_DEVICES and CUDA_DEVICE_ORDER. */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "connection.h"

static struct sim_device devices[SIM_MAX_DEVICES];
static int device_count;

struct candidate {
    int unit;
    struct sim_board_unit shown;
};

static int faster_first(const void *one, const void *other)
{
    const struct candidate *a = one, *b = other;
    long speed_a = (long)a->shown.major * a->shown.sms;
    long speed_b = (long)b->shown.major * b->shown.sms;

    if (speed_a != speed_b)
        return speed_a > speed_b ? -1 : 1;
    return a->unit < b->unit ? -1 : 1;
}

/* The cards that can run work themselves, in the order that ordinals in CUDA_VISIBLE_DEVICES count;
 * behind them the MIG instances. */
static int candidates(struct candidate found[SIM_MAX_UNITS], int *cards)
{
    const char *order = getenv("CUDA_DEVICE_ORDER");
    int units[SIM_MAX_UNITS], count = sim_container_units(units), kept = 0;

    for (int i = 0; i < count; i++) {
        struct candidate *next = &found[kept];

        next->unit = units[i];
        if (sim_board_read(units[i], &next->shown) && !next->shown.mig)
            kept++;
    }
    *cards = 0;
    while (*cards < kept && found[*cards].shown.kind == SIM_UNIT_CARD)
        (*cards)++;
    if (!order || strcmp(order, "PCI_BUS_ID") != 0)
        qsort(found, (size_t)*cards, sizeof(found[0]), faster_first);
    return kept;
}

/* A number, or a uuid of which enough is given to tell it from the others; -1: neither. */
static int chosen(const char *word, const struct candidate *found, int count, int cards)
{
    int match = -1;
    size_t length = strlen(word);

    if (isdigit((unsigned char)*word)) {
        char *end;
        long number = strtol(word, &end, 10);

        return *end == '\0' && number < cards ? (int)number : -1;
    }
    if (length <= 4 || (strncmp(word, "GPU-", 4) != 0 && strncmp(word, "MIG-", 4) != 0))
        return -1;
    for (int i = 0; i < count; i++) {
        if (strncasecmp(found[i].shown.uuid, word, length) != 0)
            continue;
        if (match >= 0)
            return -1;
        match = i;
    }
    return match;
}

static void add(const struct candidate *found)
{
    struct sim_device *device = &devices[device_count++];

    device->board = found->unit;
    memcpy(device->name, found->shown.name, sizeof(device->name));
    memcpy(device->uuid, found->shown.bytes, sizeof(device->uuid));
    memcpy(device->pci, found->shown.pci, sizeof(device->pci));
    device->memory_bytes = found->shown.memory;
    device->sms = found->shown.sms;
    device->major = found->shown.major;
    device->minor = found->shown.minor;
    device->mig = found->shown.kind == SIM_UNIT_INSTANCE;
}

/* Devices up to the first word that names none; a device named twice makes the list worthless. */
static int listed(const char *list, const struct candidate *found, int count, int cards,
                  int picked[SIM_MAX_DEVICES])
{
    char copy[4096], *rest = copy, *word;
    int kept = 0;

    strncpy(copy, list, sizeof(copy) - 1);
    copy[sizeof(copy) - 1] = '\0';
    while ((word = strsep(&rest, ",")) != NULL && kept < SIM_MAX_DEVICES) {
        int at;

        word += strspn(word, " \t");
        word[strcspn(word, " \t")] = '\0';
        at = chosen(word, found, count, cards);
        if (at < 0)
            break;
        for (int i = 0; i < kept; i++)
            if (picked[i] == at)
                return 0;
        picked[kept++] = at;
    }
    return kept;
}

/* A process has either whole cards or one MIG instance: the driver enumerates no second instance,
 * and no card beside an instance. */
static void see_devices(void)
{
    const char *list = getenv("CUDA_VISIBLE_DEVICES");
    struct candidate *found = calloc(SIM_MAX_UNITS, sizeof(*found));
    int picked[SIM_MAX_DEVICES], cards = 0, count, kept;

    device_count = 0;
    if (!found)
        return;
    count = candidates(found, &cards);
    if (list) {
        kept = listed(list, found, count, cards, picked);
    } else {
        kept = 0;
        for (int i = 0; i < cards && kept < SIM_MAX_DEVICES; i++)
            picked[kept++] = i;
        if (count > cards) {
            picked[0] = cards;
            kept = 1;
        }
    }
    for (int i = 0; i < kept; i++) {
        if (found[picked[i]].shown.kind == SIM_UNIT_INSTANCE) {
            picked[0] = picked[i];
            kept = 1;
        }
    }
    for (int i = 0; i < kept; i++)
        add(&found[picked[i]]);
    free(found);
}

CUresult sim_connect(void)
{
    static bool connected_once; /* survives a fork, unlike the page */
    struct sim_page *page = sim_page();
    const char *ledger;
    CUresult result = CUDA_SUCCESS;

    pthread_mutex_lock(&page->connecting);
    if (page->process.ready) {
        pthread_mutex_unlock(&page->connecting);
        return CUDA_SUCCESS;
    }
    if (connected_once)
        result = CUDA_ERROR_NOT_INITIALIZED;
    else
        result = sim_open(page);
    if (result == CUDA_SUCCESS) {
        see_devices();
        ledger = getenv("HAMI_SIM_LEDGER");
        page->process.local = ledger && strcmp(ledger, "local") == 0;
        if (device_count == 0)
            result = CUDA_ERROR_NO_DEVICE;
    }
    if (result == CUDA_SUCCESS) {
        connected_once = true;
        __atomic_store_n(&page->process.ready, true, __ATOMIC_RELEASE);
    }
    pthread_mutex_unlock(&page->connecting);
    return result;
}

int sim_device_count(void)
{
    return device_count;
}

const struct sim_device *sim_device(CUdevice ordinal)
{
    return ordinal >= 0 && ordinal < device_count ? &devices[ordinal] : NULL;
}
