/* hush_report TASK.json                                  what an answer would cost; nothing is drawn
 * hush_report TASK.json SENDER VALUE OUT [MAX_EPSILON]  one perturbed answer, written to the new file OUT
 *
 *     TASK.json    the retained payload of hush/v1/tasks/{task}, byte for byte; - reads it from standard input
 *     SENDER       the MQTT user, or the device
 *     VALUE        a number, yes or no; - reads it from standard input, where no list of processes shows it
 *                  Any other text is no value: an index is drawn at random in its place, for silence would tell of it.
 *                  Only at a terminal, where it may be a slip of the keyboard, is it an error
 *     OUT          where the payload goes: a new file. An existing one is never written over
 *     MAX_EPSILON  the limit of this device, 4 if not given
 *
 * THIS PROGRAM KEEPS NO LEDGER. Every run with a new OUT spends epsilon again. Whoever calls it must charge epsilon
 * first, must name OUT after the task so that a second answer is impossible, and must send OUT again, unchanged, until
 * the broker acknowledges. Where OUT exists, epsilon is spent. docs/wire.md has the whole recipe.
 *
 * Prints task, digest, epsilon to be charged and purpose (budgets are kept per purpose), a line each; of an answer also
 * topic and id, once OUT is on the disk. Ends with 0, or with 1 and one line of complaint, which never has the value, and
 * outside a terminal never depends on it.
 */
#ifndef ARDUINO /* which compiles every file of this folder */
#define _POSIX_C_SOURCE 200809L

#include "hush.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { PATH_BYTES = 4096 };

static int complain(const char *what, const char *why)
{
    (void)fprintf(stderr, "hush_report: %s: %s\n", what, why);
    return 1;
}

static bool read_all(const char *name, uint8_t *out, size_t capacity, size_t *size)
{
    const bool typed = strcmp(name, "-") == 0;
    FILE *file = typed ? stdin : fopen(name, "rb");
    if (!file) {
        return false;
    }
    *size = fread(out, 1, capacity, file);
    bool whole = !ferror(file) && fgetc(file) == EOF;
    if (!typed) {
        (void)fclose(file);
    }
    return whole;
}

/* The value as text; NULL if there is none. */
static const char *read_value(const char *argument, char *out, size_t capacity)
{
    if (strcmp(argument, "-") != 0) {
        return argument;
    }
    if (!fgets(out, (int)capacity, stdin)) {
        return NULL;
    }
    out[strcspn(out, "\r\n")] = 0;
    return out;
}

static bool sync_directory_of(const char *name)
{
    char parent[PATH_BYTES];
    const char *slash = strrchr(name, '/');
    (void)snprintf(parent, sizeof parent, "%.*s", slash ? (int)(slash - name) + 1 : 1, slash ? name : ".");
    int directory = open(parent, O_RDONLY);
    bool synced = directory >= 0 && (fsync(directory) == 0 || errno == EINVAL); /* EINVAL: a file system that cannot */
    return (directory < 0 || close(directory) == 0) && synced;
}

/* A new file, whole and durable before this returns; false, and no such file, if there is one already. */
static bool store(const char *name, const uint8_t *bytes, size_t size)
{
    char part[PATH_BYTES];
    int length = snprintf(part, sizeof part, "%s.%ld.part", name, (long)getpid());
    int file = length < 0 || (size_t)length >= sizeof part ? -1 : open(part, O_WRONLY | O_CREAT | O_EXCL, 0600);
    if (file < 0) {
        return false;
    }
    bool stored = write(file, bytes, size) == (ssize_t)size && fsync(file) == 0;
    stored = close(file) == 0 && stored;
    if (stored && link(part, name) != 0) { /* a link never replaces a file; FAT has none */
        stored = errno != EEXIST && access(name, F_OK) != 0 && rename(part, name) == 0;
    }
    (void)unlink(part);
    return stored && sync_directory_of(name);
}

static void print_hex(const char *name, const uint8_t *bytes, size_t count)
{
    (void)printf("%s ", name);
    for (size_t i = 0; i < count; i++) {
        (void)printf("%02x", bytes[i]);
    }
    (void)printf("\n");
}

/* A bound as text, rounded to six decimals; false where it is too large or too fine for that. */
static bool spell(hush_number number, char *out, size_t capacity)
{
    const int below = number.exponent < 0 ? -number.exponent : 0; /* bits after the point */
    if (below > 60 || number.exponent > 10) {
        return false;
    }
    const uint64_t mask = (UINT64_C(1) << below) - 1;
    uint64_t whole = below ? number.mantissa >> below : number.mantissa << number.exponent;
    uint64_t rest = number.mantissa & mask, decimals = 0;
    for (int place = 0; place < 6; place++) {
        rest *= 10;
        decimals = 10 * decimals + (rest >> below);
        rest &= mask;
    }
    decimals = below ? decimals + (rest >> (below - 1)) : 0;
    whole += decimals / 1000000;
    int size = snprintf(out, capacity, "%s%llu.%06llu", number.negative ? "-" : "", (unsigned long long)whole,
                        (unsigned long long)(decimals % 1000000));
    if (size < 0 || (size_t)size >= capacity) {
        return false;
    }
    while (out[size - 1] == '0') {
        out[--size] = 0;
    }
    if (out[size - 1] == '.') {
        out[size - 1] = 0;
    }
    return true;
}

