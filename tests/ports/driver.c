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

/* answer MAX NOW SENDER VALUE PAYLOAD RANDOM -> ok DIGEST ID BODY BECAME LEFT TOPIC FRAME JSON; VALUE may be "none" */
static void answer(void)
{
    size_t size = 0, value_size = 0, random_size = 0, frame_size = 0, json_size = 0;
    const char *most = strtok(NULL, " ");
    const int64_t now = strtoll(strtok(NULL, " "), NULL, 10);
    const char *sender = strtok(NULL, " ");
    char *word = strtok(NULL, " ");
    const bool missing = strcmp(word, "none") == 0;
    uint8_t *value = from_hex(missing ? "-" : word, &value_size);
    uint8_t *payload = hex_word(&size);
    payload = trimmed(payload, size);
    uint8_t *bytes = hex_word(&random_size);
    script from = {bytes, random_size};
    uint8_t frame[HUSH_FRAME_BYTES];
    char topic[HUSH_TOPIC_BYTES], json[HUSH_JSON_BYTES];
    hush_task task;
    hush_report report;
    hush_status status = hush_read_task(payload, size, most, &task);
    if (status == HUSH_OK) {
        status = hush_answer(&task, missing ? NULL : (const char *)value, now, next_bytes, &from, &report);
    }
    if (status == HUSH_OK) {
        status = hush_report_topic(task.id, sender, topic, sizeof topic);
    }
    if (status == HUSH_OK) {
        status = hush_encode_frame(report.digest, report.round, report.id, &report.body, 1, 1, frame, sizeof frame,
                                   &frame_size);
    }
    if (status == HUSH_OK) {
        status = hush_encode_json(task.id, report.digest, report.round, report.id, &report.body, 1, json, sizeof json,
                                  &json_size);
    }
    (void)printf("%s", word_of(status));
    if (status == HUSH_OK) {
        print_hex(task.digest, sizeof task.digest);
        print_hex(report.id, sizeof report.id);
        (void)printf(" %" PRId64 " %s %zu %s", report.body, became_of(report.value), from.left, topic);
        print_hex(frame, frame_size);
        (void)printf(" %.*s", (int)json_size, json);
    }
    (void)printf("\n");
    free(value);
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

/* sample COUNT INDEX PAYLOAD -> ok BODY BODY ..., with the random bytes of the file, from where the last one ended */
static void sample(script *from)
{
    size_t size = 0;
    const unsigned long count = strtoul(strtok(NULL, " "), NULL, 10);
    const uint32_t index = (uint32_t)strtoul(strtok(NULL, " "), NULL, 10);
    uint8_t *payload = hex_word(&size);
    int64_t body = 0;
    hush_task task;
    hush_status status = hush_read_task(payload, size, "50", &task);
    (void)printf("%s", word_of(status));
    for (unsigned long i = 0; i < count && status == HUSH_OK; i++) {
        status = hush_perturb(&task, index, next_bytes, from, &body);
        (void)printf(status == HUSH_OK ? " %" PRId64 : " failed", body);
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
