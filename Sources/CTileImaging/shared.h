#ifndef CTILEIMAGING_SHARED_H
#define CTILEIMAGING_SHARED_H

#include "CTileImaging.h"

#include <stdlib.h>
#include <string.h>

// Bytes that grow: what an encoder writes into.
typedef struct cti_buffer {
    uint8_t *bytes;
    size_t length;
    size_t capacity;
} cti_buffer;

int cti_append(cti_buffer *buffer, const uint8_t *bytes, size_t length);
void cti_say(char *message, const char *text);
/// Whether the window lies within a picture of the size that the window was made for.
int cti_window_fits(const cti_window *window, uint32_t width, uint32_t height);

#endif
