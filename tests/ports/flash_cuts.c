/* Cuts the power of a simulated flash at every byte of every program, and in every erase, below hush_flash.c.
 *
 *     flash_cuts cuts SEED OPERATIONS UNIT PAGE_BYTES PAGES   from one state, every cut of each operation, and a second one,
 *                                                             until two more pages were erased
 *     flash_cuts runs SEED OPERATIONS UNIT PAGE_BYTES PAGES   one long life with a cut in every third operation
 *     flash_cuts rots SEED OPERATIONS UNIT PAGE_BYTES PAGES   one byte of the flash changes
 *
 * The flash refuses what flash cannot do: a bit from 0 to 1, a unit programmed twice (but for zeros), half a unit. Bits
 * that were being programmed or erased when power failed are loose: they may read differently each time.
 * Ends with 0 and a line of counts, or with 1 and what went wrong. */
#include "hush_flash.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_FLASH = 8 * 1024, ERASE_STEPS = 6, NAMES = 9, MOST_SIZE = 700, UNLIMITED = 1 << 30 };

/* ---- what the seed decides */

static uint64_t seed;

static uint32_t draw(uint32_t below)
{
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return (uint32_t)((seed >> 11) % below);
}

static void fail(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    (void)vprintf(format, arguments);
    va_end(arguments);
    (void)printf("\n");
    exit(1);
}

static const char *word_of(hush_status status)
{
    return status == HUSH_OK        ? "ok"
           : status == HUSH_NONE    ? "none"
           : status == HUSH_SPACE   ? "space"
           : status == HUSH_STORAGE ? "storage"
                                    : "another status";
}

/* ---- the flash */

typedef struct {
    uint8_t cell[MOST_FLASH], loose[MOST_FLASH]; /* loose: bits that may read as 0 or 1 */
    bool programmed[MOST_FLASH];                 /* of a unit, at its first byte */
    uint32_t erases[256];
} silicon;

static silicon chip;
static hush_flash_medium medium;
static int power = UNLIMITED; /* steps until it fails */
static long steps, cuts;
static jmp_buf dark;

static bool is_cut(void)
{
    steps++;
    return power-- <= 0;
}

static int read_chip(void *context, uint32_t address, uint8_t *out, size_t size)
{
    (void)context;
    if (address + size > medium.page_bytes * medium.pages) {
        fail("read beyond the end, at %u", address);
    }
    for (size_t i = 0; i < size; i++) {
        const uint8_t loose = chip.loose[address + i];
        if (loose && medium.unit >= 8 && draw(2)) {
            return -1; /* flash with checksums may not read a unit that was cut off */
        }
        out[i] = (uint8_t)((chip.cell[address + i] & ~loose) | (draw(256) & loose));
    }
    return 0;
}

/* Each bit that was to change has changed, has not, or is loose. */
static void tear_unit(uint32_t address, const uint8_t *bytes)
{
    for (uint32_t i = 0; i < medium.unit; i++) {
        const uint8_t due = (uint8_t)(chip.cell[address + i] & ~bytes[i]), some = (uint8_t)draw(256);
        chip.cell[address + i] &= (uint8_t)~(due & some);
        chip.loose[address + i] |= (uint8_t)(due & draw(256) & draw(256));
    }
    chip.programmed[address] = true;
}

static int program_chip(void *context, uint32_t address, const uint8_t *bytes, size_t size)
{
    (void)context;
    if (address % medium.unit || size % medium.unit || !size || address + size > medium.page_bytes * medium.pages) {
        fail("programs %zu bytes at %u, with units of %u", size, address, medium.unit);
    }
    for (size_t unit = 0; unit < size; unit += medium.unit) {
        bool zeros = true;
        for (uint32_t i = 0; i < medium.unit; i++) {
            zeros = zeros && bytes[unit + i] == 0;
        }
        if (chip.programmed[address + unit] && !zeros) {
            fail("programs a unit twice, at %zu", address + unit);
        }
        for (uint32_t i = 0; i < medium.unit; i++) {
            if (is_cut()) {
                tear_unit(address + (uint32_t)unit, bytes + unit);
                longjmp(dark, 1);
            }
        }
        for (uint32_t i = 0; i < medium.unit; i++) {
            if (bytes[unit + i] & ~chip.cell[address + unit + i] & ~chip.loose[address + unit + i]) {
                fail("sets a bit without an erase, at %zu", address + unit + i);
            }
            chip.cell[address + unit + i] &= bytes[unit + i];
            chip.loose[address + unit + i] &= bytes[unit + i]; /* a bit that is programmed to 0 is 0 */
        }
        chip.programmed[address + unit] = true;
    }
    return 0;
}

