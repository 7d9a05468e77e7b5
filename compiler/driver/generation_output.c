#include "driver/generation_output.h"

#include <inttypes.h>
#include <string.h>

#include "driver/outputs.h"

enum { MOST_OWN_TENSORS = 3 };

typedef struct Written { /* tensors by their names */
  const char **names;
  Tensor *tensors;
  uint32_t n;
} Written;

static Written written_new(Session *session, const ReturnedOutputs *returned) {
  const size_t most = MOST_OWN_TENSORS + returned->n;
  return (Written){ARENA_ARRAY(session->arena, const char *, most), ARENA_ARRAY(session->arena, Tensor, most), 0};
}

static void add(Written *written, const char *name, Tensor tensor) {
  written->names[written->n] = name;
  written->tensors[written->n++] = tensor;
}

static bool is_among(const char *name, const Written *written) {
  for (uint32_t i = 0; i < written->n; i++)
    if (strcmp(written->names[i], name) == 0) return true;
  return false;
}

// ---- before ----

/* What the model returns and nobody asked for. */
static bool check_asked_for(Session *session, const ReturnedOutputs *returned, const Written *written) {
  for (size_t i = 0; i < returned->n_outputs; i++) {
    const char *name = returned->outputs[i];
    if (outputs_names_one(session, name) && !is_among(name, written) && !is_generations_own(name))
      option_error(&session->diag, OPTION_OUTPUT, "\"%s\" is an output of the model: --return-output=%s adds it", name, name);
  }
  return !diag_has_errors(&session->diag);
}

bool generation_output_check_names(Session *session, const tfm_generate_options *options, const ReturnedOutputs *returned) {
  const Tensor none = {0};
  Written written = written_new(session, returned);
  if (option_given(&session->options, OPTION_FIRST_STEP_PROBABILITIES)) {
    add(&written, "probabilities", none);
  } else {
    add(&written, "sequences", none);
    if (options->num_beams > 1) add(&written, "scores", none);
    if (options->return_token_scores) add(&written, "token_scores", none);
    for (uint32_t i = 0; i < returned->n; i++) add(&written, returned->names[i], none);
  }
  return check_asked_for(session, returned, &written) &&
         outputs_check_named(session, "this generation", written.names, written.n);
}

// ---- after ----

static void print_rows(Session *session, const tfm_generated *generated) {
  StrBuf text = strbuf_new(session->arena);
  for (int64_t i = 0; i < generated->n; i++) {
    for (int64_t t = 0; t < generated->lengths[i]; t++)
      strbuf_printf(&text, "%s%" PRId32, t ? ", " : "[", generated->sequences[i * generated->width + t]);
    strbuf_add(&text, "]\n");
  }
  session_print(&text);
}

void generation_output_rows(Session *session, const tfm_generated *generated, const ReturnedOutputs *returned) {
  const int64_t n = generated->n, width = generated->width;
  Written written = written_new(session, returned);
  add(&written, "sequences", (Tensor){.dtype = DTYPE_I32, .rank = 2, .dims = {n, width}, .data = generated->sequences});
  if (generated->scores)
    add(&written, "scores", (Tensor){.dtype = DTYPE_F32, .rank = 1, .dims = {n}, .data = generated->scores});
  if (generated->token_scores)
    add(&written, "token_scores",
        (Tensor){.dtype = DTYPE_F32, .rank = 2, .dims = {n, width}, .data = generated->token_scores});
  for (uint32_t i = 0; i < returned->n; i++) add(&written, returned->names[i], returned->tensors[i]);
  if (option_given(&session->options, OPTION_OUTPUT))
    outputs_write_named(session, written.names, written.tensors, written.n);
  else print_rows(session, generated);
}

void generation_output_probabilities(Session *session, int64_t n, int64_t vocab, float *probabilities) {
  const char *const names[] = {"probabilities"};
  const Tensor tensor = {.dtype = DTYPE_F32, .rank = 2, .dims = {n, vocab}, .data = probabilities};
  if (option_given(&session->options, OPTION_OUTPUT)) {
    outputs_write_named(session, names, &tensor, 1);
    return;
  }
  StrBuf text = strbuf_new(session->arena);
  for (int64_t i = 0; i < n; i++) {
    for (int64_t t = 0; t < vocab; t++)
      strbuf_printf(&text, "%s%.9g", t ? ", " : "[", (double)probabilities[i * vocab + t]);
    strbuf_add(&text, "]\n");
  }
  session_print(&text);
}
