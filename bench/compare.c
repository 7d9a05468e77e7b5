/* bench-compare: a process that times compiled models beside other engines.
 *
 * bench-compare [--march=SET] [--quantize=RULE ...] WORKLOAD FOLDER (W1 to W6; a folder with weights.safetensors and
 * CASE.* files)
 *
 * In: commands on standard input, one on a line (see bench/README.md): out CASE FILE, go CASE WARM N, drop CASE, quit.
 * Out: one line each on standard output, beginning with '@'. Threads: PEERS_THREADS, else 2. The process stays alive
 * between commands, so the one that drives it can interleave engines in short turns: a machine that slows down slows
 * all of them. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "codegen/codegen.h"
#include "compiling.h"
#include "tfm/tfm.h"
#include "writer.h"

enum { MAX_DEFINITIONS = 4, MAX_INPUTS = 2, MAX_CASES = 16, MAX_RULES = 8 };

/* What a workload is: which models of which file serve it, and the form of their first input. W1 and W4 take vectors,
 * W2 takes ids; W3, W5 and W6 generate. */
typedef struct Workload {
  const char *name, *file, *plain, *masked; /* models of the file for cases without and with padding */
  const char *first_input;                  /* ending of the file of the first input */
  tfm_dtype first_dtype;
  int64_t width; /* of the first input's last axis; 0: it has two axes */
  Definition definitions[MAX_DEFINITIONS];
  uint32_t n_definitions;
  const WriterModel *writer; /* W3, W5 and W6: tokens are written, and nothing above but the name is used */
} Workload;

static const Definition smol[] = {{"vocab", "49152"}, {"d", "960"}, {"heads", "15"}, {"kv_heads", "5"}, {"ffn", "2560"},
                                  {"eps", "1e-5"}, {"base", "100000.0"}, {"tied", "true"}};
static const WriterModel translator = {"bench/models/nmt.tfm", 32000, 0, NULL, 0};
static const WriterModel language = {"examples/gpt2/gpt2.tfm", -1, 50256, NULL, 0};
static const WriterModel llama = {"models/llama.tfm", -1, 49151, smol, sizeof smol / sizeof *smol};

static const Workload workloads[] = {
    {"W1", "bench/models/encoder.tfm", "Encoder", "MaskedEncoder", "x.f32", TFM_F32, 768, {{0}}, 0, NULL},
    {"W2", "examples/minilm/minilm.tfm", "MiniLM", "MiniLM", "ids.i32", TFM_I32, 0, {{0}}, 0, NULL},
    {.name = "W3", .writer = &translator},
    {"W4", "bench/models/encoder.tfm", "Encoder", "MaskedEncoder", "x.f32", TFM_F32, 128,
     {{"d", "128"}, {"heads", "8"}, {"ffn", "512"}, {"depth", "2"}}, 4, NULL},
    {.name = "W5", .writer = &language},
    {.name = "W6", .writer = &llama},
};

typedef struct Model { /* ready to run, as long as the program */
  Arena *arena;
  WeightSet *set;
  tfm_context *context;
} Model;

typedef struct Case {
  char name[32];
  Model *model;
  tfm_value inputs[MAX_INPUTS];
  int64_t dims[MAX_INPUTS][3];
  tfm_value output;
  size_t output_bytes;
  Writer *writer; /* for tokens; then `written` says which, and there is no model */
  WriterCase written;
} Case;

static const Workload *workload;
static const char *folder;
static const TargetInfo *target; /* the best instruction set of this CPU, or the one that is asked for */
static const char *rules[MAX_RULES];
static uint32_t n_rules;

static void fail(const char *reason) { printf("@fail %s\n", reason); }

/* The engines that this one is compared with read the same variable. */
static int32_t n_threads(void) {
  const char *threads = getenv("PEERS_THREADS");
  return threads ? atoi(threads) : 2;
}

// ---- compiling ----

/* Without --march for the best instruction set of this CPU: the other engines choose theirs at run time, too. */
static bool compile_model(Compiled *compiled, Model *model, const char *name) {
  const BenchModel what = {
      workload->file,
      {.model = name, .definitions = workload->definitions, .n_definitions = workload->n_definitions},
      target,
      model->set,
      false,
      rules,
      n_rules};
  return compile_file(model->arena, &what, false, compiled);
}

static bool load_model(Model *model, const char *name) {
  Diag diag = diag_new(model->arena);
  Compiled compiled;
  model->set = weight_set_open(model->arena, &diag, arena_printf(model->arena, "%s/weights.safetensors", folder));
  print_messages(&diag);
  if (!model->set || !compile_model(&compiled, model, name)) return false;
  tfm_context_options options = {.struct_size = sizeof options, .threads = n_threads()};
  return tfm_context_create(compiled.forward, compiled.packed, &options, &model->context, NULL) == TFM_OK;
}

