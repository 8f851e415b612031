/* See hush_flash.h.
 *
 * A page:
 *     begun          mark: the page is not blank
 *     header         magic, sequence, size of a page, unit, end of the copied records, CRC-32. Programmed after them
 *     in use, again  marks: this page replaces the one before it
 *     replaced       mark: another page has replaced this one
 *     records        those copied from the page before, then its own, up to the first unit that is blank
 *
 * A record:
 *     begun          mark: the place is not blank
 *     head           kind, size of name, size of content, CRC-32 of these four bytes
 *     body           name, content, CRC-32 of those four bytes, name and content
 *     whole          mark: head and body are programmed
 *
 * Each part begins at a multiple of the unit. A mark is one unit of zeros, and counts if any of its bits is 0. So a mark
 * proves that everything before it was programmed completely, even if the mark itself was cut off. A blank mark proves
 * nothing: its bits may read differently next time. So what depends on a mark that may be cut off must not matter:
 *     - A place that looks blank may have the beginning of a mark, and nothing else. The mark is programmed again.
 *     - A page is copied without any change. Until it has a record of its own, it does not matter which of the two is in
 *       use. A session that adds the first own record has programmed `in use` or `again` completely.
 *     - A record without its mark was cut off. Before hush_flash_open returns, the records before it are moved to the next
 *       page, and it is only if its checksum is right.
 *     - The next page was perhaps cut off, unless it has a header with a smaller sequence. It is erased, and becomes the
 *       page in use, before anything is added to this page.
 */
#include "hush_flash.h"
#include "hush_inside.h"

#include <string.h>

enum {
    HEADER_BYTES = 28,
    HEAD_BYTES = 8,
    CHECK_BYTES = 4,
    MOST_NAME = HUSH_NAME_BYTES - 1,
    MOST_CONTENT = 0xffff,
    CHUNK = 64, /* a multiple of every unit */
    CONTENT = 0x48, /* kinds of records */
    REMOVED = 0x52
};

enum { BEGUN, IN_USE, AGAIN, REPLACED, MARKS };

static const uint8_t MAGIC[8] = {'h', 'u', 's', 'h', 'f', 'l', 's', 1};

typedef struct {
    uint32_t at, next; /* its first byte in the page, and the first behind it */
    uint8_t kind, name_size;
    uint32_t size;
    char name[MOST_NAME];
} record;

typedef enum { END, WHOLE, UNMARKED, TORN, DAMAGED } found;

/* ---- bytes */

static uint32_t checksum(uint32_t crc, const uint8_t *bytes, size_t size)
{
    static const uint32_t table[16] = {0x00000000, 0x1db71064, 0x3b6e20c8, 0x26d930ac, 0x76dc4190, 0x6b6b51f4,
                                       0x4db26158, 0x5005713c, 0xedb88320, 0xf00f9344, 0xd6d6a3e8, 0xcb61b38c,
                                       0x9b64c2b0, 0x86d3d2d4, 0xa00ae278, 0xbdbdf21c};
    crc = ~crc;
    for (size_t i = 0; i < size; i++) {
        crc ^= bytes[i];
        crc = crc >> 4 ^ table[crc & 15];
        crc = crc >> 4 ^ table[crc & 15];
    }
    return ~crc;
}

static void put_32(uint8_t *out, uint32_t value)
{
    for (size_t i = 0; i < 4; i++) {
        out[i] = (uint8_t)(value >> 8 * i);
    }
}

static uint32_t get_32(const uint8_t *bytes)
{
    return (uint32_t)bytes[3] << 24 | (uint32_t)bytes[2] << 16 | (uint32_t)bytes[1] << 8 | bytes[0];
}

static bool is_blank(const uint8_t *bytes, size_t size)
{
    for (size_t i = 0; i < size; i++) {
        if (bytes[i] != 0xff) {
            return false;
        }
    }
    return true;
}

/* ---- places */

static uint32_t aligned(const hush_flash_medium *medium, uint32_t size)
{
    return (size + medium->unit - 1) / medium->unit * medium->unit;
}

static uint32_t mark_at(const hush_flash_medium *medium, uint32_t mark)
{
    return mark == BEGUN ? 0 : aligned(medium, HEADER_BYTES) + mark * medium->unit;
}

