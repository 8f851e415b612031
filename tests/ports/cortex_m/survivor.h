/* A flash in RAM that survives a reset, and resets the machine in the middle of a write or an erase.
 *
 * PAGE, PAGES and the struct `survivor` with `seed`, `resets` and `cell` come from the program that includes this. */
#ifndef SURVIVOR_H
#define SURVIVOR_H

static uint32_t power; /* bytes until the machine is reset */

static uint32_t draw(void)
{
    survivor.seed = survivor.seed * 1664525u + 1013904223u;
    return survivor.seed >> 8;
}

static int read_cells(void *context, uint32_t address, uint8_t *out, size_t size)
{
    (void)context;
    memcpy(out, survivor.cell + address, size);
    return 0;
}

static void spend(uint8_t *cell, uint8_t due)
{
    if (power-- == 0) {
        *cell &= (uint8_t)(due | draw()); /* some of its bits */
        survivor.resets++;
        reset_machine();
    }
}

static int program_cells(void *context, uint32_t address, const uint8_t *bytes, size_t size)
{
    (void)context;
    for (size_t i = 0; i < size; i++) {
        spend(survivor.cell + address + i, bytes[i]);
        survivor.cell[address + i] &= bytes[i];
    }
    return 0;
}

static int erase_cells(void *context, uint32_t page)
{
    (void)context;
    for (uint32_t i = 0; i < PAGE; i++) {
        if (i % 64 == 0) {
            spend(survivor.cell + page * PAGE + i, (uint8_t)draw());
        }
        survivor.cell[page * PAGE + i] = 0xff;
    }
    return 0;
}

static const hush_flash_medium medium = {NULL, read_cells, program_cells, erase_cells, PAGE, PAGES, 4};
static hush_flash flash;
static hush_storage storage;
static hush_status status;

static void open_it(void)
{
    status = hush_flash_open(&flash, &medium, &storage);
    if (status == HUSH_NONE) {
        status = hush_flash_format(&medium);
        status = status == HUSH_OK ? hush_flash_open(&flash, &medium, &storage) : status;
    }
}

static uint32_t deepest(uint32_t so_far, void (*call)(void))
{
    const uint32_t depth = depth_of(call);
    return depth > so_far ? depth : so_far;
}

#endif