/* The model of the workload, compiled on first use and kept until the program ends; NULL after printing why it cannot
 * be. */
static Model *loaded(bool masked) {
  static Model models[2];
  Model *model = &models[masked];
  if (model->context) return model;
  model->arena = arena_create();
  return load_model(model, masked ? workload->masked : workload->plain) ? model : NULL;
}

// ---- cases ----

/* Reads FOLDER/NAME.ENDING, which must have at least `bytes` bytes. The caller frees the result; NULL if the file is
 * too short or missing. */
static void *read_file(const char *name, const char *ending, size_t bytes) {
  char path[4096];
  snprintf(path, sizeof path, "%s/%s.%s", folder, name, ending);
  FILE *file = fopen(path, "rb");
  void *data = calloc(1, bytes + 1);
  bool whole = file && data && fread(data, 1, bytes, file) == bytes;
  if (file) fclose(file);
  if (whole) return data;
  free(data);
  return NULL;
}

/* `lengths` of CASE.json: the tokens of each row, kept as long as the program lives; without them all rows are whole.
 * False if there is not one number a row, between 1 and what the row has. */
static bool read_lengths(const json_t *lengths, WriterCase *shape) {
  if (!lengths) return true;
  int64_t *rows = calloc((size_t)shape->batch, sizeof *rows);
  bool right = rows && (int64_t)json_array_size(lengths) == shape->batch;
  for (int64_t i = 0; right && i < shape->batch; i++) {
    rows[i] = json_integer_value(json_array_get(lengths, (size_t)i));
    right = rows[i] >= 1 && rows[i] <= shape->length;
  }
  shape->lengths = rows;
  return right;
}

/* What CASE.json says. */
static bool read_shape(const char *name, WriterCase *shape) {
  char path[4096];
  snprintf(path, sizeof path, "%s/%s.json", folder, name);
  json_t *json = json_load_file(path, 0, NULL);
  if (!json) return false;
  *shape = (WriterCase){.batch = json_integer_value(json_object_get(json, "batch")),
                        .length = json_integer_value(json_object_get(json, "length")),
                        .beams = json_integer_value(json_object_get(json, "beam")),
                        .new_tokens = json_integer_value(json_object_get(json, "new"))};
  bool read = shape->batch > 0 && shape->length > 0 && read_lengths(json_object_get(json, "lengths"), shape);
  json_decref(json);
  return read;
}

/* Binding tells the dims of the output, so its memory is allocated once and timing includes no allocation. */
static bool bind_output(Case *item) {
  tfm_error error;
  if (tfm_context_bind(item->model->context, item->inputs, &error) != TFM_OK) {
    fprintf(stderr, "%s\n", error.message);
    return false;
  }
  int32_t rank;
  const int64_t *dims = tfm_context_output_dims(item->model->context, 0, &rank);
  item->output_bytes = sizeof(float);
  for (int32_t i = 0; i < rank; i++) item->output_bytes *= (size_t)dims[i];
  item->output.data = malloc(item->output_bytes);
  return item->output.data != NULL;
}

/* All cases share one writer: the model is compiled for the first. */
static bool prepare_writer(Case *item, const char *name, const WriterCase *shape) {
  static Writer *writer;
  if (!writer) writer = writer_create(workload->writer, folder, n_threads(), &(WriterRules){target, rules, n_rules});
  item->writer = writer;
  item->written = *shape;
  item->inputs[0].data = read_file(name, "ids.i32", (size_t)(shape->batch * shape->length) * sizeof(int32_t));
  item->written.ids = item->inputs[0].data;
  item->output_bytes = (size_t)(shape->batch * shape->new_tokens) * sizeof(int32_t);
  item->output.data = malloc(item->output_bytes);
  snprintf(item->name, sizeof item->name, "%s", name);
  return writer && item->written.ids && item->output.data && shape->beams > 0 && shape->new_tokens > 0;
}

/* W1 and W4 have a masked model for batches with padding; a case with one row needs no mask. */
static bool prepare(Case *item, const char *name) {
  WriterCase shape;
  if (!read_shape(name, &shape)) return false;
  if (workload->writer) return prepare_writer(item, name, &shape);
  const int64_t batch = shape.batch, length = shape.length;
  bool masked = batch > 1 || workload->width == 0;
  item->model = loaded(masked);
  if (!item->model) return false;
  size_t rows = (size_t)(batch * length), width = workload->width ? (size_t)workload->width : 1;
  for (int i = 0; i < MAX_INPUTS; i++)
    memcpy(item->dims[i], (int64_t[]){batch, length, workload->width}, sizeof item->dims[i]);
  item->inputs[0] = (tfm_value){read_file(name, workload->first_input, rows * width * 4), workload->first_dtype,
                                workload->width ? 3 : 2, item->dims[0]};
  item->inputs[1] = (tfm_value){masked ? read_file(name, "mask.i32", rows * 4) : NULL, TFM_I32, 2, item->dims[1]};
  if (!item->inputs[0].data || (masked && !item->inputs[1].data)) return false;
  snprintf(item->name, sizeof item->name, "%s", name);
  return bind_output(item);
}

