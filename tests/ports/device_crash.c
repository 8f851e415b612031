/* Cuts the power of a C device at every step of its storage, in every way, and compares what it did with a model.
 *
 *     device_crash SCENARIO      prints "CUTS WRITES", or one line of what was wrong
 *
 * The storage is in memory. A cut at step k either loses that write or makes it, and ends the run: every later call
 * fails. Then the device starts again with what the storage has. The model is simple: a report is the task, the round
 * and the bytes that were first handed to the network; no other bytes may follow for that round; and what is spent is
 * one charge for each round that has a report, and never less than was sent. */
#include "hush_device.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RECORDS = 200, ROUNDS = 80, TASKS = 2, STEPS = 400 };

typedef struct {
    char name[HUSH_NAME_BYTES];
    uint8_t bytes[HUSH_RECORD_BYTES];
    size_t size;
} record;

static record place[RECORDS];
static long left;   /* writes until the cut; below 0: none */
static bool is_made, is_off;
static long writes; /* in all */
static size_t limit; /* bytes of all records; 0: none */

static record *find(const char *name)
{
    for (size_t i = 0; i < RECORDS; i++) {
        if (strcmp(place[i].name, name) == 0) {
            return place + i;
        }
    }
    return NULL;
}

/* Whether this write happens; the power may end with it. */
static bool may_write(void)
{
    writes++;
    if (is_off) {
        return false;
    }
    if (left-- == 0) {
        is_off = true;
        return is_made;
    }
    return true;
}

/* Whether a record of so many bytes fits in the place of an old one; the old one always does. */
static bool fits(size_t old, size_t size)
{
    size_t all = 0;
    for (size_t i = 0; i < RECORDS; i++) {
        all += place[i].size;
    }
    return !limit || size <= old || all - old + size <= limit;
}

static hush_status load(void *context, const char *name, uint8_t *out, size_t capacity, size_t *size)
{
    (void)context;
    const record *found = find(name);
    if (is_off || !found) {
        return is_off ? HUSH_STORAGE : !out && !fits(0, capacity) ? HUSH_SPACE : HUSH_NONE;
    }
    if (found->size > capacity) {
        return HUSH_SPACE;
    }
    memcpy(out, found->bytes, found->size);
    *size = found->size;
    return HUSH_OK;
}

static hush_status store(void *context, const char *name, const uint8_t *bytes, size_t size)
{
    (void)context;
    record *found = find(name);
    if (!is_off && !fits(found ? found->size : 0, size)) {
        return HUSH_SPACE;
    }
    if (may_write()) {
        found = found ? found : find("");
        if (!found || size > sizeof found->bytes) {
            return HUSH_STORAGE;
        }
        memcpy(found->name, name, strlen(name) + 1);
        memcpy(found->bytes, bytes, size);
        found->size = size;
    }
    return is_off ? HUSH_STORAGE : HUSH_OK;
}

static hush_status remove_record(void *context, const char *name)
{
    (void)context;
    record *found = find(name);
    if (may_write() && found) {
        memset(found, 0, sizeof *found);
    }
    return is_off ? HUSH_STORAGE : HUSH_OK;
}

static hush_status name_of(void *context, size_t index, char *out, size_t capacity)
{
    (void)context;
    for (size_t i = 0; i < RECORDS && !is_off; i++) {
        if (place[i].name[0] && !index--) {
            (void)snprintf(out, capacity, "%s", place[i].name);
            return HUSH_OK;
        }
    }
    return is_off ? HUSH_STORAGE : HUSH_NONE;
}

static const hush_storage STORAGE = {NULL, load, store, remove_record, name_of};

/* Different bytes at every call, so that a second draw is another report. */
static uint64_t state;

static int next_bytes(void *context, uint8_t *out, size_t count)
{
    (void)context;
    for (size_t i = 0; i < count; i++) {
        state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        out[i] = (uint8_t)(state >> 56);
    }
    return 0;
}

/* ---- the model */

typedef struct {
    uint8_t bytes[HUSH_FRAME_BYTES];
    size_t size; /* 0: nothing was sent */
    bool is_acknowledged;
    uint32_t resent; /* after the acknowledgement */
} report;

static report sent[TASKS][ROUNDS];
static bool asked[TASKS][ROUNDS];
static struct {
    uint32_t ticket;
    size_t task, round;
} with_broker[HUSH_WINDOW];
static const char *wrong;

static void expect(bool holds, const char *what)
{
    wrong = holds || wrong ? wrong : what;
}

static int publish(void *context, const char *topic, const uint8_t *payload, size_t size, uint32_t ticket)
{
    (void)context;
    const size_t task = strstr(topic, "/other/") != NULL;
    const size_t round = (size_t)payload[20] << 24 | (size_t)payload[21] << 16 | (size_t)payload[22] << 8 | payload[23];
    if (round >= ROUNDS) {
        expect(false, "a round that was not asked");
        return 0;
    }
    report *known = &sent[task][round];
    expect(!known->size || (known->size == size && memcmp(known->bytes, payload, size) == 0), "other bytes for a round");
    memcpy(known->bytes, payload, size);
    known->size = size;
    known->resent += known->is_acknowledged;
    for (size_t i = 0; i < HUSH_WINDOW; i++) {
        if (!with_broker[i].ticket) {
            with_broker[i].ticket = ticket;
            with_broker[i].task = task;
            with_broker[i].round = round;
            return 0;
        }
    }
    return 1;
}

