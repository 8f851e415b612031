/* A device: ledger, outbox, kept reports and recalls on top of hush.c; see hush_device.h.
 *
 * Two kinds of records. `a-TASK-ROUND` is an answer: charge and report, written once when it is drawn, once more when it
 * is acknowledged, and removed when it is no longer kept. `t-TASK` is the account of a task: which task is pinned, what
 * the answers cost that were removed, and its recalls. TASK is a hash of the id.
 *
 * An answer moves into the account in two steps: the account is stored with its round and its charge, then the answer is
 * removed. Between them both have the charge, and the round in the account says that it counts once. */
#include "hush_device.h"
#include "hush_inside.h"

#include <string.h>

enum {
    DAMAGED = 0, /* states of an answer */
    WAITING = 1,
    KEPT = 2,
    /* where the fields of an answer are in its record; 64-bit fields and those below are big-endian */
    A_STATE = 2, A_FREE = 3, A_DIGEST = 4, A_PURPOSE = 36, A_CLOSES = 52, A_NOT_BEFORE = 60, A_DELAY = 68,
    A_ACKNOWLEDGED = 72, A_PLACE = 80, A_DIVISOR = 88, A_EPSILON = 92, A_TOPIC_BYTES = 124, A_FRAME_BYTES = 126,
    A_TOPIC = 128, MOST_ANSWER = A_TOPIC + 212 + HUSH_HEADER_BYTES + HUSH_ID_BYTES + 8, /* and the integers */
    /* and those of an account */
    T_FLAGS = 2, T_DIGEST = 4, T_PURPOSE = 36, T_LAST = 52, T_WINDOW = 56, T_DROPPED = 64, T_BEGAN = 68, T_SPREAD = 76,
    T_CURSOR = 80, T_RECALL = 88, T_SEED = 104, T_RECALLS = 136, T_ID = 200, T_CHARGES = 268, T_CHARGE_BYTES = 40,
    T_MEMORY = T_CHARGES + HUSH_MOST_OFFERS * T_CHARGE_BYTES, T_REPORTS = T_MEMORY + 12,
    IS_FOLDED = 1, IS_OPEN = 2,
    VERSION = 1, CHECK_BYTES = 8, HASH_BYTES = 12, PLACE_BYTES = 8, EPSILON_BYTES = 32,
    SLACK = 512, /* bytes of room that kept answers leave */
    ROUNDS_KNOWN = 64,               /* of an account; earlier rounds count as answered */
    FIRST_PAUSE = 10000,             /* milliseconds until a refused report is tried again, */
    LONGEST_PAUSE = 3600000,         /* and at most */
    LATE = 300 + 2 * 86400,          /* seconds after the end of a task, from which on no report of it can count */
    DEFAULT_REPORTS = 1000,
    FIRST_REFUSAL = 128, NO_SUBSCRIBER = 16
};

_Static_assert(A_TOPIC + 212 + HUSH_FRAME_BYTES + CHECK_BYTES <= HUSH_RECORD_BYTES, "an answer fits");
_Static_assert(T_REPORTS + 2 * (HUSH_MEMORY_LEVELS + 1) + CHECK_BYTES <= HUSH_RECORD_BYTES, "an account fits");

/* ---- records */

/* Where a field of a record is: numbers of 4 and 8 bytes are big-endian there. */
typedef struct {
    uint16_t at, member, bytes;
} field;

#define FIELD(at, type, member) {at, offsetof(type, member), sizeof((type *)0)->member}

/* Copies fields between a record and a struct: to the record if asked, else from there. */
static void copy_fields(const field *fields, size_t count, uint8_t *record, void *of, bool stores)
{
    for (; count; count--, fields++) {
        uint8_t *at = record + fields->at, *member = (uint8_t *)of + fields->member;
        if (fields->bytes == 4) {
            uint32_t *number = (void *)member;
            if (stores) {
                hush_put(at, 4, *number);
            } else {
                *number = (uint32_t)hush_get(at, 4);
            }
        } else if (fields->bytes == 8) {
            uint64_t *number = (void *)member;
            if (stores) {
                hush_put(at, 8, *number);
            } else {
                *number = hush_get(at, 8);
            }
        } else {
            memcpy(stores ? at : member, stores ? member : at, fields->bytes);
        }
    }
}

APART static void copy_name(char *to, const char *from)
{
    hush_copy(to, from, HUSH_NAME_BYTES);
}

static void name_account(const char *task_id, char out[HUSH_NAME_BYTES])
{
    uint8_t hash[HUSH_DIGEST_BYTES];
    hush_digest((const uint8_t *)task_id, hush_length(task_id), hash);
    hush_copy(out, "t-", 2);
    hush_spell(out + 2, hash, HASH_BYTES);
}

static void name_answer(const char *account, uint32_t round, char out[HUSH_NAME_BYTES])
{
    char digits[8], *at = digits + sizeof digits - 1;
    *at = 0;
    do {
        *--at = (char)('0' + round % 10);
    } while (round /= 10);
    hush_copy(out, account, 2 + 2 * HASH_BYTES);
    out[0] = 'a';
    out[2 + 2 * HASH_BYTES] = '-';
    hush_copy(out + 3 + 2 * HASH_BYTES, at, hush_length(at) + 1);
}

static bool is_answer(const char *name)
{
    return name[0] == 'a' && name[1] == '-' && hush_length(name) > 3 + 2 * HASH_BYTES;
}

static bool is_account(const char *name)
{
    return name[0] == 't' && name[1] == '-' && hush_length(name) == 2 + 2 * HASH_BYTES;
}

APART static void name_account_of(const char *answer, char out[HUSH_NAME_BYTES])
{
    hush_copy(out, answer, 2 + 2 * HASH_BYTES);
    out[0] = 't';
    out[2 + 2 * HASH_BYTES] = 0;
}

APART static uint32_t round_of(const char *answer)
{
    uint32_t round = 0;
    for (const char *at = answer + 3 + 2 * HASH_BYTES; *at >= '0' && *at <= '9'; at++) {
        round = 10 * round + (uint32_t)(*at - '0');
    }
    return round;
}

static bool is_of(const char *answer, const char *account)
{
    return is_answer(answer) && hush_is_same(answer + 1, account + 1, 1 + 2 * HASH_BYTES);
}

/* Stores the first `size` bytes of device->record, with a checksum: HUSH_OK, HUSH_SPACE or HUSH_STORAGE. */
static hush_status store(hush_device *device, const char *name, size_t size)
{
    uint8_t check[HUSH_DIGEST_BYTES];
    hush_digest(device->record, size, check);
    hush_copy(device->record + size, check, CHECK_BYTES);
    const hush_storage *to = device->storage;
    const hush_status status = to->store(to->context, name, device->record, size + CHECK_BYTES);
    return status == HUSH_OK || status == HUSH_SPACE ? status : HUSH_STORAGE;
}