static void drop(Case *item) {
  for (int i = 0; i < MAX_INPUTS; i++) free(item->inputs[i].data);
  free(item->output.data);
  *item = (Case){0};
}

/* The slot of this name, or a free one for "". NULL: none. */
static Case *slot(const char *name) {
  static Case cases[MAX_CASES];
  for (size_t i = 0; i < MAX_CASES; i++)
    if (strcmp(cases[i].name, name) == 0) return &cases[i];
  return NULL;
}

/* The case, prepared if it is asked for the first time. NULL if that fails. */
static Case *find(const char *name) {
  Case *item = slot(name);
  if (item) return item;
  item = slot("");
  if (!item || prepare(item, name)) return item;
  drop(item);
  return NULL;
}

/* One run of the case, as it is timed. False after an error, which was printed. */
static bool run(Case *item) {
  if (item->writer) return writer_run(item->writer, &item->written, item->output.data);
  return tfm_context_run(item->model->context, item->inputs, &item->output, NULL) == TFM_OK;
}

// ---- commands ----

/* Writes the raw bytes of the output, for the comparison with the other engines. */
static void command_out(Case *item, const char *path) {
  FILE *file = run(item) ? fopen(path, "wb") : NULL;
  bool written = file && fwrite(item->output.data, 1, item->output_bytes, file) == item->output_bytes;
  if (file) written = fclose(file) == 0 && written;
  if (written) puts("@ok");
  else fail("the output could not be written");
}

/* Binding comes before the clock starts: other engines are given their inputs ahead of time, too. */
static void command_go(Case *item, int warm, int n) {
  double *times = malloc(sizeof *times * (size_t)(n > 0 ? n : 1));
  bool ok = times && (item->writer || tfm_context_bind(item->model->context, item->inputs, NULL) == TFM_OK);
  for (int i = 0; ok && i < warm; i++) ok = run(item);
  for (int i = 0; ok && i < n; i++) {
    double start = seconds_now();
    ok = run(item);
    times[i] = seconds_now() - start;
  }
  if (ok) {
    fputs("@times", stdout);
    for (int i = 0; i < n; i++) printf(" %.9f", times[i]);
    putchar('\n');
  } else {
    fail("a run failed");
  }
  free(times);
}

/* An unknown command is answered as well: the driver waits for a line. */
static void answer(char *line) {
  char name[32] = "", path[2048] = "";
  int warm = 0, n = 0;
  if (sscanf(line, "drop %31s", name) == 1) {
    Case *item = slot(name);
    if (item) drop(item);
    puts("@ok");
    return;
  }
  bool out = sscanf(line, "out %31s %2047[^\n]", name, path) == 2;
  if (!out && sscanf(line, "go %31s %d %d", name, &warm, &n) != 3) {
    fail("unknown command");
    return;
  }
  Case *item = find(name);
  if (!item) fail("the case could not be prepared");
  else if (out) command_out(item, path);
  else command_go(item, warm, n);
}

/* The instruction set of `--march=SET`, if `word` is that and this CPU has it. */
static bool takes_march(const char *word) {
  static const char option[] = "--march=";
  if (strncmp(word, option, strlen(option)) != 0) return false;
  target = target_find(word + strlen(option));
  return target && !host_lacks(target);
}

int main(int argc, char **argv) {
  static const char option[] = "--quantize=";
  target = host_target();
  if (argc > 3 && takes_march(argv[1])) argc--, argv++;
  for (; argc > 3 && n_rules < MAX_RULES && !strncmp(argv[1], option, strlen(option)); argc--, argv++)
    rules[n_rules++] = argv[1] + strlen(option);
  for (size_t i = 0; argc == 3 && i < sizeof workloads / sizeof *workloads; i++)
    if (strcmp(argv[1], workloads[i].name) == 0) workload = &workloads[i];
  if (!workload) {
    fputs("usage: bench-compare [--march=SET] [--quantize=RULE ...] W1|W2|W3|W4|W5|W6 FOLDER\n", stderr);
    return 2;
  }
  folder = argv[2];
  setvbuf(stdout, NULL, _IOLBF, 0);
  puts("@ready");
  char line[4096];
  while (fgets(line, sizeof line, stdin) && strncmp(line, "quit", 4) != 0) answer(line);
  return 0;
}
