/* What libnvidia-ml asks, and what tests do to cards: errors, losses, resets. */
#include "nvml.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define EVENT_XID 0x8
#define EVENT_MIG 0x100
#define RECOVERIES 8 /* nvmlDeviceGpuRecoveryAction_t */

static struct nvml_card cards[SIM_MAX_CARDS];
static bool away; /* there is no driver */

bool nvml_start(struct daemon *daemon)
{
    for (int card = 0; card < daemon->board->cards; card++) {
        const struct sim_board_unit *shown = &daemon->board->units[card];

        if (shown->mig && !sim_mig_model(shown->name)) {
            daemon_say(NULL, "card %d: mig=1, but \"%s\" is no card that can be cut", card,
                       shown->name);
            return false;
        }
        cards[card].state.mig_pending = shown->mig;
    }
    return true;
}

void nvml_gone(struct daemon *daemon, struct client *client)
{
    (void)daemon;
    (void)client; /* nothing is kept for a client: what NVML made outlives it */
}

/* ---- Requests ---- */

/* Changes of the mode succeed even when they wait for a reset: the answer says so on the side. */
static uint32_t set_mig(struct daemon *daemon, int card, uint32_t on, int32_t *activation)
{
    struct nvml_card *of = &cards[card];

    if (!sim_mig_model(daemon->board->units[card].name))
        return NVML_NOT_SUPPORTED;
    if (on > 1)
        return NVML_INVALID_ARGUMENT;
    of->state.mig_pending = on;
    if (of->resets_late && daemon->board->units[card].mig != on)
        *activation = NVML_RESET_REQUIRED;
    else
        *activation = (int32_t)nvml_mig_apply(daemon, card, of);
    return NVML_OK;
}

static uint32_t change(struct daemon *daemon, uint32_t op, const struct sim_nvml_ask *ask,
                       int32_t *made)
{
    struct nvml_card *of = &cards[ask->card];

    if (op < SIM_NVML_END && of->refusals[op - SIM_NVML_CARD])
        return of->refusals[op - SIM_NVML_CARD];
    switch (op) {
    case SIM_NVML_SET_MIG:
        return set_mig(daemon, ask->card, ask->number, made);
    case SIM_NVML_CREATE_INSTANCE:
        return nvml_instance_create(daemon, of, ask, made);
    case SIM_NVML_DESTROY_INSTANCE:
        return nvml_instance_destroy(daemon, of, ask);
    case SIM_NVML_CREATE_COMPUTE:
        return nvml_compute_create(daemon, of, ask, made);
    case SIM_NVML_DESTROY_COMPUTE:
        return nvml_compute_destroy(daemon, of, ask);
    default:
        return NVML_NOT_SUPPORTED;
    }
}

uint32_t nvml_request(struct daemon *daemon, struct client *client, uint32_t op, const void *body,
                      size_t length, void *answer, size_t *answer_length)
{
    size_t room = *answer_length;
    struct sim_nvml_ask ask;
    struct sim_nvml_made made = {.id = 0};
    uint32_t status;

    (void)client;
    *answer_length = 0;
    if (length != sizeof(ask))
        return NVML_INVALID_ARGUMENT;
    memcpy(&ask, body, sizeof(ask));
    if (away)
        return NVML_NOT_LOADED;
    if (ask.card < 0 || ask.card >= daemon->board->cards)
        return NVML_INVALID_ARGUMENT;
    if (op == SIM_NVML_CARD) {
        if (room < sizeof(cards[0].state))
            return NVML_INVALID_ARGUMENT;
        memcpy(answer, &cards[ask.card].state, sizeof(cards[0].state));
        *answer_length = sizeof(cards[0].state);
        return NVML_OK;
    }
    if (cards[ask.card].state.lost)
        return NVML_LOST;
    status = change(daemon, op, &ask, &made.id);
    if (status == NVML_OK) {
        board_event(daemon, EVENT_MIG, 0, ask.card, -1, -1);
        if (room >= sizeof(made)) {
            memcpy(answer, &made, sizeof(made));
            *answer_length = sizeof(made);
        }
    }
    return status;
}

/* ---- Commands: each says "ok", or why not, or NULL where it makes no sense ---- */

static bool number(const char *text, long most, long *value)
{
    char *end;

    errno = 0;
    *value = strtol(text, &end, 10);
    return end != text && *end == '\0' && errno == 0 && *value >= 0 && *value <= most;
}

