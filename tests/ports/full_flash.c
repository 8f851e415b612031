/* A device whose flash is full: rounds of one task, online or not.
 *
 *     full_flash PAGE_BYTES PAGES ROUNDS OFFLINE   of ROUNDS hourly rounds, the first OFFLINE are without a network
 *
 * Prints how many rounds were answered, how many reports were sent and are in the flash at the end, and the erases. */
#include "memory_flash.h"

enum { HOUR = 3600000 };

static const char TASK[] =
    "{\"domain\":{\"kind\":\"number\",\"lower\":0.0,\"outside\":\"clamp\",\"upper\":40.0},\"epsilon\":\"4\",\"id\":\"heating\","
    "\"mechanism\":\"laplace\",\"opens\":\"2026-01-01T00:00:00Z\",\"purpose\":\"p\",\"round_every\":\"1h\",\"rounds\":20000}";
static hush_flash_medium medium;
static hush_flash flash;
static hush_storage storage;
static hush_device device;
static uint32_t tickets[HUSH_WINDOW];
static size_t waiting, sent;
static bool is_online;

static int publish(void *context, const char *topic, const uint8_t *payload, size_t size, uint32_t ticket)
{
    (void)context;
    (void)topic;
    (void)payload;
    (void)size;
    if (!is_online || waiting == HUSH_WINDOW) {
        return -1;
    }
    tickets[waiting++] = ticket;
    sent++;
    return 0;
}

static void start(void)
{
    static const hush_policy policy = {.max_epsilon = "4", .lifetime = "4", .keep = HUSH_KEEP_SECONDS};
    must(hush_flash_open(&flash, &medium, &storage), "the storage");
    must(hush_device_open(&device, &storage, &policy, "sensor-17", "mqtts://broker.local", hush_os_random, NULL), "the state");
}

static void deliver(int64_t now)
{
    size_t before = 0;
    do {
        before = sent;
        must(hush_device_send(&device, now, publish, NULL, NULL), "send");
        while (waiting) {
            must(hush_device_acknowledged(&device, tickets[--waiting], 0, now), "an acknowledgement");
        }
    } while (sent > before);
}

/* Answers; a flash that is full must be found before a value is read. */
static bool answer(int64_t now)
{
    hush_task task;
    hush_decision decision;
    must(hush_read_task((const uint8_t *)TASK, sizeof TASK - 1, "4", &task), "the task");
    const hush_status status = hush_device_decide(&device, &task, now, &decision);
    if (status == HUSH_SPACE) {
        return false;
    }
    must(status, "decide");
    must(hush_device_answer(&device, &decision, "20", NULL), "answer");
    return true;
}

static size_t count_answers(void)
{
    char name[HUSH_NAME_BYTES];
    size_t count = 0;
    for (size_t i = 0; storage.name(storage.context, i, name, sizeof name) == HUSH_OK; i++) {
        count += name[0] == 'a';
    }
    return count;
}

int main(int argc, char **argv)
{
    if (argc != 5) {
        return 2;
    }
    medium = memory_medium((uint32_t)strtoul(argv[1], NULL, 10), (uint32_t)strtoul(argv[2], NULL, 10));
    const int rounds = atoi(argv[3]), offline = atoi(argv[4]);
    int answered = 0;
    memset(cells, 0xff, sizeof cells);
    must(hush_flash_format(&medium), "format");
    start();
    for (int round = 0; round < rounds; round++) {
        const int64_t now = INT64_C(1767225600000) + (int64_t)round * HOUR;
        is_online = round >= offline;
        if (round % 50 == 49) {
            start();
        }
        answered += answer(now);
        deliver(now);
    }
    char spent[HUSH_COST_BYTES], expected[HUSH_COST_BYTES];
    hush_sum sum;
    hush_sum_clear(&sum);
    must(hush_sum_add(&sum, "4", 20000, (uint32_t)answered), "the sum");
    must(hush_sum_text(&sum, expected, sizeof expected), "the sum");
    must(hush_device_spent(&device, NULL, 0, spent, sizeof spent), "spent");
    if (strcmp(spent, expected) != 0) {
        (void)printf("spent %s in place of %s\n", spent, expected);
        return 1;
    }
    (void)printf("%d %zu %zu %u\n", answered, sent, count_answers(), (unsigned)(flash.sequence - 1));
    return 0;
}
