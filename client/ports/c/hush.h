/* hush for devices that speak C: from a published task and a private value to the payload of one report.
 *
 * Integers only. No allocation, no locale, no state: every function works on what it is given and says how it went.
 * The stack holds the rest, at most about 8 KiB of it. Tables, labels and coordinates are never copied: they are read
 * again from the JSON of the task, which the caller keeps.
 *
 * WHAT THIS FILE DOES NOT DO: it keeps no ledger and no outbox. Each call of hush_draw, hush_answer or hush_draw_memory
 * is a new draw and spends epsilon again. hush_device.h does all of that, on top of this file; use it unless you have a
 * ledger already. Without it the caller must store the payload AND the charge durably before the first network byte,
 * must send those same bytes until the broker acknowledges, and must never answer a round twice.
 */
#ifndef HUSH_H
#define HUSH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum {
    HUSH_OK = 0,
    HUSH_ARGUMENT,  /* an argument outside what the function states */
    HUSH_SPACE,     /* the storage is full, or the caller's buffer is too small */
    HUSH_RANDOM,    /* the source of randomness failed, or is not random */
    HUSH_MALFORMED, /* the task is not a UTF-8 JSON object of printable characters */
    HUSH_TASK,      /* a field is missing, unknown or illegal */
    HUSH_EPSILON,   /* epsilon is not exact, outside [0.000001, 50], or above the limit of the device */
    HUSH_NOT_OPEN,  /* the task has not opened yet; task->opens says when it does */
    HUSH_CLOSED,    /* the task is closed, since task->closes */
    HUSH_MECHANISM, /* the task's mechanism is not one of this code */
    HUSH_ROUNDS,    /* the task is answered from a memory of its rounds, which this function does not have */
    HUSH_TOO_LARGE, /* the task, its table or its answer does not fit here */
    HUSH_SPENT,     /* the budget of the task's purpose does not allow the answer */
    HUSH_ANSWERED,  /* this round was answered before; the same bytes are sent again */
    HUSH_CHANGED,   /* another task was admitted under this id */
    HUSH_STORAGE,   /* the state cannot be read, written or trusted */
    HUSH_NONE,      /* there is no such record */
    HUSH_STICKY,    /* the task is sticky: its answers show when a value changes, which this device does not allow */
    HUSH_FULL       /* too many reports wait for the broker */
} hush_status;

/* What became of a value. No status is about one: whatever it is, a task is answered, or silence would tell of it.
 * For the person alone, and the maker of the device: never to be sent, stored, or shown to others. */
typedef enum {
    HUSH_USED = 0,
    HUSH_MOVED,   /* it was beyond a bound, and was moved there */
    HUSH_REPLACED /* there was none: an index was drawn uniformly over the domain in its place */
} hush_became;

/* Limits of this build; what does not fit is refused as HUSH_TOO_LARGE before any value is read. */
#ifndef HUSH_WIDTH
#define HUSH_WIDTH 41 /* integers in a body: two for each of 20 sampled coordinates, and the offer. 1024 labels take 33 */
#endif
#ifndef HUSH_COORDINATES
#define HUSH_COORDINATES 64 /* of a vector */
#endif
#ifndef HUSH_MEMORY_LEVELS
#define HUSH_MEMORY_LEVELS 127 /* G of a sticky task */
#endif

/* What this build leaves out, with its code: -DHUSH_WITHOUT_TABLE, and so on. A task that needs it is refused, as
 * HUSH_MECHANISM, and one with a memory as HUSH_ROUNDS. All code of a device must be compiled with the same ones. */