/* An erase that was cut off: anything may be there, or only a part is erased, or it only looks as before or as after. */
static void tear_page(uint32_t page)
{
    const uint32_t start = page * medium.page_bytes, kind = draw(5);
    const uint32_t from = draw(medium.page_bytes), to = from + draw(medium.page_bytes - from);
    for (uint32_t i = 0; i < medium.page_bytes; i++) {
        uint8_t *cell = chip.cell + start + i, *loose = chip.loose + start + i;
        const bool inside = i >= from && i < to;
        if (kind == 0) {
            *cell = (uint8_t)draw(256);
            *loose = (uint8_t)draw(256);
        } else if (kind == 1) {
            *loose |= (uint8_t)(~*cell & draw(256));
            *cell |= (uint8_t)draw(256);
        } else if (kind == 2 && inside) {
            *cell = 0xff;
            *loose = 0;
        } else if (kind == 3 && draw(50) == 0) {
            *loose = (uint8_t)(1u << draw(8));
        } else if (kind == 4) {
            *loose = *cell != 0xff && draw(50) == 0 ? (uint8_t)~*cell : 0;
            *cell = 0xff;
        }
    }
}

static int erase_chip(void *context, uint32_t page)
{
    (void)context;
    for (int step = 0; step < ERASE_STEPS; step++) {
        if (is_cut()) {
            tear_page(page);
            longjmp(dark, 1);
        }
    }
    memset(chip.cell + page * medium.page_bytes, 0xff, medium.page_bytes);
    memset(chip.loose + page * medium.page_bytes, 0, medium.page_bytes);
    memset(chip.programmed + page * medium.page_bytes, 0, medium.page_bytes);
    chip.erases[page]++;
    return 0;
}

/* ---- what the storage should hold */

typedef struct {
    bool exists;
    uint32_t size;
    uint8_t bytes[MOST_SIZE];
} content;

typedef struct {
    content of[NAMES];
} model;

static const char *name_of(uint32_t which)
{
    static const char *const names[NAMES] = {"a", "b", "answer-heights-0", "answer-heights-1", "task-heights", "spent.x_y",
                                             "the-longest-name-that-there-is-0.1_2-345", "c1", "identity"};
    return names[which];
}

static bool is_same(const content *a, const content *b)
{
    return a->exists == b->exists && (!a->exists || (a->size == b->size && memcmp(a->bytes, b->bytes, a->size) == 0));
}

static bool is_empty(const model *expected)
{
    bool empty = true;
    for (uint32_t i = 0; i < NAMES; i++) {
        empty = empty && !expected->of[i].exists;
    }
    return empty;
}

static content read_content(const hush_storage *storage, uint32_t which)
{
    content got = {0};
    size_t size = 0;
    const hush_status status = storage->load(storage->context, name_of(which), got.bytes, sizeof got.bytes, &size);
    if (status != HUSH_OK && status != HUSH_NONE) {
        fail("load of %s: %s", name_of(which), word_of(status));
    }
    got.exists = status == HUSH_OK;
    got.size = (uint32_t)size;
    return got;
}

/* Compares names and contents with the model; the record number `either`, if it exists, may be either of two. */
static void compare(const hush_storage *storage, const model *expected, uint32_t either, const content *other)
{
    char name[HUSH_NAME_BYTES];
    uint32_t count = 0, index = 0;
    for (uint32_t i = 0; i < NAMES; i++) {
        const content got = read_content(storage, i);
        if (!is_same(&got, expected->of + i) && !(i == either && is_same(&got, other))) {
            fail("%s has another content: %d of %u bytes in place of %d of %u", name_of(i), got.exists, got.size,
                 expected->of[i].exists, expected->of[i].size);
        }
        count += got.exists;
    }
    for (; storage->name(storage->context, index, name, sizeof name) == HUSH_OK; index++) {
        bool known = false;
        for (uint32_t i = 0; i < NAMES; i++) {
            known = known || strcmp(name, name_of(i)) == 0;
        }
        if (!known) {
            fail("the name %s is unknown", name);
        }
    }
    if (index != count) {
        fail("%u names of %u records", index, count);
    }
}

static hush_flash flash;
static hush_storage storage;

static void must_open(const char *when)
{
    const hush_status status = hush_flash_open(&flash, &medium, &storage);
    if (status != HUSH_OK) {
        fail("open after %s: %s", when, word_of(status));
    }
}

/* ---- operations */

typedef struct {
    uint32_t which;
    content wanted; /* not exists: remove it */
} operation;

static operation draw_operation(void)
{
    operation op = {.which = draw(NAMES)};
    op.wanted.exists = draw(5) != 0;
    const uint32_t most = medium.page_bytes / 4 < MOST_SIZE ? medium.page_bytes / 4 : MOST_SIZE;
    op.wanted.size = draw(12) == 0 ? draw(most) : draw(60);
    for (uint32_t i = 0; i < op.wanted.size; i++) {
        op.wanted.bytes[i] = (uint8_t)(draw(4) ? draw(256) : 0xff);
    }
    return op;
}

