#pragma once
#include "FreeRTOS.h"
typedef struct QueueDefinition *QueueHandle_t;
QueueHandle_t xQueueCreate(uint32_t, uint32_t);
BaseType_t xQueueSend(QueueHandle_t, const void *, TickType_t);
BaseType_t xQueueReceive(QueueHandle_t, void *, TickType_t);
