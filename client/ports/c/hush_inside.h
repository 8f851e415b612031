/* What the files of this folder share; not for programs. By hand, because what a C library has for the same takes
 * 2 KB more of flash. */
#ifndef HUSH_INSIDE_H
#define HUSH_INSIDE_H

#include "hush.h"

/* A function that is not made a part of those that call it: its numbers are on the stack only while it runs, or its
 * code would be in flash many times. */
#if defined(__GNUC__)
#define APART __attribute__((noinline))
#else
#define APART
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* memcpy, which compilers write out for a few bytes. */
void hush_copy(void *to, const void *from, size_t size);

size_t hush_length(const char *text);
bool hush_is_equal(const char *a, const char *b);
bool hush_is_same(const void *a, const void *b, size_t size);

/* Whether it is one of these letters; a zero is not. */
bool hush_is_one_of(char c, const char *letters);

/* Whether it is 1 to `most` of a-z, 0-9 and `others`. */
bool hush_is_name(const char *text, size_t most, const char *others);

/* floor(a / by); `by` is below 2^63. The remainder is left in `rest`, which may be NULL. */
uint64_t hush_divide(uint64_t a, uint64_t by, uint64_t *rest);

/* Big-endian, 1 to 8 bytes. */
void hush_put(uint8_t *at, size_t bytes, uint64_t value);
uint64_t hush_get(const uint8_t *at, size_t bytes);

/* Two letters for each byte, and a zero. */
void hush_spell(char *out, const uint8_t *bytes, size_t count);

/* moment + by, or INT64_MAX. */
int64_t hush_later(int64_t moment, int64_t by);

#ifdef __cplusplus
}
#endif

#endif