static uint32_t first_record(const hush_flash_medium *medium)
{
    return mark_at(medium, MARKS);
}

static uint32_t record_bytes(const hush_flash_medium *medium, uint32_t name_size, uint32_t size)
{
    return aligned(medium, HEAD_BYTES) + aligned(medium, name_size + size + CHECK_BYTES) + 2 * medium->unit;
}

/* Where head and body of a record begin. */
static uint32_t head_at(const hush_flash_medium *medium, uint32_t at)
{
    return at + medium->unit;
}

static uint32_t body_at(const hush_flash_medium *medium, uint32_t at)
{
    return head_at(medium, at) + aligned(medium, HEAD_BYTES);
}

static uint32_t next_page(const hush_flash *flash)
{
    return (flash->page + 1) % flash->medium->pages;
}

/* ---- the medium */

/* What cannot be read is zeros: neither blank, nor a header, nor a record. */
static void get(const hush_flash_medium *medium, uint32_t page, uint32_t at, uint8_t *out, size_t size)
{
    if (medium->read(medium->context, page * medium->page_bytes + at, out, size) != 0) {
        memset(out, 0, size);
    }
}

static bool put(const hush_flash_medium *medium, uint32_t page, uint32_t at, const uint8_t *bytes, size_t size)
{
    return medium->program(medium->context, page * medium->page_bytes + at, bytes, size) == 0;
}

static bool is_blank_between(const hush_flash_medium *medium, uint32_t page, uint32_t at, uint32_t end)
{
    uint8_t bytes[CHUNK];
    for (uint32_t size = 0; at < end; at += size) {
        size = end - at < CHUNK ? end - at : CHUNK;
        get(medium, page, at, bytes, size);
        if (!is_blank(bytes, size)) {
            return false;
        }
    }
    return true;
}

static bool has_mark(const hush_flash_medium *medium, uint32_t page, uint32_t at)
{
    return !is_blank_between(medium, page, at, at + medium->unit);
}

static bool put_mark(const hush_flash_medium *medium, uint32_t page, uint32_t at)
{
    static const uint8_t zeros[HUSH_FLASH_MOST_UNIT] = {0};
    return put(medium, page, at, zeros, medium->unit) && has_mark(medium, page, at);
}

/* The sequence of a page, and the end of the records that were copied to it; 0 if it has no header. */
static uint32_t read_header(const hush_flash_medium *medium, uint32_t page, uint32_t *copied)
{
    uint8_t header[HEADER_BYTES];
    get(medium, page, medium->unit, header, sizeof header);
    const bool is_header = hush_is_same(header, MAGIC, sizeof MAGIC) && get_32(header + 12) == medium->page_bytes &&
                           get_32(header + 16) == medium->unit && get_32(header + 24) == checksum(0, header, 24);
    *copied = is_header ? get_32(header + 20) : 0;
    return is_header ? get_32(header + 8) : 0;
}

static uint32_t sequence_of(const hush_flash_medium *medium, uint32_t page)
{
    uint32_t copied = 0;
    return read_header(medium, page, &copied);
}

static bool put_header(const hush_flash_medium *medium, uint32_t page, uint32_t sequence, uint32_t copied)
{
    uint8_t header[CHUNK];
    memset(header, 0xff, sizeof header);
    memcpy(header, MAGIC, sizeof MAGIC);
    put_32(header + 8, sequence);
    put_32(header + 12, medium->page_bytes);
    put_32(header + 16, medium->unit);
    put_32(header + 20, copied);
    put_32(header + 24, checksum(0, header, 24));
    return put(medium, page, medium->unit, header, aligned(medium, HEADER_BYTES)) &&
           sequence_of(medium, page) == sequence;
}

/* ---- records */

/* Writes the head of a record, and returns its checksum. */
static uint32_t put_head(const record *r, uint8_t out[HEAD_BYTES])
{
    out[0] = r->kind;
    out[1] = r->name_size;
    out[2] = (uint8_t)r->size;
    out[3] = (uint8_t)(r->size >> 8);
    const uint32_t crc = checksum(0, out, 4);
    put_32(out + 4, crc);
    return crc;
}

