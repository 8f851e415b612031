#pragma once
#include <stddef.h>
void esp_fill_random(void *, size_t);