#ifndef HUSH_WITHOUT_LAPLACE
#define HUSH_WITHOUT_LAPLACE 0
#endif
#ifndef HUSH_WITHOUT_MULTILEVEL
#define HUSH_WITHOUT_MULTILEVEL 0
#endif
#ifndef HUSH_WITHOUT_TABLE
#define HUSH_WITHOUT_TABLE 0
#endif
#ifndef HUSH_WITHOUT_RANDOMIZED_RESPONSE
#define HUSH_WITHOUT_RANDOMIZED_RESPONSE 0
#endif
#ifndef HUSH_WITHOUT_COINS
#define HUSH_WITHOUT_COINS 0 /* randomized_response by two coins of the task */
#endif
#ifndef HUSH_WITHOUT_SUBSET_SELECTION
#define HUSH_WITHOUT_SUBSET_SELECTION 0
#endif
#ifndef HUSH_WITHOUT_VECTOR
#define HUSH_WITHOUT_VECTOR 0
#endif
#ifndef HUSH_WITHOUT_STICKY
#define HUSH_WITHOUT_STICKY 0 /* tasks that are answered from a memory */
#endif

enum {
    HUSH_DIGEST_BYTES = 32,        /* SHA-256 over the published task */
    HUSH_REPORT_DIGEST_BYTES = 16, /* the first of them, which a report carries */
    HUSH_ID_BYTES = 16,
    HUSH_HEADER_BYTES = 24,
    HUSH_FRAME_BYTES = HUSH_HEADER_BYTES + HUSH_ID_BYTES + 8 * HUSH_WIDTH, /* a frame of one report */
    HUSH_JSON_BYTES = 224 + 21 * HUSH_WIDTH,                               /* enough for one report */
    HUSH_TOPIC_BYTES = 256,
    HUSH_COST_BYTES = 512,       /* enough for a cost, or a sum of costs, as text */
    HUSH_TASK_BYTES = 64 * 1024, /* the longest task */
    HUSH_STEPS = 1 << 20,        /* steps of the grid of a number */
    HUSH_MOST_LEVELS = 1024,
    HUSH_MOST_PARTS = 1024, /* labels of a category, coordinates of a vector */
    HUSH_MOST_OFFERS = 8,
    HUSH_MOST_ROUNDS = 1000000,
    HUSH_MOST_CELLS = 16384, /* of a table */
    HUSH_MOST_REPORTS = 4096,
    HUSH_MOST_WIDTH = 1024,
    HUSH_RECALL_BYTES = 512,      /* the longest recall */
    HUSH_RECALL_EVERY = 3600,     /* seconds between two recalls of a task that are obeyed */
    HUSH_KEEP_SECONDS = 7 * 86400 /* for which a frame is kept after its acknowledgement, at most */
};

#define HUSH_MISSING UINT32_MAX /* an index where there is no value */

typedef enum {
    HUSH_LAPLACE = 1,
    HUSH_MULTILEVEL,
    HUSH_TABLE,
    HUSH_RANDOMIZED_RESPONSE,
    HUSH_SUBSET_SELECTION,
    HUSH_VECTOR
} hush_mechanism;

/* A binary64 number, exactly: mantissa * 2^exponent, below 2^53 * 2^exponent. */
typedef struct {
    bool negative;
    uint64_t mantissa;
    int exponent;
} hush_number;

/* A task as hush_read_task leaves it. There is no field for a weight, a probability or a scale on purpose: they are
 * made anew from the text of epsilon at every answer, so that none can disagree with it. */
typedef struct {
    char id[65];
    uint8_t digest[HUSH_DIGEST_BYTES];
    hush_mechanism mechanism;
    char epsilon[32];       /* exact decimal text: the loss of all rounds together, at the offer that is taken */
    uint32_t draws;         /* that share it: the rounds, or the G + 1 of a sticky memory */
    uint32_t rounds;        /* how often it is asked */
    bool sticky;            /* whether it is answered from a memory that is drawn once */
    uint32_t offer, offers; /* which of how many epsilons is taken; `offers` is 0 where there is no choice */
    uint32_t levels;        /* G of multilevel and vector, input levels less one of a table */
    uint32_t size;          /* w of subset_selection */
    uint32_t sampled;       /* s of vector */
    uint32_t outputs;       /* of a table */
    uint32_t parts;         /* labels of a category, coordinates of a vector; else 1 */
    hush_number lower, upper;    /* of a number */
    int64_t opens, closes;       /* Unix seconds; INT64_MIN and INT64_MAX where the task does not say */
    int64_t round_every;         /* seconds from one round to the next; 0 where the task does not say */
    const char *purpose;         /* points into the task's JSON, escapes and all; budgets are kept per purpose */
    size_t purpose_bytes;
    const char *json; /* the published bytes */
    size_t json_bytes;
    struct { /* where these are in the JSON, for this code; 0 where they are not */
        uint32_t parts, other, offers, levels, sizes, positions, unit, weights, truth, yes;
    } at;
} hush_task;