/* Reads a record into device->record: HUSH_OK, HUSH_NONE or HUSH_STORAGE. */
static hush_status load(hush_device *device, const char *name, size_t *size)
{
    uint8_t check[HUSH_DIGEST_BYTES];
    const hush_storage *from = device->storage;
    hush_status status = from->load(from->context, name, device->record, sizeof device->record, size);
    if (status != HUSH_OK) {
        return status == HUSH_NONE ? HUSH_NONE : HUSH_STORAGE;
    }
    if (*size < CHECK_BYTES + 2 || *size > sizeof device->record) {
        return HUSH_STORAGE;
    }
    *size -= CHECK_BYTES;
    hush_digest(device->record, *size, check);
    return hush_is_same(device->record + *size, check, CHECK_BYTES) && device->record[0] == (uint8_t)*name &&
                   device->record[1] == VERSION
               ? HUSH_OK
               : HUSH_STORAGE;
}

/* The name of record `index`: HUSH_OK, HUSH_NONE or HUSH_STORAGE. */
static hush_status name_at(const hush_device *device, size_t index, char out[HUSH_NAME_BYTES])
{
    const hush_storage *from = device->storage;
    hush_status status = from->name(from->context, index, out, HUSH_NAME_BYTES);
    return status == HUSH_OK || status == HUSH_NONE ? status : HUSH_STORAGE;
}

/* ---- answers */

typedef struct {
    char name[HUSH_NAME_BYTES];
    uint32_t round;
    int state;
    bool is_free; /* whether the memory of a sticky task has paid for it */
    int64_t closes, not_before, acknowledged;
    uint32_t delay, divisor;
    char epsilon[EPSILON_BYTES];
    const char *topic; /* these are in device->record */
    const uint8_t *frame;
    size_t frame_bytes, bytes;
} answer;

static const field ANSWER_FIELDS[] = {
    FIELD(A_CLOSES, answer, closes), FIELD(A_NOT_BEFORE, answer, not_before), FIELD(A_DELAY, answer, delay),
    FIELD(A_ACKNOWLEDGED, answer, acknowledged), FIELD(A_DIVISOR, answer, divisor), FIELD(A_EPSILON, answer, epsilon),
};

/* Loads the answer of that name; without it or with damage it is DAMAGED. */
static hush_status load_answer(hush_device *device, answer *out)
{
    uint8_t *from = device->record;
    out->state = DAMAGED;
    hush_status status = load(device, out->name, &out->bytes);
    if (status != HUSH_OK) {
        return status;
    }
    const size_t topic_bytes = (size_t)hush_get(from + A_TOPIC_BYTES, 2), size = out->bytes;
    out->frame_bytes = (size_t)hush_get(from + A_FRAME_BYTES, 2);
    if (size < A_TOPIC || topic_bytes < 1 || size - A_TOPIC != topic_bytes + out->frame_bytes ||
        out->frame_bytes < HUSH_HEADER_BYTES || from[A_TOPIC + topic_bytes - 1] || from[A_EPSILON + EPSILON_BYTES - 1] ||
        (from[A_STATE] != WAITING && from[A_STATE] != KEPT)) {
        return HUSH_STORAGE;
    }
    copy_fields(ANSWER_FIELDS, sizeof ANSWER_FIELDS / sizeof *ANSWER_FIELDS, from, out, false);
    if (!out->divisor) {
        return HUSH_STORAGE;
    }
    out->round = round_of(out->name);
    out->is_free = from[A_FREE] != 0;
    out->topic = (const char *)from + A_TOPIC;
    out->frame = from + A_TOPIC + topic_bytes;
    out->state = from[A_STATE];
    return HUSH_OK;
}

/* Loads the next answer, of one account or (NULL) of all, from record `index` on; one that cannot be loaded is DAMAGED.
 * HUSH_OK, HUSH_NONE after the last, or HUSH_STORAGE. */
static hush_status next_answer(hush_device *device, const char *account, size_t *index, answer *out)
{
    hush_status status = HUSH_OK;
    do {
        status = name_at(device, (*index)++, out->name);
    } while (status == HUSH_OK && !(account ? is_of(out->name, account) : is_answer(out->name)));
    if (status == HUSH_OK) {
        (void)load_answer(device, out);
    }
    return status;
}

/* ---- accounts */

static const field ACCOUNT_FIELDS[] = {
    FIELD(T_DIGEST, hush_account, digest), FIELD(T_PURPOSE, hush_account, purpose), FIELD(T_LAST, hush_account, last),
    FIELD(T_WINDOW, hush_account, window), FIELD(T_DROPPED, hush_account, dropped), FIELD(T_BEGAN, hush_account, began),
    FIELD(T_SPREAD, hush_account, spread), FIELD(T_CURSOR, hush_account, cursor), FIELD(T_RECALL, hush_account, recall),
    FIELD(T_SEED, hush_account, seed), FIELD(T_RECALLS, hush_account, recalls), FIELD(T_ID, hush_account, id),
    FIELD(T_MEMORY, hush_account, memory.threshold), FIELD(T_MEMORY + 4, hush_account, memory.substitute),
};

static const field CHARGE_FIELDS[] = {
    FIELD(T_CHARGES, hush_account, charges[0].epsilon),
    FIELD(T_CHARGES + EPSILON_BYTES, hush_account, charges[0].divisor),
    FIELD(T_CHARGES + EPSILON_BYTES + 4, hush_account, charges[0].times),
};

_Static_assert(sizeof((hush_account *)0)->charges[0] == T_CHARGE_BYTES, "charges are as far apart as in a record");

static void copy_account(hush_device *device, bool stores)
{
    copy_fields(ACCOUNT_FIELDS, sizeof ACCOUNT_FIELDS / sizeof *ACCOUNT_FIELDS, device->record, &device->account, stores);
    for (size_t i = 0; i < HUSH_MOST_OFFERS * T_CHARGE_BYTES; i += T_CHARGE_BYTES) {
        copy_fields(CHARGE_FIELDS, sizeof CHARGE_FIELDS / sizeof *CHARGE_FIELDS, device->record + i,
                    (uint8_t *)&device->account + i, stores);
    }
}

