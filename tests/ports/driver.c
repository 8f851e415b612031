/* Speaks for hush.c in tests: one order a line on standard input, one line of outcome. Here, and only here, the random
 * bytes are scripted: they stand in the order, or in the file that the command line names. */
#include "hush.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LINE = 8 << 20 };

typedef struct {
    const uint8_t *bytes;
    size_t left;
} script;

static int next_bytes(void *context, uint8_t *out, size_t count)
{
    script *from = context;
    if (from->left < count) {
        return -1;
    }
    memcpy(out, from->bytes, count);
    from->bytes += count;
    from->left -= count;
    return 0;
}

static const char *word_of(hush_status status)
{
    static const char *const words[] = {
        "ok",        "argument", "space",     "random", "malformed", "task",    "epsilon", "not_open", "closed",
        "mechanism", "rounds",   "too_large", "spent",  "answered",  "changed", "storage", "none",
        "sticky",    "full",
    };
    return words[status];
}

/* A word as bytes; "-" stands for none. */
static uint8_t *from_hex(const char *text, size_t *size)
{
    *size = text && *text != '-' ? strlen(text) / 2 : 0;
    uint8_t *bytes = malloc(*size + 1); /* exactly as long as its content, so that a read too far is seen */
    for (size_t i = 0; i < *size; i++) {
        unsigned byte = 0;
        (void)sscanf(text + 2 * i, "%2x", &byte);
        bytes[i] = (uint8_t)byte;
    }
    bytes[*size] = 0;
    return bytes;
}

/* The next word of the line. */
static uint8_t *hex_word(size_t *size)
{
    return from_hex(strtok(NULL, " \n"), size);
}

/* Exactly as long as its content, without the zero at its end. */
static uint8_t *trimmed(uint8_t *bytes, size_t size)
{
    uint8_t *exact = malloc(size ? size : 1);
    memcpy(exact, bytes, size);
    free(bytes);
    return exact;
}

static void print_hex(const uint8_t *bytes, size_t size)
{
    (void)printf(" ");
    for (size_t i = 0; i < size; i++) {
        (void)printf("%02x", bytes[i]);
    }
}

static const char *became_of(hush_became became)
{
    static const char *const words[] = {"used", "moved", "replaced"};
    return words[became];
}

/* The next word as a task. */
static hush_status read_task(const char *most, uint8_t **payload, hush_task *task)
{
    size_t size = 0;
    *payload = hex_word(&size);
    *payload = trimmed(*payload, size);
    return hush_read_task(*payload, size, most, task);
}

/* A value as text, or NULL for "none"; `bytes` is to be freed. */
static const char *value_of(const char *word, uint8_t **bytes)
{
    size_t size = 0;
    const bool missing = strcmp(word, "none") == 0;
    *bytes = from_hex(missing ? "-" : word, &size);
    return missing ? NULL : (const char *)*bytes;
}

/* DIGEST ID BODY BECAME LEFT TOPIC FRAME JSON; the integers of BODY have commas between */
static hush_status print_report(const hush_task *task, const hush_report *report, const char *sender, size_t left)
{
    size_t frame_size = 0, json_size = 0;
    uint8_t frame[HUSH_FRAME_BYTES];
    char topic[HUSH_TOPIC_BYTES], json[HUSH_JSON_BYTES];
    hush_status status = hush_report_topic(task->id, sender, topic, sizeof topic);
    if (status == HUSH_OK) {
        status = hush_encode_frame(report->digest, report->round, report->id, report->body, report->width, 1, frame,
                                   sizeof frame, &frame_size);
    }
    if (status == HUSH_OK) {
        status = hush_encode_json(task->id, report->digest, report->round, report->id, report->body, report->width,
                                  json, sizeof json, &json_size);
    }
    if (status != HUSH_OK) {
        return status;
    }
    print_hex(task->digest, sizeof task->digest);
    print_hex(report->id, sizeof report->id);
    for (size_t i = 0; i < report->width; i++) {
        (void)printf("%s%" PRId64, i ? "," : " ", report->body[i]);
    }
    (void)printf(" %s %zu %s", became_of(report->value), left, topic);
    print_hex(frame, frame_size);
    (void)printf(" %.*s", (int)json_size, json);
    return status;
}