/* The head of the record at `at`, and its name; false if no head is there. */
static bool read_head(const hush_flash *flash, uint32_t at, record *out)
{
    const hush_flash_medium *medium = flash->medium;
    uint8_t head[HEAD_BYTES];
    if (medium->page_bytes - at < record_bytes(medium, 1, 0)) {
        return false;
    }
    get(medium, flash->page, head_at(medium, at), head, sizeof head);
    out->kind = head[0];
    out->name_size = head[1];
    out->size = (uint32_t)head[3] << 8 | head[2];
    out->at = at;
    if (get_32(head + 4) != checksum(0, head, 4) || (out->kind != CONTENT && out->kind != REMOVED) ||
        out->name_size < 1 || out->name_size > MOST_NAME ||
        record_bytes(medium, out->name_size, out->size) > medium->page_bytes - at) {
        return false;
    }
    out->next = at + record_bytes(medium, out->name_size, out->size);
    get(medium, flash->page, body_at(medium, at), (uint8_t *)out->name, out->name_size);
    return true;
}

/* Whether head, name and content of a record in any page are what was written. */
static bool is_intact(const hush_flash *flash, uint32_t page, const record *r)
{
    const hush_flash_medium *medium = flash->medium;
    uint8_t bytes[CHUNK];
    get(medium, page, head_at(medium, r->at), bytes, HEAD_BYTES);
    uint32_t crc = checksum(0, bytes, 4), at = body_at(medium, r->at);
    const bool same_head = get_32(bytes + 4) == crc && bytes[1] == r->name_size && bytes[0] == r->kind;
    for (uint32_t left = r->name_size + r->size, size = 0; left; left -= size, at += size) {
        size = left < CHUNK ? left : CHUNK;
        get(medium, page, at, bytes, size);
        crc = checksum(crc, bytes, size);
    }
    get(medium, page, at, bytes, CHECK_BYTES);
    return same_head && get_32(bytes) == crc;
}

/* What is at `at`. */
static found look(const hush_flash *flash, uint32_t at, record *out)
{
    const hush_flash_medium *medium = flash->medium;
    const uint32_t page = flash->page, end = medium->page_bytes;
    const bool fits = end - at >= record_bytes(medium, 1, 0);
    if (!fits || !has_mark(medium, page, at)) {
        return is_blank_between(medium, page, fits ? head_at(medium, at) : at, end) ? END : DAMAGED;
    }
    if (!read_head(flash, at, out)) {
        return is_blank_between(medium, page, body_at(medium, at), end) ? TORN : DAMAGED;
    }
    const bool intact = is_intact(flash, page, out);
    if (has_mark(medium, page, out->next - medium->unit) || !is_blank_between(medium, page, out->next, end)) {
        return intact ? WHOLE : DAMAGED; /* nothing was added behind a record without its mark */
    }
    return intact ? UNMARKED : TORN;
}

static bool has_name(const record *r, const char *name, size_t size)
{
    return r->name_size == size && hush_is_same(r->name, name, size);
}

/* The last record of a name from `at` on. HUSH_NONE without one; HUSH_STORAGE if any of them is damaged. */
static hush_status find_last(const hush_flash *flash, uint32_t at, const char *name, size_t size, record *out)
{
    hush_status status = HUSH_NONE;
    record r;
    for (; at < flash->end; at = r.next) {
        if (!read_head(flash, at, &r) || !is_intact(flash, flash->page, &r)) {
            return HUSH_STORAGE;
        }
        if (has_name(&r, name, size)) {
            *out = r;
            status = HUSH_OK;
        }
    }
    return status;
}

/* Whether a record is live: it has content, and no later one has its name. */
static hush_status is_live(const hush_flash *flash, const record *r, bool *live)
{
    record later;
    *live = r->kind == CONTENT;
    for (uint32_t at = r->next; *live && at < flash->end; at = later.next) {
        if (!read_head(flash, at, &later)) {
            return HUSH_STORAGE;
        }
        *live = !has_name(&later, r->name, r->name_size);
    }
    return HUSH_OK;
}

