/* A storage in a directory, for a device with a POSIX operating system: one file for each record. */
#ifndef HUSH_FILE_H
#define HUSH_FILE_H

#include "hush_storage.h"

#include <dirent.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The fields are private. */
typedef struct {
    int directory, lock;
    DIR *listing; /* open while names are read in order */
    size_t next;
} hush_files;

/* Opens the directory, which is created for the owner alone if it is missing, and locks it until hush_file_close or the
 * end of the process. HUSH_STORAGE: it cannot be used, others may write to it, or another process has it. The reason is
 * in errno. */
hush_status hush_file_open(hush_files *files, const char *path, hush_storage *storage);

void hush_file_close(hush_files *files);

#ifdef __cplusplus
}
#endif

#endif