static hush_status load_account(hush_device *device, const char *name)
{
    hush_account *to = &device->account;
    const uint8_t *from = device->record;
    size_t size = 0;
    if (hush_is_equal(to->name, name)) {
        return HUSH_OK;
    }
    *to = (hush_account){0};
    hush_status status = load(device, name, &size);
    if (status != HUSH_OK) {
        return status;
    }
    const uint32_t reports = size >= T_REPORTS ? (uint32_t)hush_get(from + T_MEMORY + 8, 4) : UINT32_MAX;
    if (reports > HUSH_MEMORY_LEVELS + 1 || size != T_REPORTS + 2 * (size_t)reports) {
        return HUSH_STORAGE;
    }
    copy_account(device, false);
    bool is_legal = !to->id[64];
    for (size_t i = 0; i < HUSH_MOST_OFFERS; i++) {
        is_legal = is_legal && !to->charges[i].epsilon[EPSILON_BYTES - 1] &&
                   (to->charges[i].divisor || !to->charges[i].times);
    }
    if (!is_legal) {
        return HUSH_STORAGE;
    }
    to->has_folded = from[T_FLAGS] & IS_FOLDED;
    to->is_open = (from[T_FLAGS] & IS_OPEN) != 0;
    to->memory.levels = reports ? reports - 1 : 0;
    for (size_t i = 0; i < reports; i++) {
        to->memory.reports[i] = (uint16_t)hush_get(from + T_REPORTS + 2 * i, 2);
    }
    copy_name(to->name, name); /* last: from here on it is loaded */
    return HUSH_OK;
}

static hush_status store_account(hush_device *device, const char *name)
{
    hush_account *from = &device->account;
    uint8_t *to = device->record;
    const size_t reports = from->memory.levels ? from->memory.levels + 1 : 0;
    memset(to, 0, T_REPORTS);
    to[0] = 't';
    to[1] = VERSION;
    to[T_FLAGS] = (uint8_t)((from->has_folded ? IS_FOLDED : 0) | (from->is_open ? IS_OPEN : 0));
    copy_account(device, true);
    hush_put(to + T_MEMORY + 8, 4, reports);
    for (size_t i = 0; i < reports; i++) {
        hush_put(to + T_REPORTS + 2 * i, 2, from->memory.reports[i]);
    }
    hush_status status = store(device, name, T_REPORTS + 2 * reports);
    from->name[0] = 0; /* read again: after a failure it may be the old or the new one */
    return status;
}

/* Whether the charge of a round is in the account, or the round too old for that to be known. */
static bool is_folded(const hush_account *account, uint32_t round)
{
    return account->has_folded && round <= account->last &&
           (account->last - round >= ROUNDS_KNOWN || (account->window >> (account->last - round) & 1));
}

static void mark_folded(hush_account *account, uint32_t round)
{
    if (!account->has_folded || round > account->last) {
        const uint32_t shift = account->has_folded ? round - account->last : ROUNDS_KNOWN;
        account->window = (shift < ROUNDS_KNOWN ? account->window << shift : 0) | 1;
        account->last = round;
        account->has_folded = true;
    } else if (account->last - round < ROUNDS_KNOWN) {
        account->window |= UINT64_C(1) << (account->last - round);
    }
}

static hush_status add_charge(hush_account *account, const char *epsilon, uint32_t divisor)
{
    for (size_t i = 0; i < HUSH_MOST_OFFERS; i++) {
        if (!account->charges[i].times) {
            memset(account->charges + i, 0, sizeof account->charges[i]);
            hush_copy(account->charges[i].epsilon, epsilon, hush_length(epsilon) + 1);
            account->charges[i].divisor = divisor;
        }
        if (hush_is_equal(account->charges[i].epsilon, epsilon) && account->charges[i].divisor == divisor) {
            account->charges[i].times++;
            return HUSH_OK;
        }
    }
    return HUSH_STORAGE; /* a task has no more offers */
}

/* Charges the answers of this task that the account would no longer know one by one, once `round` is its latest. */
static hush_status fold_older(hush_device *device, const char *account, uint32_t round)
{
    answer old;
    size_t index = 0;
    hush_status status = HUSH_OK;
    while ((status = next_answer(device, account, &index, &old)) == HUSH_OK) {
        const uint32_t other = round_of(old.name);
        if (other >= round || round - other < ROUNDS_KNOWN || is_folded(&device->account, other)) {
            continue;
        }
        if (old.state == DAMAGED) {
            return HUSH_STORAGE;
        }
        status = old.is_free ? HUSH_OK : add_charge(&device->account, old.epsilon, old.divisor);
        if (status != HUSH_OK) {
            return status;
        }
    }
    return status == HUSH_NONE ? HUSH_OK : status;
}

/* Moves an answer that was loaded into the account of its task, and removes it. */
static hush_status fold(hush_device *device, const answer *one, bool is_dropped)
{
    char account[HUSH_NAME_BYTES];
    name_account_of(one->name, account);
    hush_status status = load_account(device, account);
    if (status != HUSH_OK) {
        return HUSH_STORAGE;
    }
    if (!is_folded(&device->account, one->round)) {
        if (!device->account.has_folded || one->round > device->account.last) {
            status = fold_older(device, account, one->round);
        }
        if (status == HUSH_OK && !one->is_free) {
            status = add_charge(&device->account, one->epsilon, one->divisor);
        }
        mark_folded(&device->account, one->round);
    }
    device->account.dropped += is_dropped;
    if (status == HUSH_OK) {
        status = store_account(device, account);
    }
    device->account.name[0] = 0;
    const hush_storage *to = device->storage;
    return status == HUSH_OK && to->remove(to->context, one->name) != HUSH_OK ? HUSH_STORAGE : status;
}

/* ---- what was spent */

static void digest_purpose(const char *purpose, size_t bytes, uint8_t out[16])
{
    uint8_t digest[HUSH_DIGEST_BYTES];
    hush_digest((const uint8_t *)purpose, bytes, digest);
    hush_copy(out, digest, 16);
}

/* Adds what a record has cost; of an answer only where the account of its task does not have it yet. */
static hush_status add_record(hush_device *device, const char *name, const uint8_t *purpose, hush_sum *sum)
{
    char account[HUSH_NAME_BYTES];
    answer one;
    hush_status status = HUSH_OK;
    if (is_answer(name)) {
        name_account_of(name, account);
        copy_name(one.name, name);
        status = load_answer(device, &one);
        const bool counts = status == HUSH_OK && !one.is_free &&
                            (!purpose || hush_is_same(device->record + A_PURPOSE, purpose, 16));
        if (status == HUSH_OK) {
            status = load_account(device, account);
        }
        if (status == HUSH_OK && counts && !is_folded(&device->account, one.round)) {
            status = hush_sum_add(sum, one.epsilon, one.divisor, 1);
        }
    } else if (is_account(name)) {
        status = load_account(device, name);
        const hush_account *found = &device->account;
        for (size_t i = 0; i < HUSH_MOST_OFFERS && status == HUSH_OK; i++) {
            if (found->charges[i].times && (!purpose || hush_is_same(found->purpose, purpose, 16))) {
                status = hush_sum_add(sum, found->charges[i].epsilon, found->charges[i].divisor,
                                      found->charges[i].times);
            }
        }
    }
    return status == HUSH_OK ? HUSH_OK : HUSH_STORAGE;
}

