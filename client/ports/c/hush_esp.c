/* See hush_esp.h. Empty where there is no ESP32. */
#include "hush_esp.h"

#ifdef ESP_PLATFORM
#include <esp_partition.h>
#include <esp_random.h>

enum { UNIT = 4, MOST_PAGES = 256 };

int hush_esp_random(void *context, uint8_t *out, size_t count)
{
    (void)context;
    esp_fill_random(out, count);
    return 0;
}

static int read_flash(void *context, uint32_t address, uint8_t *out, size_t size)
{
    return esp_partition_read(context, address, out, size) == ESP_OK ? 0 : -1;
}

static int program_flash(void *context, uint32_t address, const uint8_t *bytes, size_t size)
{
    return esp_partition_write(context, address, bytes, size) == ESP_OK ? 0 : -1;
}

static int erase_flash(void *context, uint32_t page)
{
    const esp_partition_t *partition = context;
    return esp_partition_erase_range(partition, page * partition->erase_size, partition->erase_size) == ESP_OK ? 0 : -1;
}

hush_status hush_esp_open(const char *label, hush_flash *flash, hush_storage *storage)
{
    static hush_flash_medium medium;
    const esp_partition_t *partition =
        esp_partition_find_first(ESP_PARTITION_TYPE_DATA, ESP_PARTITION_SUBTYPE_ANY, label);
    if (!partition || partition->encrypted) { /* encrypted flash is written in other units */
        return HUSH_STORAGE;
    }
    const uint32_t pages = partition->size / partition->erase_size;
    medium = (hush_flash_medium){(void *)partition, read_flash, program_flash, erase_flash, partition->erase_size,
                                 pages < MOST_PAGES ? pages : MOST_PAGES, UNIT};
    hush_status status = hush_flash_open(flash, &medium, storage);
    if (status == HUSH_NONE) {
        status = hush_flash_format(&medium);
        status = status == HUSH_OK ? hush_flash_open(flash, &medium, storage) : status;
    }
    return status;
}
#endif