/* Complains of a text that is no value, at a terminal. */
static int correct(const hush_task *task)
{
    char lower[40], upper[40], line[128] = "is not a number";
    if (task->mechanism == HUSH_RANDOMIZED_RESPONSE) {
        return complain("VALUE", "is neither yes nor no; write yes, no, true, false, 1 or 0");
    }
    if (spell(task->lower, lower, sizeof lower) && spell(task->upper, upper, sizeof upper)) {
        (void)snprintf(line, sizeof line, "is not a number; write one from %s to %s", lower, upper);
    }
    return complain("VALUE", line);
}

/* Complains of an answer; where it is the time, with the moment that decided. */
static int decline(const hush_task *task, hush_status status)
{
    char line[128];
    const time_t moment = (time_t)(status == HUSH_NOT_OPEN ? task->opens : task->closes);
    struct tm utc;
    if ((status != HUSH_NOT_OPEN && status != HUSH_CLOSED) || !gmtime_r(&moment, &utc)) {
        return complain(task->id, hush_message(status));
    }
    (void)snprintf(line, sizeof line, "%s%s%04d-%02d-%02d %02d:%02d:%02d UTC", hush_message(status),
                   status == HUSH_NOT_OPEN ? "; it opens on " : ", since ", utc.tm_year + 1900, utc.tm_mon + 1,
                   utc.tm_mday, utc.tm_hour, utc.tm_min, utc.tm_sec);
    return complain(task->id, line);
}

static int answer(const hush_task *task, const char *sender, const char *argument, const char *out)
{
    uint8_t frame[HUSH_FRAME_BYTES];
    char topic[HUSH_TOPIC_BYTES], line[128];
    size_t size = 0;
    uint32_t index[HUSH_COORDINATES];
    hush_became became = HUSH_USED;
    hush_report report;
    if (hush_report_topic(task->id, sender, topic, sizeof topic) != HUSH_OK) {
        return complain("SENDER", "cannot be part of a topic; use letters, digits and . _ @ : - (at most 128)");
    }
    if (access(out, F_OK) == 0) {
        return complain(out, "exists: send it again as it is; a second answer would spend epsilon again");
    }
    const char *value = read_value(argument, line, sizeof line);
    hush_status status = hush_index(task, value, index, HUSH_COORDINATES, &became);
    if (status == HUSH_OK && became == HUSH_REPLACED && isatty(STDIN_FILENO) && isatty(STDERR_FILENO)) {
        return correct(task);
    }
    status = hush_answer(task, value, (int64_t)time(NULL), hush_os_random, NULL, &report);
    if (status != HUSH_OK) {
        return decline(task, status);
    }
    status = hush_encode_frame(report.digest, report.round, report.id, report.body, report.width, 1, frame, sizeof frame, &size);
    if (status != HUSH_OK || !store(out, frame, size)) {
        return complain(out, "cannot be written; nothing was sent");
    }
    if (report.value != HUSH_USED && isatty(STDERR_FILENO)) {
        (void)fprintf(stderr, "hush_report: %s; only this terminal is told\n",
                      report.value == HUSH_MOVED ? "what lay outside the bounds was moved to the nearer one"
                                                 : "there was no value; one was drawn at random in its place");
    }
    (void)printf("topic %s\n", topic);
    print_hex("id", report.id, sizeof report.id);
    return 0;
}

int main(int argc, char **argv)
{
    static uint8_t payload[HUSH_TASK_BYTES + 1];
    size_t size = 0;
    hush_task task;
    if (argc != 2 && argc != 5 && argc != 6) {
        return complain("usage", "hush_report TASK.json [SENDER VALUE OUT [MAX_EPSILON]]");
    }
    if (argc > 2 && strcmp(argv[1], "-") == 0 && strcmp(argv[3], "-") == 0) {
        return complain("usage", "only one of TASK.json and VALUE can come from standard input");
    }
    if (!read_all(argv[1], payload, sizeof payload, &size)) {
        return complain(argv[1], "cannot be read, or is too long for a task");
    }
    hush_status status = hush_read_task(payload, size, argc > 5 ? argv[5] : "4", &task);
    if (status != HUSH_OK) {
        return complain(argv[1], hush_message(status));
    }
    if (argc > 2 && answer(&task, argv[2], argv[3], argv[4]) != 0) {
        return 1;
    }
    (void)printf("task %s\n", task.id);
    print_hex("digest", task.digest, sizeof task.digest);
    (void)printf("epsilon %s\npurpose %.*s\n", task.epsilon, (int)task.purpose_bytes, task.purpose);
    return fflush(stdout) == 0 ? 0 : complain("standard output", "cannot be written");
}
#endif
