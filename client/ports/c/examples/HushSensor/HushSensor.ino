// An ESP32 that answers the task "room-temperature" whenever a round is open.
// It needs a data partition with the label "hush" of 8 KiB or more: put a partitions.csv next to this file
// (examples/esp-idf has one), and the library ArduinoMqttClient. PubSubClient publishes with QoS 0: reports would be lost.
#include <ArduinoMqttClient.h>
#include <WiFi.h>
#include <hush_device.h>
#include <hush_esp.h>
#include <sys/time.h>

static const char BROKER[] = "broker.example";
static const char SENDER[] = "esp32-1"; // the MQTT user of this device
static const char TASK[] = "hush/v1/tasks/room-temperature";
static const char RECALL[] = "hush/v1/recalls/room-temperature";

static WiFiClient network; // WiFiClientSecure for TLS
static MqttClient mqtt(network);
static hush_flash flash;
static hush_storage storage;
static hush_device device;
static hush_policy policy;
static uint8_t json[4096], recalled[HUSH_RECALL_BYTES];
static size_t jsonBytes;
static uint32_t acknowledged[HUSH_WINDOW];
static size_t acknowledgements;
static bool isReady, wasConnected;

static int64_t nowMs()
{
    struct timeval now;
    gettimeofday(&now, NULL);
    return (int64_t)now.tv_sec * 1000 + now.tv_usec / 1000;
}

// Your sensor, as text; NULL if it has no value now. Do not skip the answer: that would tell that there was none.
static const char *readSensor()
{
    return "21.5";
}

// endMessage waits for the acknowledgement of the broker.
static int publish(void *, const char *topic, const uint8_t *payload, size_t size, uint32_t ticket)
{
    if (!mqtt.connected() || acknowledgements == HUSH_WINDOW) {
        return -1;
    }
    if (!mqtt.beginMessage(topic, (unsigned long)size, false, 1) || mqtt.write(payload, size) != size ||
        !mqtt.endMessage()) {
        return -1;
    }
    acknowledged[acknowledgements++] = ticket;
    return 0;
}

static void receive(int size)
{
    uint8_t *to = mqtt.messageTopic() == TASK ? json : recalled;
    size_t capacity = to == json ? sizeof json : sizeof recalled;
    size_t got = size > 0 && (size_t)size <= capacity ? (size_t)mqtt.read(to, (size_t)size) : 0;
    if (to == json) {
        jsonBytes = got; // 0: withdrawn, or too long for this device
    } else {
        (void)hush_device_recall(&device, "room-temperature", recalled, got);
    }
}

static void connectBroker()
{
    if (wasConnected) {
        hush_device_disconnected(&device);
        wasConnected = false;
    }
    if (mqtt.connect(BROKER, 1883)) {
        wasConnected = true;
        mqtt.subscribe(TASK, 1);
        mqtt.subscribe(RECALL, 1);
    }
}

static void answer()
{
    hush_task task;
    hush_decision decision;
    hush_status status = hush_read_task(json, jsonBytes, "4", &task);
    if (status == HUSH_OK) {
        status = hush_device_decide(&device, &task, nowMs(), &decision);
    }
    if (status == HUSH_OK) { // decided: only now the sensor is read
        status = hush_device_answer(&device, &decision, readSensor(), NULL);
    }
    if (status != HUSH_ANSWERED) {
        Serial.println(hush_message(status)); // never the value
    }
}

void setup()
{
    Serial.begin(115200);
    WiFi.begin("network", "password"); // the radio is on from here: randomness is good
    while (WiFi.status() != WL_CONNECTED) {
        delay(200);
    }
    configTime(0, 0, "pool.ntp.org"); // rounds count by the clock
    while (nowMs() < INT64_C(1700000000000)) {
        delay(200);
    }
    policy.max_epsilon = "4";
    policy.spread = 60000;
    policy.keep = HUSH_KEEP_SECONDS;
    hush_status status = hush_esp_open("hush", &flash, &storage);
    if (status == HUSH_OK) {
        status = hush_device_open(&device, &storage, &policy, SENDER, BROKER, hush_esp_random, NULL);
    }
    isReady = status == HUSH_OK;
    Serial.println(hush_message(status)); // if it is not ready, what was spent is not known, and nothing is answered
    mqtt.setUsernamePassword(SENDER, "password");
    mqtt.onMessage(receive);
}

void loop()
{
    int64_t next = 0;
    if (!isReady) {
        return;
    }
    if (!mqtt.connected()) {
        connectBroker();
    }
    mqtt.poll();
    if (jsonBytes) {
        answer();
    }
    (void)hush_device_send(&device, nowMs(), publish, NULL, &next);
    while (acknowledgements) {
        (void)hush_device_acknowledged(&device, acknowledged[--acknowledgements], 0, nowMs());
    }
    delay(1000);
}
