#if !defined(__APPLE__)

#include "shared.h"

#include <stdio.h>

#include <jerror.h>
#include <jpeglib.h>
#include <setjmp.h>

// So many scans has no honest tile; each costs a walk over the whole picture, however few its bytes are.
#define MOST_SCANS 64

typedef struct jpeg_errors {
    struct jpeg_error_mgr base;
    jmp_buf jump;
    char *message;
} jpeg_errors;

static void fail(j_common_ptr info) {
    jpeg_errors *errors = (jpeg_errors *)info->err;
    char text[JMSG_LENGTH_MAX];
    info->err->format_message(info, text);
    cti_say(errors->message, text);
    longjmp(errors->jump, 1);
}

static void print_nothing(j_common_ptr info) { (void)info; }

// The library takes damage for a warning and paints grey. Here it is an error, but for oddities that harm no pixel.
static void hear(j_common_ptr info, int level) {
    if (level >= 0) return;
    switch (info->err->msg_code) {
    case JWRN_EXTRANEOUS_DATA:
    case JWRN_ADOBE_XFORM:
    case JWRN_JFIF_MAJOR:
    case JWRN_TOO_MUCH_DATA: return;
    default: fail(info);
    }
}

static void count_scans(j_common_ptr info) {
    if (info->is_decompressor && ((j_decompress_ptr)info)->input_scan_number > MOST_SCANS) {
        cti_say(((jpeg_errors *)info->err)->message, "the picture has too many scans");
        longjmp(((jpeg_errors *)info->err)->jump, 1);
    }
}

static void prepare(jpeg_errors *errors, char *message) {
    jpeg_std_error(&errors->base);
    errors->base.error_exit = fail;
    errors->base.emit_message = hear;
    errors->base.output_message = print_nothing;
    errors->message = message;
}

typedef struct jpeg_work {
    struct jpeg_decompress_struct info;
    jpeg_errors errors;
    struct jpeg_progress_mgr progress;
    uint8_t *row;
    int code;
} jpeg_work;

static void refuse(jpeg_work *work, int code, const char *text) {
    work->code = code;
    cti_say(work->errors.message, text);
    longjmp(work->errors.jump, 1);
}

static void decode(
    jpeg_work *work, const uint8_t *bytes, size_t length, const cti_window *window, cti_picture *out) {
    struct jpeg_decompress_struct *info = &work->info;
    jpeg_create_decompress(info);
    work->progress.progress_monitor = count_scans;
    info->progress = &work->progress;
    jpeg_mem_src(info, bytes, length);
    jpeg_read_header(info, TRUE);
    if (!cti_window_fits(window, info->image_width, info->image_height))
        refuse(work, CTI_CORRUPT, "the size is not the one in the header");
    if (info->data_precision != 8) refuse(work, CTI_UNSUPPORTED, "a JPEG of more than 8 bits");
    switch (info->jpeg_color_space) {
    case JCS_GRAYSCALE: info->out_color_space = JCS_GRAYSCALE; break;
    case JCS_YCbCr:
    case JCS_RGB: info->out_color_space = JCS_RGB; break;
    case JCS_CMYK:
    case JCS_YCCK: refuse(work, CTI_UNSUPPORTED, "a JPEG for print (CMYK)"); break;
    default: refuse(work, CTI_UNSUPPORTED, "a JPEG of unknown colours"); break;
    }
    jpeg_start_decompress(info);
    out->channels = (uint32_t)info->output_components;
    if ((out->channels != 1 && out->channels != 3) || info->output_width != info->image_width
        || info->output_height != info->image_height)
        refuse(work, CTI_CORRUPT, "an unknown layout of pixels");
    size_t kept = (size_t)window->width * out->channels, skipped = (size_t)window->x * out->channels;
    out->width = window->width;
    out->height = window->height;
    out->pixels = malloc(kept * window->height);
    work->row = malloc((size_t)info->output_width * out->channels);
    if (out->pixels == NULL || work->row == NULL) refuse(work, CTI_FAILED, "there is no memory");
    while (info->output_scanline < info->output_height) {
        uint32_t y = info->output_scanline;
        JSAMPROW rows[1] = {work->row};
        if (jpeg_read_scanlines(info, rows, 1) != 1) refuse(work, CTI_CORRUPT, "the picture is cut off");
        if (y >= window->y && y - window->y < window->height)
            memcpy(out->pixels + kept * (y - window->y), work->row + skipped, kept);
    }
    jpeg_finish_decompress(info);
}