/* The first live record from `at` on; HUSH_NONE at the end. */
static hush_status next_live(const hush_flash *flash, uint32_t at, record *out)
{
    bool live = false;
    for (; at < flash->end; at = out->next) {
        if (!read_head(flash, at, out) || is_live(flash, out, &live) != HUSH_OK) {
            return HUSH_STORAGE;
        }
        if (live) {
            return HUSH_OK;
        }
    }
    return HUSH_NONE;
}

static hush_status break_down(hush_flash *flash)
{
    flash->is_broken = true;
    return HUSH_STORAGE;
}

/* ---- moving to the next page */

/* Copies a record to the end of another page, and compares. */
static bool copy_record(const hush_flash *flash, const record *from, uint32_t page, uint32_t at)
{
    const hush_flash_medium *medium = flash->medium;
    const uint32_t size = from->next - from->at - medium->unit;
    uint8_t bytes[CHUNK];
    record copy = *from;
    copy.at = at;
    if (!put_mark(medium, page, at)) {
        return false;
    }
    for (uint32_t done = medium->unit, part = 0; done < size; done += part) {
        part = size - done < CHUNK ? size - done : CHUNK;
        get(medium, flash->page, from->at + done, bytes, part);
        if (!put(medium, page, at + done, bytes, part)) {
            return false;
        }
    }
    return is_intact(flash, page, &copy) && put_mark(medium, page, at + size);
}

/* Makes sure that the page stays the one in use: its marks may have been cut off, until it has a record of its own. */
static bool settle(hush_flash *flash)
{
    const hush_flash_medium *medium = flash->medium;
    const uint32_t before = (flash->page + medium->pages - 1) % medium->pages;
    const bool was_replaced = sequence_of(medium, before) == flash->sequence - 1;
    if (!flash->is_settled && flash->end == flash->copied) {
        flash->is_settled = put_mark(medium, flash->page, mark_at(medium, AGAIN)) &&
                            (!was_replaced || put_mark(medium, before, mark_at(medium, REPLACED)));
        return flash->is_settled;
    }
    return true;
}

static hush_status copy_live(hush_flash *flash, uint32_t page, uint32_t *end)
{
    record r;
    hush_status status = next_live(flash, first_record(flash->medium), &r);
    *end = first_record(flash->medium);
    for (; status == HUSH_OK; status = next_live(flash, r.next, &r)) {
        if (!copy_record(flash, &r, page, *end)) {
            return HUSH_STORAGE;
        }
        *end += r.next - r.at;
    }
    return status == HUSH_NONE ? HUSH_OK : status;
}

/* Erases the next page, copies the live records to it, and uses it from now on. */
static hush_status move(hush_flash *flash)
{
    const hush_flash_medium *medium = flash->medium;
    const uint32_t from = flash->page, to = next_page(flash);
    uint32_t end = 0;
    flash->must_move = true; /* until it is done */
    if (!settle(flash) || medium->erase(medium->context, to) != 0 ||
        !is_blank_between(medium, to, 0, medium->page_bytes) || !put_mark(medium, to, mark_at(medium, BEGUN))) {
        return HUSH_STORAGE;
    }
    hush_status status = copy_live(flash, to, &end);
    if (status != HUSH_OK) {
        return status;
    }
    if (!put_header(medium, to, flash->sequence + 1, end) || !put_mark(medium, to, mark_at(medium, IN_USE)) ||
        !put_mark(medium, from, mark_at(medium, REPLACED))) {
        return break_down(flash); /* which page is in use is for the next hush_flash_open to find out */
    }
    flash->page = to;
    flash->sequence++;
    flash->end = flash->copied = end;
    flash->is_settled = true;
    flash->must_move = false;
    flash->next_name = 0;
    return HUSH_OK;
}

/* ---- the four functions */

static uint32_t greater(uint32_t a, uint32_t b)
{
    return a > b ? a : b;
}

/* Counts the bytes of the live records. */
static hush_status add_up(hush_flash *flash)
{
    record r;
    hush_status status = next_live(flash, first_record(flash->medium), &r);
    flash->largest = record_bytes(flash->medium, MOST_NAME, 0);
    flash->live = 0;
    for (; status == HUSH_OK; status = next_live(flash, r.next, &r)) {
        flash->live += r.next - r.at;
        flash->largest = greater(flash->largest, r.next - r.at);
    }
    return status == HUSH_NONE ? HUSH_OK : status;
}