static hush_status add_up(hush_device *device, const uint8_t *purpose, hush_sum *sum)
{
    char name[HUSH_NAME_BYTES];
    hush_status status = HUSH_OK;
    hush_sum_clear(sum);
    for (size_t index = 0; (status = name_at(device, index, name)) == HUSH_OK; index++) {
        status = add_record(device, name, purpose, sum);
        if (status != HUSH_OK) {
            return status;
        }
    }
    return status == HUSH_NONE ? HUSH_OK : status;
}

hush_status hush_device_spent(hush_device *device, const char *purpose, size_t purpose_bytes, char *out,
                              size_t capacity)
{
    uint8_t digest[16];
    hush_sum sum;
    if (!device || !device->storage || !out) {
        return HUSH_ARGUMENT;
    }
    digest_purpose(purpose ? purpose : "", purpose ? purpose_bytes : 0, digest);
    hush_status status = add_up(device, purpose ? digest : NULL, &sum);
    return status == HUSH_OK ? hush_sum_text(&sum, out, capacity) : status;
}

/* ---- decide: no value is in scope */

/* Rounded down. */
static int64_t seconds_of(int64_t milliseconds)
{
    return milliseconds < 0 ? -(int64_t)hush_divide(999 - (uint64_t)milliseconds, 1000, NULL)
                            : (int64_t)hush_divide((uint64_t)milliseconds, 1000, NULL);
}

/* Seconds as milliseconds; what is beyond them is never. */
APART static int64_t in_milliseconds(int64_t seconds)
{
    return seconds > INT64_MAX / 1000 ? INT64_MAX : seconds < INT64_MIN / 1000 ? INT64_MIN : seconds * 1000;
}

/* Whether a sum is within a limit with `times` times a cost in addition. */
static bool is_affordable(const hush_sum *spent, const char *epsilon, uint32_t divisor, uint32_t times, const char *limit)
{
    hush_sum sum = *spent;
    return hush_sum_add(&sum, epsilon, divisor, times) == HUSH_OK && hush_sum_is_within(&sum, limit);
}

/* Whether the offer that is taken may be answered, after what was spent on its purpose and in all. */
static hush_status check_limits(const hush_device *device, const hush_task *task, bool is_free, const hush_sum *spent,
                                const hush_sum *in_all)
{
    const hush_policy *limits = &device->policy;
    const uint32_t divisor = task->sticky ? 1 : task->rounds;
    hush_sum nothing;
    hush_sum_clear(&nothing);
    if (!is_affordable(&nothing, task->epsilon, 1, 1, limits->max_epsilon)) {
        return HUSH_EPSILON;
    }
    return is_affordable(spent, task->epsilon, divisor, !is_free, limits->lifetime) &&
                   (!limits->total || is_affordable(in_all, task->epsilon, divisor, !is_free, limits->total))
               ? HUSH_OK
               : HUSH_SPENT;
}

/* Takes the largest offer that the limits allow. */
static hush_status choose(hush_device *device, hush_task *task, bool is_free)
{
    uint8_t purpose[16];
    hush_sum spent, in_all;
    if (task->sticky && !device->policy.sticky) {
        return HUSH_STICKY;
    }
    digest_purpose(task->purpose, task->purpose_bytes, purpose);
    hush_status status = add_up(device, purpose, &spent);
    hush_sum_clear(&in_all);
    if (status == HUSH_OK && device->policy.total) {
        status = add_up(device, NULL, &in_all);
    }
    if (status != HUSH_OK) {
        return status;
    }
    for (uint32_t place = task->offers ? task->offers : 1; place-- > 0;) {
        status = hush_take_offer(task, place);
        if (status == HUSH_OK) {
            status = check_limits(device, task, is_free, &spent, &in_all);
        }
        if (status == HUSH_OK) {
            return status;
        }
    }
    return status;
}

/* How many answers wait that can still be counted, or how many are kept. */
static hush_status count_answers(hush_device *device, int state, int64_t now, uint32_t *count)
{
    answer one;
    size_t index = 0;
    hush_status status = HUSH_OK;
    *count = 0;
    while ((status = next_answer(device, NULL, &index, &one)) == HUSH_OK) {
        if (one.state == DAMAGED) {
            return HUSH_STORAGE;
        }
        *count += one.state == state && in_milliseconds(hush_later(one.closes, LATE)) > now;
    }
    return status == HUSH_NONE ? HUSH_OK : status;
}

/* Whether the task is the one that was admitted, and its open round was not answered. */
static hush_status check_history(hush_device *device, const hush_task *task, int64_t now, const char *account,
                                 uint32_t *round)
{
    char name[HUSH_NAME_BYTES];
    size_t size = 0;
    hush_status status = load_account(device, account);
    device->account.is_new = status == HUSH_NONE;
    if (status == HUSH_OK && !(hush_is_same(device->account.digest, task->digest, sizeof task->digest) &&
                                hush_is_equal(device->account.id, task->id))) {
        return HUSH_CHANGED;
    }
    if (status != HUSH_OK && status != HUSH_NONE) {
        return status;
    }
    status = hush_round(task, seconds_of(now), round);
    if (status != HUSH_OK) {
        return status;
    }
    name_answer(account, *round, name);
    if (is_folded(&device->account, *round)) {
        return HUSH_ANSWERED;
    }
    status = load(device, name, &size);
    return status == HUSH_NONE ? HUSH_OK : status == HUSH_OK ? HUSH_ANSWERED : HUSH_STORAGE;
}

/* A uniform delay of at most `spread`, or of half of the time until the task closes. */
static hush_status draw_delay(const hush_device *device, const hush_task *task, int64_t now, uint32_t *delay)
{
    uint8_t bytes[8];
    uint64_t drawn = 0;
    const int64_t closes = in_milliseconds(task->closes);
    const uint64_t left = closes > now ? (uint64_t)closes - (uint64_t)now : 0;
    uint64_t longest = device->policy.spread;
    if (closes != INT64_MAX && left / 2 < longest) {
        longest = left / 2;
    }
    *delay = 0;
    if (!longest) {
        return HUSH_OK;
    }
    if (device->random(device->random_context, bytes, sizeof bytes) != 0) {
        return HUSH_RANDOM;
    }
    (void)hush_divide(hush_get(bytes, 8), longest + 1, &drawn);
    *delay = (uint32_t)drawn; /* not uniform by one in 2^32 at most: it hides times */
    return HUSH_OK;
}

static hush_status drop_oldest(hush_device *device, int64_t now);

static bool has_room(const hush_device *device, size_t size)
{
    const hush_storage *in = device->storage;
    return in->load(in->context, "room", NULL, size, &size) != HUSH_SPACE;
}

