/* A device that speaks C: spends before it sends, never answers a round twice, and sends the same bytes until the broker
 * has them. On top of hush.h, with records in a storage (hush_storage.h): a directory, flash, or your own four functions.
 *
 *     hush_device_open                   once, at the start
 *     hush_device_decide                 whether a task is answered now: no value is read before this returns HUSH_OK
 *     hush_device_answer                 draws, and stores charge and report as one record, before anything is sent
 *     hush_device_send                   hands what is due to your MQTT client; call it again when `next` has come
 *     hush_device_acknowledged           what the broker said; call it with every PUBACK
 *     hush_device_disconnected           everything that was not acknowledged is sent again
 *     hush_device_recall                 what came on a recall topic
 *
 * A crash at any moment leaves one of two states: nothing was charged and nothing is sent; or the answer is charged and
 * the same bytes are sent until they are acknowledged. Nothing is drawn twice. (Of a sticky task the memory is charged
 * first; a crash right after that leaves it charged, and the next answer comes from it.) A record that cannot be read is
 * HUSH_STORAGE: no further answer is given, because what was spent is unknown.
 *
 * Times are in milliseconds since 1970. The device needs a clock, as tasks have times. Not for two threads at once.
 */
#ifndef HUSH_DEVICE_H
#define HUSH_DEVICE_H

#include "hush_storage.h"

