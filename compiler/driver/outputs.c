#include "driver/outputs.h"

#include <string.h>

#include "weights/npy.h"
#include "weights/safetensors.h"

/* One --output: a file for all outputs, or "NAME=@FILE.npy". */
typedef struct Destination {
  const char *name; /* NULL: all */
  const char *path;
} Destination;

static Destination destination_of(Arena *arena, const char *text) {
  const char *at = strstr(text, "=@");
  if (!at) return (Destination){NULL, text};
  return (Destination){arena_strndup(arena, text, (size_t)(at - text)), at + 2};
}

static int64_t find_name(const char *const *names, uint32_t n, const char *name) {
  for (uint32_t i = 0; i < n; i++)
    if (strcmp(names[i], name) == 0) return i;
  return -1;
}

static const char **names_of(Arena *arena, const Graph *graph) {
  const char **names = ARENA_ARRAY(arena, const char *, graph->outputs.n);
  for (size_t i = 0; i < graph->outputs.n; i++) names[i] = graph->outputs.items[i].name;
  return names;
}

// ---- before the run ----

bool outputs_check_files(Session *session, const char *const *inputs, size_t n) {
  const OptionValues *values = &session->options.values[OPTION_OUTPUT];
  bool has_all = false;
  for (size_t i = 0; i < values->texts.n; i++) {
    Destination to = destination_of(session->arena, values->texts.items[i]);
    if (!to.name && has_all) option_error(&session->diag, OPTION_OUTPUT, "two files for all outputs");
    else session_check_output(session, to.path, inputs, n);
    has_all = has_all || !to.name;
  }
  return !diag_has_errors(&session->diag);
}

bool outputs_names_one(Session *session, const char *name) {
  const OptionValues *values = &session->options.values[OPTION_OUTPUT];
  for (size_t i = 0; i < values->texts.n; i++) {
    Destination to = destination_of(session->arena, values->texts.items[i]);
    if (to.name && strcmp(to.name, name) == 0) return true;
  }
  return false;
}

bool outputs_check_named(Session *session, const char *of, const char *const *names, uint32_t n) {
  const OptionValues *values = &session->options.values[OPTION_OUTPUT];
  for (size_t i = 0; i < values->texts.n; i++) {
    Destination to = destination_of(session->arena, values->texts.items[i]);
    if (!to.name || find_name(names, n, to.name) >= 0) continue;
    const char *nearest = diag_nearest(to.name, names, n);
    option_error(&session->diag, OPTION_OUTPUT, "%s has no output \"%s\"%s%s%s", of, to.name,
                 nearest ? ", did you mean \"" : "", nearest ? nearest : "", nearest ? "\"?" : "");
  }
  return !diag_has_errors(&session->diag);
}

bool outputs_check_names(Session *session, const Graph *graph) {
  return outputs_check_named(session, "the model", names_of(session->arena, graph), (uint32_t)graph->outputs.n);
}

// ---- after it ----

void outputs_write_named(Session *session, const char *const *names, const Tensor *tensors, uint32_t n) {
  const OptionValues *values = &session->options.values[OPTION_OUTPUT];
  for (size_t i = 0; i < values->texts.n; i++) {
    Destination to = destination_of(session->arena, values->texts.items[i]);
    bool written = to.name ? npy_write(&session->diag, to.path, &tensors[find_name(names, n, to.name)])
                           : safetensors_write(&session->diag, to.path, names, tensors, n);
    session->wrote_output = session->wrote_output || written;
  }
}

void outputs_write(Session *session, const Graph *graph, const Tensor *outputs) {
  outputs_write_named(session, names_of(session->arena, graph), outputs, (uint32_t)graph->outputs.n);
  if (option_given(&session->options, OPTION_OUTPUT)) return;
  StrBuf text = strbuf_new(session->arena);
  for (size_t i = 0; i < graph->outputs.n; i++) tensor_print_summary(&text, graph->outputs.items[i].name, &outputs[i]);
  session_print(&text);
}
