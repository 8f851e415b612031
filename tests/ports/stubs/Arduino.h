#pragma once
#include <stddef.h>
#include <stdint.h>
#include <string>
struct String : std::string {
    using std::string::string;
    bool operator==(const char *other) const { return compare(other) == 0; }
};
struct HardwareSerial {
    void begin(unsigned long);
    size_t println(const char *);
};
extern HardwareSerial Serial;
void delay(uint32_t);
void configTime(long, int, const char *, const char * = nullptr, const char * = nullptr);
