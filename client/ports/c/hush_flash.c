/* See hush_flash.h.
 *
 * The pages are a ring. Those in use hold a log: it begins in the oldest of them and ends in the newest. When the newest
 * is full, the next page of the ring is erased and continues the log. Where only that one page is not in use, it begins
 * with the live records of the oldest page, which is then not in use any more.
 *
 * A page:
 *     begun          mark: the page is not blank
 *     header         magic, sequence, size of a page, unit, number of the pages before it that are in use, too, end of the
 *                    log in the page before it, end of the copied records, CRC-32. Programmed after them
 *     in use, again  marks: this page is the newest
 *     replaced       mark: the next page is newer
 *     records        those copied from the oldest page, then its own, up to the first unit that is blank
 *
 * A record:
 *     begun          mark: the place is not blank
 *     head           kind, size of name, size of content, CRC-32 of these four bytes
 *     body           name, content, CRC-32 of those four bytes, name and content
 *     whole          mark: head and body are programmed
 *
 * Each part begins at a multiple of the unit. A mark is one unit of zeros, and counts if any of its bits is 0. So a mark
 * proves that everything before it was programmed completely, even if the mark itself was cut off. A blank mark proves
 * nothing: its bits may read differently next time. So hush_flash_open returns only after what it has read is certain:
 *     - A place that looks blank may have the beginning of a mark, and nothing else. The mark is programmed again.
 *     - A new page adds nothing and leaves nothing out. Until it has a record of its own, it does not matter whether it is
 *       in use. If it is, its mark is programmed again. If it is not, it is erased, and made again.
 *     - The mark of the last record is programmed again. A record without its mark was cut off. The log goes on in the next
 *       page, whose header leaves the record out; it is copied if its checksum is right and there is room.
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
    uint32_t sequence, copied; /* the end of the copied records */
    uint32_t before, end;      /* how many pages before it are in use, and where the log ends in the one before */
} header;

typedef struct {
    uint32_t page, at, next; /* its first byte in the page, and the first behind it */
    uint8_t kind, name_size;
    uint32_t size;
    char name[MOST_NAME];
} record;

typedef enum { END, WHOLE, UNMARKED, TORN, DAMAGED } finding;

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
    const uint8_t zeros[HUSH_FLASH_MOST_UNIT] = {0};
    return put(medium, page, at, zeros, medium->unit) && has_mark(medium, page, at);
}

/* The header of a page; its sequence is 0 if there is none. */
static header read_header(const hush_flash_medium *medium, uint32_t page)
{
    uint8_t bytes[HEADER_BYTES];
    header found = {0};
    get(medium, page, medium->unit, bytes, sizeof bytes);
    if (hush_is_same(bytes, MAGIC, sizeof MAGIC) && get_32(bytes + 12) == medium->page_bytes && bytes[16] == medium->unit &&
        get_32(bytes + 24) == checksum(0, bytes, 24)) {
        found.sequence = get_32(bytes + 8);
        found.before = bytes[17];
        found.copied = get_32(bytes + 20) & 0xffffff;
        found.end = (uint32_t)bytes[23] << 16 | get_32(bytes + 16) >> 16;
    }
    return found;
}

