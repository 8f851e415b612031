#pragma once
#include "Arduino.h"
typedef enum { WL_IDLE_STATUS = 0, WL_CONNECTED = 3 } wl_status_t;
struct Client {};
struct WiFiClient : Client {};
struct WiFiClass {
    wl_status_t begin(const char *, const char *);
    wl_status_t status();
};
extern WiFiClass WiFi;
