/* Golden cases (tests/goldens, README.md there): every model elaborates and the reference interpreter computes what
 * PyTorch did; every bad case is refused, at its stage, with its words. No registration. Cases of generation are only
 * elaborated; faults of weight files (stage `load`) are tested with the command line. */
#include <dirent.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <strings.h>
#include <unistd.h>

#include "../support/elaborate_text.h"
#include "compile/quantize.h"
#include "graph/eval.h"
#include "weights/safetensors.h"

typedef struct Golden {
  Arena *arena;
  Diag diag;
  const char *folder;
  json_t *json; /* case.json */
  TensorFile *weights;
} Golden;

static const char *file_of(const Golden *g, const char *name) {
  return arena_printf(g->arena, "%s/%s", g->folder, name);
}

static bool has_file(const Golden *g, const char *name) { return access(file_of(g, name), R_OK) == 0; }

static const char *text_of(const Golden *g, const char *key) {
  const char *text = json_string_value(json_object_get(g->json, key));
  return text ? text : "";
}

static double number_of_case(const Golden *g, const char *key) {
  json_t *value = json_object_get(g->json, key);
  return value ? json_number_value(value) : 1e-5;
}

// ---- tensors of files ----

static Tensor *read_tensor(Golden *g, TensorFile *file, const FileTensor *tensor, DType dtype) {
  Tensor *out = tensor_new(g->arena, dtype, tensor->rank, tensor->dims);
  return tensor_file_read(file, &g->diag, tensor, dtype, out->data) ? out : NULL;
}

static DType stored_dtype(const FileTensor *tensor) {
  if (strcmp(tensor->dtype_name, "I32") == 0) return DTYPE_I32;
  return strcmp(tensor->dtype_name, "BOOL") == 0 ? DTYPE_BOOL : DTYPE_F32;
}

static const Tensor *look_up(void *context, const char *name) {
  Golden *g = context;
  const FileTensor *tensor = g->weights ? tensor_file_find(g->weights, name) : NULL;
  if (tensor) return read_tensor(g, g->weights, tensor, DTYPE_F32);
  diag_error_at(&g->diag, g->folder, DIAG_WEIGHT_MISSING, "no weight '%s'", name);
  return NULL;
}

static bool read_inputs(Golden *g, EvalInputs *inputs) {
  *inputs = (EvalInputs){0};
  if (!has_file(g, "inputs.safetensors")) return true;
  TensorFile *file = safetensors_open(g->arena, &g->diag, file_of(g, "inputs.safetensors"));
  if (!file) return false;
  const char **names = ARENA_ARRAY(g->arena, const char *, file->tensors.n);
  Tensor *tensors = ARENA_ARRAY(g->arena, Tensor, file->tensors.n);
  for (size_t i = 0; i < file->tensors.n; i++) {
    const FileTensor *tensor = file->tensors.items[i];
    names[i] = tensor->name;
    tensors[i] = *read_tensor(g, file, tensor, stored_dtype(tensor));
  }
  *inputs = (EvalInputs){names, tensors, (uint32_t)file->tensors.n};
  tensor_file_close(file);
  return true;
}

// ---- comparison ----

static double element(const Tensor *t, int64_t i) {
  if (t->dtype == DTYPE_F32) return ((const float *)t->data)[i];
  return t->dtype == DTYPE_I32 ? ((const int32_t *)t->data)[i] : ((const uint8_t *)t->data)[i];
}

/* NULL, or what differs. */
static const char *difference(const Golden *g, const char *name, const Tensor *got, const Tensor *want) {
  double atol = number_of_case(g, "atol"), rtol = number_of_case(g, "rtol");
  bool same = got->dtype == want->dtype && got->rank == want->rank;
  for (uint32_t i = 0; same && i < got->rank; i++) same = got->dims[i] == want->dims[i];
  if (!same) return arena_printf(g->arena, "%s has another type or shape", name);
  for (int64_t i = 0; i < tensor_elements(want); i++) {
    double a = element(got, i), b = element(want, i);
    if (a == b || (isnan(a) && isnan(b)) || fabs(a - b) <= atol + rtol * fabs(b)) continue;
    return arena_printf(g->arena, "%s[%lld] is %.9g, not %.9g", name, (long long)i, a, b);
  }
  return NULL;
}

static const char *check_outputs(Golden *g, const Graph *graph, const Tensor *outputs) {
  TensorFile *file = safetensors_open(g->arena, &g->diag, file_of(g, "expected.safetensors"));
  const char *fault = file ? NULL : "no expected.safetensors";
  for (size_t i = 0; file && !fault && i < file->tensors.n; i++) {
    const FileTensor *tensor = file->tensors.items[i];
    size_t k = 0;
    while (k < graph->outputs.n && strcmp(graph->outputs.items[k].name, tensor->name) != 0) k++;
    if (k == graph->outputs.n) fault = arena_printf(g->arena, "there is no output '%s'", tensor->name);
    else fault = difference(g, tensor->name, &outputs[k], read_tensor(g, file, tensor, stored_dtype(tensor)));
  }
  tensor_file_close(file);
  return fault;
}

// ---- stages ----

/* Of the options of a case only --quantize changes its model. */
static bool quantize_case(Golden *g, Graph *graph) {
  static const char name[] = "--quantize=";
  const char *texts[4];
  uint32_t n = 0;
  size_t i;
  json_t *option;
  json_array_foreach(json_object_get(g->json, "options"), i, option) {
    const char *text = json_string_value(option);
    cr_assert(text && strncmp(text, name, strlen(name)) == 0, "an option that this test does not know");
    cr_assert(n < 4);
    texts[n++] = text + strlen(name);
  }
  return quantize_weights(graph, &g->diag, texts, n);
}

