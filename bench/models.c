/* Models: products with weights from memory, rows, and whole encoders, through the runtime, against the roofline of the
 * probe of the same round. */
#include <stdio.h>
#include <string.h>

#include "measure/roofline.h"
#include "loaded.h"
#include "subject.h"

enum { MOST_CASES = 6 };

typedef struct MeasuredRow {
  const char *group, *name;
  ModelRow model;
  int64_t cases[MOST_CASES][2]; /* values of the model's sizes; the second is 0 if it has one */
  bool is_row_kernel;           /* reported by element, on one thread */
} MeasuredRow;

static const char kernels_file[] = "bench/models/kernels.tfm", encoder_file[] = "bench/models/encoder.tfm",
                  minilm_file[] = "examples/minilm/minilm.tfm";

/* One product that is read from memory every time, and kernels over rows, by element. */
static const MeasuredRow kernel_rows[] = {
    {"cold products", "768 x 3072", {kernels_file, "ColdGemm", {{0}}}, {{1}, {8}, {16}, {32}, {128}}, false},
    {"rows", "softmax", {kernels_file, "Softmax", {{0}}}, {{128}}, true},
    {"rows", "layer_norm", {kernels_file, "Norm", {{0}}}, {{128}}, true},
    {"rows", "gelu", {kernels_file, "Gelu", {{0}}}, {{128}}, true},
};

/* The sizes are those of README.md: an encoder at several lengths, a small sentence encoder, and one that fits into
 * the caches. */
static const MeasuredRow model_rows[] = {
    {"models", "BERT-base encoder", {encoder_file, "Encoder", {{0}}}, {{1, 16}, {1, 32}, {1, 128}, {1, 384}}, false},
    {"models", "MiniLM-L6", {minilm_file, "MiniLM", {{0}}}, {{1, 8}, {1, 16}, {1, 32}, {1, 128}}, false},
    {"models",
     "2 layers, d128",
     {encoder_file, "Encoder", {{"d", "128"}, {"heads", "8"}, {"ffn", "512"}, {"depth", "2"}}},
     {{1, 10}},
     false},
};

// ---- one case ----

static void run(void *context) { loaded_case_run(context); }

static double least_of_model(void *context, const Probe *probe) {
  const LoadedCase *item = context;
  return roofline_seconds(item->model->program, item->dims, probe);
}

static double elements_of(const LoadedCase *item) { return (double)(item->sizes[0][0] * item->sizes[0][1]); }

/* The input is read and the output written. */
static double least_of_rows(void *context, const Probe *probe) {
  return 2 * sizeof(float) * elements_of(context) / probe->bytes;
}

/* Row kernels are bound by their activations, so their probe reads as many bytes as input and output have; models are
 * bound by their weights. */
static bool add_case(Bench *bench, const MeasuredRow *row, const LoadedModel *model, const int64_t sizes[2],
                     int32_t threads) {
  LoadedCase *item = ARENA_NEW(bench->arena, LoadedCase);
  if (!loaded_case(item, model, sizes[0], sizes[1], threads)) return false;
  Work work = roofline_work(model->program, item->dims);
  double elements = row->is_row_kernel ? elements_of(item) : 0;
  char name[64];
  snprintf(name, sizeof name, sizes[1] ? "%s, %dx%d" : "%s, %d", row->name, (int)sizes[0], (int)sizes[1]);
  size_t bytes = (size_t)(row->is_row_kernel ? 2 * sizeof(float) * elements : work.weight_bytes);
  Subject *subject = subject_add(bench, row->group, name, threads, bytes);
  if (row->is_row_kernel) subject_runs(subject, run, least_of_rows, item, work.flops, (double)bytes);
  else subject_runs(subject, run, least_of_model, item, work.flops, work.weight_bytes);
  subject->elements = elements;
  return true;
}

// ---- all of them ----

/* Models stay loaded until the program ends. */
static bool add_row(Bench *bench, const MeasuredRow *row) {
  LoadedModel *model = ARENA_NEW(bench->arena, LoadedModel);
  bool done = loaded_model(model, &row->model, bench->target);
  for (int i = 0; i < MOST_CASES && row->cases[i][0] && done; i++) {
    done = add_case(bench, row, model, row->cases[i], 1);
    if (done && bench->threads > 1 && !row->is_row_kernel)
      done = add_case(bench, row, model, row->cases[i], bench->threads);
  }
  return done;
}

bool kernel_subjects(Bench *bench) {
  bool done = true;
  for (size_t i = 0; i < sizeof kernel_rows / sizeof *kernel_rows && done; i++) done = add_row(bench, &kernel_rows[i]);
  return done;
}

bool model_subjects(Bench *bench) {
  bool done = true;
  for (size_t i = 0; i < sizeof model_rows / sizeof *model_rows && done; i++) done = add_row(bench, &model_rows[i]);
  return done;
}
