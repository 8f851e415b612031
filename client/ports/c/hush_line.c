/* hush_line STATE SENDER BROKER [SPREAD_MS [KEEP_SECONDS]]    a device program whose network is another program
 *
 * It has everything of a device but MQTT: ledger, outbox, kept reports and recalls, in the directory STATE. The other
 * program moves bytes between it and a broker. One order a line on standard input, at least one line each on standard
 * output, bytes in hexadecimal, "-" for none. Tests and `hush conform` drive it; for your device take its functions.
 *
 *     time NOW                        the clock, in milliseconds since 1970; or "system", which it is at first
 *     task ID PAYLOAD                 what came on its topic: decides decided ID ROUND | refused WHY
 *     value VALUE                     answers what was decided        answered | refused WHY; "none": there is no value
 *     send                            what is due                     publish TICKET TOPIC PAYLOAD ..., wait NOW | wait -
 *     ack TICKET REASON               what the broker has said        ok | refused WHY
 *     lost                            the connection ended            ok
 *     recall TASK PAYLOAD             what came on a recall topic     ok | refused WHY
 *     topics                          recall topics to subscribe to   topic TOPIC ..., ok
 *     spent                           on all purposes together        spent N/D | refused WHY
 *     limits MAX LIFETIME STICKY      before the first task           ok | refused WHY
 *     save                            before it ends                  ok | refused WHY
 *
 * Ends with 0 at the end of its input, or with 1 and one line of complaint if the state cannot be used.
 */
#ifndef ARDUINO /* which compiles every file of this folder */
#define _POSIX_C_SOURCE 200809L

#include "hush_device.h"
#include "hush_file.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { LINE_BYTES = 2 * HUSH_TASK_BYTES + 256 };

typedef struct {
    hush_device device;
    hush_storage storage;
    hush_policy policy;
    const char *sender, *broker;
    char max_epsilon[32], lifetime[32];
    int64_t now; /* INT64_MIN: that of the system */
    hush_task task;
    hush_decision decision;
    uint8_t payload[HUSH_TASK_BYTES + 1];
} program;

static const char *word_of(hush_status status)
{
    static const char *const words[] = {
        "ok",        "argument", "space", "random",   "malformed", "task",    "epsilon", "not_open", "closed", "mechanism",
        "rounds",    "too_large", "spent", "answered", "changed",   "storage", "none",    "sticky",   "full",
    };
    return words[status];
}

static void print_status(hush_status status)
{
    if (status == HUSH_OK) {
        (void)printf("ok\n");
    } else {
        (void)printf("refused %s\n", word_of(status));
    }
}

