/* A device and its flash, so that one version of the C port makes a state and another one goes on with it.
 *
 *     earlier_flash write SCENARIO   prints the bytes of a flash; "fresh", "sticky", "kept" or "recalled"
 *     earlier_flash read             goes on with the flash on standard input, and prints what the device does */
#define MOST_FLASH 16384 /* PAGE_BYTES * PAGES */
#include "memory_flash.h"

enum { PAGE_BYTES = 4096, PAGES = 4, HOUR = 3600000, ROUNDS = 8 };

#define ROUNDS_OF(id) \
    "\"id\":\"" id "\",\"opens\":\"2026-01-01T00:00:00Z\",\"purpose\":\"p\",\"round_every\":\"1h\",\"rounds\":100}"
#define NUMBER "{\"domain\":{\"kind\":\"number\",\"lower\":0.0,\"outside\":\"clamp\",\"upper\":1.0},\"epsilon\":\"2\","
static const char PLAIN[] = NUMBER "\"mechanism\":\"laplace\"," ROUNDS_OF("plain");
static const char STICKY[] =
    NUMBER "\"levels\":3,\"mechanism\":\"multilevel\",\"repeat\":\"sticky\"," ROUNDS_OF("sticky");
static const int64_t OPENS = INT64_C(1767225600000);
static const hush_policy POLICY = {.max_epsilon = "4", .lifetime = "8", .sticky = true, .keep = HUSH_KEEP_SECONDS};

static hush_flash_medium medium;
static hush_flash flash;
static hush_storage storage;
static hush_device device;
static uint32_t tickets[HUSH_WINDOW];
static size_t with_broker, most_with_broker = HUSH_WINDOW;
static bool prints;

static int next_bytes(void *context, uint8_t *out, size_t count)
{
    static uint64_t state = 1;
    (void)context;
    for (size_t i = 0; i < count; i++) {
        state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        out[i] = (uint8_t)(state >> 56);
    }
    return 0;
}

static int publish(void *context, const char *topic, const uint8_t *payload, size_t size, uint32_t ticket)
{
    (void)context;
    if (with_broker == most_with_broker) {
        return -1;
    }
    if (prints) {
        (void)printf("%s ", topic);
        for (size_t i = 0; i < size; i++) {
            (void)printf("%02x", payload[i]);
        }
        (void)printf("\n");
    }
    tickets[with_broker++] = ticket;
    return 0;
}

static void deliver(int64_t now)
{
    must(hush_device_send(&device, now, publish, NULL, NULL), "send");
    while (with_broker) {
        must(hush_device_acknowledged(&device, tickets[--with_broker], 0, now), "an acknowledgement");
    }
}

static hush_status answer(const char *payload, int round)
{
    hush_task task;
    hush_decision decision;
    must(hush_read_task((const uint8_t *)payload, strlen(payload), "4", &task), "the task");
    const hush_status status = hush_device_decide(&device, &task, OPENS + (int64_t)round * HOUR, &decision);
    return status == HUSH_OK ? hush_device_answer(&device, &decision, "0.3", NULL) : status;
}

static void recall(void)
{
    char text[512];
    uint8_t digest[HUSH_DIGEST_BYTES];
    hush_digest((const uint8_t *)PLAIN, strlen(PLAIN), digest);
    int size = snprintf(text, sizeof text, "{\"v\":1,\"task\":\"plain\",\"digest\":\"");
    for (size_t i = 0; i < sizeof digest; i++) {
        size += snprintf(text + size, sizeof text - (size_t)size, "%02x", digest[i]);
    }
    size += snprintf(text + size, sizeof text - (size_t)size, "\",\"id\":\"%032x\",\"over\":1800}", 7u);
    must(hush_device_recall(&device, "plain", (const uint8_t *)text, (size_t)size), "a recall");
}

static void start(void)
{
    must(hush_flash_open(&flash, &medium, &storage), "the storage");
    must(hush_device_open(&device, &storage, &POLICY, "sensor-17", "mqtts://broker.local", next_bytes, NULL), "state");
}

static void make(const char *scenario)
{
    const char *payload = strcmp(scenario, "sticky") == 0 ? STICKY : PLAIN;
    memset(cells, 0xff, sizeof cells);
    must(hush_flash_format(&medium), "format");
    start();
    for (int round = 0; round < ROUNDS; round++) {
        must(answer(payload, round), "an answer");
        if (strcmp(scenario, "fresh") != 0) {
            deliver(OPENS + (int64_t)round * HOUR + 1000);
        }
    }
    if (strcmp(scenario, "recalled") == 0) {
        recall();
        most_with_broker = 2; /* of those that are asked for */
        deliver(OPENS + (int64_t)ROUNDS * HOUR);
        deliver(OPENS + (int64_t)ROUNDS * HOUR + 1800000);
        must(hush_device_save(&device), "save");
    }
}

static void print_spent(void)
{
    char spent[HUSH_COST_BYTES];
    must(hush_device_spent(&device, NULL, 0, spent, sizeof spent), "spent");
    (void)printf("spent %s\n", spent);
}

/* Asks both tasks about the rounds of `make` and one more, and recalls. */
static void go_on(void)
{
    start();
    print_spent();
    for (int round = 0; round <= ROUNDS; round++) {
        (void)printf("round %d: %d %d\n", round, answer(PLAIN, round), answer(STICKY, round));
    }
    print_spent();
    prints = true;
    for (int pass = 0; pass < 3; pass++) {
        recall();
        for (int minute = 0; minute <= 60; minute += 5) {
            deliver(OPENS + (int64_t)(ROUNDS + 2 + pass) * HOUR + minute * 60000);
        }
        start();
    }
    print_spent();
}

int main(int argc, char **argv)
{
    medium = memory_medium(PAGE_BYTES, PAGES);
    if (argc == 3 && strcmp(argv[1], "write") == 0) {
        make(argv[2]);
        return fwrite(cells, 1, sizeof cells, stdout) == sizeof cells ? 0 : 1;
    }
    if (argc != 2 || fread(cells, 1, sizeof cells, stdin) != sizeof cells) {
        return 2;
    }
    go_on();
    return 0;
}