typedef struct {
    uint8_t digest[HUSH_REPORT_DIGEST_BYTES];
    uint32_t round;
    uint8_t id[HUSH_ID_BYTES];
    size_t width; /* integers in the body */
    int64_t body[HUSH_WIDTH];
    hush_became value;
} hush_report;

/* All that a device ever draws for a sticky task. Secret, like the value: it tells the values from the reports. It is
 * to be stored with the charge that pays for it, and never drawn again. */
typedef struct {
    uint32_t threshold, substitute, levels;
    uint16_t reports[HUSH_MEMORY_LEVELS + 1];
} hush_memory;

/* Fills `out` with `count` uniform random bytes and returns 0; anything else is a failure, and nothing is answered.
 * It must be a cryptographic source of the machine. A seeded generator gives no privacy at all. */
typedef int (*hush_random)(void *context, uint8_t *out, size_t count);

/* The operating system's: getrandom(2), else /dev/urandom. Left out with -DHUSH_NO_OS_RANDOM. */
int hush_os_random(void *context, uint8_t *out, size_t count);

/* Reads a published task. `payload` must outlive `task`, unchanged. `max_epsilon` is the device's own limit, decimal
 * text. Of several offers the largest within it is taken. */
hush_status hush_read_task(const uint8_t *payload, size_t size, const char *max_epsilon, hush_task *task);

/* Takes another offer of the task, from 0; HUSH_ARGUMENT if it has none of that number. The choice must not depend on
 * a value. */
hush_status hush_take_offer(hush_task *task, uint32_t offer);

/* What one answer costs, exactly: "numerator/denominator". Of a sticky task that is all of its epsilon, for the memory;
 * the answers from it are free. */
hush_status hush_cost(const hush_task *task, char *out, size_t capacity);

/* An exact sum of costs, for a ledger. Beyond 768 bits it is rounded up. */
typedef struct {
    uint32_t numerator[24], denominator[24];
} hush_sum;

void hush_sum_clear(hush_sum *sum);

/* Adds `times` times `epsilon` over `divisor`; HUSH_ARGUMENT where that is not the cost of an answer. */
hush_status hush_sum_add(hush_sum *sum, const char *epsilon, uint32_t divisor, uint32_t times);

/* Whether it is at most `limit`, decimal text. */
bool hush_sum_is_within(const hush_sum *sum, const char *limit);

/* "numerator/denominator" in lowest terms. */
hush_status hush_sum_text(const hush_sum *sum, char *out, size_t capacity);

/* The round that is open: HUSH_OK, HUSH_NOT_OPEN or HUSH_CLOSED. `now` is in Unix seconds. */
hush_status hush_round(const hush_task *task, int64_t now, uint32_t *round);

/* One perturbed answer to a round, with a fresh id: ONE CHARGE, but for a sticky task, which is answered from `memory`
 * (else NULL). It cannot refuse a task that was read: HUSH_RANDOM says that the machine has no randomness.
 *
 * `value` is decimal text of a number; or yes, no, true, false, 1, 0; or a label; or numbers with commas between, one
 * for each coordinate. Any other text is no value, and so is NULL, which is to be passed where a value is missing.
 * Whether and when this is called must not depend on the value. */
