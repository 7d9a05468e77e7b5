#define _GNU_SOURCE /* memmem */
#include "api/outcome.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "api/fault.h"

enum { EXIT_MODEL = 1, EXIT_USAGE = 2, EXIT_ENVIRONMENT = 3, EXIT_MEMORY = 4, LAST_LINE = 300 };

// ---- messages ----

/* Hands a line on; it must end with a NUL for that. */
static tfm_status pass_on(const tfm_compile_options *options, const char *line, size_t length, tfm_error *error) {
  char *copy = malloc(length + 1);
  if (!copy) return fault(error, TFM_E_NOMEM, "not enough memory for the compiler's messages");
  memcpy(copy, line, length);
  copy[length] = '\0';
  options->message(options->message_user, copy);
  free(copy);
  return TFM_OK;
}

/* Each line of JSON goes to the caller; `last` gets the last line of another kind, which a fault leaves. */
static tfm_status read_messages(const Mapping *messages, const tfm_compile_options *options, char last[LAST_LINE],
                                tfm_error *error) {
  const char *at = messages->data, *end = at ? at + messages->size : at;
  tfm_status status = TFM_OK;
  while (status == TFM_OK && at < end) {
    const char *newline = memchr(at, '\n', (size_t)(end - at));
    const char *stop = newline ? newline : end;
    if (*at == '{' && options->message) status = pass_on(options, at, (size_t)(stop - at), error);
    else if (*at != '{' && stop > at) snprintf(last, LAST_LINE, "%.*s", (int)(stop - at < LAST_LINE ? stop - at : LAST_LINE), at);
    at = stop + 1;
  }
  return status;
}

// ---- how it ended ----

static bool is_about_memory(const Mapping *messages) {
  static const char *const words[] = {"out of memory", "bad_alloc", "Cannot allocate memory", "failed to map segment"};
  for (size_t i = 0; messages->data && i < sizeof words / sizeof *words; i++)
    if (memmem(messages->data, messages->size, words[i], strlen(words[i]))) return true;
  return false;
}

/* The status of a child that left no header. */
static tfm_status untimely(const ChildEnd *end, const Mapping *messages, const char *last, tfm_error *error) {
  int code = end->is_known && WIFEXITED(end->wait_status) ? WEXITSTATUS(end->wait_status) : -1;
  int sign = end->is_known && WIFSIGNALED(end->wait_status) ? WTERMSIG(end->wait_status) : 0;
  const char *separator = *last ? ": " : "";
  if (code == EXIT_MEMORY || is_about_memory(messages))
    return fault(error, TFM_E_NOMEM, "not enough memory for compiling%s%s", separator, last);
  if (sign == SIGKILL) return fault(error, TFM_E_NOMEM, "the compiler was killed, as systems do that run out of memory");
  if (code == EXIT_ENVIRONMENT)
    return fault(error, TFM_E_ENV, "the compiler could not write its result%s%s", separator, last);
  if (code == EXIT_USAGE)
    return fault(error, TFM_E_USAGE, "the compiler refuses the request: %.400s", messages->data ? messages->data : "");
  if (sign) return fault(error, TFM_E_INTERNAL, "the compiler died of signal %d%s%s", sign, separator, last);
  return fault(error, TFM_E_INTERNAL, "the compiler ended with %d and without a result%s%s", code, separator, last);
}

static tfm_status status_of(int32_t exit_code) {
  static const tfm_status statuses[] = {[EXIT_MODEL] = TFM_E_INPUT, [EXIT_USAGE] = TFM_E_USAGE,
                                        [EXIT_ENVIRONMENT] = TFM_E_ENV, [EXIT_MEMORY] = TFM_E_NOMEM};
  return exit_code >= EXIT_MODEL && exit_code <= EXIT_MEMORY ? statuses[exit_code] : TFM_E_INTERNAL;
}

// ---- the parts ----

static bool is_within(const Mapping *parts, const PartsRange *range) {
  return range->offset % PARTS_ALIGNMENT == 0 && range->offset <= parts->size && range->size <= parts->size - range->offset;
}

static bool is_whole(const Mapping *parts) {
  const PartsHeader *header = (const PartsHeader *)(const void *)parts->data;
  return parts->size >= sizeof *header && memcmp(header->magic, PARTS_MAGIC, sizeof header->magic) == 0 &&
         memchr(header->message, '\0', sizeof header->message) && memchr(header->version, '\0', sizeof header->version);
}

static bool ranges_are_sound(const Mapping *parts, const PartsHeader *header) {
  if (header->n_objects > PARTS_MAX_OBJECTS || !is_within(parts, &header->symbol) || !is_within(parts, &header->weights))
    return false;
  for (uint32_t i = 0; i < header->n_objects; i++)
    if (!is_within(parts, &header->objects[i])) return false;
  return header->symbol.size && parts->data[header->symbol.offset + header->symbol.size - 1] == '\0';
}

static tfm_status judge(const Mapping *parts, tfm_error *error) {
  const PartsHeader *header = (const PartsHeader *)(const void *)parts->data;
  if (header->form != PARTS_FORM || strcmp(header->version, TFM_VERSION) != 0)
    return fault(error, TFM_E_ENV, "the compiler is tfmc %s, this library is libtfm " TFM_VERSION, header->version);
  if (header->exit_code) return fault(error, status_of(header->exit_code), "%s", header->message);
  if (!ranges_are_sound(parts, header)) return fault(error, TFM_E_INTERNAL, "the compiler left an incomplete result");
  return TFM_OK;
}

tfm_status outcome_read(const Request *request, const tfm_compile_options *options, const ChildEnd *end, Mapping *parts,
                        tfm_error *error) {
  Mapping messages = {0};
  char last[LAST_LINE] = "";
  *parts = (Mapping){0};
  tfm_status status = nameless_map(request->messages, &messages, error);
  if (status == TFM_OK) status = read_messages(&messages, options, last, error);
  if (status == TFM_OK && end->was_too_slow)
    status = fault(error, TFM_E_CANCELLED, "compiling took longer than %lld ms", (long long)options->deadline_ms);
  if (status == TFM_OK) status = nameless_map(request->output, parts, error);
  if (status == TFM_OK) status = is_whole(parts) ? judge(parts, error) : untimely(end, &messages, last, error);
  if (status != TFM_OK) mapping_free(parts);
  mapping_free(&messages);
  return status;
}
