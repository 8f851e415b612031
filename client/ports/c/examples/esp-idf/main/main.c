/* An ESP32 that answers the task `room-temperature` whenever a round is open. Set Wi-Fi with `idf.py menuconfig`. */
#include "hush_device.h"
#include "hush_esp.h"

#include <esp_event.h>
#include <esp_log.h>
#include <esp_netif.h>
#include <esp_netif_sntp.h>
#include <freertos/FreeRTOS.h>
#include <freertos/queue.h>
#include <freertos/semphr.h>
#include <freertos/task.h>
#include <mqtt_client.h>
#include <nvs_flash.h>
#include <protocol_examples_common.h>
#include <string.h>
#include <sys/time.h>

#define BROKER "mqtts://broker.example"
#define SENDER "esp32-1" /* the MQTT user of this device */
#define TASK "hush/v1/tasks/room-temperature"
#define RECALL "hush/v1/recalls/room-temperature"

enum { MOST_TASK = 4096, CLOCK_S = 1700000000, NOTES = 32 };

static hush_flash flash;
static hush_storage storage;
static hush_device device;
static esp_mqtt_client_handle_t client;
static bool is_connected;
static uint8_t task_json[MOST_TASK];
static size_t task_bytes;

/* What the thread of the MQTT client leaves for this program's: all of hush runs in one. */
typedef struct {
    int32_t event;
    int message;
} note;

static QueueHandle_t notes;
static SemaphoreHandle_t inbox_lock; /* never held while the MQTT client is called */
static struct {
    bool is_new;
    size_t size;
    uint8_t bytes[MOST_TASK];
} task_inbox, recall_inbox;

static struct {
    int message;
    uint32_t ticket;
} sent[HUSH_WINDOW];

static int64_t now_ms(void)
{
    struct timeval now;
    gettimeofday(&now, NULL);
    return (int64_t)now.tv_sec * 1000 + now.tv_usec / 1000;
}

/* Your sensor, as text; NULL if it has no value now. Do not skip the answer: that would tell that there was none. */
static const char *read_sensor(void)
{
    return "21.5";
}

static int publish(void *context, const char *topic, const uint8_t *payload, size_t size, uint32_t ticket)
{
    (void)context;
    for (size_t i = 0; is_connected && i < HUSH_WINDOW; i++) {
        if (!sent[i].message) {
            const int message = esp_mqtt_client_enqueue(client, topic, (const char *)payload, (int)size, 1, 0, true);
            sent[i].message = message > 0 ? message : 0;
            sent[i].ticket = ticket;
            return message > 0 ? 0 : -1;
        }
    }
    return -1;
}

/* In the thread of the MQTT client. */
static void receive(const esp_mqtt_event_t *event)
{
    const bool is_task = event->topic_len == (int)strlen(TASK) && memcmp(event->topic, TASK, strlen(TASK)) == 0;
    const bool is_whole = event->data_len == event->total_data_len && event->data_len <= MOST_TASK;
    xSemaphoreTake(inbox_lock, portMAX_DELAY);
    if (is_task) { /* a task that does not fit is not answered, and neither is one that was withdrawn */
        task_inbox.size = is_whole ? (size_t)event->data_len : 0;
        memcpy(task_inbox.bytes, event->data, task_inbox.size);
        task_inbox.is_new = true;
    } else if (is_whole) {
        recall_inbox.size = (size_t)event->data_len;
        memcpy(recall_inbox.bytes, event->data, recall_inbox.size);
        recall_inbox.is_new = true;
    }
    xSemaphoreGive(inbox_lock);
}

static void on_event(void *context, esp_event_base_t base, int32_t id, void *data)
{
    const esp_mqtt_event_t *event = data;
    const note left = {id, event->msg_id};
    (void)context;
    (void)base;
    if (id == MQTT_EVENT_CONNECTED) {
        (void)esp_mqtt_client_subscribe(client, TASK, 1);
        (void)esp_mqtt_client_subscribe(client, RECALL, 1);
    }
    if (id == MQTT_EVENT_DATA) {
        receive(event);
    } else if (id == MQTT_EVENT_CONNECTED || id == MQTT_EVENT_DISCONNECTED || id == MQTT_EVENT_PUBLISHED) {
        (void)xQueueSend(notes, &left, 0); /* one that is lost is an acknowledgement that did not come */
    }
}

