/* Frames: messages of the protocol on two streams: a header with Content-Length, then JSON.
 *
 * In: a descriptor to read, one to write. Out: texts of messages, one after the other; answers. Refused: a header that
 * cannot be read (what follows cannot be either), a message longer than MOST_MESSAGE, which is skipped. */
#ifndef TFM_LSP_FRAMES_H
#define TFM_LSP_FRAMES_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { MOST_MESSAGE = 40 << 20 }; /* bytes: a text of 16 MiB, which is what the parser takes, with its escapes */

typedef struct Frames {
  int in, out;
  char *bytes; /* what was read, of which [at, n) is not used yet */
  size_t at, n, capacity;
  uint64_t to_skip; /* bytes of a message that is too long */
  bool is_at_end, is_broken;
} Frames;

typedef enum FrameKind {
  FRAME_MESSAGE,
  FRAME_NONE,     /* none is complete yet */
  FRAME_TOO_LONG, /* one begins that will be skipped */
  FRAME_BROKEN,   /* no header: nothing can be read any more */
  FRAME_END
} FrameKind;

void frames_open(Frames *frames, int in, int out);
void frames_close(Frames *frames);
/* Waits for bytes at most so long (-1: for ever); false if none came. */
bool frames_wait(Frames *frames, int milliseconds);
/* The next message, without waiting; `*text` is valid until the next call. */
FrameKind frames_next(Frames *frames, const char **text, size_t *size);
enum { MOST_VALUES = 200000, MOST_NESTING = 200 };
/* Whether a text, if it is JSON, has few enough values and is not nested deeper than that: each value costs memory of
 * its own, many times the byte that it may be, and whoever walks over values may recurse. */
bool message_is_flat(const char *text, size_t size);
/* Writes a message. False if nobody reads any more. */
bool frames_write(Frames *frames, const json_t *message);

#endif
