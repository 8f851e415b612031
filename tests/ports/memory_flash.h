/* A flash in memory that never fails, and a call that must succeed. */
#ifndef MEMORY_FLASH_H
#define MEMORY_FLASH_H

#include "hush_device.h"
#include "hush_flash.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifndef MOST_FLASH
enum { MOST_FLASH = 1 << 17 };
#endif

static uint8_t cells[MOST_FLASH];
static uint32_t bytes_of_page;

static int read_cells(void *context, uint32_t address, uint8_t *out, size_t size)
{
    (void)context;
    memcpy(out, cells + address, size);
    return 0;
}

static int program_cells(void *context, uint32_t address, const uint8_t *bytes, size_t size)
{
    (void)context;
    for (size_t i = 0; i < size; i++) {
        cells[address + i] &= bytes[i];
    }
    return 0;
}

static int erase_cells(void *context, uint32_t page)
{
    (void)context;
    memset(cells + page * bytes_of_page, 0xff, bytes_of_page);
    return 0;
}

/* Returns a medium of units of 4 bytes over the cells. */
static hush_flash_medium memory_medium(uint32_t page_bytes, uint32_t pages)
{
    bytes_of_page = page_bytes;
    return (hush_flash_medium){NULL, read_cells, program_cells, erase_cells, page_bytes, pages, 4};
}

/* Ends the program where a call that must succeed does not. */
static void must(hush_status status, const char *what)
{
    if (status != HUSH_OK) {
        (void)printf("%s: %s\n", what, hush_message(status));
        exit(1);
    }
}

#endif
