/* Runs on the Cortex-M: the vectors, how deep the stack goes, and a storage whose machine is reset in the middle.
 *
 * vectors.h is written by test_cortex_m.py. Prints a line for each fact, and ends with 0 if all is right. */
#include "hush_flash.h"
#include "start.h"

#include <string.h>

typedef struct {
    const char *task, *most, *value, *sender, *topic;
    int64_t now;
    const uint8_t *random, *frame;
    uint32_t random_bytes, frame_bytes;
    const char *name; /* its stack is measured under this name, unless it is empty */
} vector;

#include "vectors.h"

enum { PAGE = 1024, PAGES = 2, MAGIC = 0x68757368, RESETS = 200, CONTENT = 90 };

static struct {
    uint32_t magic, seed, resets, stored, tried;
    uint8_t cell[PAGES * PAGE];
} survivor __attribute__((section(".noinit")));

#include "survivor.h"

_Noreturn static void fail(const char *what)
{
    print("failed: ");
    print(what);
    print("\n");
    leave(1);
}

static void state(const char *what, const char *which, uint32_t number)
{
    print(what);
    print(" ");
    print(which);
    print(" ");
    print_number(number);
    print("\n");
}

/* ---- the vectors */

static const vector *asked;
static uint32_t used;
static hush_task task;
static hush_report report;
static uint8_t frame[HUSH_FRAME_BYTES];
static size_t frame_bytes;

static int next_bytes(void *context, uint8_t *out, size_t count)
{
    (void)context;
    if (asked->random_bytes - used < count) {
        return -1;
    }
    memcpy(out, asked->random + used, count);
    used += (uint32_t)count;
    return 0;
}

static void read_it(void)
{
    status = hush_read_task((const uint8_t *)asked->task, strlen(asked->task), asked->most, &task);
}

static void answer_it(void)
{
    used = 0;
    status = hush_answer(&task, asked->value, asked->now, next_bytes, NULL, &report);
}

static void encode_it(void)
{
    char topic[HUSH_TOPIC_BYTES];
    status = hush_encode_frame(report.digest, report.round, report.id, report.body, report.width, 1, frame,
                               sizeof frame, &frame_bytes);
    if (status == HUSH_OK) {
        status = hush_report_topic(task.id, asked->sender, topic, sizeof topic);
    }
    if (status == HUSH_OK && strcmp(topic, asked->topic) != 0) {
        fail("a topic");
    }
}

static void check_vectors(void)
{
    static const char *const steps[] = {"read", "answer", "encode"};
    void (*const calls[])(void) = {read_it, answer_it, encode_it};
    for (uint32_t i = 0; i < sizeof VECTORS / sizeof *VECTORS; i++) {
        asked = VECTORS + i;
        for (uint32_t step = 0; step < 3; step++) {
            const uint32_t depth = depth_of(calls[step]);
            if (status != HUSH_OK) {
                fail(asked->task);
            }
            if (*asked->name) {
                state(steps[step], asked->name, depth);
            }
        }
        if (used != asked->random_bytes || frame_bytes != asked->frame_bytes ||
            memcmp(frame, asked->frame, frame_bytes) != 0) {
            fail(asked->task);
        }
    }
    if (hush_read_task((const uint8_t *)WIDE, sizeof WIDE - 1, "4", &task) != HUSH_TOO_LARGE) {
        fail("what does not fit is HUSH_TOO_LARGE");
    }
    state("size", "task", sizeof task);
    state("size", "report", sizeof report);
    state("size", "flash", sizeof flash);
    state("vectors", "equal", sizeof VECTORS / sizeof *VECTORS);
}

/* ---- the storage */

static uint8_t content[CONTENT];

static void store_it(void)
{
    memset(content, (int)(survivor.tried & 0xff), sizeof content);
    status = storage.store(storage.context, "answer", content, sizeof content);
}

/* Stores one record again and again; at every start it is the last that was stored, or the one that was being stored. */
static void check_storage(void)
{
    uint32_t opening = 0, storing = 0;
    size_t size = 0;
    power = survivor.resets < RESETS && draw() % 2 ? draw() % 700 : UINT32_MAX;
    opening = deepest(0, open_it);
    if (status != HUSH_OK) {
        fail("the storage");
    }
    power = survivor.resets < RESETS ? draw() % 4000 : UINT32_MAX;
    status = storage.load(storage.context, "answer", content, sizeof content, &size);
    if (status == HUSH_NONE ? survivor.stored != 0 : status != HUSH_OK || size != CONTENT) {
        fail("a record");
    }
    for (uint32_t i = 0; i < size; i++) {
        if (content[i] != content[0]) {
            fail("half a record");
        }
    }
    if (size && content[0] != (uint8_t)survivor.stored && content[0] != (uint8_t)survivor.tried) {
        fail("another record");
    }
    survivor.stored = status == HUSH_NONE ? 0 : content[0];
    for (uint32_t i = 0; i < 100; i++) {
        survivor.tried = survivor.stored % 255 + 1;
        storing = deepest(storing, store_it);
        if (status != HUSH_OK) {
            fail("a store");
        }
        survivor.stored = survivor.tried;
    }
    state("open", "flash", opening);
    state("store", "flash", storing);
    state("resets", "survived", survivor.resets);
    state("erases", "of", flash.sequence - 1);
}

int main(void)
{
    if (survivor.magic != MAGIC) {
        memset(&survivor, 0, sizeof survivor);
        memset(survivor.cell, 0xff, sizeof survivor.cell);
        survivor.magic = MAGIC;
        check_vectors();
    }
    check_storage();
    return survivor.resets == RESETS ? 0 : (reset_machine(), 1);
}
