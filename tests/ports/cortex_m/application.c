/* The least that an application links: a task is read, an answer is drawn, and it is stored in flash with its charge
 * before it is sent. Its size is the size of hush on a Cortex-M. */
#include "hush_flash.h"
#include "start.h"

#include <string.h>

static uint8_t cells[2][2048];
static hush_flash flash;
static hush_storage storage;
static uint8_t frame[HUSH_FRAME_BYTES];
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

int main(void)
{
    static const hush_flash_medium medium = {NULL, read_cells, program_cells, erase_cells, sizeof *cells, 2, 8};
    static const char json[] = "{}";
    char topic[HUSH_TOPIC_BYTES];
    hush_task task;
    hush_report report;
    size_t size = 0;
    hush_status status = hush_flash_open(&flash, &medium, &storage);
    if (status == HUSH_NONE) {
        status = hush_flash_format(&medium);
    }
    status = status == HUSH_OK ? hush_read_task((const uint8_t *)json, sizeof json - 1, "4", &task) : status;
    status = status == HUSH_OK ? hush_answer(&task, "21.5", 0, fill, NULL, &report) : status;
    status = status == HUSH_OK ? hush_report_topic(task.id, "sensor", topic, sizeof topic) : status;
    status = status == HUSH_OK ? hush_encode_frame(report.digest, report.round, report.id, report.body, report.width, 1,
                                                   frame, sizeof frame, &size)
                               : status;
    status = status == HUSH_OK ? storage.store(storage.context, task.id, frame, size) : status;
    print(hush_message(status));
    return status != HUSH_OK;
}
