// Decoding and encoding of tiles with libpng, libjpeg-turbo and libwebp.
//
// These libraries report errors by longjmp, which must never cross a frame of Swift: it stays in here, and every function
// returns a code and a message instead. What a function that failed has allocated, it has freed.
#ifndef CTILEIMAGING_H
#define CTILEIMAGING_H

#include <stddef.h>
#include <stdint.h>

#define CTI_MESSAGE_SIZE 160

enum cti_code {
    CTI_OK = 0,
    /// The bytes are damaged or cut off.
    CTI_CORRUPT = 1,
    /// A kind of picture that is not dealt with.
    CTI_UNSUPPORTED = 2,
    /// The encoder failed, or there is no memory.
    CTI_FAILED = 3,
};

/// A part of a picture, and what the encoder of its format needs to know.
typedef struct cti_picture {
    /// The part's size.
    uint32_t width;
    uint32_t height;
    /// 1 grey or index into the palette, 2 grey and alpha, 3 RGB, 4 RGBA; 8 bits each, rows without gaps.
    uint32_t channels;
    /// 1, 2, 4 or 8 for a picture with a palette.
    uint32_t palette_depth;
    /// 0 for a picture without a palette.
    uint32_t palette_count;
    /// How many of the palette's colours have an alpha.
    uint32_t alpha_count;
    /// Whether a WebP is lossless.
    uint32_t is_lossless;
    uint8_t palette[256 * 3];
    uint8_t alpha[256];
    /// From malloc.
    uint8_t *pixels;
} cti_picture;

/// The part of a picture to keep, and the size that the picture must have.
typedef struct cti_window {
    uint32_t picture_width;
    uint32_t picture_height;
    uint32_t x;
    uint32_t y;
    uint32_t width;
    uint32_t height;
} cti_window;

int cti_png_decode(const uint8_t *bytes, size_t length, cti_window window, cti_picture *out, char *message);
int cti_jpeg_decode(const uint8_t *bytes, size_t length, cti_window window, cti_picture *out, char *message);
int cti_webp_decode(const uint8_t *bytes, size_t length, cti_window window, cti_picture *out, char *message);

/// `level` is zlib's, 0 to 9.
int cti_png_encode(const cti_picture *in, int level, uint8_t **out, size_t *out_length, char *message);
/// `quality` is 1 to 100.
int cti_jpeg_encode(const cti_picture *in, int quality, uint8_t **out, size_t *out_length, char *message);
int cti_webp_encode(const cti_picture *in, int quality, uint8_t **out, size_t *out_length, char *message);

/// Frees what a function above gave; NULL is fine.
void cti_free(void *memory);

#endif