static Graph *elaborate_case(Golden *g) {
  Definition definitions[32];
  ElaborateOptions options = {.definitions = definitions};
  const char *model = text_of(g, "model"), *key;
  json_t *value;
  if (*model) options.model = model;
  json_object_foreach(json_object_get(g->json, "defines"), key, value) {
    definitions[options.n_definitions++] = (Definition){key, json_string_value(value)};
  }
  Graph *graph = elaborate_file(g->arena, &g->diag, file_of(g, "model.tfm"), &options);
  return graph && quantize_case(g, graph) && graph_verify(graph, &g->diag) ? graph : NULL;
}

/* NULL, or what is wrong. */
static const char *run_case(Golden *g, Graph *graph) {
  EvalInputs inputs;
  if (has_file(g, "weights.safetensors")) {
    g->weights = safetensors_open(g->arena, &g->diag, file_of(g, "weights.safetensors"));
    if (!g->weights) return "the weights can't be read";
  }
  Tensor *outputs = ARENA_ARRAY(g->arena, Tensor, graph->outputs.n);
  const EvalCall call = {.graph = graph, .weights = look_up, .weights_context = g, .inputs = &inputs};
  bool good = read_inputs(g, &inputs) && graph_eval(g->arena, &g->diag, &call, outputs);
  tensor_file_close(g->weights);
  return good ? check_outputs(g, graph, outputs) : "an error of the run";
}

/* The word in any letter case in a message, its place or its notes. */
static bool contains(const char *text, const char *word) {
  for (size_t n = strlen(word); text && *text; text++) {
    if (strncasecmp(text, word, n) == 0) return true;
  }
  return false;
}

static bool is_said(const Golden *g, const char *word) {
  for (size_t i = 0; i < g->diag.messages.n; i++) {
    const DiagMessage *m = &g->diag.messages.items[i];
    if (contains(m->text, word) || contains(m->place, word)) return true;
    if (!m->span.source) continue;
    SrcPlace place = source_place(m->span.source, m->span.begin);
    if (contains(arena_printf(g->arena, "%s:%u:", m->span.source->path, place.line), word)) return true;
  }
  return false;
}

static const char *check_words(const Golden *g) {
  json_t *words = json_object_get(g->json, "expect_error");
  if (!diag_has_errors(&g->diag)) return "no error";
  if (g->diag.exit_code != 1) return "another exit code than 1";
  if (json_is_string(words)) return is_said(g, json_string_value(words)) ? NULL : "the message lacks a word";
  for (size_t i = 0; i < json_array_size(words); i++) {
    if (!is_said(g, json_string_value(json_array_get(words, i)))) return "the message lacks a word";
  }
  return NULL;
}

static const char *judge(Golden *g) {
  const char *stage = text_of(g, "stage");
  bool is_bad = json_object_get(g->json, "expect_error") != NULL;
  Graph *graph = elaborate_case(g);
  if (is_bad && strcmp(stage, "check") == 0) return check_words(g);
  if (!graph) return "it does not elaborate";
  if (g->diag.messages.n) return "a warning";
  bool is_runnable = !json_object_get(g->json, "generate") && !json_object_get(g->json, "weights_from");
  if (!is_runnable || strcmp(stage, "load") == 0) return NULL;
  const char *fault = run_case(g, graph);
  return is_bad ? check_words(g) : fault;
}

// ---- cases ----

static bool passes(const char *folder) {
  Golden g = {.arena = arena_create(), .folder = folder};
  g.diag = diag_new(g.arena);
  g.json = json_load_file(file_of(&g, "case.json"), 0, NULL);
  const char *fault = g.json ? judge(&g) : "case.json can't be read";
  if (fault) fprintf(stderr, "%s: %s\n", folder, fault);
  for (size_t i = 0; fault && i < g.diag.messages.n; i++) fprintf(stderr, "    %s\n", g.diag.messages.items[i].text);
  json_decref(g.json);
  arena_destroy(g.arena);
  return !fault;
}

static void count_cases(const char *folder, unsigned *n, unsigned *failed) {
  struct dirent **entries;
  int n_entries = scandir(folder, &entries, NULL, alphasort);
  for (int i = 0; i < n_entries; i++) {
    char path[1024];
    snprintf(path, sizeof path, "%s/%s", folder, entries[i]->d_name);
    bool is_hidden = entries[i]->d_name[0] == '.';
    free(entries[i]);
    if (is_hidden || strstr(path, "/goldens/train")) continue; /* check_train.py runs these */
    char json[1100];
    snprintf(json, sizeof json, "%s/case.json", path);
    if (access(json, R_OK) == 0) {
      ++*n;
      *failed += !passes(path);
    } else if (!strrchr(path, '.') || strrchr(path, '.') < strrchr(path, '/')) {
      count_cases(path, n, failed);
    }
  }
  if (n_entries >= 0) free(entries);
}

Test(goldens, all) {
  unsigned n = 0, failed = 0;
  count_cases(TFM_SOURCE_DIR "/tests/goldens", &n, &failed);
  cr_assert(n > 0, "no cases in tests/goldens");
  cr_assert_eq(failed, 0, "%u of %u cases failed", failed, n);
}