#ifdef __cplusplus
extern "C" {
#endif

#ifndef HUSH_WINDOW
#define HUSH_WINDOW 8 /* reports that are with the broker at the same time */
#endif
#ifndef HUSH_RECALLS
#define HUSH_RECALLS 4 /* tasks of which a recall can wait, or be served, at the same time */
#endif

enum { HUSH_RECALL_IDS = 4, HUSH_SEED_BYTES = 32 };

/* The limits of the device, which no task can raise. Decimal text is exact; a limit of NULL has the default. */
typedef struct {
    const char *max_epsilon; /* most that one task may cost over all its rounds; "4" */
    const char *lifetime;    /* most that all tasks of one purpose may cost together; "4" */
    const char *total;       /* most that all tasks may cost together; NULL sets no such limit */
    bool sticky;             /* whether to answer sticky tasks, whose epsilon does not cover that a value changed */
    uint32_t spread;         /* longest delay before a report is sent, in milliseconds */
    uint32_t capacity;       /* most reports that wait for the broker; 0: 1000 */
    uint32_t kept;           /* most reports that are kept after their acknowledgement; 0: 1000 */
    int64_t keep;            /* seconds for which they are kept, at most HUSH_KEEP_SECONDS; 0 keeps nothing */
    int64_t recall_every;    /* seconds between two recalls of a task; 0: HUSH_RECALL_EVERY */
} hush_policy;

/* The account of a task, as its record says. */
typedef struct {
    char name[HUSH_NAME_BYTES]; /* of the record; empty where nothing is loaded */
    char id[65];
    uint8_t digest[HUSH_DIGEST_BYTES];
    uint8_t purpose[16];
    bool is_new;
    bool has_folded; /* whether the next two say anything */
    uint32_t last;   /* the latest round whose answer is in `charges` */
    uint64_t window; /* and which of the 63 before it; all earlier ones count as answered */
    struct {
        char epsilon[32];
        uint32_t divisor, times;
    } charges[HUSH_MOST_OFFERS];
    uint32_t dropped;                                    /* reports that were deleted before their time */
    int64_t began;                                       /* when the last recall was obeyed, in milliseconds */
    uint8_t recalls[HUSH_RECALL_IDS][HUSH_ID_BYTES];     /* ids that were served, the latest first */
    bool is_open;                                        /* whether a recall is being served */
    uint8_t recall[HUSH_ID_BYTES], seed[HUSH_SEED_BYTES]; /* its id, and what decides when each frame goes */
    uint32_t spread;
    uint64_t cursor; /* how far it has come */
    hush_memory memory;
} hush_account;

/* For the functions below alone. About 4 KB, which the caller keeps. */
typedef struct {
    const hush_storage *storage;
    hush_policy policy;
    const char *sender;
    uint8_t place[8]; /* of broker and sender */
    hush_random random;
    void *random_context;
    hush_account account;
    uint8_t record[HUSH_RECORD_BYTES];
    uint32_t ticket;
    struct {
        char name[HUSH_NAME_BYTES]; /* empty where the slot is free */
        uint32_t ticket;
        int64_t until;  /* of a refused report, when it is tried again; else 0 */
        uint32_t pause; /* milliseconds */
        uint64_t key;   /* of a recalled one, else 0 */
    } flight[HUSH_WINDOW];
    hush_recall waiting[HUSH_RECALLS];
    struct {
        char name[HUSH_NAME_BYTES];
        uint64_t cursor;
    } progress[HUSH_RECALLS];
} hush_device;

/* What was decided. It has no value, and no value may change it. */
typedef struct {
    const hush_task *task;
    uint32_t round;
    int64_t not_before; /* when the report is sent */
    uint32_t delay;
} hush_decision;

/* Opens the state; HUSH_STORAGE if a record is damaged. `sender` is the MQTT user, or the device; `broker` its address:
 * kept reports are sent again only there. All that is passed must outlive the device. */
hush_status hush_device_open(hush_device *device, const hush_storage *storage, const hush_policy *policy,
                             const char *sender, const char *broker, hush_random source, void *context);

/* Whether the open round of a task is answered now. HUSH_OK admits it: no other task is answered under its id from then
 * on. Otherwise HUSH_NOT_OPEN, HUSH_CLOSED, HUSH_ANSWERED, HUSH_CHANGED, HUSH_EPSILON, HUSH_SPENT, HUSH_STICKY,
 * HUSH_FULL, HUSH_SPACE or HUSH_STORAGE; nothing is drawn or spent. Where the storage is full, kept reports give way, the
 * oldest first; HUSH_SPACE: there are none, and the task may be admitted all the same. The largest offer that the limits
 * allow is taken (in `task`). */
hush_status hush_device_decide(hush_device *device, hush_task *task, int64_t now, hush_decision *decision);

/* Answers, whatever the value is; see hush_draw. HUSH_OK: charged and stored, and sent by hush_device_send. Otherwise
 * nothing was sent. A decision is for one answer. `became` may be NULL; it is for the person alone. */
hush_status hush_device_answer(hush_device *device, hush_decision *decision, const char *value, hush_became *became);

/* Hands a payload to the MQTT client at QoS 1 and returns 0; anything else: there is no room, it is tried again later.
 * Topic and payload are gone when it returns. The ticket is for hush_device_acknowledged. */
typedef int (*hush_publish)(void *context, const char *topic, const uint8_t *payload, size_t size, uint32_t ticket);

/* Sends what is due, serves recalls, and deletes what is no longer kept. `next` is when to call it again, at the latest;
 * INT64_MAX if there is nothing to wait for. */
hush_status hush_device_send(hush_device *device, int64_t now, hush_publish publish, void *context, int64_t *next);

/* The broker has answered. `reason` is the reason code of MQTT 5, 0 under 3.1.1. One from 128 on, or 16 (nobody has
 * subscribed), means that it does not have the report, which is sent again later. */
hush_status hush_device_acknowledged(hush_device *device, uint32_t ticket, uint8_t reason, int64_t now);

void hush_device_disconnected(hush_device *device);

/* What came on hush/v1/recalls/{task}; empty: the recall has ended. Anything that is not a recall is ignored. */
hush_status hush_device_recall(hush_device *device, const char *task_id, const uint8_t *payload, size_t size);

/* The recall topic number `index` to subscribe to; HUSH_NONE after the last. */
hush_status hush_device_recall_topic(hush_device *device, size_t index, char *out, size_t capacity);

/* Stores how far recalls have come, for a program that ends. Without it some frames may be sent once more. */
hush_status hush_device_save(hush_device *device);

/* What was spent on a purpose (as hush_task has it), or on all where it is NULL: "numerator/denominator". */
hush_status hush_device_spent(hush_device *device, const char *purpose, size_t purpose_bytes, char *out,
                              size_t capacity);

/* Forgets the pin of a task for which nothing was charged. */
hush_status hush_device_forget(hush_device *device, const char *task_id);

#ifdef __cplusplus
}
#endif

#endif
