/* The storage of hush_storage.h in two or more pages of flash.
 *
 * All pages but one hold a log of records. When the newest is full, the next page is erased, and the live records of the
 * oldest are copied to it. Each step can be cut off by a loss of power, also the erase, also while the device recovers from the last cut:
 * hush_flash_open then finds each record as it was before the interrupted call or as that call made it.
 *
 * Rules that this code keeps on the medium: bits change only from 1 to 0 between two erases; each unit is programmed
 * once after an erase, but for marks, which are all zeros and may be programmed again. Bits that were being programmed or erased when power failed may read differently each time.
 *
 * Wear: `sequence` is the number of erases so far; pages are erased in turn. docs/device.md has erases per answer.
 *
 * Damage is never an empty record: what cannot be read back as it was written is HUSH_STORAGE.
 */
#ifndef HUSH_FLASH_H
#define HUSH_FLASH_H

#include "hush_storage.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { HUSH_FLASH_MOST_UNIT = 32 };

/* The flash, or a part of it that nothing else uses. The functions return 0, or anything else if they failed. */
typedef struct {
    void *context;
    /* Address 0 is the first byte of the first page. Fails for what cannot be read: a unit with an error that its
     * checksum cannot correct. */
    int (*read)(void *context, uint32_t address, uint8_t *out, size_t size);
    /* `address` and `size` are multiples of `unit`. */
    int (*program)(void *context, uint32_t address, const uint8_t *bytes, size_t size);
    /* All bytes of a page become 0xff. A page may be several of the medium's, erased in any order. */
    int (*erase)(void *context, uint32_t page);
    uint32_t page_bytes; /* a multiple of 32, from 256 and below 2^24 */
    uint32_t pages;      /* 2 to 256; never changes once there is a state */
    uint32_t unit;       /* the least that can be programmed: 1, 2, 4, 8, 16 or 32 bytes */
} hush_flash_medium;

/* A mounted flash. The fields are private, but for `sequence`. */
typedef struct {
    const hush_flash_medium *medium;
    uint32_t sequence; /* of the newest page, from 1; one more with each erase */
    uint32_t page, copied, end;
    uint32_t before;        /* how many pages before it are in use, too */
    uint32_t live, largest; /* bytes of all live records, and of the largest */
    bool must_move;         /* nothing may be appended to this page */
    bool is_broken;         /* damage was found: nothing is read or written any more */
    uint32_t next_name, name_page, name_end; /* where `name` continues */
} hush_flash;

/* Mounts the flash. `flash` and `medium` must outlive `storage`, and only one may be mounted at a time.
 * HUSH_NONE: the flash is blank, or its formatting was cut off. HUSH_STORAGE: it is damaged, or holds something else.
 * HUSH_ARGUMENT: the medium is outside what its fields state. */
hush_status hush_flash_open(hush_flash *flash, const hush_flash_medium *medium, hush_storage *storage);

/* Makes an empty storage. FORGETS WHAT WAS SPENT: for a new device alone, where hush_flash_open says HUSH_NONE.
 * A device that lost its storage must not answer the tasks that were open before; docs/device.md says why. */
hush_status hush_flash_format(const hush_flash_medium *medium);

#ifdef __cplusplus
}
#endif

#endif