int cti_jpeg_decode(const uint8_t *bytes, size_t length, cti_window window, cti_picture *out, char *message) {
    memset(out, 0, sizeof *out);
    // On the heap, so that nothing that changes after setjmp is a local variable.
    jpeg_work *const work = calloc(1, sizeof *work);
    if (work == NULL) {
        cti_say(message, "there is no memory");
        return CTI_FAILED;
    }
    work->code = CTI_CORRUPT;
    prepare(&work->errors, message);
    work->info.err = &work->errors.base;
    if (setjmp(work->errors.jump) == 0) {
        decode(work, bytes, length, &window, out);
        work->code = CTI_OK;
    } else {
        free(out->pixels);
        out->pixels = NULL;
    }
    jpeg_destroy_decompress(&work->info);
    int code = work->code;
    free(work->row);
    free(work);
    return code;
}

// The library's own destination leaks its bytes when an error jumps over it.
typedef struct jpeg_output {
    struct jpeg_destination_mgr base;
    cti_buffer buffer;
    uint8_t block[16384];
} jpeg_output;

typedef struct jpeg_write_work {
    struct jpeg_compress_struct info;
    jpeg_errors errors;
    jpeg_output output;
    int code;
} jpeg_write_work;

static void begin_block(j_compress_ptr info) {
    jpeg_output *output = (jpeg_output *)info->dest;
    output->base.next_output_byte = output->block;
    output->base.free_in_buffer = sizeof output->block;
}

static boolean end_block(j_compress_ptr info) {
    jpeg_output *output = (jpeg_output *)info->dest;
    if (!cti_append(&output->buffer, output->block, sizeof output->block)) ERREXIT1(info, JERR_OUT_OF_MEMORY, 0);
    begin_block(info);
    return TRUE;
}

static void end_output(j_compress_ptr info) {
    jpeg_output *output = (jpeg_output *)info->dest;
    size_t used = sizeof output->block - output->base.free_in_buffer;
    if (!cti_append(&output->buffer, output->block, used)) ERREXIT1(info, JERR_OUT_OF_MEMORY, 0);
}

static void encode(jpeg_write_work *work, const cti_picture *in, int quality) {
    struct jpeg_compress_struct *info = &work->info;
    jpeg_create_compress(info);
    work->output.base.init_destination = begin_block;
    work->output.base.empty_output_buffer = end_block;
    work->output.base.term_destination = end_output;
    info->dest = &work->output.base;
    info->image_width = in->width;
    info->image_height = in->height;
    info->input_components = (int)in->channels;
    info->in_color_space = in->channels == 1 ? JCS_GRAYSCALE : JCS_RGB;
    jpeg_set_defaults(info);
    jpeg_set_quality(info, quality, TRUE);
    jpeg_start_compress(info, TRUE);
    while (info->next_scanline < info->image_height) {
        JSAMPROW rows[1] = {in->pixels + (size_t)info->next_scanline * in->width * in->channels};
        jpeg_write_scanlines(info, rows, 1);
    }
    jpeg_finish_compress(info);
}

int cti_jpeg_encode(const cti_picture *in, int quality, uint8_t **out, size_t *out_length, char *message) {
    *out = NULL;
    *out_length = 0;
    if (in->channels != 1 && in->channels != 3) {
        cti_say(message, "a JPEG has no alpha");
        return CTI_FAILED;
    }
    jpeg_write_work *const work = calloc(1, sizeof *work);
    if (work == NULL) {
        cti_say(message, "there is no memory");
        return CTI_FAILED;
    }
    work->code = CTI_FAILED;
    prepare(&work->errors, message);
    work->info.err = &work->errors.base;
    if (setjmp(work->errors.jump) == 0) {
        encode(work, in, quality);
        work->code = CTI_OK;
    }
    jpeg_destroy_compress(&work->info);
    int code = work->code;
    if (code == CTI_OK) {
        *out = work->output.buffer.bytes;
        *out_length = work->output.buffer.length;
    } else {
        free(work->output.buffer.bytes);
    }
    free(work);
    return code;
}

#endif
