#pragma once
#include "WiFi.h"
class MqttClient : public Client {
  public:
    MqttClient(Client &);
    void onMessage(void (*)(int));
    String messageTopic() const;
    int beginMessage(const char *, unsigned long, bool = false, uint8_t = 0, bool = false);
    int endMessage();
    int subscribe(const char *, uint8_t = 0);
    void poll();
    int connect(const char *, uint16_t = 1883);
    size_t write(const uint8_t *, size_t);
    int read(uint8_t *, size_t);
    uint8_t connected();
    void setUsernamePassword(const char *, const char *);
};
