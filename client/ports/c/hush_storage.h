/* Where a device keeps what it has spent, answered and not yet sent: small named records.
 *
 * hush_file.c keeps them in a directory, hush_flash.c in pages of flash. Another place needs these four functions.
 * All that hush promises about spending rests on `store`: it returns HUSH_OK only when the record would survive a power
 * cut. One record is one transaction; nothing is ever written in two parts that must agree.
 *
 * Two programs must not use one place at the same time; the place locks out the second, if there can be a second.
 */
#ifndef HUSH_STORAGE_H
#define HUSH_STORAGE_H

#include "hush.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    HUSH_NAME_BYTES = 41, /* a name has 1 to 40 of a-z 0-9 - _ . and a terminating zero */
    HUSH_RECORD_BYTES =   /* the longest record that a device writes: 968, unless hush.h has other limits */
        640 + (8 * HUSH_WIDTH > 2 * HUSH_MEMORY_LEVELS ? 8 * HUSH_WIDTH : 2 * HUSH_MEMORY_LEVELS)
};

typedef struct hush_storage {
    void *context;
    /* Copies the record `name` to `out`. HUSH_NONE if there is none, HUSH_SPACE if it does not fit, HUSH_STORAGE if the
     * place is damaged. With `out` NULL and a name that no record has, a place that knows its size returns HUSH_SPACE if
     * a new record of `capacity` bytes would find no room; others return HUSH_NONE. */
    hush_status (*load)(void *context, const char *name, uint8_t *out, size_t capacity, size_t *size);
    /* Replaces the record, or creates it. After a power cut at any moment `load` gives the old record or the new one,
     * whole. Returns when it is durable. After a failure the old record or the new one is there. HUSH_SPACE: the place is
     * full, and unchanged; then a record can still be removed, and replaced by one that is not larger. */
    hush_status (*store)(void *context, const char *name, const uint8_t *bytes, size_t size);
    /* Removes the record; HUSH_OK also if there was none. */
    hush_status (*remove)(void *context, const char *name);
    /* The name of the record number `index` (from 0, in any fixed order while nothing is written); HUSH_NONE after the
     * last. */
    hush_status (*name)(void *context, size_t index, char *out, size_t capacity);
} hush_storage;

#ifdef __cplusplus
}
#endif

#endif