static bool is_name(const char *name)
{
    return name && hush_is_name(name, MOST_NAME, "-_.");
}

/* Of the body of a record: name, content, checksum. */
static uint8_t byte_of(const record *r, const uint8_t *content, uint32_t crc, uint32_t at)
{
    if (at < r->name_size) {
        return (uint8_t)r->name[at];
    }
    at -= r->name_size;
    return (uint8_t)(at < r->size ? content[at] : crc >> 8 * (at - r->size));
}

/* Programs a record at the end, and reads it back before it counts. */
static hush_status append(hush_flash *flash, record *r, const uint8_t *content)
{
    const hush_flash_medium *medium = flash->medium;
    const uint32_t body = body_at(medium, r->at), size = r->name_size + r->size;
    uint8_t bytes[CHUNK];
    memset(bytes, 0xff, sizeof bytes);
    uint32_t crc = put_head(r, bytes);
    crc = checksum(checksum(crc, (const uint8_t *)r->name, r->name_size), content, r->size);
    flash->must_move = true; /* until the record is whole */
    if (!put_mark(medium, flash->page, r->at) ||
        !put(medium, flash->page, head_at(medium, r->at), bytes, aligned(medium, HEAD_BYTES))) {
        return HUSH_STORAGE;
    }
    for (uint32_t at = 0, used = 0; at < size + CHECK_BYTES; at++) {
        bytes[used++] = byte_of(r, content, crc, at);
        if (used == CHUNK || at == size + CHECK_BYTES - 1) {
            memset(bytes + used, 0xff, CHUNK - used);
            if (!put(medium, flash->page, body + at + 1 - used, bytes, aligned(medium, used))) {
                return HUSH_STORAGE;
            }
            used = 0;
        }
    }
    if (!is_intact(flash, flash->page, r) || !put_mark(medium, flash->page, r->next - medium->unit)) {
        return HUSH_STORAGE;
    }
    flash->must_move = false;
    flash->end = r->next;
    flash->next_name = 0;
    return HUSH_OK;
}

/* Appends a record of a name; the caller has made sure that the live records and it fit into a page. */
static hush_status write_record(hush_flash *flash, uint8_t kind, const char *name, const uint8_t *content, size_t size)
{
    const hush_flash_medium *medium = flash->medium;
    record r = {.kind = kind, .name_size = (uint8_t)hush_length(name), .size = (uint32_t)size};
    const uint32_t bytes = record_bytes(medium, r.name_size, r.size);
    if (flash->must_move || medium->page_bytes - flash->end < bytes) {
        const hush_status status = move(flash);
        if (status != HUSH_OK) {
            return status;
        }
    }
    if (medium->page_bytes - flash->end < bytes || !settle(flash)) {
        return HUSH_STORAGE;
    }
    memcpy(r.name, name, r.name_size);
    r.at = flash->end;
    r.next = r.at + bytes;
    return append(flash, &r, content);
}

/* The last record of a name: HUSH_OK if it has content, HUSH_NONE, HUSH_ARGUMENT or HUSH_STORAGE. */
static hush_status find(hush_flash *flash, const char *name, record *out)
{
    if (!is_name(name)) {
        return HUSH_ARGUMENT;
    }
    if (flash->is_broken) {
        return HUSH_STORAGE;
    }
    const hush_status status = find_last(flash, first_record(flash->medium), name, hush_length(name), out);
    if (status == HUSH_STORAGE) {
        return break_down(flash);
    }
    return status == HUSH_OK && out->kind == CONTENT ? HUSH_OK : HUSH_NONE;
}