/* The first answer to a sticky task, with its memory. */
static hush_status answer_from_memory(const hush_task *task, const char *value, int64_t now, script *from,
                                      hush_report *report)
{
    hush_memory memory;
    uint32_t round = 0;
    hush_status status = hush_answer(task, value, now, next_bytes, from, report);
    if (status != HUSH_ROUNDS) {
        return status == HUSH_OK ? HUSH_ARGUMENT : status;
    }
    status = hush_round(task, now, &round);
    if (status == HUSH_OK) {
        status = hush_draw_memory(task, next_bytes, from, &memory);
    }
    return status == HUSH_OK ? hush_draw(task, &memory, round, value, next_bytes, from, report) : status;
}

/* answer MAX NOW SENDER VALUE PAYLOAD RANDOM -> ok REPORT; VALUE may be "none" */
static void answer(void)
{
    size_t random_size = 0;
    const char *most = strtok(NULL, " ");
    const int64_t now = strtoll(strtok(NULL, " "), NULL, 10);
    const char *sender = strtok(NULL, " ");
    uint8_t *value = NULL, *payload = NULL;
    const char *text = value_of(strtok(NULL, " "), &value);
    hush_task task;
    hush_report report;
    hush_status status = read_task(most, &payload, &task);
    uint8_t *bytes = hex_word(&random_size);
    script from = {bytes, random_size};
    if (status == HUSH_OK && task.sticky) {
        status = answer_from_memory(&task, text, now, &from, &report);
    } else if (status == HUSH_OK) {
        status = hush_answer(&task, text, now, next_bytes, &from, &report);
    }
    (void)printf("%s", word_of(status));
    if (status == HUSH_OK) {
        status = print_report(&task, &report, sender, from.left);
    }
    (void)printf("\n");
    free(value);
    free(payload);
    free(bytes);
}

/* decide MAX NOW PAYLOAD -> ok ROUND OFFER COST */
static void decide(void)
{
    const char *most = strtok(NULL, " ");
    const int64_t now = strtoll(strtok(NULL, " "), NULL, 10);
    uint8_t *payload = NULL;
    uint32_t round = 0;
    char cost[HUSH_COST_BYTES];
    hush_task task;
    hush_status status = read_task(most, &payload, &task);
    if (status == HUSH_OK) {
        status = hush_round(&task, now, &round);
    }
    if (status == HUSH_OK) {
        status = hush_cost(&task, cost, sizeof cost);
    }
    (void)printf("%s", word_of(status));
    if (status == HUSH_OK) {
        (void)printf(" %" PRIu32 " %" PRIu32 " %s", round, task.offer, cost);
    }
    (void)printf("\n");
    free(payload);
}

/* sticky MAX SENDER PAYLOAD RANDOM NOW VALUE [NOW VALUE] ... -> ok REPORT | REPORT ..., all from one memory */
static void sticky(void)
{
    size_t random_size = 0;
    const char *most = strtok(NULL, " "), *sender = strtok(NULL, " ");
    uint8_t *payload = NULL;
    hush_task task;
    hush_memory memory;
    hush_report report;
    hush_status status = read_task(most, &payload, &task);
    uint8_t *bytes = hex_word(&random_size);
    script from = {bytes, random_size};
    if (status == HUSH_OK) {
        status = hush_draw_memory(&task, next_bytes, &from, &memory);
    }
    (void)printf("%s", word_of(status));
    const char *between = "";
    for (const char *now = strtok(NULL, " \n"); now && status == HUSH_OK; now = strtok(NULL, " \n"), between = " |") {
        uint8_t *value = NULL;
        uint32_t round = 0;
        const char *text = value_of(strtok(NULL, " \n"), &value);
        status = hush_round(&task, strtoll(now, NULL, 10), &round);
        if (status == HUSH_OK) {
            status = hush_draw(&task, &memory, round, text, next_bytes, &from, &report);
        }
        (void)printf("%s", between);
        if (status == HUSH_OK) {
            status = print_report(&task, &report, sender, from.left);
        }
        free(value);
    }
    (void)printf(status == HUSH_OK ? "\n" : " %s\n", word_of(status));
    free(payload);
    free(bytes);
}

