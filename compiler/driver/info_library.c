#include "driver/info_library.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "aot/library_file.h"
#include "aot/packed_weights.h"
#include "driver/host.h"
#include "driver/packing.h"
#include "tfm/weights_file.h"

// ---- a library ----

static const char *text_of(const json_t *object, const char *key) {
  const char *text = json_string_value(json_object_get(object, key));
  return text ? text : "";
}

static void print_tensors(StrBuf *out, const char *title, const json_t *tensors) {
  strbuf_printf(out, "%s:\n", title);
  for (size_t i = 0; i < json_array_size(tensors); i++) {
    const json_t *tensor = json_array_get(tensors, i);
    strbuf_printf(out, "  %-24s %s", text_of(tensor, "name"), text_of(tensor, "type"));
    if (strcmp(text_of(tensor, "name"), text_of(tensor, "member")) != 0)
      strbuf_printf(out, ", in C %s", text_of(tensor, "member"));
    strbuf_add_char(out, '\n');
  }
}

/* What a model with a generate block writes, and what that costs. */
static void print_generation(StrBuf *out, const json_t *generate) {
  if (!generate) return;
  long long own = json_integer_value(json_object_get(generate, "bytes_per_token"));
  long long source = json_integer_value(json_object_get(generate, "bytes_per_source_position"));
  const char *ragged = text_of(generate, "ragged");
  strbuf_printf(out, "writes: %s from %s\n", text_of(generate, "input"), text_of(generate, "output"));
  if (*ragged) strbuf_printf(out, "  rows have their own lengths; those of one call of forward have the same, %s\n", ragged);
  const json_t *sources = json_object_get(generate, "ragged_sources");
  for (size_t i = 0; i < json_array_size(sources); i++)
    strbuf_printf(out, "  items have their own %s, in C %s; those of one call of forward have the same\n",
                  text_of(json_array_get(sources, i), "name"), text_of(json_array_get(sources, i), "member"));
  if (!json_is_true(json_object_get(generate, "incremental"))) {
    strbuf_printf(out, "  not incremental, the whole model runs for each token: %s\n", text_of(generate, "reason"));
    return;
  }
  strbuf_printf(out, "  incremental; keeps %lld bytes for each token of a row", own);
  if (source) strbuf_printf(out, ", %lld for each position of a source", source);
  strbuf_add_char(out, '\n');
}

static void print_instruction_sets(StrBuf *out, const LibraryFile *library) {
  strbuf_add(out, "instruction sets:\n");
  for (uint32_t i = 0; i < library->n_instruction_sets; i++) {
    const TargetInfo *target = target_find(library->instruction_sets[i]);
    const char *missing = target ? host_missing(target) : "what tfmc does not know";
    strbuf_printf(out, "  %-24s %s%s\n", library->instruction_sets[i],
                  missing ? "cannot run here: the CPU lacks " : "runs here", missing ? missing : "");
  }
}

/* The file that is opened when none is named, as far as it can be told from its header. */
static void print_weights(Session *session, StrBuf *out, const LibraryFile *library) {
  strbuf_printf(out, "weights: %llu bytes, layout %s", (unsigned long long)library->weights_bytes,
                layout_text(session->arena, library->layout));
  const char *beside = file_beside(session->arena, library->path, ".tfmw");
  if (library->weights_embedded)
    strbuf_add(out, ", in the library\n");
  else if (library->weights_bytes)
    strbuf_printf(out, ", from %s%s\n", beside, access(beside, R_OK) ? ", which is not there" : "");
  else
    strbuf_add_char(out, '\n');
}

static void print_library_json(StrBuf *out, const LibraryFile *library) {
  json_t *copy = json_deep_copy(library->description);
  json_object_del(copy, "source");
  char *text = json_dumps(copy, 0);
  strbuf_printf(out, "%s\n", text ? text : "{}");
  free(text);
  json_decref(copy);
}

void tell_library(Session *session, StrBuf *out, const char *path) {
  LibraryFile *library = session->library = library_file_open(session->arena, &session->diag, path);
  if (!library) return;
  if (option_given(&session->options, OPTION_JSON)) {
    print_library_json(out, library);
    return;
  }
  strbuf_printf(out, "%s: the model %s, made by tfmc %s; functions %s_...\n", path,
                text_of(library->description, "model"), library->version, library->prefix);
  print_tensors(out, "inputs", json_object_get(library->description, "inputs"));
  print_tensors(out, "outputs", json_object_get(library->description, "outputs"));
  print_generation(out, json_object_get(library->description, "generate"));
  print_instruction_sets(out, library);
  print_weights(session, out, library);
}

// ---- packed weights ----

void tell_packed(Session *session, StrBuf *out, const char *path) {
  tfm_weights_header header;
  tfm_error error;
  if (tfm_weights_file_check(path, &header, &error) != TFM_OK) {
    diag_error_at(&session->diag, NULL, DIAG_LIBRARY, "%s", error.message); /* names the file */
    return;
  }
  const char *layout = layout_text(session->arena, header.layout),
             *content = layout_text(session->arena, header.content);
  const char *model = arena_strndup(session->arena, header.model, strnlen(header.model, sizeof header.model));
  unsigned long long bytes = header.bytes;
  if (option_given(&session->options, OPTION_JSON)) {
    strbuf_add(out, "{\"model\": ");
    strbuf_add_json(out, model);
    strbuf_printf(out, ", \"weights_bytes\": %llu, \"layout\": \"%s\", \"content\": \"%s\"}\n", bytes, layout, content);
    return;
  }
  strbuf_printf(out, "%s: packed weights of the model %s, whole\n%llu bytes, layout %s, content %s\n", path, model,
                bytes, layout, content);
}