static hush_status flash_load(void *context, const char *name, uint8_t *out, size_t capacity, size_t *size)
{
    hush_flash *flash = context;
    record r;
    uint8_t bytes[HEAD_BYTES];
    if (!out || !size) {
        return HUSH_ARGUMENT;
    }
    const hush_status status = find(flash, name, &r);
    *size = status == HUSH_OK ? r.size : 0;
    if (status != HUSH_OK || r.size > capacity) {
        return status == HUSH_OK ? HUSH_SPACE : status;
    }
    const uint32_t body = body_at(flash->medium, r.at) + r.name_size;
    get(flash->medium, flash->page, body, out, r.size);
    uint32_t crc = checksum(put_head(&r, bytes), (const uint8_t *)r.name, r.name_size);
    get(flash->medium, flash->page, body + r.size, bytes, CHECK_BYTES);
    return get_32(bytes) == checksum(crc, out, r.size) ? HUSH_OK : break_down(flash);
}

/* Room is kept for one more record as large as the largest: so that a record can always be removed, and be replaced
 * by one that is not larger. */
static bool has_room(const hush_flash *flash, uint32_t old, uint32_t bytes)
{
    const uint32_t room = flash->medium->page_bytes - first_record(flash->medium);
    if (old >= bytes) {
        return true;
    }
    return bytes <= room && flash->live <= room - bytes &&
           flash->live - old + bytes <= room - greater(flash->largest, bytes);
}

static hush_status flash_store(void *context, const char *name, const uint8_t *bytes, size_t size)
{
    hush_flash *flash = context;
    record old;
    if (!bytes) {
        return HUSH_ARGUMENT;
    }
    hush_status status = find(flash, name, &old);
    if (status != HUSH_OK && status != HUSH_NONE) {
        return status;
    }
    if (size > MOST_CONTENT) {
        return HUSH_SPACE;
    }
    const uint32_t before = status == HUSH_OK ? old.next - old.at : 0;
    const uint32_t after = record_bytes(flash->medium, (uint32_t)hush_length(name), (uint32_t)size);
    if (!has_room(flash, before, after)) { /* `largest` may be of a record that is no more */
        if (add_up(flash) != HUSH_OK) {
            return break_down(flash);
        }
        if (!has_room(flash, before, after)) {
            return HUSH_SPACE;
        }
    }
    status = write_record(flash, CONTENT, name, bytes, size);
    if (status == HUSH_OK) {
        flash->live += after - before;
        flash->largest = greater(flash->largest, after);
    }
    return status;
}

static hush_status flash_remove(void *context, const char *name)
{
    hush_flash *flash = context;
    record old;
    hush_status status = find(flash, name, &old);
    if (status != HUSH_OK) {
        return status == HUSH_NONE ? HUSH_OK : status;
    }
    status = write_record(flash, REMOVED, name, (const uint8_t *)"", 0);
    if (status == HUSH_OK) {
        flash->live -= old.next - old.at;
    }
    return status;
}

static hush_status flash_name(void *context, size_t index, char *out, size_t capacity)
{
    hush_flash *flash = context;
    record r;
    if (!out) {
        return HUSH_ARGUMENT;
    }
    if (flash->is_broken) {
        return HUSH_STORAGE;
    }
    const bool goes_on = flash->next_name && index == flash->next_name;
    size_t place = goes_on ? index : 0;
    hush_status status = next_live(flash, goes_on ? flash->next_at : first_record(flash->medium), &r);
    for (; status == HUSH_OK && place < index; place++) {
        status = next_live(flash, r.next, &r);
    }
    if (status != HUSH_OK) {
        return status == HUSH_STORAGE ? break_down(flash) : status;
    }
    if (capacity <= r.name_size) {
        return HUSH_SPACE;
    }
    memcpy(out, r.name, r.name_size);
    out[r.name_size] = 0;
    flash->next_name = (uint32_t)index + 1;
    flash->next_at = r.next;
    return HUSH_OK;
}

/* ---- mounting */

static bool is_medium(const hush_flash_medium *medium)
{
    return medium && medium->read && medium->program && medium->erase && medium->page_bytes >= 256 &&
           medium->page_bytes <= 1u << 24 && medium->page_bytes % HUSH_FLASH_MOST_UNIT == 0 && medium->pages >= 2 &&
           medium->pages <= 256 && medium->pages <= (UINT32_MAX >> 1) / medium->page_bytes && medium->unit >= 1 && medium->unit <= HUSH_FLASH_MOST_UNIT &&
           (medium->unit & (medium->unit - 1)) == 0;
}

