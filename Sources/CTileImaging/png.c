#if !defined(__APPLE__)

#include "shared.h"

#include <png.h>
#include <setjmp.h>

typedef struct png_input {
    const uint8_t *bytes;
    size_t length;
    size_t offset;
} png_input;

static void fail(png_structp png, png_const_charp text) {
    cti_say(png_get_error_ptr(png), text);
    longjmp(png_jmpbuf(png), 1);
}

static void ignore(png_structp png, png_const_charp text) {
    (void)png;
    (void)text;
}

static void read_bytes(png_structp png, png_bytep to, size_t count) {
    png_input *input = png_get_io_ptr(png);
    if (count > input->length - input->offset) png_error(png, "the picture is cut off");
    memcpy(to, input->bytes + input->offset, count);
    input->offset += count;
}

static void write_bytes(png_structp png, png_bytep from, size_t count) {
    if (!cti_append(png_get_io_ptr(png), from, count)) png_error(png, "there is no memory");
}

static void flush_nothing(png_structp png) { (void)png; }

// Everything that has to be freed is reached through here, so that nothing that changes after setjmp is a local variable.
typedef struct png_work {
    png_structp png;
    png_infop info;
    uint8_t *whole;
    png_input input;
    int code;
} png_work;

static void decode(png_work *work, const cti_window *window, cti_picture *out) {
    png_structp png = work->png;
    png_infop info = work->info;
    png_set_read_fn(png, &work->input, read_bytes);
    png_set_user_limits(png, window->picture_width, window->picture_height);
    // Texts and profiles are of no use here, and may unpack to much.
    png_set_chunk_cache_max(png, 64);
    png_set_chunk_malloc_max(png, 8 << 20);
    png_read_info(png, info);
    uint32_t width = png_get_image_width(png, info), height = png_get_image_height(png, info);
    if (!cti_window_fits(window, width, height)) png_error(png, "the size is not the one in the header");

    int type = png_get_color_type(png, info), depth = png_get_bit_depth(png, info);
    png_bytep alpha = NULL;
    int alpha_count = 0;
    if (type == PNG_COLOR_TYPE_PALETTE) {
        png_colorp palette = NULL;
        int count = 0;
        if (!png_get_PLTE(png, info, &palette, &count) || count < 1 || count > 256) png_error(png, "no palette");
        for (int i = 0; i < count; i++) {
            out->palette[3 * i] = palette[i].red;
            out->palette[3 * i + 1] = palette[i].green;
            out->palette[3 * i + 2] = palette[i].blue;
        }
        out->palette_count = (uint32_t)count;
        out->palette_depth = (uint32_t)depth;
        if (png_get_tRNS(png, info, &alpha, &alpha_count, NULL) && alpha != NULL && alpha_count > 0) {
            if (alpha_count > count) alpha_count = count;
            memcpy(out->alpha, alpha, (size_t)alpha_count);
            out->alpha_count = (uint32_t)alpha_count;
        }
        png_set_packing(png);
    } else {
        if (depth == 16) png_set_scale_16(png);
        if (depth < 8) png_set_expand_gray_1_2_4_to_8(png);
        if (png_get_valid(png, info, PNG_INFO_tRNS)) png_set_tRNS_to_alpha(png);
    }
    int passes = png_set_interlace_handling(png);
    png_read_update_info(png, info);
    out->channels = png_get_channels(png, info);
    size_t stride = png_get_rowbytes(png, info);
    if (out->channels < 1 || out->channels > 4 || stride != (size_t)width * out->channels)
        png_error(png, "an unknown layout of pixels");

    size_t kept = (size_t)window->width * out->channels, skipped = (size_t)window->x * out->channels;
    out->width = window->width;
    out->height = window->height;
    out->pixels = malloc(kept * window->height);
    // An interlaced picture is complete only after its last pass.
    work->whole = calloc(passes > 1 ? height : 1, stride);
    if (out->pixels == NULL || work->whole == NULL) {
        work->code = CTI_FAILED;
        png_error(png, "there is no memory");
    }
    for (int pass = 0; pass < passes; pass++) {
        for (uint32_t y = 0; y < height; y++) {
            uint8_t *row = passes > 1 ? work->whole + stride * y : work->whole;
            png_read_row(png, row, NULL);
            if (pass == passes - 1 && y >= window->y && y - window->y < window->height)
                memcpy(out->pixels + kept * (y - window->y), row + skipped, kept);
        }
    }
    png_read_end(png, NULL);
    if (out->palette_count > 0) {
        for (size_t i = 0; i < kept * window->height; i++)
            if (out->pixels[i] >= out->palette_count) png_error(png, "a pixel has a colour that is not in the palette");
    }
}

