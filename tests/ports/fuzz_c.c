/* A target of libFuzzer: everything that the C port parses. The first byte of the input says as what the rest is read:
 * a task (which is then answered), a recall, a value, or a record of the state. */
#include "hush_device.h"

#include <stdlib.h>
#include <string.h>

enum { RECORDS = 8 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char BITS[] =
    "{\"domain\":{\"kind\":\"bit\"},\"epsilon\":\"1\",\"id\":\"bits\",\"levels\":[],\"mechanism\":\"randomized_response\","
    "\"opens\":\"2026-01-01T00:00:00Z\",\"repeat\":\"sticky\",\"round_every\":\"1d\",\"rounds\":3}";
#define HASH "e5e59d10f196504b6e08ac77" /* of the id */
static const int64_t OPENS = INT64_C(1767225600000);

static struct {
    char name[HUSH_NAME_BYTES];
    uint8_t bytes[HUSH_RECORD_BYTES];
    size_t size;
} place[RECORDS];

static hush_status load(void *context, const char *name, uint8_t *out, size_t capacity, size_t *size)
{
    (void)context;
    for (size_t i = 0; i < RECORDS; i++) {
        if (place[i].name[0] && strcmp(place[i].name, name) == 0) {
            memcpy(out, place[i].bytes, place[i].size < capacity ? place[i].size : capacity);
            *size = place[i].size;
            return place[i].size <= capacity ? HUSH_OK : HUSH_SPACE;
        }
    }
    return HUSH_NONE;
}

static hush_status store(void *context, const char *name, const uint8_t *bytes, size_t size)
{
    size_t slot = RECORDS;
    (void)context;
    for (size_t i = RECORDS; i-- > 0;) {
        slot = !place[i].name[0] && slot == RECORDS ? i : slot;
    }
    for (size_t i = 0; i < RECORDS; i++) {
        slot = strcmp(place[i].name, name) == 0 ? i : slot;
    }
    if (slot == RECORDS || size > sizeof place[slot].bytes) {
        return HUSH_STORAGE;
    }
    memcpy(place[slot].name, name, strlen(name) + 1);
    memcpy(place[slot].bytes, bytes, size);
    place[slot].size = size;
    return HUSH_OK;
}

static hush_status remove_record(void *context, const char *name)
{
    (void)context;
    for (size_t i = 0; i < RECORDS; i++) {
        if (strcmp(place[i].name, name) == 0) {
            memset(&place[i], 0, sizeof place[i]);
        }
    }
    return HUSH_OK;
}

static hush_status name_of(void *context, size_t index, char *out, size_t capacity)
{
    (void)context;
    for (size_t i = 0; i < RECORDS; i++) {
        if (place[i].name[0] && !index--) {
            (void)capacity;
            memcpy(out, place[i].name, sizeof place[i].name);
            return HUSH_OK;
        }
    }
    return HUSH_NONE;
}

static uint32_t state;

static int next_bytes(void *context, uint8_t *out, size_t count)
{
    (void)context;
    for (size_t i = 0; i < count; i++) {
        state = state * 1664525u + 1013904223u;
        out[i] = (uint8_t)(state >> 24);
    }
    return 0;
}

static int publish(void *context, const char *topic, const uint8_t *payload, size_t size, uint32_t ticket)
{
    (void)context;
    (void)payload;
    return (int)((strlen(topic) + size + ticket) & 1);
}

static void read_task(const uint8_t *data, size_t size)
{
    hush_task task;
    hush_memory memory;
    hush_report report;
    uint32_t round = 0;
    if (hush_read_task(data, size, "50", &task) != HUSH_OK) {
        return;
    }
    char cost[HUSH_COST_BYTES];
    if (hush_cost(&task, cost, sizeof cost) != HUSH_OK) {
        abort(); /* a task that was read has a cost, */
    }
    if (hush_round(&task, OPENS / 1000, &round) != HUSH_OK) {
        round = 0;
    }
    hush_status status = task.sticky ? hush_draw_memory(&task, next_bytes, NULL, &memory) : HUSH_OK;
    if (status == HUSH_OK) {
        status = hush_draw(&task, task.sticky ? &memory : NULL, round, "1,2", next_bytes, NULL, &report);
    }
    if (status != HUSH_OK) {
        abort(); /* and is answered */
    }
}

static void read_value(const uint8_t *data, size_t size)
{
    static const char *const tasks[] = {
        "{\"domain\":{\"kind\":\"number\",\"lower\":-5e-324,\"outside\":\"clamp\",\"upper\":1e308},\"epsilon\":\"1\",\"id\":"
        "\"a\",\"mechanism\":\"laplace\",\"rounds\":1}",
        "{\"domain\":{\"kind\":\"category\",\"labels\":[\"x\",\"\\\"y\\\\\"],\"other\":\"x\"},\"epsilon\":\"1\",\"id\":\"a\","
        "\"mechanism\":\"subset_selection\",\"rounds\":1,\"size\":1}",
        "{\"domain\":{\"coordinates\":[{\"lower\":0,\"name\":\"x\",\"outside\":\"clamp\",\"upper\":1},{\"lower\":-1,\"name\":"
        "\"y\",\"outside\":\"clamp\",\"upper\":1}],\"kind\":\"vector\"},\"epsilon\":\"1\",\"id\":\"a\",\"levels\":1,"
        "\"mechanism\":\"vector\",\"rounds\":1,\"sampled\":1}",
    };
    char *value = malloc(size + 1);
    hush_report report;
    memcpy(value, data, size);
    value[size] = 0;
    for (size_t i = 0; i < 3; i++) {
        hush_task task;
        if (hush_read_task((const uint8_t *)tasks[i], strlen(tasks[i]), "4", &task) != HUSH_OK ||
            hush_answer(&task, value, 0, next_bytes, NULL, &report) != HUSH_OK) {
            abort(); /* whatever a value is, it is answered */
        }
    }
    free(value);
}

/* A record with a right checksum, so that its content is read. */
static void plant(const char *name, const uint8_t *data, size_t size)
{
    uint8_t record[HUSH_RECORD_BYTES], digest[HUSH_DIGEST_BYTES];
    size = size < sizeof record - 8 ? size : sizeof record - 8;
    memcpy(record, data, size);
    hush_digest(data, size, digest);
    memcpy(record + size, digest, 8);
    (void)store(NULL, name, record, size + 8);
}

/* A device whose state has that record: it may refuse, and does nothing else wrong. */
static void use_state(void)
{
    static const hush_storage storage = {NULL, load, store, remove_record, name_of};
    static const hush_policy policy = {.sticky = true, .keep = 3600};
    static hush_device device;
    hush_task task;
    hush_decision decision;
    char topic[HUSH_TOPIC_BYTES];
    if (hush_device_open(&device, &storage, &policy, "dev", "broker", next_bytes, NULL) != HUSH_OK ||
        hush_read_task((const uint8_t *)BITS, sizeof BITS - 1, "4", &task) != HUSH_OK) {
        return;
    }
    if (hush_device_decide(&device, &task, OPENS, &decision) == HUSH_OK) {
        (void)hush_device_answer(&device, &decision, "yes", NULL);
    }
    for (int i = 0; i < 4; i++) {
        (void)hush_device_send(&device, OPENS + i * 600000, publish, NULL, NULL);
        (void)hush_device_acknowledged(&device, (uint32_t)i, 0, OPENS + i * 600000);
    }
    (void)hush_device_recall_topic(&device, 0, topic, sizeof topic);
    (void)hush_device_save(&device);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    hush_recall recall;
    state = 1;
    if (!size) {
        return 0;
    }
    const uint8_t kind = *data++;
    uint8_t *exact = malloc(size > 1 ? size - 1 : 1); /* as long as its content, so that a read too far is seen */
    memcpy(exact, data, --size);
    memset(place, 0, sizeof place);
    switch (kind % 5) {
    case 0:
        read_task(exact, size);
        break;
    case 1:
        (void)hush_read_recall(exact, size, &recall);
        break;
    case 2:
        read_value(exact, size);
        break;
    case 3:
        plant("t-" HASH, exact, size);
        use_state();
        break;
    default:
        use_state(); /* makes the account */
        plant("a-" HASH "-0", exact, size);
        use_state();
    }
    free(exact);
    return 0;
}