/* Whether no page holds more than a header and marks: nothing was ever stored. */
static bool is_fresh(const hush_flash_medium *medium)
{
    for (uint32_t page = 0; page < medium->pages; page++) {
        if (!is_blank_between(medium, page, first_record(medium), medium->page_bytes)) {
            return false;
        }
    }
    return true;
}

/* The page in use: of those that have a header and a mark, the one with the largest sequence. */
static hush_status choose_page(hush_flash *flash)
{
    const hush_flash_medium *medium = flash->medium;
    for (uint32_t page = 0; page < medium->pages; page++) {
        uint32_t copied = 0;
        const uint32_t sequence = read_header(medium, page, &copied);
        if (sequence > flash->sequence && (has_mark(medium, page, mark_at(medium, IN_USE)) || has_mark(medium, page, mark_at(medium, AGAIN)))) {
            flash->sequence = sequence;
            flash->copied = copied;
            flash->page = page;
        }
    }
    if (!flash->sequence) {
        return is_fresh(medium) ? HUSH_NONE : HUSH_STORAGE;
    }
    return has_mark(medium, flash->page, mark_at(medium, REPLACED)) ? HUSH_STORAGE : HUSH_OK; /* the newer page is damaged */
}

/* Finds the end of the log. A record that is cut off is left out, but for one whose checksum is right, if asked. */
static found find_end(hush_flash *flash, bool keeps_unmarked)
{
    record r;
    found what = WHOLE;
    flash->end = first_record(flash->medium);
    while (flash->end < flash->medium->page_bytes && (what = look(flash, flash->end, &r)) == WHOLE) {
        flash->end = r.next;
    }
    if (what == UNMARKED && keeps_unmarked) {
        flash->end = r.next;
    }
    return flash->end < flash->copied ? DAMAGED : what;
}

static hush_status mount(hush_flash *flash, const hush_flash_medium *medium, bool keeps_unmarked)
{
    *flash = (hush_flash){.medium = medium};
    hush_status status = choose_page(flash);
    if (status != HUSH_OK) {
        return status;
    }
    const found what = find_end(flash, keeps_unmarked);
    if (what == DAMAGED) {
        return HUSH_STORAGE;
    }
    const uint32_t next = sequence_of(medium, next_page(flash));
    flash->must_move = next == 0 || next > flash->sequence;
    if (what == TORN || what == UNMARKED) {
        status = move(flash);
    }
    return status == HUSH_OK ? add_up(flash) : status;
}

hush_status hush_flash_open(hush_flash *flash, const hush_flash_medium *medium, hush_storage *storage)
{
    if (!flash || !storage || !is_medium(medium)) {
        return HUSH_ARGUMENT;
    }
    hush_status status = mount(flash, medium, true);
    if (status == HUSH_STORAGE) { /* bits that were cut off may have changed while they were copied */
        status = mount(flash, medium, false);
    }
    flash->is_broken = status != HUSH_OK;
    *storage = (hush_storage){flash, flash_load, flash_store, flash_remove, flash_name};
    return status;
}

hush_status hush_flash_format(const hush_flash_medium *medium)
{
    if (!is_medium(medium)) {
        return HUSH_ARGUMENT;
    }
    uint32_t sequence = 0, target = medium->pages;
    for (uint32_t page = medium->pages; page-- > 0;) {
        sequence = greater(sequence, sequence_of(medium, page));
        if (!is_blank_between(medium, page, first_record(medium), medium->page_bytes) &&
            medium->erase(medium->context, page) != 0) {
            return HUSH_STORAGE;
        }
        target = is_blank_between(medium, page, 0, medium->page_bytes) ? page : target;
    }
    if (target == medium->pages) {
        target = 0;
        if (medium->erase(medium->context, target) != 0) {
            return HUSH_STORAGE;
        }
    }
    return put_mark(medium, target, mark_at(medium, BEGUN)) &&
                   put_header(medium, target, sequence + 1, first_record(medium)) && put_mark(medium, target, mark_at(medium, IN_USE))
               ? HUSH_OK
               : HUSH_STORAGE;
}