hush_status hush_draw(const hush_task *task, const hush_memory *memory, uint32_t round, const char *value,
                      hush_random source, void *context, hush_report *report);

/* hush_round, then hush_draw, of a task that is not sticky. */
hush_status hush_answer(const hush_task *task, const char *value, int64_t now, hush_random source, void *context,
                        hush_report *report);

/* The memory of a sticky task: ONE CHARGE of all of its epsilon. It needs no value. */
hush_status hush_draw_memory(const hush_task *task, hush_random source, void *context, hush_memory *memory);

/* Whether hush_draw_memory can have made it for this task. */
bool hush_fits(const hush_task *task, const hush_memory *memory);

/* The two halves of a draw, for a device that has the index already: one integer, of a vector one for each coordinate.
 * hush_index leaves HUSH_MISSING where there is no value; hush_perturb takes none of those. The body has
 * hush_width(task) integers. */
hush_status hush_index(const hush_task *task, const char *value, uint32_t *index, size_t capacity,
                       hush_became *became);
hush_status hush_perturb(const hush_task *task, const uint32_t *index, hush_random source, void *context,
                         int64_t *body, size_t capacity);
size_t hush_width(const hush_task *task);

/* A frame of `count` reports of one task, round and width: 16 bytes of `ids` and `width` integers of `bodies` each.
 * `digest` has 16 bytes, as in hush_report; of a whole one the first 16 are used. */
hush_status hush_encode_frame(const uint8_t *digest, uint32_t round, const uint8_t *ids, const int64_t *bodies,
                              size_t width, size_t count, uint8_t *out, size_t capacity, size_t *size);

/* The JSON form of one report, without a terminating zero. `digest` as above. */
hush_status hush_encode_json(const char *task_id, const uint8_t *digest, uint32_t round, const uint8_t *id,
                             const int64_t *body, size_t width, char *out, size_t capacity, size_t *size);

/* hush/v1/reports/{task}/{sender}, with a terminating zero. */
hush_status hush_report_topic(const char *task_id, const char *sender, char *out, size_t capacity);

/* A recall: a broker may have forgotten what it acknowledged, and the frames of a task are asked for once more. The
 * caller keeps the frames, and the ids that it has obeyed; docs/wire.md has the rules. */
typedef struct {
    char task[65];
    uint8_t digest[HUSH_DIGEST_BYTES];
    uint8_t id[HUSH_ID_BYTES];
    uint32_t spread; /* seconds over which frames are spread: 1 to 86400 */
} hush_recall;

/* hush/v1/recalls/{task}, with a terminating zero. */
hush_status hush_recall_topic(const char *task_id, char *out, size_t capacity);

/* Reads what came on that topic. Anything but HUSH_OK is not a recall: ignore it. */
hush_status hush_read_recall(const uint8_t *payload, size_t size, hush_recall *recall);

/* Whether it asks for a frame of this task, which has the first 16 bytes of its digest. */
bool hush_is_recalled(const hush_recall *recall, const char *task_id, const uint8_t *frame, size_t size);

/* After how many milliseconds a frame is to go: uniform, one draw for each frame. */
hush_status hush_recall_delay(const hush_recall *recall, hush_random source, void *context, uint32_t *milliseconds);

/* When a frame that was acknowledged then ends, in Unix seconds. `closes` is the task's, INT64_MAX where it has none;
 * `keep` is at most HUSH_KEEP_SECONDS, 0 keeps nothing. `scheduled` is the recall that has asked for the frame and for
 * which it is not sent yet, else NULL. */
int64_t hush_kept_until(int64_t acknowledged, int64_t closes, int64_t keep, const hush_recall *scheduled);

/* SHA-256 over the published bytes. */
void hush_digest(const uint8_t *payload, size_t size, uint8_t digest[HUSH_DIGEST_BYTES]);

/* One line for a person; it never contains a value. */
const char *hush_message(hush_status status);

#ifdef __cplusplus
}
#endif

#endif
