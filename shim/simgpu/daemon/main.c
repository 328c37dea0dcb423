/* simgpud DIR [--gpus N] [--config FILE] [--until-eof]: simulated cards for whoever connects. */
#include "daemon.h"

#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#define MOST_EVENTS 64

/* How long the loop sleeps while somebody holds memory, and how far apart two looks can be then
 * unless this process got no processor: a sleep, what is done in between, another sleep. */
#define WATCH_NS UINT64_C(10000000)
#define LATE_NS UINT64_C(25000000)

/* A sleep shorter than this needs no second look at the rings: clients see it and do not ring. */
#define SHORT_NS UINT64_C(100000)

uint64_t daemon_now(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

void daemon_say(const struct client *client, const char *format, ...)
{
    char line[1024];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(line, sizeof(line), format, arguments);
    va_end(arguments);
    if (client)
        fprintf(stderr, "simgpud: client %llu (pid %u): %s\n", (unsigned long long)client->id,
                client->pid, line);
    else
        fprintf(stderr, "simgpud: %s\n", line);
}

/* ---- Starting ---- */

static bool already_running(void)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX, .sun_path = "socket"};
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    bool answered = connect(fd, (struct sockaddr *)&address, sizeof(address)) == 0;

    close(fd);
    return answered;
}

static bool watch(struct daemon *daemon, int fd, uint32_t events, uint64_t about)
{
    struct epoll_event event = {.events = events, .data.u64 = about};

    return fd >= 0 && epoll_ctl(daemon->epoll, EPOLL_CTL_ADD, fd, &event) == 0;
}

static bool watch_signals(struct daemon *daemon)
{
    sigset_t ends;

    sigemptyset(&ends);
    sigaddset(&ends, SIGTERM);
    sigaddset(&ends, SIGINT);
    sigprocmask(SIG_BLOCK, &ends, NULL);
    signal(SIGPIPE, SIG_IGN);
    return watch(daemon, signalfd(-1, &ends, SFD_CLOEXEC | SFD_NONBLOCK), EPOLLIN, ABOUT_SIGNAL);
}

static bool start(struct daemon *daemon, const char *config, int cards, bool until_eof)
{
    struct rlimit files;
    uint64_t now = daemon_now();

    if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
        files.rlim_cur = files.rlim_max;
        setrlimit(RLIMIT_NOFILE, &files);
    }
    if (already_running()) {
        daemon_say(NULL, "another one serves this directory");
        return false;
    }
    if (!board_create(daemon)) {
        daemon_say(NULL, "board: %s", strerror(errno));
        return false;
    }
    if (config ? !config_read(daemon, config) : !config_default(daemon, cards))
        return false;
    for (int i = 0; i < SIM_MAX_UNITS; i++) {
        daemon->units[i].now_ns = now;
        daemon->units[i].next_ns = NEVER;
    }
    daemon->next_sample_ns = now + daemon->settings.sample_ns;
    daemon->seen_ns = now;
    daemon->epoll = epoll_create1(EPOLL_CLOEXEC);
    daemon->timer = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
    daemon->bell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    /* Neither bell nor timer is ever read: an edge is all they are for. */
    if (nvml_start(daemon) && clients_listen(daemon) && control_listen(daemon) &&
        watch(daemon, daemon->bell, EPOLLIN | EPOLLET, ABOUT_BELL) &&
        watch(daemon, daemon->timer, EPOLLIN | EPOLLET, ABOUT_TIMER) &&
        watch(daemon, daemon->socket, EPOLLIN, ABOUT_SOCKET) &&
        watch(daemon, daemon->control, EPOLLIN, ABOUT_CONTROL) && watch_signals(daemon) &&
        (!until_eof || watch(daemon, 0, EPOLLIN | EPOLLRDHUP, ABOUT_STDIN)) &&
        rename("board.new", "board") == 0)
        return true;
    daemon_say(NULL, "cannot start: %s", strerror(errno));
    return false;
}

/* ---- The loop ---- */

static unsigned int about_what(const struct epoll_event *event)
{
    return event->data.u64 & ((1 << ABOUT_BITS) - 1);
}

/* Before anybody is served: processes that ended hold nothing that another asks for. A driver in a
 * kernel frees what a process had when it ends; this one cannot if it gets no processor. So where
 * it looks late, they ended just after the look before, for all it knows. Of the events those that
 * are left come first; how many they are. */
static int see_deaths(struct daemon *daemon, struct epoll_event *events, int count, uint64_t now)
{
    uint64_t gone_ns = now - daemon->seen_ns > LATE_NS ? daemon->seen_ns : now;
    int left = 0;

    for (int i = 0; i < count; i++) {
        if (about_what(&events[i]) == ABOUT_CLIENT && (events[i].events & EPOLLHUP))
            clients_drop(daemon, events[i].data.ptr, gone_ns);
        else
            events[left++] = events[i];
    }
    return left;
}

