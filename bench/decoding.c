/* Decoding: one step of some rows that have a given number of earlier positions, through the decoder, against the
 * roofline of the probe of the same round: weights read once, the caches of every row.
 *
 * All rows are written once, up to the last position. The rows of the other positions are copies that forgot what is
 * behind: they share pages with the long rows, but no two rows of a step share one. A step is undone by truncating.
 * Besides rows of one length there are rows that all have different ones. */
#include <stdio.h>
#include <stdlib.h>

#include "compiling.h"
#include "measure/roofline.h"
#include "loaded.h"
#include "subject.h"
#include "tfm/decode.h"

static const char file[] = "bench/models/nmt.tfm";
typedef struct Lengths {
  int64_t most, apart; /* positions of row 0; how many fewer each row has than the one before */
} Lengths;
static const Lengths lengths[] = {{1024, 0}, {512, 0}, {64, 0}, {512, 1}};
static const int64_t row_counts[] = {1, 8, 32};
enum {
  ALIKE = 3, /* of the lengths: the longest first */
  N_LENGTHS = sizeof lengths / sizeof *lengths,
  N_COUNTS = sizeof row_counts / sizeof *row_counts,
  LONGEST = 1024,
  MOST_PROBE_BYTES = 512 << 20, /* caches of many rows are larger than the largest L3 */
  MOST_ROWS = 32,
  SOURCE = 32 /* positions of a source; every row has its own */
};

typedef struct Decoding { /* lives as long as the program */
  Compiled compiled;
  const tfm_decoding *decoding;
  tfm_decoder *decoder;
  float *scores;
} Decoding;

typedef struct DecodingCase {
  const Decoding *decoding;
  const Lengths *lengths;
  int64_t n, *symbols;
  tfm_decoder_row rows[MOST_ROWS];
} DecodingCase;

// ---- one step ----

static int64_t length_of(const Lengths *of, int64_t row) { return of->most - row * of->apart; }

/* A step and the undoing of it: truncating drops the new position of each row, so every run starts from the same
 * state. */
static void run(void *context) {
  DecodingCase *item = context;
  tfm_decoder *decoder = item->decoding->decoder;
  tfm_decoder_step(decoder, item->n, item->rows, 1, item->decoding->scores, NULL, NULL); /* it worked before */
  for (int64_t i = 0; i < item->n; i++)
    tfm_decoder_truncate(decoder, item->rows[i].row, length_of(item->lengths, i), NULL);
}

/* Weights and caches have to be read once; the arithmetic of the step is the other bound. */
static double least(void *context, const Probe *probe) {
  const DecodingCase *item = context;
  return roofline_seconds_at(item->decoding->decoding->step, item->symbols, probe);
}

/* The values of the step's sizes for the roofline: rows, earlier positions, positions of a source; everything else is
 * 1. */
static int64_t *symbols_of(Arena *arena, const tfm_decoding *decoding, int64_t rows, int64_t past) {
  const tfm_program *step = decoding->step;
  int64_t *symbols = ARENA_ARRAY(arena, int64_t, step->n_symbols);
  for (uint32_t i = 0; i < step->n_symbols; i++)
    symbols[i] = i == decoding->rows ? rows : i == decoding->past ? past : decoding->sizes[i] == TFM_NONE ? 1 : SOURCE;
  return symbols;
}

/* The roofline takes the median length of the rows where they differ. */
static Subject *add_case(Bench *bench, const Decoding *decoding, int64_t rows, int at) {
  static const int32_t token = 7;
  DecodingCase *item = ARENA_NEW(bench->arena, DecodingCase);
  *item = (DecodingCase){.decoding = decoding, .lengths = &lengths[at], .n = rows};
  for (int64_t i = 0; i < rows; i++) item->rows[i] = (tfm_decoder_row){at * MOST_ROWS + i, &token, 1, 0};
  item->symbols = symbols_of(bench->arena, decoding->decoding, rows, length_of(item->lengths, (rows - 1) / 2));
  Work work = roofline_work_at(decoding->decoding->step, item->symbols);
  char name[64];
  if (item->lengths->apart)
    snprintf(name, sizeof name, "rows %d, %d to %d", (int)rows, (int)length_of(item->lengths, rows - 1),
             (int)item->lengths->most);
  else snprintf(name, sizeof name, "rows %d, position %d", (int)rows, (int)item->lengths->most);
  double bytes = work.weight_bytes + work.cache_bytes;
  Subject *subject = subject_add(bench, "decoding", name, bench->threads, 0);
  subject->probe_bytes = bytes < MOST_PROBE_BYTES ? (size_t)bytes : MOST_PROBE_BYTES;
  subject_runs(subject, run, least, item, work.flops, bytes);
  return subject;
}