/* Makes room for a new record, or HUSH_SPACE. Kept answers give way, the oldest first, and leave some room for the next
 * records: otherwise each would take another erase of the flash. */
static hush_status make_room(hush_device *device, int64_t now, size_t size)
{
    hush_status status = HUSH_OK;
    while (status == HUSH_OK && !has_room(device, size + SLACK)) {
        status = drop_oldest(device, now);
    }
    return status != HUSH_NONE ? status : has_room(device, size) ? HUSH_OK : HUSH_SPACE;
}

hush_status hush_device_decide(hush_device *device, hush_task *task, int64_t now, hush_decision *decision)
{
    char account[HUSH_NAME_BYTES];
    uint32_t round = 0, waiting = 0;
    if (!device || !device->storage || !task || !task->json || !decision) {
        return HUSH_ARGUMENT;
    }
    *decision = (hush_decision){0};
    name_account(task->id, account);
    hush_status status = check_history(device, task, now, account, &round);
    if (status != HUSH_OK) {
        return status;
    }
    const bool is_new = device->account.is_new, is_charged = device->account.memory.levels != 0;
    const size_t memory = task->sticky && !is_charged ? task->levels + 1 : 0; /* which is stored with the first answer */
    status = choose(device, task, is_charged);
    if (status == HUSH_OK) {
        status = count_answers(device, WAITING, now, &waiting);
    }
    if (status == HUSH_OK && waiting >= device->policy.capacity) {
        return HUSH_FULL;
    }
    if (status == HUSH_OK && is_new && (status = make_room(device, now, T_REPORTS + CHECK_BYTES)) == HUSH_OK) {
        device->account = (hush_account){0};
        hush_copy(device->account.id, task->id, sizeof task->id);
        hush_copy(device->account.digest, task->digest, sizeof task->digest);
        digest_purpose(task->purpose, task->purpose_bytes, device->account.purpose);
        status = store_account(device, account);
    }
    if (status == HUSH_OK) {
        status = make_room(device, now, MOST_ANSWER + 8 * hush_width(task) + (memory ? T_REPORTS + 2 * memory : 0));
    }
    if (status == HUSH_OK) {
        status = draw_delay(device, task, now, &decision->delay);
    }
    if (status == HUSH_OK) {
        decision->task = task;
        decision->round = round;
        decision->not_before = hush_later(now, decision->delay);
    }
    return status;
}

/* ---- answer: whatever the value is */

/* The memory of a sticky task: drawn and charged once, before the first answer is made of it. */
static hush_status need_memory(hush_device *device, const hush_task *task, const char *account)
{
    if (device->account.memory.levels) {
        return hush_fits(task, &device->account.memory) ? HUSH_OK : HUSH_STORAGE;
    }
    hush_status status = hush_draw_memory(task, device->random, device->random_context, &device->account.memory);
    if (status == HUSH_OK) {
        status = add_charge(&device->account, task->epsilon, 1);
    }
    if (status == HUSH_OK) {
        status = store_account(device, account);
    } else {
        device->account.name[0] = 0;
    }
    return status == HUSH_OK ? load_account(device, account) : status;
}

/* The record of an answer: its charge and its frame. */
static hush_status store_answer(hush_device *device, const hush_decision *decision, const hush_report *report,
                                const char *name)
{
    const hush_task *task = decision->task;
    uint8_t *to = device->record;
    size_t frame_bytes = 0;
    memset(to, 0, A_TOPIC);
    hush_status status = hush_report_topic(task->id, device->sender, (char *)to + A_TOPIC, 212);
    const size_t topic_bytes = status == HUSH_OK ? hush_length((char *)to + A_TOPIC) + 1 : 0;
    if (status == HUSH_OK) {
        status = hush_encode_frame(report->digest, report->round, report->id, report->body, report->width, 1,
                                   to + A_TOPIC + topic_bytes, HUSH_FRAME_BYTES, &frame_bytes);
    }
    if (status != HUSH_OK) {
        return status;
    }
    to[0] = 'a';
    to[1] = VERSION;
    to[A_STATE] = WAITING;
    to[A_FREE] = task->sticky;
    hush_copy(to + A_DIGEST, task->digest, sizeof task->digest);
    digest_purpose(task->purpose, task->purpose_bytes, to + A_PURPOSE);
    hush_put(to + A_CLOSES, 8, (uint64_t)task->closes);
    hush_put(to + A_NOT_BEFORE, 8, (uint64_t)decision->not_before);
    hush_put(to + A_DELAY, 4, decision->delay);
    hush_put(to + A_DIVISOR, 4, task->rounds);
    hush_copy(to + A_EPSILON, task->epsilon, EPSILON_BYTES);
    hush_put(to + A_TOPIC_BYTES, 2, topic_bytes);
    hush_put(to + A_FRAME_BYTES, 2, frame_bytes);
    return store(device, name, A_TOPIC + topic_bytes + frame_bytes);
}

hush_status hush_device_answer(hush_device *device, hush_decision *decision, const char *value, hush_became *became)
{
    char account[HUSH_NAME_BYTES], name[HUSH_NAME_BYTES];
    size_t size = 0;
    hush_report report;
    if (!device || !device->storage || !decision || !decision->task) {
        return HUSH_ARGUMENT;
    }
    const hush_task *task = decision->task;
    hush_decision made = *decision;
    decision->task = NULL;
    name_account(task->id, account);
    name_answer(account, made.round, name);
    hush_status status = load(device, name, &size);
    if (status != HUSH_NONE) {
        return status == HUSH_OK ? HUSH_ANSWERED : status;
    }
    if (load_account(device, account) != HUSH_OK || is_folded(&device->account, made.round) ||
        !hush_is_same(device->account.digest, task->digest, sizeof task->digest)) {
        return HUSH_STORAGE;
    }
    status = !HUSH_WITHOUT_STICKY && task->sticky ? need_memory(device, task, account) : HUSH_OK;
    if (status == HUSH_OK) {
        status = hush_draw(task, task->sticky ? &device->account.memory : NULL, made.round, value, device->random,
                           device->random_context, &report);
    }
    if (status == HUSH_OK) {
        status = store_answer(device, &made, &report, name);
    }
    if (status == HUSH_OK && became) {
        *became = report.value;
    }
    return status;
}

/* ---- recalls */

static const uint64_t NO_KEY = 0;

/* When a kept frame goes under the open recall of its account: a key that grows with the time, uniform over 64 bits. */
static uint64_t key_of(const hush_account *account, const char *name)
{
    uint8_t bytes[HUSH_SEED_BYTES + HUSH_NAME_BYTES] = {0}, digest[HUSH_DIGEST_BYTES];
    hush_copy(bytes, account->seed, HUSH_SEED_BYTES);
    hush_copy(bytes + HUSH_SEED_BYTES, name, hush_length(name));
    hush_digest(bytes, sizeof bytes, digest);
    return hush_get(digest, 8) | 1;
}

