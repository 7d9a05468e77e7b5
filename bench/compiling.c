/* In: a .tfm file of this repository. Out: programs with code and weights, as the runtime wants them. See compiling.h.
 * It goes the same way as tfmc (compile/), so that what is measured is what users run; only messages are printed at
 * once. */
#include "compile/quantize.h"
#include "compiling.h"
#include "engines/weight_source.h"

#include <stdio.h>
#include <time.h>

#include "diag/render.h"

typedef struct Reader {
  Arena *arena;
  Diag *diag;
  const WeightSet *set;
} Reader;

/* Looks a weight up by its name; what is missing is an error, since a wrong file would give meaningless figures. */
static const Tensor *read_weight(void *context, const char *name) {
  const Reader *reader = context;
  const WeightEntry *entry = weight_set_find(reader->set, name);
  if (!entry) {
    diag_error_at(reader->diag, NULL, DIAG_WEIGHT_MISSING, "no weight %s", name);
    return NULL;
  }
  Tensor *tensor = tensor_new(reader->arena, DTYPE_F32, entry->tensor->rank, entry->tensor->dims);
  return weight_entry_read_part(entry, reader->diag, 0, entry->tensor->elements, tensor->data) ? tensor : NULL;
}

static bool read_part(void *context, const char *name, int64_t first, int64_t n, float *to) {
  Reader *reader = context;
  const WeightEntry *entry = weight_set_find(reader->set, name);
  if (entry) return weight_entry_read_part(entry, reader->diag, first, n, to);
  diag_error_at(reader->diag, NULL, DIAG_WEIGHT_MISSING, "no weight %s", name);
  return false;
}

/* Paths count from the root of the sources, whatever folder the program is started in. */
static Graph *elaborate_model(Arena *arena, Diag *diag, const BenchModel *model) {
  Map *names = ARENA_NEW(arena, Map);
  *names = map_new(arena);
  ParsedProgram *program = parse_program(arena, names, diag, arena_printf(arena, "%s/%s", TFM_SOURCE_DIR, model->file));
  return program ? elaborate(arena, names, diag, program, &model->options) : NULL;
}

/* The forward, or the incremental form; a model without one is an error here, because its workload is about
 * decoding. */
static bool compile_graph(const CompileRequest *request, const BenchModel *model, Graph *graph, bool decoder,
                          Compiled *compiled) {
  if (!decoder) return compile_forward(request, graph, NULL, compiled);
  Derivation *derived = compile_derive(request, graph);
  if (derived->parts.step) return compile_decoder(request, derived, compiled);
  fprintf(stderr, "%s is not incremental: %s\n", model->file, derived->parts.reason);
  return false;
}

/* NULL: the weights are no random ones, or there is no model. */
static WeightSource *random_weights(Arena *arena, Diag *diag, const BenchModel *model, Graph *graph) {
  const WeightRequest request = {.check = {.arena = arena, .diag = diag, .prefix = ""}, .is_random = true, .seed = 1};
  return model->is_random && graph ? weight_source_open(&request, graph) : NULL;
}

bool compile_file(Arena *arena, const BenchModel *model, bool decoder, Compiled *compiled) {
  Diag diag = diag_new(arena);
  Reader reader = {arena_create(), &diag, model->weights};
  CompileRequest request = {.arena = arena, .diag = &diag, .target = model->target, .passes = {.level = 2}};
  if (model->weights) request.weights = (WeightReader){.whole = read_weight, .part = read_part, .context = &reader};
  Graph *graph = elaborate_model(arena, &diag, model);
  WeightSource *random = random_weights(arena, &diag, model, graph);
  if (random) request.weights = weight_source_reader(random);
  bool done = graph && !random == !model->is_random &&
              quantize_weights(graph, &diag, model->rules, model->n_rules) &&
              compile_graph(&request, model, graph, decoder, compiled);
  weight_source_close(random);
  arena_destroy(reader.arena);
  print_messages(&diag);
  return done;
}

void print_messages(const Diag *diag) {
  Arena *scratch = arena_create();
  StrBuf text = strbuf_new(scratch);
  render_text(&text, diag, false);
  fputs(text.text, stderr);
  arena_destroy(scratch);
}

double seconds_now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}