static hush_device device;
static const char *payloads[TASKS];
static size_t tasks;
static hush_policy policy = {
    .max_epsilon = "50", .lifetime = "999", .sticky = true, .spread = 5000, .keep = 40 * 3600, .recall_every = 7200,
    .kept = 12};

static bool start(void)
{
    is_off = false;
    left = -1;
    memset(with_broker, 0, sizeof with_broker);
    hush_status status = hush_device_open(&device, &STORAGE, &policy, "dev", "mqtt://broker", next_bytes, NULL);
    expect(status == HUSH_OK, "the state is not readable after a cut");
    return status == HUSH_OK;
}

static const int64_t OPENS = INT64_C(1767225600000), HOUR = 3600000;

static void answer(size_t which, int64_t now)
{
    hush_task task;
    hush_decision decision;
    hush_status status =
        hush_read_task((const uint8_t *)payloads[which], strlen(payloads[which]), "50", &task);
    expect(status == HUSH_OK, "the task is not read");
    asked[which][(now - OPENS) / HOUR] = true;
    status = hush_device_decide(&device, &task, now, &decision);
    if (status == HUSH_OK) {
        status = hush_device_answer(&device, &decision, now % 7 ? "0.3" : NULL, NULL);
    }
    expect(status == HUSH_OK || status == HUSH_ANSWERED || is_off, "an answer is refused");
}

static void recall(int64_t now)
{
    char text[512];
    uint8_t digest[HUSH_DIGEST_BYTES];
    hush_digest((const uint8_t *)payloads[0], strlen(payloads[0]), digest);
    int size = snprintf(text, sizeof text, "{\"v\":1,\"task\":\"one\",\"digest\":\"");
    for (size_t i = 0; i < sizeof digest; i++) {
        size += snprintf(text + size, sizeof text - (size_t)size, "%02x", digest[i]);
    }
    size += snprintf(text + size, sizeof text - (size_t)size, "\",\"id\":\"%032llx\",\"over\":1800}",
                     (unsigned long long)(now / 36000000 + 1));
    expect(hush_device_recall(&device, "one", (const uint8_t *)text, (size_t)size) == HUSH_OK || is_off,
           "a recall is refused");
}

static void acknowledge(int64_t now)
{
    for (size_t i = 0; i < HUSH_WINDOW && !is_off; i++) {
        if (!with_broker[i].ticket) {
            continue;
        }
        const uint32_t ticket = with_broker[i].ticket;
        report *one = &sent[with_broker[i].task][with_broker[i].round];
        with_broker[i].ticket = 0;
        const bool is_refused = with_broker[i].round == 0 ? now < OPENS + 70 * HOUR : now % 5 == 0;
        (void)hush_device_acknowledged(&device, ticket, is_refused ? 135 : 0, now);
        one->is_acknowledged = one->is_acknowledged || !is_refused;
    }
}

/* One hour: answers, sends, acknowledges, and now and then a recall. */
static void step(int64_t now, int hour)
{
    for (size_t which = 0; which < tasks && !is_off; which++) {
        answer(which, now);
        if (hour && !is_off) {
            answer(which, now - HOUR); /* the clock was set back */
        }
    }
    for (int i = 0; i < 4 && !is_off; i++) {
        (void)hush_device_send(&device, now + 6000 + i * 600000, publish, NULL, NULL);
        acknowledge(now + 6001 + i * 600000);
    }
    if (hour % 11 == 10 && !is_off) {
        recall(now);
    }
}

/* How many answers were charged; UINT32_MAX where it is not a whole number of them. */
static uint32_t charges(const char *cost, uint32_t divisor)
{
    char found[HUSH_COST_BYTES], some[HUSH_COST_BYTES];
    hush_sum sum;
    expect(hush_device_spent(&device, NULL, 0, found, sizeof found) == HUSH_OK, "the ledger is not readable");
    hush_sum_clear(&sum);
    for (uint32_t count = 0; count <= TASKS * ROUNDS; count++) {
        if (hush_sum_text(&sum, some, sizeof some) == HUSH_OK && strcmp(some, found) == 0) {
            return count;
        }
        (void)hush_sum_add(&sum, cost, divisor, 1);
    }
    return UINT32_MAX;
}

/* Each report was charged, and no round twice; once nothing is under way, each round has a report and a charge. Of a
 * sticky task there is one charge for all rounds. */