static int64_t due_of(const hush_account *account, uint64_t key)
{
    return hush_later(account->began, (int64_t)((key >> 32) * (1000 * (uint64_t)account->spread + 1) >> 32));
}

/* The first of `count` structs of `bytes`, which begin with a name, that has this name; "" finds one that is free. */
static size_t place_of(const void *slots, size_t bytes, size_t count, const char *name)
{
    size_t place = 0;
    while (place < count && !hush_is_equal((const char *)slots + place * bytes, name)) {
        place++;
    }
    return place;
}

static size_t progress_of(const hush_device *device, const char *account)
{
    return place_of(device->progress, sizeof *device->progress, HUSH_RECALLS, account);
}

/* How far the recall of the account that is loaded has come: in memory, or as stored. */
static uint64_t cursor_of(const hush_device *device)
{
    const size_t slot = progress_of(device, device->account.name);
    return slot < HUSH_RECALLS ? device->progress[slot].cursor : device->account.cursor;
}

/* Whether an answer that is loaded is to be sent again for the recall of the account, which is loaded, too. */
static bool is_recalled(const hush_device *device, const answer *one)
{
    const hush_account *account = &device->account;
    return account->is_open && one->state == KEPT && one->acknowledged <= account->began &&
           key_of(account, one->name) > cursor_of(device);
}

/* When a kept answer ends, in milliseconds. */
static int64_t end_of(const hush_device *device, const answer *one)
{
    const hush_recall scheduled = {.spread = device->account.spread};
    return in_milliseconds(hush_kept_until(seconds_of(one->acknowledged), one->closes, device->policy.keep,
                                           is_recalled(device, one) ? &scheduled : NULL));
}

hush_status hush_device_recall(hush_device *device, const char *task_id, const uint8_t *payload, size_t size)
{
    char account[HUSH_NAME_BYTES];
    hush_recall read;
    if (!device || !device->storage || !task_id) {
        return HUSH_ARGUMENT;
    }
    size_t slot = place_of(device->waiting, sizeof *device->waiting, HUSH_RECALLS, task_id);
    if (!size) {
        if (slot < HUSH_RECALLS) {
            device->waiting[slot] = (hush_recall){{0}, {0}, {0}, 0};
        }
        return HUSH_OK;
    }
    if (hush_read_recall(payload, size, &read) != HUSH_OK || !hush_is_equal(read.task, task_id)) {
        return HUSH_OK;
    }
    name_account(task_id, account);
    hush_status status = load_account(device, account);
    if (status != HUSH_OK) {
        return status == HUSH_NONE ? HUSH_OK : status;
    }
    const hush_account *found = &device->account;
    bool is_known = found->is_open && hush_is_same(found->recall, read.id, sizeof read.id);
    for (size_t i = 0; i < HUSH_RECALL_IDS; i++) {
        is_known = is_known || hush_is_same(found->recalls[i], read.id, sizeof read.id);
    }
    if (!is_known && hush_is_same(found->digest, read.digest, HUSH_REPORT_DIGEST_BYTES)) {
        if (slot == HUSH_RECALLS) {
            slot = place_of(device->waiting, sizeof *device->waiting, HUSH_RECALLS, "");
        }
        device->waiting[slot % HUSH_RECALLS] = read; /* where there is no room, in place of the first */
    }
    return HUSH_OK;
}

typedef struct {
    char name[HUSH_NAME_BYTES];
    uint64_t key;
} candidate;

/* The kept answer that is next under the open recall of an account; its key is NO_KEY if there is none. */
static hush_status find_next(hush_device *device, const char *account, int64_t now, candidate *out)
{
    answer one;
    size_t index = 0;
    hush_status status = HUSH_OK;
    out->key = NO_KEY;
    while ((status = next_answer(device, account, &index, &one)) == HUSH_OK) {
        const bool here = hush_is_same(device->record + A_PLACE, device->place, PLACE_BYTES);
        if (one.state == DAMAGED || load_account(device, account) != HUSH_OK) {
            return HUSH_STORAGE;
        }
        const uint64_t key = key_of(&device->account, one.name);
        if (here && is_recalled(device, &one) && end_of(device, &one) > now && (!out->key || key < out->key)) {
            copy_name(out->name, one.name);
            out->key = key;
        }
    }
    return status == HUSH_NONE ? load_account(device, account) : status;
}

/* Whether a later moment is at most so much later, however far both are from 1970. */
static bool is_within(int64_t now, int64_t later, uint64_t most)
{
    return (uint64_t)later - (uint64_t)now <= most;
}

APART static void hasten(int64_t *next, int64_t moment)
{
    *next = moment < *next ? moment : *next;
}

/* Begins a recall that has waited long enough, if anything is kept for it. */
static hush_status begin_recall(hush_device *device, hush_recall *recall, int64_t now, int64_t *next)
{
    char account[HUSH_NAME_BYTES];
    candidate first;
    name_account(recall->task, account);
    hush_status status = load_account(device, account);
    if (status != HUSH_OK) {
        return status;
    }
    hush_account *found = &device->account;
    const int64_t until = hush_later(found->began, in_milliseconds(device->policy.recall_every));
    if (found->is_open || (found->began && found->began <= now && now < until)) {
        if (!found->is_open) { /* else that one is served first */
            hasten(next, until);
        }
        return HUSH_OK;
    }
    if (device->random(device->random_context, found->seed, sizeof found->seed) != 0) {
        found->name[0] = 0;
        return HUSH_RANDOM;
    }
    found->is_open = true;
    found->began = now;
    found->spread = recall->spread;
    found->cursor = 0;
    hush_copy(found->recall, recall->id, sizeof recall->id);
    status = find_next(device, account, now, &first);
    if (status == HUSH_OK && first.key) {
        status = store_account(device, account);
    }
    device->account.name[0] = 0;
    if (status == HUSH_OK) {
        *recall = (hush_recall){{0}, {0}, {0}, 0};
    }
    return status;
}

/* Stores that the recall of an account is served. */
static hush_status end_recall(hush_device *device, const char *account)
{
    hush_account *found = &device->account;
    const size_t slot = progress_of(device, account);
    if (slot < HUSH_RECALLS) {
        device->progress[slot].name[0] = 0;
    }
    for (size_t i = HUSH_RECALL_IDS; --i > 0;) {
        hush_copy(found->recalls[i], found->recalls[i - 1], sizeof found->recalls[i]);
    }
    hush_copy(found->recalls[0], found->recall, sizeof found->recall);
    found->is_open = false;
    memset(found->seed, 0, sizeof found->seed);
    return store_account(device, account);
}

