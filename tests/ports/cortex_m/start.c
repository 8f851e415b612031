#include "start.h"

#include <stddef.h>

extern uint32_t data_image[], data_start[], data_end[], bss_start[], bss_end[], stack_bottom[], stack_top[];

enum { PAINT = 0x5a5a5a5a, WRITE_TEXT = 0x04, EXIT = 0x18, APPLICATION_EXIT = 0x20026, RUN_TIME_ERROR = 0x20023 };

static void call_host(uint32_t operation, uint32_t parameter)
{
    register uint32_t r0 __asm__("r0") = operation;
    register uint32_t r1 __asm__("r1") = parameter;
    __asm__ volatile("bkpt 0xab" : "+r"(r0) : "r"(r1) : "memory");
}

void print(const char *text)
{
    call_host(WRITE_TEXT, (uint32_t)text);
}

void print_number(uint32_t number)
{
    char digits[11], *at = digits + sizeof digits - 1;
    *at = 0;
    do {
        *--at = (char)('0' + number % 10);
    } while (number /= 10);
    print(at);
}

void leave(int code)
{
    call_host(EXIT, code ? RUN_TIME_ERROR : APPLICATION_EXIT);
    for (;;) {
    }
}

void reset_machine(void)
{
    *(volatile uint32_t *)0xe000ed0c = 0x05fa0004; /* SYSRESETREQ of the register AIRCR */
    for (;;) {
    }
}

__attribute__((noinline)) uint32_t depth_of(void (*call)(void))
{
    uint32_t *here = __builtin_frame_address(0);
    for (uint32_t *at = stack_bottom; at < here - 16; at++) {
        *(volatile uint32_t *)at = PAINT;
    }
    call();
    uint32_t *at = stack_bottom;
    while (at < here && *(volatile uint32_t *)at == PAINT) {
        at++;
    }
    return (uint32_t)((uint8_t *)here - (uint8_t *)at);
}

void reset(void)
{
    for (size_t i = 0; data_start + i < data_end; i++) {
        data_start[i] = data_image[i];
    }
    for (uint32_t *at = bss_start; at < bss_end; at++) {
        *at = 0;
    }
    leave(main());
}

static void fault(void)
{
    print("fault\n");
    leave(1);
}

__attribute__((section(".vectors"), used)) static void (*const vectors[16])(void) = {
    (void (*)(void))(uintptr_t)stack_top, reset, fault, fault, fault, fault, fault, [11] = fault,
};
