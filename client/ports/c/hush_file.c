/* A storage in a directory; see hush_file.h. A record is written to a file of another name, which is synced, then renamed,
 * and the directory is synced: after a power cut there is the old file or the new one, whole. */
#ifndef ARDUINO /* which compiles every file of this folder */
#define _DEFAULT_SOURCE 1
#define _POSIX_C_SOURCE 200809L
#define _DARWIN_C_SOURCE 1

#include "hush_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h> /* renameat */
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

static const char LOCK_NAME[] = "lock";
static const char DRAFT_NAME[] = "draft"; /* no record has it: the lock allows one writer, so one draft is enough */

static bool is_name(const char *name)
{
    const size_t size = strlen(name);
    return size >= 1 && size < HUSH_NAME_BYTES && *name != '.' && strcmp(name, LOCK_NAME) != 0 &&
           strcmp(name, DRAFT_NAME) != 0 && strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789-_.") == size;
}

/* On the disk, not only in the cache of the drive, where the system can do that. */
static bool sync_file(int file)
{
#ifdef F_FULLFSYNC
    if (fcntl(file, F_FULLFSYNC) == 0) {
        return true;
    }
#endif
    return fsync(file) == 0;
}

/* Some file systems cannot sync a directory, and say so. */
static bool sync_directory(int directory)
{
    return fsync(directory) == 0 || errno == EINVAL;
}

static void end_listing(hush_files *files)
{
    if (files->listing) {
        (void)closedir(files->listing);
        files->listing = NULL;
    }
}

static hush_status load_file(void *context, const char *name, uint8_t *out, size_t capacity, size_t *size)
{
    const hush_files *files = context;
    const int file = is_name(name) ? openat(files->directory, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW) : -1;
    if (file < 0) {
        return is_name(name) && errno == ENOENT ? HUSH_NONE : HUSH_STORAGE;
    }
    ssize_t got = 0;
    uint8_t more = 0;
    for (*size = 0; *size < capacity; *size += (size_t)got) {
        got = read(file, out + *size, capacity - *size);
        if (got <= 0) {
            break;
        }
    }
    if (got > 0) {
        got = read(file, &more, 1);
    }
    (void)close(file);
    return got < 0 ? HUSH_STORAGE : got > 0 ? HUSH_SPACE : HUSH_OK;
}

static bool write_draft(const hush_files *files, const uint8_t *bytes, size_t size)
{
    (void)unlinkat(files->directory, DRAFT_NAME, 0); /* of a run that was cut off */
    const int file = openat(files->directory, DRAFT_NAME, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (file < 0) {
        return false;
    }
    bool written = true;
    for (size_t at = 0; at < size && written;) {
        const ssize_t put = write(file, bytes + at, size - at);
        written = put > 0 || (put < 0 && errno == EINTR);
        at += put > 0 ? (size_t)put : 0;
    }
    written = written && sync_file(file);
    return close(file) == 0 && written;
}

static hush_status store_file(void *context, const char *name, const uint8_t *bytes, size_t size)
{
    hush_files *files = context;
    end_listing(files);
    if (!is_name(name) || !write_draft(files, bytes, size) ||
        renameat(files->directory, DRAFT_NAME, files->directory, name) != 0) {
        return HUSH_STORAGE;
    }
    return sync_directory(files->directory) ? HUSH_OK : HUSH_STORAGE;
}

static hush_status remove_file(void *context, const char *name)
{
    hush_files *files = context;
    end_listing(files);
    if (!is_name(name) || (unlinkat(files->directory, name, 0) != 0 && errno != ENOENT)) {
        return HUSH_STORAGE;
    }
    return sync_directory(files->directory) ? HUSH_OK : HUSH_STORAGE;
}

/* Names are read in order as a rule: the listing is kept open for the next one. */
static hush_status name_file(void *context, size_t index, char *out, size_t capacity)
{
    hush_files *files = context;
    if (!files->listing || index < files->next) {
        end_listing(files);
        const int directory = openat(files->directory, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        files->listing = directory < 0 ? NULL : fdopendir(directory);
        files->next = 0;
        if (!files->listing) {
            if (directory >= 0) {
                (void)close(directory);
            }
            return HUSH_STORAGE;
        }
    }
    for (;;) {
        errno = 0;
        const struct dirent *entry = readdir(files->listing);
        if (!entry) {
            const bool failed = errno != 0;
            end_listing(files);
            return failed ? HUSH_STORAGE : HUSH_NONE;
        }
        if (!is_name(entry->d_name) || files->next++ < index) {
            continue;
        }
        const size_t size = strlen(entry->d_name) + 1;
        if (size > capacity) {
            return HUSH_SPACE;
        }
        memcpy(out, entry->d_name, size);
        return HUSH_OK;
    }
}

hush_status hush_file_open(hush_files *files, const char *path, hush_storage *storage)
{
    struct stat found;
    if (!files || !path || !storage) {
        return HUSH_ARGUMENT;
    }
    *files = (hush_files){-1, -1, NULL, 0};
    if (mkdir(path, 0700) != 0 && errno != EEXIST) {
        return HUSH_STORAGE;
    }
    files->directory = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (files->directory >= 0 && fstat(files->directory, &found) == 0) {
        if (found.st_mode & (S_IWGRP | S_IWOTH)) { /* they could replace the ledger by one that has spent nothing */
            errno = EPERM;
        } else {
            files->lock = openat(files->directory, LOCK_NAME, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
        }
    }
    if (files->lock < 0 || flock(files->lock, LOCK_EX | LOCK_NB) != 0) {
        const int reason = errno;
        hush_file_close(files);
        errno = reason;
        return HUSH_STORAGE;
    }
    *storage = (hush_storage){files, load_file, store_file, remove_file, name_file};
    return HUSH_OK;
}

void hush_file_close(hush_files *files)
{
    end_listing(files);
    if (files->lock >= 0) {
        (void)close(files->lock);
    }
    if (files->directory >= 0) {
        (void)close(files->directory);
    }
    *files = (hush_files){-1, -1, NULL, 0};
}
#endif