static bool put_header(const hush_flash_medium *medium, uint32_t page, const header *what)
{
    uint8_t bytes[CHUNK];
    memset(bytes, 0xff, sizeof bytes);
    memcpy(bytes, MAGIC, sizeof MAGIC);
    put_32(bytes + 8, what->sequence);
    put_32(bytes + 12, medium->page_bytes);
    put_32(bytes + 16, medium->unit | what->before << 8 | what->end << 16);
    put_32(bytes + 20, what->copied | what->end >> 16 << 24);
    put_32(bytes + 24, checksum(0, bytes, 24));
    return put(medium, page, medium->unit, bytes, aligned(medium, HEADER_BYTES)) &&
           read_header(medium, page).sequence == what->sequence;
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
static bool read_head(const hush_flash *flash, uint32_t page, uint32_t at, record *out)
{
    const hush_flash_medium *medium = flash->medium;
    uint8_t head[HEAD_BYTES];
    if (medium->page_bytes - at < record_bytes(medium, 1, 0)) {
        return false;
    }
    get(medium, page, head_at(medium, at), head, sizeof head);
    out->kind = head[0];
    out->name_size = head[1];
    out->size = (uint32_t)head[3] << 8 | head[2];
    out->page = page;
    out->at = at;
    if (get_32(head + 4) != checksum(0, head, 4) || out->name_size > MOST_NAME ||
        record_bytes(medium, out->name_size, out->size) > medium->page_bytes - at) {
        return false;
    }
    out->next = at + record_bytes(medium, out->name_size, out->size);
    get(medium, page, body_at(medium, at), (uint8_t *)out->name, out->name_size);
    return true;
}

/* Whether head, name and content of a record are what was written. */
static bool is_intact(const hush_flash_medium *medium, const record *r)
{
    const uint32_t page = r->page;
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

/* What is at `at` of the newest page. */
static finding look(const hush_flash *flash, uint32_t at, record *out)
{
    const hush_flash_medium *medium = flash->medium;
    const uint32_t page = flash->page, end = medium->page_bytes;
    const bool fits = end - at >= record_bytes(medium, 1, 0);
    if (!fits || !has_mark(medium, page, at)) {
        return is_blank_between(medium, page, fits ? head_at(medium, at) : at, end) ? END : DAMAGED;
    }
    if (!read_head(flash, page, at, out)) {
        return is_blank_between(medium, page, body_at(medium, at), end) ? TORN : DAMAGED;
    }
    const bool intact = is_intact(medium, out);
    if (has_mark(medium, page, out->next - medium->unit) || !is_blank_between(medium, page, out->next, end)) {
        return intact ? WHOLE : DAMAGED; /* nothing was added behind a record without its mark */
    }
    return intact ? UNMARKED : TORN;
}

static bool has_name(const record *r, const char *name, size_t size)
{
    return r->name_size == size && hush_is_same(r->name, name, size);
}

/* Where the log begins: `advance` then reads its first record. */
static record start_of(const hush_flash *flash)
{
    return (record){.page = (flash->page + flash->medium->pages - flash->before) % flash->medium->pages,
                    .next = first_record(flash->medium)};
}

/* The next record: HUSH_OK, HUSH_NONE at the end of the log, or HUSH_STORAGE. */
static hush_status advance(const hush_flash *flash, record *r)
{
    uint32_t page = r->page, at = r->next;
    while (page != flash->page) {
        const uint32_t next = (page + 1) % flash->medium->pages;
        const header found = read_header(flash->medium, next);
        if (!found.sequence) {
            return HUSH_STORAGE;
        }
        if (at < found.end) {
            break;
        }
        page = next;
        at = first_record(flash->medium);
    }
    if (page == flash->page && at >= flash->end) {
        return HUSH_NONE;
    }
    return read_head(flash, page, at, r) ? HUSH_OK : HUSH_STORAGE;
}

/* The last record of a name. HUSH_NONE without one; HUSH_STORAGE if any record is damaged. */
static hush_status find_last(const hush_flash *flash, const char *name, record *out)
{
    hush_status status = HUSH_OK;
    record r = start_of(flash);
    out->kind = REMOVED;
    while ((status = advance(flash, &r)) == HUSH_OK) {
        if (!is_intact(flash->medium, &r)) {
            return HUSH_STORAGE;
        }
        if (has_name(&r, name, hush_length(name))) {
            *out = r;
        }
    }
    return status == HUSH_NONE && out->kind == CONTENT ? HUSH_OK : status;
}

/* The next record after this one that has its name. */
static hush_status find_later(const hush_flash *flash, const record *r)
{
    hush_status status = HUSH_OK;
    record later = *r;
    do {
        status = advance(flash, &later);
    } while (status == HUSH_OK && !has_name(&later, r->name, r->name_size));
    return status;
}

/* The next record that is live: it has content, and no later one has its name. */
static hush_status next_live(const hush_flash *flash, record *r)
{
    hush_status status = HUSH_OK;
    while (status == HUSH_OK && (status = advance(flash, r)) == HUSH_OK) {
        if (r->kind == CONTENT) {
            status = find_later(flash, r);
        }
        if (status == HUSH_NONE) {
            return HUSH_OK;
        }
    }
    return status;
}

static hush_status break_down(hush_flash *flash)
{
    flash->is_broken = true;
    return HUSH_STORAGE;
}

/* ---- moving to the next page */

/* Copies a record to a place in another page, if there is room, and compares; `end` is then behind it. */
static bool copy_record(const hush_flash_medium *medium, const record *from, uint32_t page, uint32_t *end)
{
    const uint32_t size = from->next - from->at - medium->unit, at = *end;
    uint8_t bytes[CHUNK];
    record copy = *from;
    copy.page = page;
    copy.at = at;
    *end += size + medium->unit;
    if (*end > medium->page_bytes || !put_mark(medium, page, at)) {
        return false;
    }
    for (uint32_t done = medium->unit, part = 0; done < size; done += part) {
        part = size - done < CHUNK ? size - done : CHUNK;
        get(medium, from->page, from->at + done, bytes, part);
        if (!put(medium, page, at + done, bytes, part)) {
            return false;
        }
    }
    return is_intact(medium, &copy) && put_mark(medium, page, at + size);
}

/* Erases the next page, and continues the log there: with the live records of the oldest page where no other page would
 * be left, and with the record that was cut off behind the log, if there is one. */
static hush_status move(hush_flash *flash, const record *cut_off)
{
    const hush_flash_medium *medium = flash->medium;
    const uint32_t from = flash->page, to = next_page(flash);
    const bool is_full = flash->before + 2 >= medium->pages;
    record r = start_of(flash);
    const uint32_t oldest = r.page;
    header new = {flash->sequence + 1, first_record(medium), flash->before + !is_full, flash->end};
    hush_status status = is_full ? HUSH_OK : HUSH_NONE;
    flash->must_move = true; /* until it is done */
    if (medium->erase(medium->context, to) != 0 || !is_blank_between(medium, to, 0, medium->page_bytes) ||
        !put_mark(medium, to, mark_at(medium, BEGUN))) {
        return HUSH_STORAGE;
    }
    while (status == HUSH_OK && (status = next_live(flash, &r)) == HUSH_OK && r.page == oldest) {
        status = copy_record(medium, &r, to, &new.copied) ? HUSH_OK : HUSH_STORAGE;
    }
    if (status == HUSH_STORAGE || (cut_off && !copy_record(medium, cut_off, to, &new.copied))) {
        return HUSH_STORAGE;
    }
    if (!put_header(medium, to, &new) || !put_mark(medium, to, mark_at(medium, IN_USE)) ||
        !put_mark(medium, from, mark_at(medium, REPLACED))) {
        return break_down(flash); /* which page is the newest is for the next hush_flash_open to find out */
    }
    flash->page = to;
    flash->sequence++;
    flash->before = new.before;
    flash->end = flash->copied = new.copied;
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
    record r = start_of(flash);
    hush_status status = HUSH_OK;
    flash->largest = record_bytes(flash->medium, MOST_NAME, 0);
    flash->live = 0;
    while ((status = next_live(flash, &r)) == HUSH_OK) {
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
    if (!is_intact(medium, r) || !put_mark(medium, flash->page, r->next - medium->unit)) {
        return HUSH_STORAGE;
    }
    flash->must_move = false;
    flash->end = r->next;
    flash->next_name = 0;
    return HUSH_OK;
}

/* Appends a record of a name; the caller has made sure that there is room, perhaps only after several moves. */
static hush_status write_record(hush_flash *flash, uint8_t kind, const char *name, const uint8_t *content, size_t size)
{
    const hush_flash_medium *medium = flash->medium;
    record r = {.kind = kind, .name_size = (uint8_t)hush_length(name), .size = (uint32_t)size};
    const uint32_t bytes = record_bytes(medium, r.name_size, r.size);
    for (uint32_t left = medium->pages; flash->must_move || medium->page_bytes - flash->end < bytes; left--) {
        const hush_status status = left ? move(flash, NULL) : HUSH_STORAGE;
        if (status != HUSH_OK) {
            return status;
        }
    }
    memcpy(r.name, name, r.name_size);
    r.page = flash->page;
    r.at = flash->end;
    r.next = r.at + bytes;
    return append(flash, &r, content);
}

/* The live record of a name: HUSH_OK, HUSH_NONE, HUSH_ARGUMENT or HUSH_STORAGE. */
static hush_status find(hush_flash *flash, const char *name, record *out)
{
    if (!is_name(name)) {
        return HUSH_ARGUMENT;
    }
    if (flash->is_broken) {
        return HUSH_STORAGE;
    }
    const hush_status status = find_last(flash, name, out);
    return status == HUSH_STORAGE ? break_down(flash) : status;
}

/* Whether some page has room for so many bytes, once the live records are spread over all pages but one. */
static bool leaves_room(const hush_flash *flash, uint32_t live, uint32_t bytes)
{
    const uint32_t room = flash->medium->page_bytes - first_record(flash->medium);
    return bytes <= room && live <= (flash->medium->pages - 1) * (room - bytes);
}

/* Room is kept for one more record as large as the largest: so that a record can always be removed, and be replaced
 * by one that is not larger. */
static bool has_room(const hush_flash *flash, uint32_t old, uint32_t bytes)
{
    return old >= bytes || (leaves_room(flash, flash->live, bytes) &&
                            leaves_room(flash, flash->live - old + bytes, greater(flash->largest, bytes)));
}

static hush_status check_room(hush_flash *flash, uint32_t old, uint32_t bytes)
{
    if (!has_room(flash, old, bytes) && add_up(flash) != HUSH_OK) { /* `largest` may be of a record that is no more */
        return break_down(flash);
    }
    return has_room(flash, old, bytes) ? HUSH_OK : HUSH_SPACE;
}

static hush_status flash_load(void *context, const char *name, uint8_t *out, size_t capacity, size_t *size)
{
    hush_flash *flash = context;
    record r;
    if (!size) {
        return HUSH_ARGUMENT;
    }
    const hush_status status = find(flash, name, &r);
    if (status == HUSH_NONE && !out) {
        return check_room(flash, 0, record_bytes(flash->medium, MOST_NAME, (uint32_t)capacity)) == HUSH_OK ? HUSH_NONE : HUSH_SPACE;
    }
    *size = status == HUSH_OK ? r.size : 0;
    if (status != HUSH_OK || r.size > capacity) {
        return status == HUSH_OK ? HUSH_SPACE : status;
    }
    const hush_flash_medium *medium = flash->medium;
    const uint32_t content = r.page * medium->page_bytes + body_at(medium, r.at) + r.name_size;
    return medium->read(medium->context, content, out, r.size) == 0 ? HUSH_OK : break_down(flash);
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
    status = check_room(flash, before, after);
    if (status != HUSH_OK) {
        return status;
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
    record r = start_of(flash);
    if (!out) {
        return HUSH_ARGUMENT;
    }
    if (flash->is_broken) {
        return HUSH_STORAGE;
    }
    size_t place = 0;
    if (flash->next_name && index == flash->next_name) {
        place = index;
        r.page = flash->name_page;
        r.next = flash->name_end;
    }
    hush_status status = next_live(flash, &r);
    for (; status == HUSH_OK && place < index; place++) {
        status = next_live(flash, &r);
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
    flash->name_page = r.page;
    flash->name_end = r.next;
    return HUSH_OK;
}

/* ---- mounting */

static bool is_medium(const hush_flash_medium *medium)
{
    return medium && medium->read && medium->program && medium->erase && medium->page_bytes >= 256 &&
           medium->page_bytes < 1u << 24 && medium->page_bytes % HUSH_FLASH_MOST_UNIT == 0 && medium->pages >= 2 &&
           medium->pages <= 256 && (uint64_t)medium->pages * medium->page_bytes <= INT32_MAX && medium->unit >= 1 && medium->unit <= HUSH_FLASH_MOST_UNIT &&
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

/* The newest page: of those that have a header and a mark, the one with the largest sequence. */
static hush_status choose_page(hush_flash *flash)
{
    const hush_flash_medium *medium = flash->medium;
    for (uint32_t page = 0; page < medium->pages; page++) {
        const header found = read_header(medium, page);
        if (found.sequence > flash->sequence &&
            (has_mark(medium, page, mark_at(medium, IN_USE)) || has_mark(medium, page, mark_at(medium, AGAIN)))) {
            flash->sequence = found.sequence;
            flash->copied = found.copied;
            flash->before = found.before;
            flash->page = page;
        }
    }
    if (!flash->sequence) {
        return is_fresh(medium) ? HUSH_NONE : HUSH_STORAGE;
    }
    return has_mark(medium, flash->page, mark_at(medium, REPLACED)) ? HUSH_STORAGE : HUSH_OK; /* the newer page is damaged */
}

/* Finds the end of the log, and what is behind it. */
static finding find_end(hush_flash *flash, record *behind)
{
    finding what = END;
    flash->end = first_record(flash->medium);
    while (flash->end < flash->medium->page_bytes && (what = look(flash, flash->end, behind)) == WHOLE) {
        flash->end = behind->next;
    }
    return flash->end < flash->copied ? DAMAGED : what;
}

/* Programs the mark again that says that the last record is whole, or the marks that say which page is the newest. */
static bool settle(const hush_flash *flash)
{
    const hush_flash_medium *medium = flash->medium;
    const uint32_t before = (flash->page + medium->pages - 1) % medium->pages;
    if (flash->end > flash->copied) {
        return put_mark(medium, flash->page, flash->end - medium->unit);
    }
    return put_mark(medium, flash->page, mark_at(medium, AGAIN)) && put_mark(medium, before, mark_at(medium, REPLACED));
}

static hush_status mount(hush_flash *flash, const hush_flash_medium *medium)
{
    record behind, whole;
    *flash = (hush_flash){.medium = medium};
    hush_status status = choose_page(flash);
    if (status != HUSH_OK) {
        return status;
    }
    const finding what = find_end(flash, &behind);
    if (what == DAMAGED || read_header(medium, start_of(flash).page).sequence + flash->before != flash->sequence ||
        find_last(flash, "", &whole) != HUSH_NONE || !settle(flash)) {
        return HUSH_STORAGE;
    }
    if (what == UNMARKED) {
        status = move(flash, &behind);
    }
    if (what == TORN || status != HUSH_OK || read_header(medium, next_page(flash)).sequence > flash->sequence) {
        status = move(flash, NULL);
    }
    return status == HUSH_OK ? add_up(flash) : status;
}

hush_status hush_flash_open(hush_flash *flash, const hush_flash_medium *medium, hush_storage *storage)
{
    if (!flash || !storage || !is_medium(medium)) {
        return HUSH_ARGUMENT;
    }
    const hush_status status = mount(flash, medium);
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
        sequence = greater(sequence, read_header(medium, page).sequence);
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
    const header first = {sequence + 1, first_record(medium), 0, 0};
    return put_mark(medium, target, mark_at(medium, BEGUN)) && put_header(medium, target, &first) &&
                   put_mark(medium, target, mark_at(medium, IN_USE))
               ? HUSH_OK
               : HUSH_STORAGE;
}
