/* Headers and bytes of messages. See frames.h.
 *
 * What arrives is collected until a header and as many bytes as it says are there: a client may send a message in any
 * pieces. Nothing is reserved for what a header only promises. */
#define _POSIX_C_SOURCE 200809L
#include "lsp/frames.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "base/arena.h"

enum {
  PIECE = 1 << 16,       /* bytes that are read at once */
  MOST_HEADER = 1 << 12, /* bytes of a header */
};
static const uint64_t MOST_SKIPPED = (uint64_t)1 << 40; /* beyond, a length is no length */

void frames_open(Frames *frames, int in, int out) { *frames = (Frames){.in = in, .out = out}; }

void frames_close(Frames *frames) { free(frames->bytes); }

bool frames_wait(Frames *frames, int milliseconds) {
  struct pollfd in = {.fd = frames->in, .events = POLLIN};
  return poll(&in, 1, milliseconds) > 0;
}

// ---- reading ----

static void make_room(Frames *frames) {
  if (frames->at > 0) {
    memmove(frames->bytes, frames->bytes + frames->at, frames->n - frames->at);
    frames->n -= frames->at;
    frames->at = 0;
  }
  if (frames->n + PIECE <= frames->capacity) return;
  frames->capacity = (frames->n + PIECE) * 2;
  char *bytes = realloc(frames->bytes, frames->capacity);
  if (!bytes) out_of_memory("while a message was read", frames->capacity);
  frames->bytes = bytes;
}

static bool can_read(Frames *frames) { return !frames->is_at_end && frames_wait(frames, 0); }

static void read_piece(Frames *frames) {
  make_room(frames);
  const ssize_t got = read(frames->in, frames->bytes + frames->n, PIECE);
  if (got > 0)
    frames->n += (size_t)got;
  else if (got == 0 || (errno != EINTR && errno != EAGAIN))
    frames->is_at_end = true;
}

/* Bytes of the header with the empty line behind it; 0: it is not complete. */
static size_t header_size(const Frames *frames) {
  const size_t n = frames->n - frames->at;
  if (!n) return 0; /* before the first piece there are no bytes to point into */
  const char *bytes = frames->bytes + frames->at;
  for (size_t i = 0; i + 1 < n && i < MOST_HEADER; i++) {
    if (bytes[i] == '\n' && bytes[i + 1] == '\n') return i + 2;
    if (i + 3 < n && memcmp(bytes + i, "\r\n\r\n", 4) == 0) return i + 4;
  }
  return 0;
}

/* Digits alone, with blanks around. False if it is no number below MOST_SKIPPED. */
static bool read_length(const char *text, const char *end, uint64_t *length) {
  *length = 0;
  while (text < end && (*text == ' ' || *text == '\t')) text++;
  const char *first = text;
  for (; text < end && *text >= '0' && *text <= '9'; text++) {
    *length = *length * 10 + (uint64_t)(*text - '0');
    if (*length > MOST_SKIPPED) return false;
  }
  const bool has_digits = text > first;
  while (text < end && (*text == ' ' || *text == '\t' || *text == '\r')) text++;
  return has_digits && text == end;
}

/* Other fields, such as Content-Type, say nothing that is needed. False without exactly one length. */
static bool read_header(const char *bytes, size_t size, uint64_t *length) {
  static const char name[] = "Content-Length:";
  unsigned n_found = 0;
  for (size_t at = 0; at < size;) {
    const char *end = memchr(bytes + at, '\n', size - at);
    const size_t n = (size_t)(end - (bytes + at));
    const bool is_length = n >= sizeof name - 1 && strncasecmp(bytes + at, name, sizeof name - 1) == 0;
    if (is_length && !read_length(bytes + at + sizeof name - 1, end, length)) return false;
    if (n > 1 && !memchr(bytes + at, ':', n)) return false;
    n_found += is_length;
    at += n + 1;
  }
  return n_found == 1;
}

static void skip_bytes(Frames *frames) {
  const size_t have = frames->n - frames->at;
  const size_t skipped = frames->to_skip < have ? (size_t)frames->to_skip : have;
  frames->at += skipped;
  frames->to_skip -= skipped;
}

/* What is there, without reading. */
static FrameKind take_message(Frames *frames, const char **text, size_t *size) {
  uint64_t length = 0;
  skip_bytes(frames);
  if (frames->to_skip) return FRAME_NONE;
  const size_t header = header_size(frames), have = frames->n - frames->at;
  if (!header) return have > MOST_HEADER ? FRAME_BROKEN : FRAME_NONE;
  if (!read_header(frames->bytes + frames->at, header, &length)) return FRAME_BROKEN;
  if (length > MOST_MESSAGE) {
    frames->at += header;
    frames->to_skip = length;
    return FRAME_TOO_LONG;
  }
  if (have < header + length) return FRAME_NONE;
  *text = frames->bytes + frames->at + header;
  *size = (size_t)length;
  frames->at += header + (size_t)length;
  return FRAME_MESSAGE;
}

FrameKind frames_next(Frames *frames, const char **text, size_t *size) {
  if (frames->is_broken) return FRAME_BROKEN;
  for (;;) {
    const FrameKind kind = take_message(frames, text, size);
    frames->is_broken = kind == FRAME_BROKEN;
    if (kind != FRAME_NONE) return kind;
    if (!can_read(frames)) return frames->is_at_end ? FRAME_END : FRAME_NONE;
    read_piece(frames);
  }
}

// ---- what a message is ----

bool message_is_flat(const char *text, size_t size) {
  size_t n_values = 0, nesting = 0;
  bool in_string = false;
  for (size_t i = 0; i < size; i++) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\')
        i++;
      else if (c == '"')
        in_string = false;
      continue;
    }
    if (c == '"') in_string = true;
    if (c == '[' || c == '{') nesting++;
    if ((c == ']' || c == '}') && nesting) nesting--;
    n_values += c == ',' || c == '[' || c == '{';
    if (n_values > MOST_VALUES || nesting > MOST_NESTING) return false;
  }
  return true;
}

// ---- writing ----

static bool write_all(int out, const char *bytes, size_t size) {
  while (size > 0) {
    const ssize_t put = write(out, bytes, size);
    if (put < 0 && errno == EINTR) continue;
    if (put <= 0) return false;
    bytes += put;
    size -= (size_t)put;
  }
  return true;
}

bool frames_write(Frames *frames, const json_t *message) {
  char *text = json_dumps(message, JSON_COMPACT);
  if (!text) return true; /* it was made of texts that are no UTF-8: nothing can be sent of it */
  Arena *arena = arena_create();
  const size_t size = strlen(text);
  const char *header = arena_printf(arena, "Content-Length: %zu\r\n\r\n", size);
  const bool done = write_all(frames->out, header, strlen(header)) && write_all(frames->out, text, size);
  arena_destroy(arena);
  free(text);
  return done;
}
