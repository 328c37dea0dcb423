/* scribbler: a tenant that does to a file what one may do to the usage region of its container. The
 * first line of its standard input names the file, the second is "hostile SEED", or "gentle SEED":
 * then it leaves alone the file's size, its header and what a living process of the library owns:
 * the slots that are locked. "thief SEED" wants memory: over and over it writes that nobody has any,
 * and that all who hold a slot are dead. "filler SEED" wants time: it keeps the buckets full, says
 * that charges are worth little, and writes nonsense over the rest of them. It ends with its standard
 * input. */
#include <fcntl.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "hami_slice.h"

static unsigned int seed = 1;

static uint64_t any(uint64_t below)
{
    return (((uint64_t)(unsigned int)rand_r(&seed) << 31) ^ (uint64_t)rand_r(&seed)) % below;
}

/* Figures that are likely to mean something. */
static uint64_t word(void)
{
    static const uint64_t words[] = {0, 1, UINT64_MAX, UINT64_C(1) << 63, UINT64_C(1) << 55,
                                     UINT64_C(1) << 20, UINT64_C(1) << 50, UINT32_MAX};

    return any(4) == 0 ? any(UINT64_MAX) : words[any(sizeof(words) / sizeof(*words))];
}

static void put(int fd, uint64_t offset, uint64_t value)
{
    if (pwrite(fd, &value, sizeof(value), (off_t)offset) != sizeof(value))
        exit(3);
}

static bool is_locked(int fd, uint64_t slot)
{
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = (off_t)slot,
                         .l_len = 1};

    return fcntl(fd, F_OFD_GETLK, &lock) != 0 || lock.l_type != F_UNLCK;
}

static void be_gentle(int fd)
{
    uint64_t slot = any(HAMI_MAX_SLOTS);

    if (any(3) == 0) {
        put(fd, offsetof(struct hami_usage, buckets) + any(HAMI_MAX_DEVICES * 8) * 8, word());
    } else if (!is_locked(fd, slot)) {
        put(fd, offsetof(struct hami_usage, charged) + (any(HAMI_MAX_DEVICES) * HAMI_MAX_SLOTS +
                                                        slot) * 8, word());
        put(fd, offsetof(struct hami_usage, slots) + slot * sizeof(struct hami_slot) + any(5) * 8,
            word());
    }
}

static void be_hostile(int fd)
{
    static unsigned char noise[sizeof(struct hami_usage)];
    static const uint64_t header[] = {HAMI_USAGE_MAGIC, HAMI_USAGE_ABI |
                                      (uint64_t)sizeof(struct hami_usage) << 32};
    uint64_t length;

    switch (any(8)) {
    case 0:
        if (ftruncate(fd, (off_t)any(2 * sizeof(noise))) != 0)
            exit(3);
        break;
    case 1:
        if (ftruncate(fd, (off_t)(any(1 << 10) << 30)) != 0)
            exit(3);
        break;
    case 2:
        length = any(sizeof(noise));
        for (uint64_t i = 0; i < length; i++)
            noise[i] = (unsigned char)any(256);
        if (pwrite(fd, noise, length, (off_t)any(sizeof(noise))) < 0)
            exit(3);
        break;
    case 3:
    case 4: { /* whole again, for a reader that gives up at the header */
        const uint32_t rest[] = {HAMI_MAX_DEVICES, HAMI_MAX_SLOTS,
                                 offsetof(struct hami_usage, slots),
                                 offsetof(struct hami_usage, charged),
                                 offsetof(struct hami_usage, buckets)};

        if (ftruncate(fd, sizeof(struct hami_usage)) != 0 ||
            pwrite(fd, header, sizeof(header), 0) < 0 ||
            pwrite(fd, rest, sizeof(rest), sizeof(header)) < 0)
            exit(3);
        put(fd, offsetof(struct hami_usage, slots) + any(HAMI_MAX_SLOTS) * sizeof(struct hami_slot),
            any(1 << 22));
        break;
    }
    default:
        put(fd, any(sizeof(struct hami_usage) / 8) * 8, word());
    }
}

static void be_filler(int fd)
{
    for (uint64_t row = 0; row < HAMI_MAX_DEVICES; row++) {
        uint64_t bucket = offsetof(struct hami_usage, buckets) + row * sizeof(struct hami_bucket);

        put(fd, bucket + offsetof(struct hami_bucket, level), INT64_MAX);
        put(fd, bucket + offsetof(struct hami_bucket, correction), 1);
        put(fd, bucket + offsetof(struct hami_bucket, charged), any(UINT64_MAX));
        put(fd, bucket + offsetof(struct hami_bucket, settled), any(UINT64_MAX));
        put(fd, bucket + offsetof(struct hami_bucket, refilled_at), 1);
    }
    usleep(100); /* to leave the others a processor */
}

static void be_thief(int fd)
{
    static const unsigned char nothing[sizeof(struct hami_usage)];
    const size_t from = any(2) ? offsetof(struct hami_usage, charged)
                               : offsetof(struct hami_usage, slots);

    if (pwrite(fd, nothing, offsetof(struct hami_usage, buckets) - from, (off_t)from) < 0)
        exit(3);
}

int main(void)
{
    struct pollfd input = {.fd = STDIN_FILENO, .events = POLLIN};
    char line[4096];
    void (*be)(int fd) = be_hostile;
    int fd;

    if (!fgets(line, sizeof(line), stdin))
        return 1;
    line[strcspn(line, "\n")] = 0;
    fd = open(line, O_RDWR | O_CLOEXEC);
    if (fd < 0 || !fgets(line, sizeof(line), stdin))
        return 2;
    if (strncmp(line, "gentle ", 7) == 0)
        be = be_gentle;
    else if (strncmp(line, "filler ", 7) == 0)
        be = be_filler;
    else if (strncmp(line, "thief ", 6) == 0)
        be = be_thief;
    seed = (unsigned int)atoi(strchr(line, ' ')) + 1;
    for (unsigned int round = 0;; round++) {
        if (round % 64 == 0 && poll(&input, 1, 0) > 0)
            return 0;
        be(fd);
    }
}
