/* Runs on the Cortex-M: a device that answers each round of a task once, while its machine is reset in the middle.
 *
 * task.h is written by test_cortex_m.py. Prints a line for each fact, and ends with 0 if all is right. */
#include "hush_device.h"
#include "hush_flash.h"
#include "start.h"

#include <string.h>

#include "task.h" /* TASK, OPENS, ROUNDS, SPENT */

enum { PAGE = 4096, PAGES = 2, MAGIC = 0x68757368, RESETS = 100, LENGTH = 48 };

static struct {
    uint32_t magic, seed, resets, round, sent;
    bool was_sent[ROUNDS];
    uint8_t payload[ROUNDS][LENGTH];
    uint8_t cell[PAGES * PAGE];
} survivor __attribute__((section(".noinit")));

#include "survivor.h"

static hush_device device;
static hush_task task;
static hush_decision decision;
static uint32_t tickets[HUSH_WINDOW], waiting;

_Noreturn static void fail(const char *what)
{
    print("failed: ");
    print(what);
    print(": ");
    print(hush_message(status));
    print("\n");
    leave(1);
}

static int fill(void *context, uint8_t *out, size_t count)
{
    (void)context;
    for (; count; count--) {
        *out++ = (uint8_t)draw();
    }
    return 0;
}

static int64_t now(void)
{
    return INT64_C(1000) * (OPENS + 60 * (int64_t)survivor.round + 1);
}

/* The payload of a round never changes. */
static int publish(void *context, const char *topic, const uint8_t *payload, size_t size, uint32_t ticket)
{
    const uint32_t round = payload[23];
    (void)context;
    if (size != LENGTH || round >= ROUNDS || strcmp(topic, "hush/v1/reports/rounds/sensor") != 0) {
        fail("a payload");
    }
    if (survivor.was_sent[round] && memcmp(survivor.payload[round], payload, size) != 0) {
        fail("a round was answered twice");
    }
    memcpy(survivor.payload[round], payload, size);
    survivor.was_sent[round] = true;
    survivor.sent++;
    tickets[waiting++] = ticket;
    return 0;
}

static void open_device(void)
{
    static const hush_policy policy = {.max_epsilon = "4", .keep = 60};
    status = hush_device_open(&device, &storage, &policy, "sensor", "mqtt://broker", fill, NULL);
}

static void decide(void)
{
    status = hush_read_task((const uint8_t *)TASK, sizeof TASK - 1, "4", &task);
    status = status == HUSH_OK ? hush_device_decide(&device, &task, now(), &decision) : status;
}

static void answer(void)
{
    status = hush_device_answer(&device, &decision, "21.5", NULL);
}

static void send_due(void)
{
    int64_t next = 0;
    status = hush_device_send(&device, now(), publish, NULL, &next);
}

static void acknowledge(void)
{
    for (; waiting && status == HUSH_OK; waiting--) {
        status = hush_device_acknowledged(&device, tickets[waiting - 1], 0, now());
    }
}

static uint32_t deepest_of_steps[5];

static void step(uint32_t which, void (*call)(void), const char *what)
{
    deepest_of_steps[which] = deepest(deepest_of_steps[which], call);
    if (status != HUSH_OK && !(call == decide && status == HUSH_ANSWERED)) {
        fail(what);
    }
}

static void answer_rounds(void)
{
    for (; survivor.round < ROUNDS; survivor.round++) {
        step(1, decide, "decide");
        if (status == HUSH_OK) {
            step(2, answer, "answer");
        }
        step(3, send_due, "send");
        step(4, acknowledge, "acknowledge");
    }
}

int main(void)
{
    static const char *const names[] = {"open", "decide", "answer", "send", "acknowledge"};
    char spent[HUSH_COST_BYTES];
    if (survivor.magic != MAGIC) {
        memset(&survivor, 0, sizeof survivor);
        memset(survivor.cell, 0xff, sizeof survivor.cell);
        survivor.magic = MAGIC;
    }
    power = survivor.resets < RESETS ? draw() % 3000 : UINT32_MAX;
    open_it();
    if (status != HUSH_OK) {
        fail("the storage");
    }
    step(0, open_device, "open");
    answer_rounds();
    for (uint32_t round = 0; round < ROUNDS; round++) {
        if (!survivor.was_sent[round]) {
            fail("a round was not sent");
        }
    }
    status = hush_device_spent(&device, NULL, 0, spent, sizeof spent);
    if (status != HUSH_OK || strcmp(spent, SPENT) != 0) {
        fail(spent);
    }
    for (uint32_t i = 0; i < 5; i++) {
        print(names[i]);
        print(" device ");
        print_number(deepest_of_steps[i]);
        print("\n");
    }
    print("size device ");
    print_number(sizeof device);
    print("\nresets device ");
    print_number(survivor.resets);
    print("\nerases device ");
    print_number(flash.sequence - 1);
    print("\nsent device ");
    print_number(survivor.sent);
    print("\n");
    return 0;
}