/* ---- sending */

/* The slot of an answer, or a free one; HUSH_WINDOW if there is none. */
static size_t slot_of(const hush_device *device, const char *name)
{
    const size_t slot = place_of(device->flight, sizeof *device->flight, HUSH_WINDOW, name);
    return slot < HUSH_WINDOW ? slot : place_of(device->flight, sizeof *device->flight, HUSH_WINDOW, "");
}

/* Hands an answer that is loaded to the network, unless it is there, must wait, or there is no room. */
static void hand_over(hush_device *device, const answer *one, uint64_t key, int64_t now, hush_publish publish,
                      void *context, int64_t *next)
{
    const size_t slot = slot_of(device, one->name);
    if (slot == HUSH_WINDOW) {
        return;
    }
    const bool is_known = device->flight[slot].name[0] != 0;
    if (is_known && device->flight[slot].until > now) {
        hasten(next, device->flight[slot].until);
        return;
    }
    if (is_known && !device->flight[slot].until) {
        return;
    }
    if (!is_known) {
        copy_name(device->flight[slot].name, one->name);
        device->flight[slot].pause = FIRST_PAUSE;
    }
    device->flight[slot].ticket = ++device->ticket;
    device->flight[slot].until = 0;
    device->flight[slot].key = key;
    if (publish(context, one->topic, one->frame, one->frame_bytes, device->ticket) != 0) {
        device->flight[slot].name[0] = 0;
        hasten(next, hush_later(now, 1000));
    }
}

/* Sends the answers that were never acknowledged and are due. */
static hush_status send_waiting(hush_device *device, int64_t now, hush_publish publish, void *context, int64_t *next)
{
    answer one;
    size_t index = 0;
    hush_status status = HUSH_OK, worst = HUSH_OK;
    while ((status = next_answer(device, NULL, &index, &one)) == HUSH_OK) {
        if (one.state != WAITING) {
            worst = one.state == DAMAGED ? HUSH_STORAGE : worst; /* the others are sent */
            continue;
        }
        if (one.not_before > now && is_within(now, one.not_before, one.delay)) { /* else the clock was set back */
            hasten(next, one.not_before);
        } else {
            hand_over(device, &one, NO_KEY, now, publish, context, next);
        }
    }
    return status == HUSH_NONE ? worst : status;
}

/* Serves the open recalls: the next frame of each, in the order of their times. */
static hush_status send_recalled(hush_device *device, int64_t now, hush_publish publish, void *context, int64_t *next)
{
    char name[HUSH_NAME_BYTES];
    candidate first;
    answer one;
    hush_status status = HUSH_OK;
    for (size_t index = 0; (status = name_at(device, index, name)) == HUSH_OK; index++) {
        if (!is_account(name)) {
            continue;
        }
        status = load_account(device, name);
        if (status == HUSH_OK && device->account.is_open) {
            status = find_next(device, name, now, &first);
        } else if (status == HUSH_OK) {
            continue;
        }
        if (status != HUSH_OK) {
            return HUSH_STORAGE;
        }
        if (!first.key) {
            status = end_recall(device, name);
            if (status != HUSH_OK) {
                return status;
            }
            index = (size_t)-1; /* something was written: from the start */
            continue;
        }
        const int64_t due = due_of(&device->account, first.key);
        if (due > now && is_within(now, due, 1000 * (uint64_t)device->account.spread)) { /* else the clock was set back */
            hasten(next, due);
            continue;
        }
        copy_name(one.name, first.name);
        if (load_answer(device, &one) == HUSH_OK) {
            hand_over(device, &one, first.key, now, publish, context, next);
        }
    }
    return status == HUSH_NONE ? HUSH_OK : status;
}

/* Finds an answer that is no longer to be kept: ended, too late to count, or the oldest of too many. HUSH_NONE: all are. */
static hush_status find_ended(hush_device *device, int64_t now, bool too_many, answer *out)
{
    char account[HUSH_NAME_BYTES];
    answer one;
    size_t index = 0;
    hush_status status = HUSH_OK;
    out->state = DAMAGED;
    while ((status = next_answer(device, NULL, &index, &one)) == HUSH_OK) {
        bool ends = false;
        if (one.state == WAITING) {
            ends = !too_many && in_milliseconds(hush_later(one.closes, LATE)) <= now;
        } else if (one.state == KEPT) { /* damage is reported where it matters */
            name_account_of(one.name, account);
            ends = load_account(device, account) == HUSH_OK &&
                   (too_many ? out->state == DAMAGED || one.acknowledged < out->acknowledged : end_of(device, &one) <= now);
        }
        if (ends) {
            *out = one;
        }
        if (ends && !too_many) {
            return HUSH_OK;
        }
    }
    return status == HUSH_NONE && out->state != DAMAGED ? HUSH_OK : status;
}

/* Removes the oldest kept answer; HUSH_NONE: there is none. */
static hush_status drop_oldest(hush_device *device, int64_t now)
{
    answer one;
    const hush_status status = find_ended(device, now, true, &one);
    return status == HUSH_OK ? fold(device, &one, true) : status;
}

static hush_status tidy(hush_device *device, int64_t now)
{
    answer one;
    uint32_t kept = 0;
    hush_status status = HUSH_OK;
    while ((status = find_ended(device, now, false, &one)) == HUSH_OK) {
        status = fold(device, &one, false);
        if (status != HUSH_OK) {
            return status;
        }
    }
    if (status == HUSH_NONE) {
        status = count_answers(device, KEPT, INT64_MIN, &kept);
    }
    for (; status == HUSH_OK && kept > device->policy.kept; kept--) {
        status = drop_oldest(device, now);
    }
    return status == HUSH_NONE ? HUSH_OK : status;
}

hush_status hush_device_send(hush_device *device, int64_t now, hush_publish publish, void *context, int64_t *next)
{
    int64_t soonest = INT64_MAX;
    if (!device || !device->storage || !publish) {
        return HUSH_ARGUMENT;
    }
    hush_status status = tidy(device, now);
    for (size_t i = 0; i < HUSH_RECALLS && status == HUSH_OK; i++) {
        if (device->waiting[i].task[0]) {
            status = begin_recall(device, device->waiting + i, now, &soonest);
        }
    }
    const hush_status sent = send_waiting(device, now, publish, context, &soonest); /* also where the rest has failed */
    status = status == HUSH_OK ? sent : status;
    if (status == HUSH_OK) {
        status = send_recalled(device, now, publish, context, &soonest);
    }
    if (next) {
        *next = soonest;
    }
    return status;
}