static hush_status carry_out(const operation *op)
{
    return op->wanted.exists
               ? storage.store(storage.context, name_of(op->which), op->wanted.bytes, op->wanted.size)
               : storage.remove(storage.context, name_of(op->which));
}

/* Carries an operation out; false where the power failed before it returned. */
static bool try_out(const operation *op, int until)
{
    volatile bool done = false;
    power = until;
    if (setjmp(dark) == 0) {
        const hush_status status = carry_out(op);
        done = true;
        if (status != HUSH_OK && status != HUSH_SPACE) {
            fail("%s of %s: %s", op->wanted.exists ? "store" : "remove", name_of(op->which), word_of(status));
        }
    }
    cuts += !done;
    power = UNLIMITED;
    return done;
}

/* Mounts; false where the power failed before it returned. */
static bool try_open(int until)
{
    volatile bool done = false;
    power = until;
    if (setjmp(dark) == 0) {
        must_open("a cut");
        done = true;
    }
    cuts += !done;
    power = UNLIMITED;
    return done;
}

/* After a cut during `op`: the old record or the new one is there, and stays; all else is as it was. Leaves the model as
 * the flash is. */
static void recover(model *expected, const operation *op)
{
    compare(&storage, expected, op->which, &op->wanted);
    expected->of[op->which] = read_content(&storage, op->which);
    if (draw(2)) {
        must_open("nothing");
    }
    compare(&storage, expected, NAMES, NULL);
}

/* A store after the recovery is there after two more mounts. */
static void go_on(model *expected)
{
    const operation next = draw_operation();
    if (carry_out(&next) == HUSH_OK) {
        expected->of[next.which] = next.wanted;
    }
    for (int again = 0; again < 2; again++) {
        must_open("a store");
        compare(&storage, expected, NAMES, NULL);
    }
}

static void every_cut(uint32_t operations)
{
    static silicon before, between;
    static model expected, now;
    uint32_t full = 0;
    while (flash.sequence < medium.pages + 1) { /* a log in all pages that can be in use */
        const operation op = draw_operation();
        const hush_status status = carry_out(&op);
        if (status == HUSH_OK) {
            expected.of[op.which] = op.wanted;
        } else if (status != HUSH_SPACE) {
            fail("the first records: %s", word_of(status));
        }
    }
    const uint32_t until_sequence = flash.sequence + 2;
    for (uint32_t i = 0; i < operations || flash.sequence < until_sequence; i++) {
        const operation op = draw_operation();
        const hush_flash mounted = flash;
        int needed = 0;
        before = chip;
        steps = 0;
        const hush_status status = carry_out(&op);
        needed = (int)steps;
        if (status == HUSH_SPACE && (needed || !op.wanted.exists)) {
            fail("a full flash was written, or refused to remove");
        }
        full += status == HUSH_SPACE;
        const silicon *after = status == HUSH_OK ? &chip : &before;
        static silicon done;
        done = *after;
        const hush_flash mounted_after = flash;
        for (int until = 0; until < needed; until++) {
            chip = before;
            flash = mounted;
            now = expected;
            if (try_out(&op, until)) {
                fail("%d steps were enough for an operation of %d", until, needed);
            }
            between = chip;
            steps = 0;
            must_open("a cut");
            const int repair = (int)steps;
            recover(&now, &op);
            go_on(&now);
            for (int second = 0; repair && second < 3; second++) { /* once more, with a cut while it recovers */
                chip = between;
                now = expected;
                if (!try_open((int)draw((uint32_t)repair))) {
                    must_open("a second cut");
                }
                recover(&now, &op);
                go_on(&now);
            }
        }
        chip = done;
        flash = mounted_after;
        if (status == HUSH_OK) {
            expected.of[op.which] = op.wanted;
        }
        compare(&storage, &expected, NAMES, NULL);
        if (draw(4) == 0) {
            must_open("an operation");
        }
    }
    (void)printf("%ld cuts, %u times full, %u erases\n", cuts, full, flash.sequence - 1);
}