/* The next word as 64-bit integers, big-endian. */
static int64_t *integers(size_t *count)
{
    size_t size = 0;
    uint8_t *bytes = hex_word(&size);
    *count = size / 8;
    int64_t *values = malloc(size ? size : 1);
    for (size_t i = 0; i < *count; i++) {
        uint64_t value = 0;
        for (size_t j = 0; j < 8; j++) {
            value = value << 8 | bytes[8 * i + j];
        }
        memcpy(values + i, &value, sizeof value);
    }
    free(bytes);
    return values;
}

/* frame ROUND WIDTH CAPACITY DIGEST IDS BODIES -> ok PAYLOAD */
static void frame(void)
{
    size_t digest_size = 0, ids_size = 0, count = 0, size = 0;
    const uint32_t round = (uint32_t)strtoul(strtok(NULL, " "), NULL, 10);
    const size_t width = strtoul(strtok(NULL, " "), NULL, 10), capacity = strtoul(strtok(NULL, " "), NULL, 10);
    uint8_t *digest = hex_word(&digest_size), *ids = hex_word(&ids_size), *out = malloc(capacity + 1);
    int64_t *bodies = integers(&count);
    hush_status status =
        hush_encode_frame(digest, round, ids, bodies, width, ids_size / HUSH_ID_BYTES, out, capacity, &size);
    (void)printf("%s", word_of(status));
    if (status == HUSH_OK) {
        print_hex(out, size);
    }
    (void)printf("\n");
    free(digest);
    free(ids);
    free(out);
    free(bodies);
}

/* json ROUND CAPACITY TASK DIGEST ID BODY -> ok TEXT */
static void json(void)
{
    size_t digest_size = 0, id_size = 0, width = 0, size = 0;
    const uint32_t round = (uint32_t)strtoul(strtok(NULL, " "), NULL, 10);
    const size_t capacity = strtoul(strtok(NULL, " "), NULL, 10);
    const char *task = strtok(NULL, " ");
    uint8_t *digest = hex_word(&digest_size), *id = hex_word(&id_size);
    int64_t *body = integers(&width);
    char *out = malloc(capacity + 1);
    hush_status status = hush_encode_json(task, digest, round, id, body, width, out, capacity, &size);
    (void)printf(status == HUSH_OK ? "%s %.*s\n" : "%s\n", word_of(status), (int)size, out);
    free(digest);
    free(id);
    free(body);
    free(out);
}

/* topic CAPACITY TASK SENDER, both in hexadecimal -> ok TOPIC */
static void topic(void)
{
    size_t size = 0;
    const size_t capacity = strtoul(strtok(NULL, " "), NULL, 10);
    uint8_t *task = hex_word(&size), *sender = hex_word(&size);
    char *out = malloc(capacity + 1);
    hush_status status = hush_report_topic((const char *)task, (const char *)sender, out, capacity);
    (void)printf(status == HUSH_OK ? "%s %s\n" : "%s\n", word_of(status), out);
    free(task);
    free(sender);
    free(out);
}

/* sample COUNT INDEX PAYLOAD -> ok BODY BODY ..., with the random bytes of the file, from where the last one ended; of an
 * index and a body with several integers these have commas between */
static void sample(script *from)
{
    const unsigned long count = strtoul(strtok(NULL, " "), NULL, 10);
    char *word = strtok(NULL, " ");
    uint32_t index[HUSH_COORDINATES] = {0};
    for (size_t i = 0; i < HUSH_COORDINATES && *word; i++) {
        index[i] = (uint32_t)strtoul(word, &word, 10);
        word += *word == ',';
    }
    uint8_t *payload = NULL;
    int64_t body[HUSH_WIDTH];
    hush_task task;
    hush_status status = read_task("50", &payload, &task);
    (void)printf("%s", word_of(status));
    for (unsigned long i = 0; i < count && status == HUSH_OK; i++) {
        status = hush_perturb(&task, index, next_bytes, from, body, HUSH_WIDTH);
        for (size_t j = 0; j < hush_width(&task) && status == HUSH_OK; j++) {
            (void)printf("%s%" PRId64, j ? "," : " ", body[j]);
        }
        (void)printf("%s", status == HUSH_OK ? "" : " failed");
    }
    (void)printf("\n");
    free(payload);
}

