/* links: lib/compute/terms.c */
/* What the limits page and the monitor's words together mean for a slice on a device. */
#include <string.h>

#include "compute/terms.h"
#include "expect.h"

#define DEFAULT HAMI_POLICY_DEFAULT
#define FORCE HAMI_POLICY_FORCE
#define DISABLE HAMI_POLICY_DISABLE
#define OTHERS HAMI_CONTENTION_OTHERS
#define HIGHER (HAMI_CONTENTION_HIGHER | HAMI_CONTENTION_OTHERS)
#define NOBODY UINT64_MAX /* says anything: there is no monitor */

enum { NOT, COUNTED, LIMITED };

static const struct {
    const char *name;
    uint32_t policy, cores, cores_limit, priority;
    uint64_t contention;
    uint16_t share;
    int holds;
    uint32_t rate;
    bool yields;
} cases[] = {
    {"no monitor: the guarantee", DEFAULT, 30, 80, 1, NOBODY, 0, LIMITED, 3000, false},
    {"no monitor, nothing named", DEFAULT, 0, 0, 1, NOBODY, 0, NOT, 0, false},
    {"no monitor, a whole device", FORCE, 100, 0, 1, NOBODY, 0, NOT, 0, false},
    {"no monitor, disabled", DISABLE, 30, 0, 1, NOBODY, 0, NOT, 0, false},
    {"a share", DEFAULT, 30, 0, 1, 0, 6543, LIMITED, 6543, false},
    {"a share of all", DEFAULT, 30, 0, 1, OTHERS, 10000, LIMITED, 10000, false},
    {"a share below the guarantee", FORCE, 30, 0, 1, HIGHER, 500, LIMITED, 500, false},
    {"a share above the limit", DEFAULT, 30, 50, 1, 0, 9000, LIMITED, 5000, false},
    {"a share above a limit below the guarantee", DEFAULT, 30, 20, 1, 0, 9000, LIMITED, 3000, false},
    {"a share above the guarantee under force", FORCE, 30, 80, 1, 0, 9000, LIMITED, 3000, false},
    {"a share above all", DEFAULT, 30, 0, 1, 0, UINT16_MAX, LIMITED, 10000, false},
    {"a share for one that named nothing", DEFAULT, 0, 0, 1, OTHERS, 4000, LIMITED, 4000, false},
    {"the same under force", FORCE, 0, 0, 0, OTHERS, 4000, LIMITED, 4000, false},
    {"a share for one with a limit alone", DEFAULT, 0, 50, 0, OTHERS, 9000, LIMITED, 5000, false},
    {"a share for a whole device", FORCE, 100, 0, 1, OTHERS, 9900, LIMITED, 9900, false},
    {"a share for one that is disabled", DISABLE, 30, 0, 1, HIGHER, 500, NOT, 0, false},
    {"no share, alone", DEFAULT, 30, 0, 1, 0, 0, COUNTED, 0, false},
    {"no share, beside others", DEFAULT, 30, 0, 1, OTHERS, 0, LIMITED, 3000, false},
    {"no share, alone under force", FORCE, 30, 0, 1, 0, 0, LIMITED, 3000, false},
    {"no share, below another", FORCE, 30, 0, 1, HIGHER, 0, LIMITED, 3000, true},
    {"no share, nothing named, below another", DEFAULT, 0, 0, 1, HIGHER, 0, NOT, 0, true},
    {"no share, of priority 0", DEFAULT, 0, 0, 0, HIGHER, 0, NOT, 0, false},
    {"no share, disabled below another", DISABLE, 30, 0, 1, HIGHER, 0, NOT, 0, false},
};

static struct hami_limits limits = {.device_count = 2};
static struct hami_observed observed;

static void check(const char *name, bool monitored, int holds, uint32_t rate, bool yields)
{
    struct hami_terms found = hami_terms_of(&limits, monitored ? &observed : NULL, 1);

    if (found.counted != (holds != NOT) || found.limited != (holds == LIMITED) ||
        found.yields != yields || found.watched != monitored ||
        (holds == LIMITED && found.rate != rate)) {
        fprintf(stderr, "%s: counted %d, limited %d, rate %u, yields %d\n", name, found.counted,
                found.limited, found.rate, found.yields);
        failures++;
    }
}

int main(void)
{
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        bool monitored = cases[i].contention != NOBODY;

        limits.policy = cases[i].policy;
        limits.priority = cases[i].priority;
        limits.devices[1].cores = cases[i].cores;
        limits.devices[1].cores_limit = cases[i].cores_limit;
        strcpy(limits.devices[1].uuid, "GPU-1");
        observed.devices[1].contention = cases[i].contention;
        observed.share[1] = cases[i].share;
        check(cases[i].name, monitored, cases[i].holds, cases[i].rate, cases[i].yields);
        strcpy(limits.devices[1].uuid, "MIG-1");
        check("on a MIG device", monitored, NOT, 0, false);
    }
    /* Limits that changed after a share was handed out: they hold until there is one for them. */
    limits.policy = HAMI_POLICY_FORCE;
    limits.devices[1].cores = 60;
    strcpy(limits.devices[1].uuid, "GPU-1");
    observed.devices[1].contention = 0;
    observed.share[1] = 2000;
    observed.share_revision = 6;
    limits.revision = 7;
    check("a share for other limits", true, LIMITED, 6000, false);
    observed.share_revision = 7;
    check("a share for these limits", true, LIMITED, 2000, false);
    return failures != 0;
}
