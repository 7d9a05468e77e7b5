#include "driver/item_decoders.h"

#include <stdio.h>
#include <string.h>

#include "driver/engine_compiled.h"

struct ItemDecoders {
  Session *session;
  ItemDecodersNeed need;
  tfm_pool *pool;
  tfm_decoder **items;
  int64_t n, begun; /* items; those that have a decoder */
  /* Of a call: numbers of one item's rows, what they are for its decoder, what it gives. */
  int64_t *numbers, *lengths, *zeroes, *parents;
  const int32_t **tokens;
  float *scores, *log_sums;
  int64_t *places, *next_places; /* [rows of a call] which of its item's rows each is, in the call before and in this */
};

void item_decoders_destroy(ItemDecoders *decoders) {
  if (!decoders) return;
  for (int64_t i = 0; i < decoders->begun; i++) tfm_decoder_destroy(decoders->items[i]);
  tfm_pool_destroy(decoders->pool);
}

// ---- beginning ----

static bool report(ItemDecoders *d, tfm_error *error) {
  char message[sizeof error->message];
  memcpy(message, error->message, sizeof message);
  snprintf(error->message, sizeof error->message, "item %lld: %.*s", (long long)d->begun,
           (int)(sizeof message - sizeof "item : " - 20), message);
  compiled_report(d->session, error);
  return false;
}

/* An EvalItem: the inputs of the next item. There are no outputs. */
static bool begin_item(void *context, const Tensor *const *inputs, Tensor *outputs) {
  (void)outputs;
  ItemDecoders *d = context;
  tfm_error error;
  tfm_context_options options = compiled_options(d->session);
  options.pool = d->pool;
  uint32_t n = d->need.decoding->source->n_inputs;
  tfm_value *values = ARENA_ARRAY(d->session->arena, tfm_value, n);
  for (uint32_t i = 0; i < n; i++)
    values[i] = (tfm_value){inputs[i]->data, (int32_t)inputs[i]->dtype, (int32_t)inputs[i]->rank, inputs[i]->dims};
  tfm_decoder **item = &d->items[d->begun];
  if (tfm_decoder_create(d->need.decoding, d->need.packed, d->need.packed, &options, item, &error) != TFM_OK)
    return report(d, &error);
  if (tfm_decoder_begin(*item, values, d->need.max_rows, d->need.max_length, &error) == TFM_OK) {
    d->begun++;
    return true;
  }
  tfm_decoder_destroy(*item);
  return report(d, &error);
}

/* The interpreter checks the batch and takes it apart. */
static bool begin_items(ItemDecoders *d, const Scorer *scorer) {
  Arena *arena = d->session->arena;
  const EvalInputs inputs = scorer_inputs(scorer);
  const EvalOptions options = {.item = begin_item, .item_context = d};
  Graph *graph = graph_clone(arena, d->need.sources);
  graph->outputs.n = 0;
  return graph_eval_with(arena, &d->session->diag, graph, NULL, NULL, &inputs, &options, NULL);
}

static void make_room(ItemDecoders *d, int64_t vocab) {
  Arena *arena = d->session->arena;
  size_t rows = (size_t)d->need.max_rows, all = rows * (size_t)d->n;
  d->numbers = ARENA_ARRAY(arena, int64_t, rows);
  d->lengths = ARENA_ARRAY(arena, int64_t, rows);
  d->zeroes = ARENA_ARRAY(arena, int64_t, rows);
  d->parents = ARENA_ARRAY(arena, int64_t, rows);
  d->tokens = ARENA_ARRAY(arena, const int32_t *, rows);
  d->scores = ARENA_ARRAY(arena, float, rows * (size_t)vocab);
  d->log_sums = ARENA_ARRAY(arena, float, rows);
  d->places = ARENA_ARRAY(arena, int64_t, all);
  d->next_places = ARENA_ARRAY(arena, int64_t, all);
}

ItemDecoders *item_decoders_begin(const Scorer *scorer, const ItemDecodersNeed *need) {
  Session *session = scorer->session;
  ItemDecoders *d = ARENA_NEW(session->arena, ItemDecoders);
  *d = (ItemDecoders){.session = session, .need = *need, .n = scorer->batch < 1 ? 1 : scorer->batch};
  d->items = ARENA_ARRAY(session->arena, tfm_decoder *, d->n);
  tfm_error error;
  if (tfm_pool_create(compiled_options(session).threads, &d->pool, &error) != TFM_OK) {
    compiled_report(session, &error);
    return NULL;
  }
  make_room(d, need->decoding->vocab);
  if (begin_items(d, scorer)) return d;
  item_decoders_destroy(d);
  return NULL;
}

// ---- scores ----

/* The rows of one item, as its decoder knows them. */
static tfm_step_rows rows_of(ItemDecoders *d, const tfm_step_rows *call, int64_t item) {
  int64_t n = 0;
  for (int64_t i = 0; i < call->n; i++) {
    if (call->items[i] != item) continue;
    d->numbers[n] = i;
    d->tokens[n] = call->tokens[i];
    d->lengths[n] = call->lengths[i];
    d->parents[n] = call->parents[i] < 0 ? -1 : d->places[call->parents[i]];
    d->next_places[i] = n++;
  }
  return (tfm_step_rows){.n = n, .tokens = d->tokens, .lengths = d->lengths, .items = d->zeroes, .parents = d->parents};
}

static tfm_status scores_of(void *user, const tfm_step_rows *call, float *scores, float *log_sums, tfm_error *error) {
  ItemDecoders *d = user;
  size_t vocab = (size_t)d->need.decoding->vocab;
  for (int64_t item = 0; item < d->begun; item++) {
    const tfm_step_rows rows = rows_of(d, call, item);
    if (!rows.n) continue;
    const tfm_generate_model model = tfm_decoder_model(d->items[item]);
    tfm_status status = model.scores(model.user, &rows, d->scores, log_sums ? d->log_sums : NULL, error);
    if (status) return status;
    for (int64_t i = 0; i < rows.n; i++) {
      memcpy(scores + (size_t)d->numbers[i] * vocab, d->scores + (size_t)i * vocab, vocab * sizeof *scores);
      if (log_sums) log_sums[d->numbers[i]] = d->log_sums[i];
    }
  }
  int64_t *places = d->places;
  d->places = d->next_places;
  d->next_places = places;
  return TFM_OK;
}

tfm_generate_model item_decoders_model(ItemDecoders *decoders) {
  const tfm_decoding *decoding = decoders->need.decoding;
  return (tfm_generate_model){.vocab = decoding->vocab,
                              .user = decoders,
                              .scores = scores_of,
                              .gives_log_sums = decoding->log_sum != TFM_NONE};
}
