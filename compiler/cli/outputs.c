/* What a run computed, written to files or shown. See outputs.h.
 *
 * In: tensors with names, --output. Out: a safetensors file with all of them, .npy files with one each, or a summary
 * on stdout. Refused before anything is computed: a file that is also read, one that is named twice, a name that no
 * output has, and an ending that promises another format. */
#include "cli/outputs.h"

#include <math.h>
#include <string.h>

#include "aot/library_file.h"
#include "cli/cli_inputs.h"
#include "compile/library_model.h"
#include "weights/files.h"
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

// ---- tensors for people ----

enum { MOST_ROWS = 8, MOST_COLUMNS = 8 };

void tensor_print_element(StrBuf *out, const Tensor *tensor, int64_t index) {
  if (tensor->dtype == DTYPE_F32) strbuf_printf(out, "%.6g", (double)((const float *)tensor->data)[index]);
  else if (tensor->dtype == DTYPE_I32) strbuf_printf(out, "%d", ((const int32_t *)tensor->data)[index]);
  else strbuf_add(out, ((const uint8_t *)tensor->data)[index] ? "true" : "false");
}

/* Coordinates from a row-major index, the last axis first. */
void tensor_print_place(StrBuf *out, const Tensor *tensor, int64_t index) {
  int64_t place[MAX_RANK];
  for (uint32_t axis = tensor->rank; axis-- > 0; index /= tensor->dims[axis]) place[axis] = index % tensor->dims[axis];
  print_dims(out, place, tensor->rank);
}

/* Range and mean over finite values alone, in double; how many are not finite is told as well. */
static void print_range(StrBuf *out, const Tensor *tensor) {
  const float *values = tensor->data;
  int64_t n = tensor_elements(tensor), odd = 0;
  float least = INFINITY, most = -INFINITY;
  double sum = 0;
  for (int64_t i = 0; i < n; i++) {
    odd += !isfinite(values[i]);
    if (!isfinite(values[i])) continue;
    least = values[i] < least ? values[i] : least;
    most = values[i] > most ? values[i] : most;
    sum += (double)values[i];
  }
  if (n > odd)
    strbuf_printf(out, "  from %.6g to %.6g, mean %.6g", (double)least, (double)most, sum / (double)(n - odd));
  if (odd) strbuf_printf(out, "  %lld not finite", (long long)odd);
}

/* The first numbers of a row; dots say that there are more. */
static void print_row(StrBuf *out, const Tensor *tensor, int64_t row, int64_t columns) {
  strbuf_add(out, " ");
  for (int64_t i = 0; i < columns && i < MOST_COLUMNS; i++) {
    strbuf_add_char(out, ' ');
    tensor_print_element(out, tensor, row * columns + i);
  }
  strbuf_add(out, columns > MOST_COLUMNS ? " ...\n" : "\n");
}

/* Type, shape, range, and the first rows of the last two axes: enough to see whether a result is plausible. */
void tensor_print_summary(StrBuf *out, const char *name, const Tensor *tensor) {
  int64_t n = tensor_elements(tensor), columns = tensor->rank ? tensor->dims[tensor->rank - 1] : 1;
  strbuf_printf(out, "%s: %s", name, dtype_names[tensor->dtype]);
  print_dims(out, tensor->dims, tensor->rank);
  if (tensor->dtype == DTYPE_F32) print_range(out, tensor);
  strbuf_add_char(out, '\n');
  if (!n) return;
  int64_t rows = n / columns;
  for (int64_t row = 0; row < rows && row < MOST_ROWS; row++) print_row(out, tensor, row, columns);
  if (rows > MOST_ROWS) strbuf_printf(out, "  ... %lld rows more\n", (long long)(rows - MOST_ROWS));
}

// ---- before the run ----

/* Every file that this command line reads; NULL entries stand for none. A library without --weights reads the file
 * beside it. */
static const char **list_read(Session *session, size_t *n) {
  const Options *options = &session->options;
  const char **inputs, *model = options->files.items[0];
  inputs_list_files(session, &inputs, n);
  const char **all = ARENA_ARRAY(session->arena, const char *, *n + 4);
  for (size_t i = 0; i < *n; i++) all[i] = inputs[i];
  const bool has_own_weights = !option_given(options, OPTION_WEIGHTS) && is_library_file(session->arena, model);
  all[(*n)++] = model;
  all[(*n)++] = option_text(options, OPTION_WEIGHTS, NULL);
  all[(*n)++] = option_text(options, OPTION_GENERATION_CONFIG, NULL);
  all[(*n)++] = has_own_weights ? file_beside(session->arena, model, ".tfmw") : NULL;
  return all;
}

static bool ends_with(const char *text, const char *ending) {
  size_t length = strlen(text), n = strlen(ending);
  return length >= n && strcmp(text + length - n, ending) == 0;
}

/* A name that promises another kind of file than would be written is a slip, probably a forgotten "@". */
static bool check_file_of_all(Session *session, const char *path) {
  const char *equals = strchr(path, '=');
  if (!ends_with(path, ".npy")) return true;
  if (equals)
    option_error(&session->diag, OPTION_OUTPUT, "\"%s\": one output goes to %.*s=@%s", path, (int)(equals - path), path,
                 equals + 1);
  else
    option_error(&session->diag, OPTION_OUTPUT,
                 "\"%s\": a .npy file has one output, NAME=@%s; all go to a safetensors file", path, path);
  return false;
}

static bool check_file_of_one(Session *session, const char *path) {
  if (!ends_with(path, ".safetensors")) return true;
  option_error(&session->diag, OPTION_OUTPUT, "%s: one output goes to a .npy file", path);
  return false;
}

static void refuse_taken(Session *session, const char *const *paths, size_t n, const char *path) {
  size_t i = 0;
  while (i < n && strcmp(paths[i], path) != 0 && !same_file(paths[i], path)) i++;
  if (i < n) option_error(&session->diag, OPTION_OUTPUT, "%s is named twice", path);
}

/* Every --output is looked at, so one run shows all mistakes. A file for all outputs may stand beside files for single
 * ones. */
bool outputs_check_files(Session *session) {
  const OptionValues *values = &session->options.values[OPTION_OUTPUT];
  const char **paths = ARENA_ARRAY(session->arena, const char *, values->texts.n);
  size_t n;
  const char **read = list_read(session, &n);
  bool has_all = false;
  for (size_t i = 0; i < values->texts.n; i++) {
    Destination to = destination_of(session->arena, values->texts.items[i]);
    paths[i] = to.path;
    if (!to.name && has_all) option_error(&session->diag, OPTION_OUTPUT, "two files for all outputs");
    else if ((to.name || check_file_of_all(session, to.path)) && session_check_output(session, to.path, read, n) &&
             (!to.name || check_file_of_one(session, to.path)))
      refuse_taken(session, paths, i, to.path);
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

/* Names were checked before. A file that cannot be written is reported, and the others are written all the same: the
 * results may have taken hours. */
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