static void take_note(const note *left)
{
    if (left->event == MQTT_EVENT_PUBLISHED) {
        for (size_t i = 0; i < HUSH_WINDOW; i++) {
            if (sent[i].message == left->message) {
                (void)hush_device_acknowledged(&device, sent[i].ticket, 0, now_ms());
                sent[i].message = 0;
            }
        }
        return;
    }
    is_connected = left->event == MQTT_EVENT_CONNECTED;
    memset(sent, 0, sizeof sent);
    hush_device_disconnected(&device); /* what was not acknowledged is sent again */
}

static void empty_inboxes(void)
{
    xSemaphoreTake(inbox_lock, portMAX_DELAY);
    if (task_inbox.is_new) {
        task_bytes = task_inbox.size;
        memcpy(task_json, task_inbox.bytes, task_bytes);
    }
    if (recall_inbox.is_new) {
        (void)hush_device_recall(&device, "room-temperature", recall_inbox.bytes, recall_inbox.size);
    }
    task_inbox.is_new = recall_inbox.is_new = false;
    xSemaphoreGive(inbox_lock);
}

static void answer(void)
{
    hush_task task;
    hush_decision decision;
    hush_status status = hush_read_task(task_json, task_bytes, "4", &task);
    status = status == HUSH_OK ? hush_device_decide(&device, &task, now_ms(), &decision) : status;
    if (status == HUSH_OK) { /* decided: only now the sensor is read */
        status = hush_device_answer(&device, &decision, read_sensor(), NULL);
    }
    if (status != HUSH_ANSWERED) {
        ESP_LOGI("hush", "%s", hush_message(status)); /* never the value */
    }
}

void app_main(void)
{
    static const hush_policy policy = {.max_epsilon = "4", .spread = 60000, .keep = HUSH_KEEP_SECONDS};
    const esp_sntp_config_t clock = ESP_NETIF_SNTP_DEFAULT_CONFIG("pool.ntp.org");
    const esp_mqtt_client_config_t configuration = {.broker.address.uri = BROKER, .credentials.username = SENDER};
    int64_t next = 0;
    ESP_ERROR_CHECK(nvs_flash_init());
    ESP_ERROR_CHECK(esp_netif_init());
    ESP_ERROR_CHECK(esp_event_loop_create_default());
    ESP_ERROR_CHECK(example_connect()); /* the radio is on from here: randomness is good */
    ESP_ERROR_CHECK(esp_netif_sntp_init(&clock));
    while (now_ms() < CLOCK_S * INT64_C(1000)) {
        vTaskDelay(pdMS_TO_TICKS(500)); /* rounds count by the clock */
    }
    hush_status status = hush_esp_open("hush", &flash, &storage);
    status = status == HUSH_OK
                 ? hush_device_open(&device, &storage, &policy, SENDER, BROKER, hush_esp_random, NULL)
                 : status;
    if (status != HUSH_OK) {
        ESP_LOGE("hush", "%s", hush_message(status)); /* what was spent is not known: nothing is answered */
        return;
    }
    inbox_lock = xSemaphoreCreateMutex();
    notes = xQueueCreate(NOTES, sizeof(note));
    client = esp_mqtt_client_init(&configuration);
    ESP_ERROR_CHECK(esp_mqtt_client_register_event(client, MQTT_EVENT_ANY, on_event, NULL));
    ESP_ERROR_CHECK(esp_mqtt_client_start(client));
    for (;;) {
        note left;
        while (xQueueReceive(notes, &left, pdMS_TO_TICKS(1000)) == pdTRUE) {
            take_note(&left);
        }
        empty_inboxes();
        if (task_bytes) {
            answer();
        }
        (void)hush_device_send(&device, now_ms(), publish, NULL, &next);
    }
}