/* recall PAYLOAD FRAME RANDOM -> ok TASK DIGEST ID SPREAD RECALLED DELAY TOPIC */
static void recall(void)
{
    size_t size = 0, frame_size = 0, random_size = 0;
    uint8_t *payload = hex_word(&size);
    payload = trimmed(payload, size);
    uint8_t *frame = hex_word(&frame_size), *bytes = hex_word(&random_size);
    frame = trimmed(frame, frame_size);
    script from = {bytes, random_size};
    char topic[HUSH_TOPIC_BYTES];
    uint32_t delay = 0;
    hush_recall read;
    hush_status status = hush_read_recall(payload, size, &read);
    const bool asked = hush_is_recalled(&read, "heights", frame, frame_size);
    if (status == HUSH_OK) {
        status = hush_recall_topic(read.task, topic, sizeof topic);
    }
    if (status == HUSH_OK) {
        status = hush_recall_delay(&read, next_bytes, &from, &delay);
    }
    (void)printf("%s", word_of(status));
    if (status == HUSH_OK) {
        (void)printf(" %s", read.task);
        print_hex(read.digest, sizeof read.digest);
        print_hex(read.id, sizeof read.id);
        (void)printf(" %" PRIu32 " %s %" PRIu32 " %s", read.spread, asked ? "yes" : "no", delay, topic);
    } else if (asked) {
        (void)printf(" asked");
    }
    (void)printf("\n");
    free(payload);
    free(frame);
    free(bytes);
}

/* kept ACKNOWLEDGED CLOSES KEEP SPREAD -> ok MOMENT; CLOSES and SPREAD may be "none" */
static void kept(void)
{
    const int64_t acknowledged = strtoll(strtok(NULL, " "), NULL, 10);
    const char *closes = strtok(NULL, " ");
    const int64_t keep = strtoll(strtok(NULL, " "), NULL, 10);
    const char *spread = strtok(NULL, " \n");
    const hush_recall scheduled = {.spread = (uint32_t)strtoul(spread, NULL, 10)};
    const int64_t until =
        hush_kept_until(acknowledged, strcmp(closes, "none") == 0 ? INT64_MAX : strtoll(closes, NULL, 10), keep,
                        strcmp(spread, "none") == 0 ? NULL : &scheduled);
    if (until == INT64_MAX) {
        (void)printf("ok none\n");
    } else {
        (void)printf("ok %" PRId64 "\n", until);
    }
}

int main(int argc, char **argv)
{
    static char line[LINE];
    static uint8_t bytes[LINE];
    script from = {bytes, 0};
    if (argc > 1) {
        FILE *file = fopen(argv[1], "rb");
        from.left = file ? fread(bytes, 1, sizeof bytes, file) : 0;
        if (file) {
            (void)fclose(file);
        }
    }
    (void)setvbuf(stdout, NULL, _IOLBF, BUFSIZ); /* whoever asks may wait for an outcome before the next order */
    while (fgets(line, sizeof line, stdin)) {
        const char *order = strtok(line, " \n");
        if (!order) {
            continue;
        }
        if (strcmp(order, "answer") == 0) {
            answer();
        } else if (strcmp(order, "decide") == 0) {
            decide();
        } else if (strcmp(order, "sticky") == 0) {
            sticky();
        } else if (strcmp(order, "frame") == 0) {
            frame();
        } else if (strcmp(order, "json") == 0) {
            json();
        } else if (strcmp(order, "topic") == 0) {
            topic();
        } else if (strcmp(order, "sample") == 0) {
            sample(&from);
        } else if (strcmp(order, "recall") == 0) {
            recall();
        } else if (strcmp(order, "kept") == 0) {
            kept();
        }
    }
    return 0;
}