static void handle(struct daemon *daemon, const struct epoll_event *event)
{
    uint64_t about = event->data.u64;
    char byte;

    switch (about_what(event)) {
    case ABOUT_CLIENT:
        clients_message(daemon, event->data.ptr);
        break;
    case ABOUT_SOCKET:
        clients_accept(daemon);
        break;
    case ABOUT_CONTROL:
        control_accept(daemon);
        break;
    case ABOUT_COMMAND:
        control_ready(daemon, (int)(about >> ABOUT_BITS));
        break;
    case ABOUT_SIGNAL:
        daemon->stop = true;
        break;
    case ABOUT_STDIN:
        if (read(0, &byte, 1) <= 0)
            daemon->stop = true;
        break;
    default:
        break;
    }
}

static void tick(struct daemon *daemon, uint64_t now)
{
    for (; daemon->next_sample_ns <= now; daemon->next_sample_ns += daemon->settings.sample_ns) {
        schedule_account(daemon, daemon->next_sample_ns);
        board_sample(daemon, daemon->next_sample_ns);
    }
    schedule_advance(daemon, now);
    rings_wake(daemon);
}

/* Promise on the board when the next look will be, and set the timer to it. False: do not sleep. */
static bool may_sleep(struct daemon *daemon, uint64_t reap_ns, bool was_busy)
{
    struct itimerspec timer = {{0, 0}, {0, 0}};
    uint64_t now = daemon_now(), soon = now + daemon->settings.look_ns, next;

    next = schedule_next(daemon, soon);
    if (was_busy && soon < next)
        next = soon; /* more may follow what was just submitted: nobody need ring for it */
    if (daemon->next_sample_ns < next)
        next = daemon->next_sample_ns;
    if (reap_ns < next)
        next = reap_ns;
    if (daemon->id_count > 0 && now + WATCH_NS < next)
        next = now + WATCH_NS;
    timer.it_value.tv_sec = (time_t)(next / 1000000000u);
    timer.it_value.tv_nsec = (long)(next % 1000000000u);
    timerfd_settime(daemon->timer, TFD_TIMER_ABSTIME, &timer, NULL);
    atomic_fetch_add_explicit(&daemon->board->sleep, 1, memory_order_relaxed);
    atomic_store(&daemon->board->looks_at, next);
    if (next <= now + SHORT_NS || !rings_waiting(daemon))
        return true;
    atomic_store(&daemon->board->looks_at, 0);
    return false;
}

static void run(struct daemon *daemon)
{
    struct epoll_event events[MOST_EVENTS];
    bool sleep = true;

    while (!daemon->stop) {
        uint64_t asked_ns = daemon_now(), now, reap_ns;
        int count = epoll_wait(daemon->epoll, events, MOST_EVENTS, sleep ? -1 : 0), left;
        bool was_busy;

        now = daemon_now();
        atomic_store(&daemon->board->looks_at, 0);
        was_busy = rings_drain(daemon, now);
        tick(daemon, now);
        left = see_deaths(daemon, events, count, now);
        if (count >= 0 && count < MOST_EVENTS) /* there is no other from before we asked */
            daemon->seen_ns = asked_ns;
        clients_reap(daemon, now);
        for (int i = 0; i < left; i++)
            handle(daemon, &events[i]);
        tick(daemon, now);
        reap_ns = clients_reap(daemon, now);
        sleep = may_sleep(daemon, reap_ns, was_busy);
    }
}

static int usage(void)
{
    fprintf(stderr, "usage: simgpud DIR [--gpus 1..%d] [--config FILE] [--until-eof]\n",
            SIM_MAX_CARDS);
    return 2;
}

int main(int count, char **arguments)
{
    static const struct option options[] = {{"gpus", required_argument, NULL, 'g'},
                                            {"config", required_argument, NULL, 'c'},
                                            {"until-eof", no_argument, NULL, 'e'},
                                            {NULL, 0, NULL, 0}};
    static struct daemon daemon = {.settings = {.free_delay_ns = 5000000,
                                                .sample_ns = 100000000,
                                                .slice_ns = 2000000,
                                                .look_ns = 50000}};
    char *config = NULL;
    int cards = 1, option;
    bool until_eof = false;

    while ((option = getopt_long(count, arguments, "", options, NULL)) != -1) {
        if (option == 'g')
            cards = atoi(optarg);
        else if (option == 'c')
            config = realpath(optarg, NULL);
        else if (option == 'e')
            until_eof = true;
        else
            return usage();
        if (option == 'c' && !config) {
            daemon_say(NULL, "%s: %s", optarg, strerror(errno));
            return 1;
        }
    }
    if (optind + 1 != count || cards < 1 || cards > SIM_MAX_CARDS)
        return usage();
    if (chdir(arguments[optind]) < 0) {
        daemon_say(NULL, "%s: %s", arguments[optind], strerror(errno));
        return 1;
    }
    if (!start(&daemon, config, cards, until_eof))
        return 1;
    free(config);
    printf("simgpud: %d cards ready in %s\n", daemon.board->cards, arguments[optind]);
    fflush(stdout);
    run(&daemon);
    unlink("socket");
    unlink("control");
    unlink("board");
    return 0;
}
