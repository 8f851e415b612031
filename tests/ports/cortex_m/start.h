/* What a program on a bare Cortex-M needs: start, text and end by semihosting, reset, and the depth of its stack. */
#ifndef START_H
#define START_H

#include <stdint.h>

int main(void);
void print(const char *text);
void print_number(uint32_t number);
_Noreturn void leave(int code);
_Noreturn void reset_machine(void);

/* Runs `call`, and returns how many bytes of stack it used, from a stack that was painted before. */
uint32_t depth_of(void (*call)(void));

#endif