static int64_t clock_of(const program *one)
{
    struct timespec now = {0, 0};
    if (one->now != INT64_MIN) {
        return one->now;
    }
    (void)clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* Bytes from hexadecimal, and a zero; false where it is not that, or too long. */
static bool read_hex(const char *word, uint8_t *out, size_t capacity, size_t *size)
{
    static const char digits[] = "0123456789abcdef";
    *size = 0;
    if (!word) {
        return false;
    }
    for (; *word && strcmp(word, "-") != 0; word += 2, ++*size) {
        const char *high = strchr(digits, word[0]), *low = word[1] ? strchr(digits, word[1]) : NULL;
        if (!high || !low || *size + 1 >= capacity) {
            return false;
        }
        out[*size] = (uint8_t)((high - digits) << 4 | (low - digits));
    }
    out[*size] = 0;
    return true;
}

static int print_publish(void *context, const char *topic, const uint8_t *payload, size_t size, uint32_t ticket)
{
    (void)context;
    (void)printf("publish %" PRIu32 " %s ", ticket, topic);
    for (size_t i = 0; i < size; i++) {
        (void)printf("%02x", payload[i]);
    }
    (void)printf("\n");
    return 0;
}

static void decide(program *one)
{
    size_t size = 0;
    const char *id = strtok(NULL, " \n");
    one->decision.task = NULL;
    if (!read_hex(strtok(NULL, " \n"), one->payload, sizeof one->payload, &size)) {
        print_status(HUSH_MALFORMED);
        return;
    }
    const char *most = one->policy.max_epsilon ? one->policy.max_epsilon : "4";
    hush_status status = hush_read_task(one->payload, size, most, &one->task);
    if (status == HUSH_OK && strcmp(id, one->task.id) != 0) {
        status = HUSH_TASK; /* one question could be asked under two names */
    }
    if (status == HUSH_OK) {
        status = hush_device_decide(&one->device, &one->task, clock_of(one), &one->decision);
    }
    if (status == HUSH_OK) {
        (void)printf("decided %s %" PRIu32 "\n", one->task.id, one->decision.round);
    } else {
        print_status(status);
    }
}

static void answer(program *one)
{
    static uint8_t value[LINE_BYTES / 2];
    size_t size = 0;
    const char *word = strtok(NULL, " \n");
    const bool missing = !word || strcmp(word, "none") == 0 || !read_hex(word, value, sizeof value, &size);
    const hush_status status =
        hush_device_answer(&one->device, &one->decision, missing ? NULL : (const char *)value, NULL);
    if (status == HUSH_OK) {
        (void)printf("answered\n");
    } else {
        print_status(status);
    }
    memset(value, 0, sizeof value);
}

static void send_due(program *one)
{
    int64_t next = INT64_MAX;
    const hush_status status = hush_device_send(&one->device, clock_of(one), print_publish, NULL, &next);
    if (status != HUSH_OK) {
        print_status(status);
    } else if (next == INT64_MAX) {
        (void)printf("wait -\n");
    } else {
        (void)printf("wait %" PRId64 "\n", next);
    }
}

static void acknowledge(program *one)
{
    const char *ticket = strtok(NULL, " \n"), *reason = strtok(NULL, " \n");
    print_status(hush_device_acknowledged(&one->device, ticket ? (uint32_t)strtoul(ticket, NULL, 10) : 0,
                                          reason ? (uint8_t)strtoul(reason, NULL, 10) : 0, clock_of(one)));
}

static void recall(program *one)
{
    uint8_t payload[HUSH_RECALL_BYTES + 2];
    size_t size = 0;
    const char *task = strtok(NULL, " \n");
    if (!read_hex(strtok(NULL, " \n"), payload, sizeof payload, &size)) {
        (void)printf("ok\n"); /* longer than any recall */
        return;
    }
    print_status(task ? hush_device_recall(&one->device, task, payload, size) : HUSH_ARGUMENT);
}

static void print_topics(program *one)
{
    char topic[HUSH_TOPIC_BYTES];
    hush_status status = HUSH_OK;
    for (size_t index = 0; status == HUSH_OK; index++) {
        status = hush_device_recall_topic(&one->device, index, topic, sizeof topic);
        if (status == HUSH_OK) {
            (void)printf("topic %s\n", topic);
        }
    }
    print_status(status == HUSH_NONE ? HUSH_OK : status);
}

static void print_spent(program *one)
{
    char sum[HUSH_COST_BYTES];
    const hush_status status = hush_device_spent(&one->device, NULL, 0, sum, sizeof sum);
    if (status == HUSH_OK) {
        (void)printf("spent %s\n", sum);
    } else {
        print_status(status);
    }
}

static hush_status open_device(program *one)
{
    return hush_device_open(&one->device, &one->storage, &one->policy, one->sender, one->broker, hush_os_random, NULL);
}

static void limit(program *one)
{
    const char *most = strtok(NULL, " \n"), *lifetime = strtok(NULL, " \n"), *sticky = strtok(NULL, " \n");
    if (!most || !lifetime || strlen(most) >= sizeof one->max_epsilon || strlen(lifetime) >= sizeof one->lifetime) {
        print_status(HUSH_ARGUMENT);
        return;
    }
    memcpy(one->max_epsilon, most, strlen(most) + 1);
    memcpy(one->lifetime, lifetime, strlen(lifetime) + 1);
    one->policy.max_epsilon = one->max_epsilon;
    one->policy.lifetime = one->lifetime;
    one->policy.sticky = sticky && strcmp(sticky, "yes") == 0;
    print_status(open_device(one));
}

static void set_clock(program *one)
{
    const char *word = strtok(NULL, " \n");
    one->now = !word || strcmp(word, "system") == 0 ? INT64_MIN : strtoll(word, NULL, 10);
    (void)printf("ok\n");
}

static void disconnect(program *one)
{
    hush_device_disconnected(&one->device);
    (void)printf("ok\n");
}

static void save(program *one)
{
    print_status(hush_device_save(&one->device));
}

static void obey(program *one, const char *order)
{
    static const struct {
        const char *name;
        void (*run)(program *one);
    } orders[] = {
        {"task", decide},  {"value", answer},      {"send", send_due},      {"ack", acknowledge}, {"lost", disconnect},
        {"recall", recall}, {"topics", print_topics}, {"spent", print_spent}, {"limits", limit},    {"save", save},
        {"time", set_clock},
    };
    for (size_t i = 0; i < sizeof orders / sizeof *orders; i++) {
        if (strcmp(order, orders[i].name) == 0) {
            orders[i].run(one);
            return;
        }
    }
    print_status(HUSH_ARGUMENT);
}

int main(int argc, char **argv)
{
    static char line[LINE_BYTES];
    static program one;
    static hush_files files;
    if (argc < 4 || argc > 6) {
        (void)fprintf(stderr, "hush_line: usage: hush_line STATE SENDER BROKER [SPREAD_MS [KEEP_SECONDS]]\n");
        return 1;
    }
    one.now = INT64_MIN;
    one.sender = argv[2];
    one.broker = argv[3];
    one.policy.spread = argc > 4 ? (uint32_t)strtoul(argv[4], NULL, 10) : 1000;
    one.policy.keep = argc > 5 ? strtoll(argv[5], NULL, 10) : HUSH_KEEP_SECONDS;
    if (hush_file_open(&files, argv[1], &one.storage) != HUSH_OK) {
        (void)fprintf(stderr, "hush_line: %s: cannot hold the state, or another program uses it (%s)\n", argv[1],
                      strerror(errno));
        return 1;
    }
    const hush_status status = open_device(&one);
    if (status != HUSH_OK) {
        (void)fprintf(stderr, "hush_line: %s\n", hush_message(status));
        return 1;
    }
    while (fgets(line, sizeof line, stdin)) {
        const bool is_whole = strchr(line, '\n') || feof(stdin);
        const char *order = strtok(line, " \n");
        for (int next = 0; !is_whole && next != EOF && next != '\n';) { /* longer than any order */
            next = fgetc(stdin);
        }
        if (order) {
            if (is_whole) {
                obey(&one, order);
            } else {
                print_status(HUSH_TOO_LARGE);
            }
            if (fflush(stdout) != 0) {
                return 1;
            }
        }
    }
    hush_file_close(&files);
    return 0;
}
#endif
