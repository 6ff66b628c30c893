#include "shared.h"

#include <stdio.h>

void cti_free(void *memory) { free(memory); }

int cti_append(cti_buffer *buffer, const uint8_t *bytes, size_t length) {
    if (length > SIZE_MAX / 4 - buffer->length) return 0;
    size_t needed = buffer->length + length;
    if (needed > buffer->capacity) {
        size_t capacity = buffer->capacity < 4096 ? 4096 : buffer->capacity;
        while (capacity < needed) capacity *= 2;
        uint8_t *grown = realloc(buffer->bytes, capacity);
        if (grown == NULL) return 0;
        buffer->bytes = grown;
        buffer->capacity = capacity;
    }
    if (length > 0) memcpy(buffer->bytes + buffer->length, bytes, length);
    buffer->length = needed;
    return 1;
}

void cti_say(char *message, const char *text) { snprintf(message, CTI_MESSAGE_SIZE, "%s", text); }

int cti_window_fits(const cti_window *window, uint32_t width, uint32_t height) {
    return width == window->picture_width && height == window->picture_height && window->width > 0
        && window->height > 0 && window->x < width && window->y < height && window->width <= width - window->x
        && window->height <= height - window->y;
}