static const char *xid(struct daemon *daemon, int card, int count, char **words)
{
    long code, gpu_instance = -1, compute_instance = -1;

    if (count < 1 || count > 3 || !number(words[0], INT32_MAX, &code) ||
        (count > 1 && !number(words[1], SIM_NVML_INSTANCE_IDS - 1, &gpu_instance)) ||
        (count > 2 && !number(words[2], SIM_NVML_COMPUTE_IDS - 1, &compute_instance)))
        return NULL;
    board_event(daemon, EVENT_XID, (uint64_t)code, card, (int)gpu_instance, (int)compute_instance);
    return "ok";
}

/* An event of no type wakes whoever waits for one: a set with a lost card says so. */
static const char *lose(struct daemon *daemon, int card, bool is_lost)
{
    cards[card].state.lost = is_lost;
    board_event(daemon, 0, 0, card, -1, -1);
    return "ok";
}

static const char *reset(struct daemon *daemon, int card)
{
    if (nvml_mig_apply(daemon, card, &cards[card]) != NVML_OK)
        return "error: a process uses it";
    cards[card].state.recovery = 0;
    return lose(daemon, card, false);
}

static const char *link_to(const struct daemon *daemon, int card, const char *which,
                           const char *how)
{
    long place;

    if (!number(which, SIM_MAX_LINKS - 1, &place) ||
        daemon->board->units[card].links[place] == SIM_LINK_NONE)
        return NULL;
    if (strcmp(how, "down") == 0)
        cards[card].state.links_down |= 1u << place;
    else if (strcmp(how, "up") == 0)
        cards[card].state.links_down &= ~(1u << place);
    else
        return NULL;
    return "ok";
}

/* What a kind of request is refused with from now on, an nvmlReturn_t; 0: nothing. */
static const char *refuse(int card, const char *what, const char *with)
{
    static const char *const changes[SIM_NVML_OPS] = {
        [SIM_NVML_SET_MIG - SIM_NVML_CARD] = "set-mig",
        [SIM_NVML_CREATE_INSTANCE - SIM_NVML_CARD] = "create-instance",
        [SIM_NVML_DESTROY_INSTANCE - SIM_NVML_CARD] = "destroy-instance",
        [SIM_NVML_CREATE_COMPUTE - SIM_NVML_CARD] = "create-compute",
        [SIM_NVML_DESTROY_COMPUTE - SIM_NVML_CARD] = "destroy-compute",
    };
    long status;

    if (!number(with, NVML_UNKNOWN, &status))
        return NULL;
    if (strcmp(what, "mig-devices") == 0) {
        cards[card].state.mig_devices = (uint32_t)status;
        return "ok";
    }
    for (int op = 0; op < SIM_NVML_OPS; op++)
        if (changes[op] && strcmp(what, changes[op]) == 0) {
            cards[card].refusals[op] = (uint32_t)status;
            return "ok";
        }
    return NULL;
}

static const char *drive(const char *how)
{
    bool goes = strcmp(how, "away") == 0;

    if (!goes && strcmp(how, "back") != 0)
        return NULL;
    away = goes;
    return "ok";
}

/* What follows the command and the card. */
static const char *of_card(struct daemon *daemon, const char *command, int card, int count,
                           char **words)
{
    long value;

    if (strcmp(command, "xid") == 0)
        return xid(daemon, card, count, words);
    if (count == 0 && strcmp(command, "lose") == 0)
        return lose(daemon, card, true);
    if (count == 0 && strcmp(command, "find") == 0)
        return lose(daemon, card, false);
    if (count == 0 && strcmp(command, "reset") == 0)
        return reset(daemon, card);
    if (count == 1 && strcmp(command, "recovery") == 0 &&
        number(words[0], RECOVERIES - 1, &value)) {
        cards[card].state.recovery = (uint32_t)value;
        return "ok";
    }
    if (count == 1 && strcmp(command, "resets-late") == 0 && number(words[0], 1, &value)) {
        cards[card].resets_late = value != 0;
        return "ok";
    }
    if (count == 2 && strcmp(command, "link") == 0)
        return link_to(daemon, card, words[0], words[1]);
    if (count == 2 && strcmp(command, "refuse") == 0)
        return refuse(card, words[0], words[1]);
    return NULL;
}

/* xid CARD CODE [GPU-INSTANCE [COMPUTE-INSTANCE]] | lose CARD | find CARD | reset CARD |
 * recovery CARD ACTION | link CARD LINK up|down | resets-late CARD 0|1 |
 * refuse CARD REQUEST STATUS | driver away|back */
bool nvml_command(struct daemon *daemon, int count, char **words, FILE *answer)
{
    const char *said = NULL;
    long card;

    if (count == 2 && strcmp(words[0], "driver") == 0)
        said = drive(words[1]);
    else if (count >= 2 && number(words[1], daemon->board->cards - 1, &card))
        said = of_card(daemon, words[0], (int)card, count - 2, words + 2);
    if (said)
        fputs(said, answer);
    return said != NULL;
}
