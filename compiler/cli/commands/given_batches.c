/* A file of batches on the command line of tfmc train and tfmc evaluate.
 *
 * In: a safetensors file with tensors NAME or, if there are several batches, NAME@0, NAME@1 ... Out: the inputs of each
 * batch. Refuses batches that lack an input, names that the objective has not, and numbers that leave one out. */
#include "cli/commands/given_batches.h"

#include <stdlib.h>
#include <string.h>

#include "cli/commands/commands.h"
#include "weights/safetensors.h"

/* "ids@3" is input `ids` of batch 3, "ids" that of the only batch. False after an error. */
static bool read_name(Session *session, const char *path, const char *text, char **name, uint32_t *batch) {
  enum { MOST_BATCHES = 1000000 };
  const char *at = strrchr(text, '@');
  char *end = NULL;
  const unsigned long number = at ? strtoul(at + 1, &end, 10) : 0;
  *name = arena_strndup(session->arena, text, at ? (size_t)(at - text) : strlen(text));
  *batch = (uint32_t)number;
  if (!at || (end != at + 1 && !*end && number < MOST_BATCHES)) return true;
  diag_error_at(&session->diag, path, DIAG_INPUT_UNKNOWN,
                "tensor \"%s\": after the @ stands the number of a batch, 0 to %d", text, MOST_BATCHES - 1);
  return false;
}

static const Node *find_input(Session *session, const Graph *graph, uint32_t n, const char *path, const char *name) {
  const char **names = ARENA_ARRAY(session->arena, const char *, n);
  for (uint32_t i = 0; i < n; i++) {
    names[i] = graph->inputs.items[i]->attr.name;
    if (strcmp(names[i], name) == 0) return graph->inputs.items[i];
  }
  const char *nearest = diag_nearest(name, names, n);
  diag_error_at(&session->diag, path, DIAG_INPUT_UNKNOWN, "the objective has no input \"%s\"%s%s%s", name,
                nearest ? ", did you mean \"" : "", nearest ? nearest : "", nearest ? "\"?" : "");
  return NULL;
}

/* Reads one tensor into its batch; `n` inputs are the objective's. */
static void read_tensor(Session *session, const Graph *graph, uint32_t n, const TensorFile *file,
                        const FileTensor *tensor, Batches *batches) {
  char *name;
  uint32_t batch;
  const char *path = file->file.path;
  if (!read_name(session, path, tensor->name, &name, &batch)) return;
  const Node *input = find_input(session, graph, n, path, name);
  if (!input) return;
  if (!can_convert(tensor->dtype, input->dtype) || (input->dtype == DTYPE_F32 && tensor->dtype != FILE_F32)) {
    diag_error_at(&session->diag, path, DIAG_INPUT_TYPE, "input \"%s\": type %s, the objective wants %s", tensor->name,
                  tensor->dtype_name, dtype_names[input->dtype]);
    return;
  }
  if (tensor->rank > MAX_RANK) {
    diag_error_at(&session->diag, path, DIAG_INPUT_SHAPE, "input \"%s\": %u axes; at most %d are possible",
                  tensor->name, tensor->rank, MAX_RANK);
    return;
  }
  while (batches->items.n <= batch) {
    EvalInputs empty = {ARENA_ARRAY(session->arena, const char *, n), ARENA_ARRAY(session->arena, Tensor, n), 0};
    vec_push(session->arena, &batches->items, empty);
  }
  EvalInputs *of = &batches->items.items[batch];
  for (uint32_t i = 0; i < of->n; i++) {
    if (strcmp(of->names[i], name) != 0) continue;
    diag_error_at(&session->diag, path, DIAG_USAGE, "input \"%s\" of batch %u is given twice", name, batch);
    return;
  }
  Tensor *to = (Tensor *)&of->tensors[of->n];
  *to = *tensor_new_named(session->arena, "input", name, input->dtype, tensor->rank, tensor->dims);
  ((const char **)of->names)[of->n++] = input->attr.name;
  tensor_file_read(file, &session->diag, tensor, input->dtype, to->data);
}

static void report_missing(Session *session, const char *path, const Graph *graph, uint32_t n, const Batches *batches) {
  for (uint32_t b = 0; b < batches->items.n; b++) {
    const EvalInputs *of = &batches->items.items[b];
    for (uint32_t i = 0; i < n; i++) {
      uint32_t k = 0;
      while (k < of->n && strcmp(of->names[k], graph->inputs.items[i]->attr.name) != 0) k++;
      if (k < of->n) continue;
      StrBuf shape = strbuf_new(session->arena);
      node_print_shape(&shape, graph->sizes, graph->inputs.items[i]);
      diag_error_at(&session->diag, path, DIAG_INPUT_MISSING, "input \"%s\": %s of batch %u is not given",
                    graph->inputs.items[i]->attr.name, shape.text, b);
    }
  }
}

/* NULL after an error. */
Batches *batches_load(Session *session, const Graph *graph, uint32_t n) {
  const char *path = option_text(&session->options, OPTION_BATCHES, NULL);
  Batches *batches = ARENA_NEW(session->arena, Batches);
  if (!path) {
    option_error(&session->diag, OPTION_BATCHES, "the inputs of the objective are needed: give a safetensors file");
    return NULL;
  }
  TensorFile *file = safetensors_open(session->arena, &session->diag, path);
  for (size_t i = 0; file && i < file->tensors.n; i++)
    read_tensor(session, graph, n, file, file->tensors.items[i], batches);
  tensor_file_close(file);
  if (diag_has_errors(&session->diag)) return NULL;
  report_missing(session, path, graph, n, batches);
  if (!batches->items.n) diag_error_at(&session->diag, path, DIAG_INPUT_MISSING, "the file has no batch");
  return diag_has_errors(&session->diag) ? NULL : batches;
}
