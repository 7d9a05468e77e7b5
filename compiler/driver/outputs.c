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

static int64_t find_output(const Graph *graph, const char *name) {
  for (size_t i = 0; i < graph->outputs.n; i++)
    if (strcmp(graph->outputs.items[i].name, name) == 0) return (int64_t)i;
  return -1;
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

static void report_unknown(Session *session, const Graph *graph, const char *name) {
  const char **names = ARENA_ARRAY(session->arena, const char *, graph->outputs.n);
  for (size_t i = 0; i < graph->outputs.n; i++) names[i] = graph->outputs.items[i].name;
  const char *nearest = diag_nearest(name, names, graph->outputs.n);
  option_error(&session->diag, OPTION_OUTPUT, "the model has no output \"%s\"%s%s%s", name, nearest ? ", did you mean \"" : "",
               nearest ? nearest : "", nearest ? "\"?" : "");
}

bool outputs_check_names(Session *session, const Graph *graph) {
  const OptionValues *values = &session->options.values[OPTION_OUTPUT];
  for (size_t i = 0; i < values->texts.n; i++) {
    Destination to = destination_of(session->arena, values->texts.items[i]);
    if (to.name && find_output(graph, to.name) < 0) report_unknown(session, graph, to.name);
  }
  return !diag_has_errors(&session->diag);
}

// ---- after it ----

static bool write_all(Session *session, const Graph *graph, const Tensor *outputs, const char *path) {
  const char **names = ARENA_ARRAY(session->arena, const char *, graph->outputs.n);
  for (size_t i = 0; i < graph->outputs.n; i++) names[i] = graph->outputs.items[i].name;
  return safetensors_write(&session->diag, path, names, outputs, (uint32_t)graph->outputs.n);
}

void outputs_write(Session *session, const Graph *graph, const Tensor *outputs) {
  const OptionValues *values = &session->options.values[OPTION_OUTPUT];
  for (size_t i = 0; i < values->texts.n; i++) {
    Destination to = destination_of(session->arena, values->texts.items[i]);
    bool written = to.name ? npy_write(&session->diag, to.path, &outputs[find_output(graph, to.name)])
                           : write_all(session, graph, outputs, to.path);
    session->wrote_output = session->wrote_output || written;
  }
  if (values->texts.n) return;
  StrBuf text = strbuf_new(session->arena);
  for (size_t i = 0; i < graph->outputs.n; i++) tensor_print_summary(&text, graph->outputs.items[i].name, &outputs[i]);
  session_print(&text);
}
