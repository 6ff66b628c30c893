#if !defined(__APPLE__)

#include "shared.h"

#include <webp/decode.h>
#include <webp/encode.h>

int cti_webp_decode(const uint8_t *bytes, size_t length, cti_window window, cti_picture *out, char *message) {
    memset(out, 0, sizeof *out);
    WebPBitstreamFeatures features;
    if (WebPGetFeatures(bytes, length, &features) != VP8_STATUS_OK) {
        cti_say(message, "the header is damaged");
        return CTI_CORRUPT;
    }
    if (features.has_animation) {
        cti_say(message, "an animated WebP");
        return CTI_UNSUPPORTED;
    }
    if (features.width < 1 || features.height < 1
        || !cti_window_fits(&window, (uint32_t)features.width, (uint32_t)features.height)) {
        cti_say(message, "the size is not the one in the header");
        return CTI_CORRUPT;
    }
    out->is_lossless = features.format == 2;
    out->channels = features.has_alpha ? 4 : 3;
    int width = 0, height = 0;
    uint8_t *whole = features.has_alpha ? WebPDecodeRGBA(bytes, length, &width, &height)
                                        : WebPDecodeRGB(bytes, length, &width, &height);
    if (whole == NULL || width != features.width || height != features.height) {
        WebPFree(whole);
        cti_say(message, "the picture is damaged or cut off");
        return CTI_CORRUPT;
    }
    size_t kept = (size_t)window.width * out->channels, stride = (size_t)width * out->channels;
    out->width = window.width;
    out->height = window.height;
    out->pixels = malloc(kept * window.height);
    if (out->pixels == NULL) {
        WebPFree(whole);
        cti_say(message, "there is no memory");
        return CTI_FAILED;
    }
    for (uint32_t y = 0; y < window.height; y++)
        memcpy(
            out->pixels + kept * y, whole + stride * (y + (size_t)window.y) + (size_t)window.x * out->channels, kept);
    WebPFree(whole);
    return CTI_OK;
}

int cti_webp_encode(const cti_picture *in, int quality, uint8_t **out, size_t *out_length, char *message) {
    *out = NULL;
    *out_length = 0;
    WebPConfig config;
    WebPPicture picture;
    if (!WebPConfigInit(&config) || !WebPPictureInit(&picture)) {
        cti_say(message, "libwebp is of another version");
        return CTI_FAILED;
    }
    if (in->is_lossless) {
        // Fast settings: an enlarged picture is as easy to predict for them as for the slow ones.
        WebPConfigLosslessPreset(&config, 1);
        config.exact = 1;
    } else {
        config.quality = (float)quality;
        config.method = 2;
    }
    picture.use_argb = (int)in->is_lossless;
    picture.width = (int)in->width;
    picture.height = (int)in->height;
    WebPMemoryWriter writer;
    WebPMemoryWriterInit(&writer);
    picture.writer = WebPMemoryWrite;
    picture.custom_ptr = &writer;
    int stride = (int)(in->width * in->channels), worked = 0;
    if (in->channels == 3) worked = WebPPictureImportRGB(&picture, in->pixels, stride);
    if (in->channels == 4) worked = WebPPictureImportRGBA(&picture, in->pixels, stride);
    worked = worked && WebPEncode(&config, &picture);
    WebPPictureFree(&picture);
    if (worked && writer.size > 0) {
        // Bytes that callers free with cti_free come from malloc, whatever libwebp's own allocator is.
        *out = malloc(writer.size);
        if (*out != NULL) {
            memcpy(*out, writer.mem, writer.size);
            *out_length = writer.size;
        }
    }
    WebPMemoryWriterClear(&writer);
    if (*out != NULL) return CTI_OK;
    cti_say(message, "libwebp cannot encode the picture");
    return CTI_FAILED;
}

#endif