int cti_png_decode(const uint8_t *bytes, size_t length, cti_window window, cti_picture *out, char *message) {
    memset(out, 0, sizeof *out);
    png_work work = {.input = {bytes, length, 0}, .code = CTI_CORRUPT};
    png_work *const held = &work;
    held->png = png_create_read_struct(PNG_LIBPNG_VER_STRING, message, fail, ignore);
    held->info = held->png != NULL ? png_create_info_struct(held->png) : NULL;
    if (held->info == NULL) {
        png_destroy_read_struct(&held->png, NULL, NULL);
        cti_say(message, "there is no memory");
        return CTI_FAILED;
    }
    if (setjmp(png_jmpbuf(held->png)) == 0) {
        decode(held, &window, out);
        held->code = CTI_OK;
    } else {
        free(out->pixels);
        out->pixels = NULL;
    }
    free(held->whole);
    png_destroy_read_struct(&held->png, &held->info, NULL);
    return held->code;
}

typedef struct png_write_work {
    png_structp png;
    png_infop info;
    cti_buffer buffer;
    int code;
} png_write_work;

static void encode(png_write_work *work, const cti_picture *in, int level) {
    png_structp png = work->png;
    png_infop info = work->info;
    png_set_write_fn(png, &work->buffer, write_bytes, flush_nothing);
    png_set_compression_level(png, level);
    int is_palette = in->palette_count > 0;
    static const int types[] = {
        0, PNG_COLOR_TYPE_GRAY, PNG_COLOR_TYPE_GRAY_ALPHA, PNG_COLOR_TYPE_RGB, PNG_COLOR_TYPE_RGB_ALPHA};
    if (in->channels < 1 || in->channels > 4 || (is_palette && in->channels != 1)) png_error(png, "wrong channels");
    png_set_IHDR(
        png, info, in->width, in->height, is_palette ? (int)in->palette_depth : 8,
        is_palette ? PNG_COLOR_TYPE_PALETTE : types[in->channels], PNG_INTERLACE_NONE, PNG_COMPRESSION_TYPE_DEFAULT,
        PNG_FILTER_TYPE_DEFAULT);
    if (is_palette) {
        png_color palette[256];
        for (uint32_t i = 0; i < in->palette_count; i++)
            palette[i] = (png_color){in->palette[3 * i], in->palette[3 * i + 1], in->palette[3 * i + 2]};
        png_set_PLTE(png, info, palette, (int)in->palette_count);
        if (in->alpha_count > 0) png_set_tRNS(png, info, in->alpha, (int)in->alpha_count, NULL);
        png_set_filter(png, PNG_FILTER_TYPE_BASE, PNG_FILTER_NONE);
    } else {
        // Enlarged pictures are smooth: one good filter, not the trial of all of them.
        png_set_filter(png, PNG_FILTER_TYPE_BASE, PNG_FILTER_PAETH);
    }
    png_write_info(png, info);
    if (is_palette) png_set_packing(png);
    for (uint32_t y = 0; y < in->height; y++)
        png_write_row(png, in->pixels + (size_t)y * in->width * in->channels);
    png_write_end(png, info);
}

int cti_png_encode(const cti_picture *in, int level, uint8_t **out, size_t *out_length, char *message) {
    *out = NULL;
    *out_length = 0;
    png_write_work work = {.code = CTI_FAILED};
    png_write_work *const held = &work;
    held->png = png_create_write_struct(PNG_LIBPNG_VER_STRING, message, fail, ignore);
    held->info = held->png != NULL ? png_create_info_struct(held->png) : NULL;
    if (held->info == NULL) {
        png_destroy_write_struct(&held->png, NULL);
        cti_say(message, "there is no memory");
        return CTI_FAILED;
    }
    if (setjmp(png_jmpbuf(held->png)) == 0) {
        encode(held, in, level);
        held->code = CTI_OK;
    }
    png_destroy_write_struct(&held->png, &held->info);
    if (held->code == CTI_OK) {
        *out = held->buffer.bytes;
        *out_length = held->buffer.length;
    } else {
        free(held->buffer.bytes);
    }
    return held->code;
}

#endif
