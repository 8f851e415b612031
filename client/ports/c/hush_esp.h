/* What hush.h and hush_flash.h need of an ESP32: randomness, and a partition of the flash. For ESP-IDF and for Arduino. */
#ifndef HUSH_ESP_H
#define HUSH_ESP_H

#include "hush_flash.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A hush_random. Start Wi-Fi or Bluetooth first, and do not stop it: without the radio the generator of an ESP32 is not
 * random enough, and answers would not be private. */
int hush_esp_random(void *context, uint8_t *out, size_t count);

/* Mounts the data partition `label`, of two or more sectors (4 KiB each), and formats it if it is blank. HUSH_STORAGE:
 * there is no such partition, or what it holds is damaged. One at a time. */
hush_status hush_esp_open(const char *label, hush_flash *flash, hush_storage *storage);

#ifdef __cplusplus
}
#endif

#endif
