#pragma once
#include "esp_event.h"
#include <stdbool.h>
typedef struct esp_mqtt_client *esp_mqtt_client_handle_t;
typedef enum {
    MQTT_EVENT_ANY = -1,
    MQTT_EVENT_CONNECTED = 1,
    MQTT_EVENT_DISCONNECTED = 2,
    MQTT_EVENT_PUBLISHED = 5,
    MQTT_EVENT_DATA = 6
} esp_mqtt_event_id_t;
typedef struct {
    char *data, *topic;
    int data_len, total_data_len, topic_len, msg_id;
} esp_mqtt_event_t;
typedef struct {
    struct {
        struct {
            const char *uri;
        } address;
    } broker;
    struct {
        const char *username;
    } credentials;
} esp_mqtt_client_config_t;
esp_mqtt_client_handle_t esp_mqtt_client_init(const esp_mqtt_client_config_t *);
esp_err_t esp_mqtt_client_start(esp_mqtt_client_handle_t);
esp_err_t esp_mqtt_client_register_event(esp_mqtt_client_handle_t, esp_mqtt_event_id_t, esp_event_handler_t, void *);
int esp_mqtt_client_subscribe(esp_mqtt_client_handle_t, const char *, int);
int esp_mqtt_client_enqueue(esp_mqtt_client_handle_t, const char *, const char *, int, int, int, bool);