/* Remembers how far a recall has come; where there is no room in memory, in its account. */
static hush_status advance(hush_device *device, const char *account, uint64_t key)
{
    size_t slot = progress_of(device, account);
    if (slot == HUSH_RECALLS) {
        slot = progress_of(device, "");
    }
    if (slot < HUSH_RECALLS) {
        copy_name(device->progress[slot].name, account);
        device->progress[slot].cursor = key;
        return HUSH_OK;
    }
    hush_status status = load_account(device, account);
    device->account.cursor = key;
    return status == HUSH_OK ? store_account(device, account) : status;
}

/* The broker has an answer: it is kept, or folded where nothing is kept. */
static hush_status keep(hush_device *device, const char *name, int64_t now)
{
    answer one;
    copy_name(one.name, name);
    hush_status status = load_answer(device, &one);
    if (status != HUSH_OK || one.state != WAITING) {
        return status == HUSH_NONE ? HUSH_OK : status;
    }
    if (in_milliseconds(hush_kept_until(seconds_of(now), one.closes, device->policy.keep, NULL)) <= now) {
        return fold(device, &one, false);
    }
    device->record[A_STATE] = KEPT;
    hush_put(device->record + A_ACKNOWLEDGED, 8, (uint64_t)now);
    hush_copy(device->record + A_PLACE, device->place, PLACE_BYTES);
    return store(device, name, one.bytes);
}

hush_status hush_device_acknowledged(hush_device *device, uint32_t ticket, uint8_t reason, int64_t now)
{
    char name[HUSH_NAME_BYTES], account[HUSH_NAME_BYTES];
    size_t slot = 0;
    if (!device || !device->storage) {
        return HUSH_ARGUMENT;
    }
    while (slot < HUSH_WINDOW && (!device->flight[slot].name[0] || device->flight[slot].ticket != ticket)) {
        slot++;
    }
    if (slot == HUSH_WINDOW) {
        return HUSH_OK; /* of an earlier connection */
    }
    if (reason >= FIRST_REFUSAL || reason == NO_SUBSCRIBER) {
        device->flight[slot].until = hush_later(now, device->flight[slot].pause);
        device->flight[slot].pause =
            device->flight[slot].pause < LONGEST_PAUSE / 2 ? 2 * device->flight[slot].pause : LONGEST_PAUSE;
        return HUSH_OK;
    }
    copy_name(name, device->flight[slot].name);
    device->flight[slot].name[0] = 0;
    if (!device->flight[slot].key) {
        return keep(device, name, now);
    }
    name_account_of(name, account);
    return advance(device, account, device->flight[slot].key);
}

void hush_device_disconnected(hush_device *device)
{
    if (device) {
        memset(device->flight, 0, sizeof device->flight);
    }
}

hush_status hush_device_save(hush_device *device)
{
    hush_status status = HUSH_OK;
    for (size_t i = 0; i < HUSH_RECALLS && status == HUSH_OK; i++) {
        char account[HUSH_NAME_BYTES];
        copy_name(account, device->progress[i].name);
        if (!account[0]) {
            continue;
        }
        status = load_account(device, account);
        if (status == HUSH_OK && device->account.is_open && device->account.cursor != device->progress[i].cursor) {
            device->account.cursor = device->progress[i].cursor;
            status = store_account(device, account);
        }
    }
    return status;
}

hush_status hush_device_recall_topic(hush_device *device, size_t index, char *out, size_t capacity)
{
    char name[HUSH_NAME_BYTES];
    hush_status status = HUSH_OK;
    if (!device || !device->storage || !out) {
        return HUSH_ARGUMENT;
    }
    for (size_t at = 0; (status = name_at(device, at, name)) == HUSH_OK; at++) {
        if (!is_account(name) || index--) {
            continue;
        }
        status = load_account(device, name);
        return status == HUSH_OK ? hush_recall_topic(device->account.id, out, capacity) : HUSH_STORAGE;
    }
    return status;
}

hush_status hush_device_forget(hush_device *device, const char *task_id)
{
    char account[HUSH_NAME_BYTES], name[HUSH_NAME_BYTES];
    if (!device || !device->storage || !task_id) {
        return HUSH_ARGUMENT;
    }
    name_account(task_id, account);
    hush_status status = load_account(device, account);
    if (status != HUSH_OK) {
        return status == HUSH_NONE ? HUSH_OK : status;
    }
    bool is_charged = device->account.has_folded || device->account.charges[0].times;
    for (size_t index = 0; (status = name_at(device, index, name)) == HUSH_OK; index++) {
        is_charged = is_charged || is_of(name, account);
    }
    if (status != HUSH_NONE || is_charged) {
        return status != HUSH_NONE ? status : HUSH_ANSWERED;
    }
    device->account.name[0] = 0;
    return device->storage->remove(device->storage->context, account) == HUSH_OK ? HUSH_OK : HUSH_STORAGE;
}

/* ---- the start */

static bool is_limit(const char *text)
{
    hush_sum nothing;
    hush_sum_clear(&nothing);
    return is_affordable(&nothing, text, 1, 1, text);
}

hush_status hush_device_open(hush_device *device, const hush_storage *storage, const hush_policy *policy,
                             const char *sender, const char *broker, hush_random source, void *context)
{
    char topic[HUSH_TOPIC_BYTES];
    uint8_t digest[HUSH_DIGEST_BYTES];
    hush_sum sum;
    if (!device || !storage || !policy || !sender || !broker || !source ||
        hush_report_topic("a", sender, topic, sizeof topic) != HUSH_OK) {
        return HUSH_ARGUMENT;
    }
    *device = (hush_device){.policy = *policy, .sender = sender, .random = source, .random_context = context};
    hush_policy *limits = &device->policy;
    limits->max_epsilon = limits->max_epsilon ? limits->max_epsilon : "4";
    limits->lifetime = limits->lifetime ? limits->lifetime : "4";
    limits->capacity = limits->capacity ? limits->capacity : DEFAULT_REPORTS;
    limits->kept = limits->kept ? limits->kept : DEFAULT_REPORTS;
    limits->recall_every = limits->recall_every ? limits->recall_every : HUSH_RECALL_EVERY;
    if (!is_limit(limits->max_epsilon) || !is_limit(limits->lifetime) || (limits->total && !is_limit(limits->total)) ||
        limits->keep < 0 || limits->keep > HUSH_KEEP_SECONDS || limits->recall_every < 0) {
        return HUSH_ARGUMENT;
    }
    hush_digest((const uint8_t *)broker, hush_length(broker), digest);
    hush_copy(device->record, digest, sizeof digest);
    hush_copy(device->record + sizeof digest, sender, hush_length(sender));
    hush_digest(device->record, sizeof digest + hush_length(sender), digest);
    hush_copy(device->place, digest, PLACE_BYTES);
    device->storage = storage;
    hush_status status = add_up(device, NULL, &sum); /* reads every record */
    device->storage = status == HUSH_OK ? storage : NULL;
    return status;
}
