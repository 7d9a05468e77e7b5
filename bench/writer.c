/* In: a .tfm file with a generative model, a folder with its weights. Out: tokens, by its incremental form, as `tfmc
 * generate` computes them. Every row gets exactly the number of new tokens that is asked for: the end token is not
 * chosen before. */
#include "writer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "compiling.h"
#include "tfm/decode.h"

struct Writer {
  const WriterModel *model;
  Arena *arena;
  WeightSet *set;
  Compiled compiled;
  tfm_decoder *decoder;
};

// ---- compiling ----

/* Only the incremental form is compiled: whole rows are never run here. */
static bool compile_writer(Writer *writer, int32_t threads, const WriterRules *rules) {
  const WriterModel *model = writer->model;
  const BenchModel what = {
      .file = model->file,
      .options = {.definitions = model->definitions, .n_definitions = model->n_definitions},
      .target = rules->target,
      .weights = writer->set,
      .rules = rules->texts,
      .n_rules = rules->n};
  const tfm_context_options options = {.struct_size = sizeof options, .threads = threads};
  if (!compile_file(writer->arena, &what, true, &writer->compiled)) return false;
  const Compiled *compiled = &writer->compiled;
  return tfm_decoder_create(&compiled->decoding, compiled->packed, compiled->packed, &options, &writer->decoder,
                            NULL) == TFM_OK;
}

Writer *writer_create(const WriterModel *model, const char *folder, int32_t threads, const WriterRules *rules) {
  Arena *arena = arena_create();
  Diag diag = diag_new(arena);
  Writer *writer = ARENA_NEW(arena, Writer);
  *writer = (Writer){.model = model, .arena = arena};
  writer->set = weight_set_open(arena, &diag, arena_printf(arena, "%s/weights.safetensors", folder));
  print_messages(&diag);
  return writer->set && compile_writer(writer, threads, rules) ? writer : NULL;
}

// ---- running ----

/* Room is made for all beams of all items. A decoder-only model has no encoder; its prompt counts as part of the
 * length. */
static bool begin(Writer *writer, const WriterCase *item, tfm_error *error) {
  const int64_t dims[] = {item->batch, item->length};
  const tfm_value ids = {(void *)(uintptr_t)item->ids, TFM_I32, 2, dims};
  const int64_t length = (writer->compiled.decoding.encoder ? 1 : item->length) + item->new_tokens;
  return tfm_decoder_begin(writer->decoder, writer->compiled.decoding.encoder ? &ids : NULL, item->batch * item->beams,
                           length, error) == TFM_OK;
}

/* min and max are equal, so every engine writes the same number of tokens. */
static bool write_tokens(Writer *writer, const WriterCase *item, const tfm_prompts *prompts, tfm_generated *generated,
                         tfm_error *error) {
  const tfm_generate_model model = tfm_decoder_model(writer->decoder);
  tfm_generate_options options;
  tfm_generate_defaults(&options);
  options.num_beams = item->beams;
  options.min_new_tokens = options.max_new_tokens = item->new_tokens;
  options.eos_token_ids = (tfm_token_list){&writer->model->end, 1};
  return tfm_generate(&model, prompts, &options, generated, error) == TFM_OK;
}

/* What is returned are the last `new_tokens` of each row, without the prompt. */
bool writer_run(Writer *writer, const WriterCase *item, int32_t *tokens) {
  tfm_error error;
  tfm_generated generated;
  tfm_prompts prompts = {.n = item->batch, .width = item->length, .tokens = item->ids, .lengths = item->lengths};
  int32_t *starts = calloc((size_t)item->batch, sizeof *starts);
  for (int64_t i = 0; i < item->batch && starts; i++) starts[i] = (int32_t)writer->model->start;
  if (writer->compiled.decoding.encoder) prompts = (tfm_prompts){.n = item->batch, .width = 1, .tokens = starts};
  bool done = starts && begin(writer, item, &error) && write_tokens(writer, item, &prompts, &generated, &error);
  free(starts);
  if (!done) {
    fprintf(stderr, "%s\n", error.message);
    return false;
  }
  for (int64_t i = 0; i < item->batch; i++)
    memcpy(tokens + i * item->new_tokens, generated.sequences + (i + 1) * generated.width - item->new_tokens,
           (size_t)item->new_tokens * sizeof *tokens);
  tfm_generated_free(&generated);
  return true;
}