static void check_spending(const char *cost, uint32_t divisor, bool is_sticky, bool is_settled)
{
    uint32_t least = 0, most = 0;
    for (size_t which = 0; which < tasks; which++) {
        uint32_t reports = 0, rounds = 0;
        for (size_t round = 0; round < ROUNDS; round++) {
            reports += sent[which][round].size > 0;
            rounds += asked[which][round];
        }
        least += is_sticky ? reports > 0 : reports;
        most += is_sticky ? rounds > 0 : rounds;
        expect(!is_settled || reports == rounds, "a round has no report");
    }
    const uint32_t found = charges(cost, divisor);
    expect(found >= least, "a report was not charged");
    expect(found <= most, "a round was charged twice");
    expect(!is_settled || found == most, "a round was not charged once");
}

typedef struct {
    const char *name, *task, *cost;
    uint32_t divisor;
    bool is_sticky;
    size_t limit; /* of the storage, which has no room for all kept reports */
} scenario;

#define ROUNDS_OF(id) "\"id\":\"" id "\",\"opens\":\"2026-01-01T00:00:00Z\",\"purpose\":\"p\",\"round_every\":\"1h\""
#define NUMBER "{\"domain\":{\"kind\":\"number\",\"lower\":0,\"outside\":\"clamp\",\"upper\":1},"

static const scenario SCENARIOS[] = {
    {"fresh", "\"epsilon\":\"2\",\"mechanism\":\"laplace\",", "2", 76, false, 0},
    {"full", "\"epsilon\":\"2\",\"mechanism\":\"laplace\",", "2", 76, false, 3000},
    {"sticky", "\"epsilon\":\"2\",\"levels\":3,\"mechanism\":\"multilevel\",\"repeat\":\"sticky\",", "2", 1, true, 0},
    {"full_sticky",
     "\"epsilon\":\"2\",\"levels\":3,\"mechanism\":\"multilevel\",\"repeat\":\"sticky\",", "2", 1, true, 3000},
};

/* Lives some days with a cut after `cut` writes, or none; returns the writes until then. */
static long live(const scenario *one, long cut, bool made, int hours)
{
    static char first[512], second[512];
    memset(place, 0, sizeof place);
    memset(sent, 0, sizeof sent);
    memset(asked, 0, sizeof asked);
    state = (uint64_t)cut * 2 + made + 1;
    (void)snprintf(first, sizeof first, "%s%s%s", NUMBER, one->task, ROUNDS_OF("one") ",\"rounds\":76}");
    (void)snprintf(second, sizeof second, "%s%s%s", NUMBER, one->task, ROUNDS_OF("other") ",\"rounds\":76}");
    payloads[0] = first;
    payloads[1] = second;
    tasks = TASKS;
    limit = one->limit;
    if (!start()) {
        return 0;
    }
    writes = 0;
    left = cut;
    is_made = made;
    for (int hour = 0; hour < hours && !wrong; hour++) {
        step(OPENS + hour * HOUR + 13 + hour, hour);
        if (is_off) { /* the power is back, in the same hour */
            if (!start()) {
                return writes;
            }
            check_spending(one->cost, one->divisor, one->is_sticky, false);
            step(OPENS + hour * HOUR + 2700000 + hour, hour);
        }
    }
    const long all = writes;
    for (int i = 1; i < 90 && !wrong; i++) { /* everything is delivered, and its time ends */
        (void)hush_device_send(&device, OPENS + hours * HOUR + i * 2 * HOUR + 1, publish, NULL, NULL);
        acknowledge(OPENS + hours * HOUR + i * 2 * HOUR + 6);
    }
    check_spending(one->cost, one->divisor, one->is_sticky, true);
    for (size_t i = 0; i < RECORDS; i++) {
        expect(place[i].name[0] != 'a', "an answer is never folded");
    }
    return all;
}

int main(int argc, char **argv)
{
    const int hours = argc > 2 ? atoi(argv[2]) : 12, stride = argc > 3 ? atoi(argv[3]) : 1;
    for (size_t i = 0; i < sizeof SCENARIOS / sizeof *SCENARIOS; i++) {
        if (argc < 2 || strcmp(argv[1], SCENARIOS[i].name) != 0) {
            continue;
        }
        const long all = live(SCENARIOS + i, -1, false, hours);
        long cuts = 0;
        uint32_t resent = 0;
        for (size_t round = 0; round < ROUNDS; round++) {
            resent += sent[0][round].resent;
        }
        expect(hours < 12 || resent > 0, "no recall was served");
        for (long cut = 0; cut < all && !wrong; cut += stride) {
            for (int made = 0; made < 2 && !wrong; made++, cuts++) {
                (void)live(SCENARIOS + i, cut, made != 0, hours);
                if (wrong) {
                    (void)printf("%s (%s at write %ld of %ld)\n", wrong, made ? "cut after" : "cut before", cut, all);
                    return 1;
                }
            }
        }
        if (wrong) {
            (void)printf("%s (no cut)\n", wrong);
            return 1;
        }
        (void)printf("%ld %ld\n", cuts, all);
        return 0;
    }
    return 2;
}