// ---- the rows ----

/* The packed block is filled with random numbers: no file of this size is part of the repository. */
static bool load(Bench *bench, Decoding *decoding) {
  const BenchModel what = {.file = file, .target = bench->target};
  const tfm_context_options options = {.struct_size = sizeof options, .threads = bench->threads};
  tfm_error error = {.message = "no memory"};
  if (!compile_file(bench->arena, &what, true, &decoding->compiled)) return false;
  const tfm_decoding *programs = decoding->decoding = &decoding->compiled.decoding;
  char *weights = decoding->compiled.packed;
  decoding->scores = malloc(MOST_ROWS * (size_t)programs->vocab * sizeof(float));
  if (!decoding->scores) return false;
  fill_random((float *)(void *)weights, programs->step->weights_bytes / sizeof(float), 0.03f, file);
  if (tfm_decoder_create(programs, weights, weights, &options, &decoding->decoder, &error) == TFM_OK) return true;
  fprintf(stderr, "%s: %s\n", file, error.message);
  return false;
}

/* Every row gets a source of its own, so that no two rows read the same keys and values of the encoder. */
static tfm_status begin(tfm_decoder *decoder, tfm_error *error) {
  static int32_t ids[MOST_ROWS * SOURCE];
  static const int64_t dims[] = {MOST_ROWS, SOURCE};
  for (int32_t i = 0; i < MOST_ROWS * SOURCE; i++) ids[i] = i;
  const tfm_value source = {ids, TFM_I32, 2, dims};
  return tfm_decoder_begin(decoder, &source, N_LENGTHS * MOST_ROWS, LONGEST + 1, error);
}

/* Row i of each position reads source i. */
static tfm_status write_rows(tfm_decoder *decoder, tfm_error *error) {
  static int32_t tokens[LONGEST];
  tfm_decoder_row rows[MOST_ROWS];
  int64_t parents[N_LENGTHS * MOST_ROWS];
  tfm_status status = begin(decoder, error);
  for (int32_t i = 0; i < LONGEST; i++) tokens[i] = i;
  for (int64_t i = 0; i < MOST_ROWS && !status; i++) {
    rows[i] = (tfm_decoder_row){.tokens = tokens, .n_tokens = LONGEST};
    status = tfm_decoder_join(decoder, i, &rows[i].row, error);
  }
  for (int64_t i = 0; i < N_LENGTHS * MOST_ROWS; i++) parents[i] = i % MOST_ROWS;
  if (!status) status = tfm_decoder_step(decoder, MOST_ROWS, rows, 1, NULL, NULL, error);
  if (!status) status = tfm_decoder_reorder(decoder, N_LENGTHS * MOST_ROWS, parents, error);
  for (int64_t i = 0; i < N_LENGTHS * MOST_ROWS && !status; i++)
    status = tfm_decoder_truncate(decoder, i, length_of(&lengths[i / MOST_ROWS], i % MOST_ROWS), error);
  return status;
}

/* The shortest rows come first: the growth of the others over them is what attention costs. */
bool decoding_subjects(Bench *bench) {
  Decoding *decoding = ARENA_NEW(bench->arena, Decoding);
  tfm_error error;
  if (!load(bench, decoding)) return false;
  fprintf(stderr, "%s writes %d rows of %d tokens\n", file, MOST_ROWS, LONGEST);
  if (write_rows(decoding->decoder, &error)) {
    fprintf(stderr, "%s: %s\n", file, error.message);
    return false;
  }
  for (int i = 0; i < N_COUNTS; i++) {
    const Subject *smallest = NULL;
    for (int at = ALIKE - 1; at >= 0; at--) {
      Subject *subject = add_case(bench, decoding, row_counts[i], at);
      subject->smaller = smallest;
      if (!smallest) smallest = subject;
    }
    for (int at = ALIKE; at < N_LENGTHS && row_counts[i] > 1; at++) add_case(bench, decoding, row_counts[i], at);
  }
  return true;
}
