/* The least that an application links: a task is read and decided, and the answer is stored in flash with its charge
 * before it is sent. Its size is the size of hush on a Cortex-M. */
#include "hush_device.h"
#include "hush_flash.h"
#include "start.h"

#include <string.h>

static uint8_t cells[2][2048];
static hush_flash flash;
static hush_storage storage;
static hush_device device;
static uint8_t json[512];
volatile uint32_t entropy_register;

static int read_cells(void *context, uint32_t address, uint8_t *out, size_t size)
{
    (void)context;
    memcpy(out, (uint8_t *)cells + address, size);
    return 0;
}

static int program_cells(void *context, uint32_t address, const uint8_t *bytes, size_t size)
{
    (void)context;
    memcpy((uint8_t *)cells + address, bytes, size);
    return 0;
}

static int erase_cells(void *context, uint32_t page)
{
    (void)context;
    memset(cells[page], 0xff, sizeof *cells);
    return 0;
}

static int fill(void *context, uint8_t *out, size_t count)
{
    (void)context;
    for (; count; count--) {
        *out++ = (uint8_t)entropy_register;
    }
    return 0;
}

static int publish(void *context, const char *topic, const uint8_t *payload, size_t size, uint32_t ticket)
{
    (void)context;
    (void)payload;
    (void)size;
    print(topic);
    return ticket ? 0 : -1;
}

int main(void)
{
    static const hush_flash_medium medium = {NULL, read_cells, program_cells, erase_cells, sizeof *cells, 2, 8};
    static const hush_policy policy = {.max_epsilon = "4", .keep = HUSH_KEEP_SECONDS};
    hush_task task;
    hush_decision decision;
    int64_t next = 0;
    hush_status status = hush_flash_open(&flash, &medium, &storage);
    if (status == HUSH_NONE) {
        status = hush_flash_format(&medium);
    }
    if (status == HUSH_OK) {
        status = hush_device_open(&device, &storage, &policy, "sensor", "mqtts://broker", fill, NULL);
    }
    status = status == HUSH_OK ? hush_read_task(json, sizeof json, "4", &task) : status;
    status = status == HUSH_OK ? hush_device_decide(&device, &task, 0, &decision) : status;
    status = status == HUSH_OK ? hush_device_answer(&device, &decision, "21.5", NULL) : status;
    status = status == HUSH_OK ? hush_device_send(&device, 0, publish, NULL, &next) : status;
    status = status == HUSH_OK ? hush_device_acknowledged(&device, 1, 0, 0) : status;
    status = status == HUSH_OK ? hush_device_recall(&device, "task", json, sizeof json) : status;
    hush_device_disconnected(&device);
#ifndef WITHOUT_MESSAGES
    print(hush_message(status));
#endif
    return status != HUSH_OK;
}
