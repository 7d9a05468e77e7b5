/* In: a .tfm file whose model writes, a folder with its weights. Out: tokens, by its incremental form. */
#include "writer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "codegen/codegen.h"
#include "compiling.h"
#include "tfm/decode.h"

struct Writer {
  const WriterModel *model;
  Arena *arena;
  Diag diag;
  WeightSet *set;
  tfm_decoding decoding;
  tfm_decoder *decoder;
};

// ---- compiling ----

static char *pack(Writer *writer, const DecodingPlan *plans) {
  Plan *const both[] = {plans->step, plans->source};
  const uint32_t n = plans->source ? 2 : 1;
  char *packed = weights_room(plans->step);
  for (uint32_t i = 0; i < n && packed; i++)
    if (!pack_set(writer->arena, &writer->diag, both[i], writer->set, packed)) return NULL;
  return packed;
}

static bool link_writer(Writer *writer, const DecodingPlan *plans, int32_t threads) {
  const char *packed = pack(writer, plans);
  const tfm_context_options options = {.struct_size = sizeof options, .threads = threads};
  if (!packed || !link_decoding(writer->arena, &writer->diag, plans, &writer->decoding)) return false;
  return tfm_decoder_create(&writer->decoding, packed, packed, &options, &writer->decoder, NULL) == TFM_OK;
}

Writer *writer_create(const WriterModel *model, const char *folder, int32_t threads) {
  Arena *arena = arena_create();
  Writer *writer = ARENA_NEW(arena, Writer);
  *writer = (Writer){.model = model, .arena = arena, .diag = diag_new(arena)};
  writer->set = weight_set_open(arena, &writer->diag, arena_printf(arena, "%s/weights.safetensors", folder));
  const DecodingPlan *plans =
      writer->set ? plan_decoding_file(arena, &writer->diag, model->file, host_target()) : NULL;
  if (plans && link_writer(writer, plans, threads)) return writer;
  print_messages(&writer->diag);
  return NULL;
}

// ---- running ----

static bool begin(Writer *writer, const WriterCase *item, tfm_error *error) {
  const int64_t dims[] = {item->batch, item->length};
  const tfm_value ids = {(void *)(uintptr_t)item->ids, TFM_I32, 2, dims};
  const int64_t length = (writer->decoding.source ? 1 : item->length) + item->new_tokens;
  return tfm_decoder_begin(writer->decoder, writer->decoding.source ? &ids : NULL, item->batch * item->beams, length, error) ==
         TFM_OK;
}

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

bool writer_run(Writer *writer, const WriterCase *item, int32_t *tokens) {
  tfm_error error;
  tfm_generated generated;
  tfm_prompts prompts = {.n = item->batch, .width = item->length, .tokens = item->ids};
  int32_t *starts = calloc((size_t)item->batch, sizeof *starts);
  for (int64_t i = 0; i < item->batch && starts; i++) starts[i] = (int32_t)writer->model->start;
  if (writer->decoding.source) prompts = (tfm_prompts){.n = item->batch, .width = 1, .tokens = starts};
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