static void long_life(uint32_t operations)
{
    static model expected;
    uint32_t full = 0, least = UINT32_MAX, most = 0;
    for (uint32_t i = 0; i < operations; i++) {
        const operation op = draw_operation();
        steps = 0;
        if (draw(3) == 0 && !try_out(&op, (int)draw(draw(4) ? 150 : 3000))) {
            while (!try_open(draw(3) ? UNLIMITED : (int)draw(600))) {
            }
            recover(&expected, &op);
            continue;
        }
        steps = 0;
        const hush_status status = carry_out(&op);
        if (status == HUSH_OK) {
            expected.of[op.which] = op.wanted;
        } else if (status != HUSH_SPACE || steps || !op.wanted.exists) {
            fail("operation %u: %s", i, word_of(status));
        }
        full += status == HUSH_SPACE;
        if (draw(20) == 0) {
            must_open("an operation");
        }
        compare(&storage, &expected, NAMES, NULL);
    }
    for (uint32_t page = 0; page < medium.pages; page++) {
        least = chip.erases[page] < least ? chip.erases[page] : least;
        most = chip.erases[page] > most ? chip.erases[page] : most;
    }
    (void)printf("%ld cuts, %u times full, %u to %u erases a page\n", cuts, full, least, most);
}

/* One byte changes by itself: everything reads as before, or the storage is refused. */
static void rot(uint32_t operations)
{
    static silicon before;
    static model expected;
    long found = 0, harmless = 0;
    for (uint32_t i = 0; i < operations; i++) {
        for (uint32_t j = draw(12); j-- > 0;) {
            const operation op = draw_operation();
            if (carry_out(&op) == HUSH_OK) {
                expected.of[op.which] = op.wanted;
            }
        }
        const hush_flash mounted = flash;
        before = chip;
        for (uint32_t at = 0; at < medium.page_bytes * medium.pages; at++) {
            const uint8_t is = chip.cell[at], kind = (uint8_t)draw(3);
            const uint8_t rotten = (uint8_t)(kind ? is ^ 1u << draw(8) : draw(256));
            chip.cell[at] = rotten;
            hush_status status = draw(4) ? hush_flash_open(&flash, &medium, &storage) : HUSH_OK; /* or while mounted */
            for (uint32_t which = 0; which < NAMES && status == HUSH_OK; which++) {
                content got = {0};
                size_t size = 0;
                status = storage.load(storage.context, name_of(which), got.bytes, sizeof got.bytes, &size);
                got.exists = status == HUSH_OK;
                got.size = (uint32_t)size;
                status = status == HUSH_NONE ? HUSH_OK : status;
                if (status == HUSH_OK && !is_same(&got, expected.of + which)) {
                    fail("%u in place of %u at %u of a page changed %s without a word", rotten, is,
                         at % medium.page_bytes, name_of(which));
                }
            }
            if (status != HUSH_OK && status != HUSH_STORAGE && !(status == HUSH_NONE && is_empty(&expected))) {
                fail("%u in place of %u at %u: %s", rotten, is, at, word_of(status));
            }
            found += status == HUSH_STORAGE;
            harmless += status == HUSH_OK;
            chip = before;
            flash = mounted;
        }
        must_open("rot");
    }
    (void)printf("%ld found, %ld harmless\n", found, harmless);
}

/* Formats; false where the power failed before it returned. */
static bool try_format(int until)
{
    volatile bool done = false;
    power = until;
    if (setjmp(dark) == 0) {
        done = hush_flash_format(&medium) == HUSH_OK;
    }
    power = UNLIMITED;
    return done;
}

/* A flash whose formatting is cut off is still new, or already empty. */
static void format(void)
{
    static const model nothing;
    for (int until = 0, done = 0; !done; until++) {
        memset(&chip, 0, sizeof chip);
        memset(chip.cell, 0xff, sizeof chip.cell);
        if (hush_flash_open(&flash, &medium, &storage) != HUSH_NONE) {
            fail("a blank flash is not HUSH_NONE");
        }
        done = try_format(until);
        cuts += !done;
        hush_status status = hush_flash_open(&flash, &medium, &storage);
        if (status == HUSH_NONE && !done) {
            status = hush_flash_format(&medium);
            status = status == HUSH_OK ? hush_flash_open(&flash, &medium, &storage) : status;
        }
        if (status != HUSH_OK) {
            fail("formatting that was cut off after %d steps: %s", until, word_of(status));
        }
        compare(&storage, &nothing, NAMES, NULL);
    }
}

int main(int argc, char **argv)
{
    if (argc != 7) {
        return 2;
    }
    seed = UINT64_C(0x9e3779b97f4a7c15) * (strtoull(argv[2], NULL, 10) + 1);
    medium = (hush_flash_medium){NULL, read_chip, program_chip, erase_chip, (uint32_t)strtoul(argv[5], NULL, 10),
                                 (uint32_t)strtoul(argv[6], NULL, 10), (uint32_t)strtoul(argv[4], NULL, 10)};
    const uint32_t operations = (uint32_t)strtoul(argv[3], NULL, 10);
    format();
    if (strcmp(argv[1], "cuts") == 0) {
        every_cut(operations);
    } else if (strcmp(argv[1], "runs") == 0) {
        long_life(operations);
    } else {
        rot(operations);
    }
    return 0;
}
