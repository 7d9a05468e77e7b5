/* What tfmc info tells of a library: its tensors, instruction sets, weights and text.
 *
 * In: the description of a library, which is read from the file: no code of it is run. Out: text, or with --json an
 * object. Refuses what library_file.h refuses. */
#include "cli/commands/library_info.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "aot/library_file.h"
#include "cli/cli_model.h"
#include "cli/commands/commands.h"

/* "" if the object has no such text. */
static const char *text_of(Arena *arena, const json_t *object, const char *key) {
  const char *text = json_string_value(json_object_get(object, key));
  return text ? text_shown(arena, text) : "";
}

/* The name in C is told where it differs: names of a model may be words that C reserves. */
static void print_tensors(StrBuf *out, const char *title, const json_t *tensors) {
  strbuf_printf(out, "%s:\n", title);
  for (size_t i = 0; i < json_array_size(tensors); i++) {
    const json_t *tensor = json_array_get(tensors, i);
    strbuf_printf(out, "  %-24s %s", text_of(out->arena, tensor, "name"), text_of(out->arena, tensor, "type"));
    if (strcmp(text_of(out->arena, tensor, "name"), text_of(out->arena, tensor, "member")) != 0)
      strbuf_printf(out, ", in C %s", text_of(out->arena, tensor, "member"));
    char *value = json_dumps(json_object_get(tensor, "default"), JSON_ENCODE_ANY);
    if (value) strbuf_printf(out, ", left out %s everywhere", value);
    free(value);
    strbuf_add_char(out, '\n');
  }
}

/* What a model with a generate block writes, and what that costs. */
static void print_generation(StrBuf *out, const json_t *generate) {
  if (!json_is_object(generate)) return; /* the description says null for a model without a generate block */
  long long own = json_integer_value(json_object_get(generate, "bytes_per_token"));
  long long source = json_integer_value(json_object_get(generate, "bytes_per_source_position"));
  const char *ragged = text_of(out->arena, generate, "ragged");
  strbuf_printf(out, "writes: %s from %s\n", text_of(out->arena, generate, "input"),
                text_of(out->arena, generate, "output"));
  if (*ragged)
    strbuf_printf(out, "  rows have their own lengths; those of one call of forward have the same, %s\n", ragged);
  const json_t *sources = json_object_get(generate, "ragged_sources");
  for (size_t i = 0; i < json_array_size(sources); i++)
    strbuf_printf(out, "  items have their own %s, in C %s; those of one call of forward have the same\n",
                  text_of(out->arena, json_array_get(sources, i), "name"),
                  text_of(out->arena, json_array_get(sources, i), "member"));
  if (!json_is_true(json_object_get(generate, "incremental"))) {
    strbuf_printf(out, "  not incremental, the whole model runs for each token: %s\n",
                  text_of(out->arena, generate, "reason"));
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
    const char *missing = target ? host_missing(out->arena, target) : "tfmc does not know it";
    strbuf_printf(out, "  %-24s %s%s\n", library->instruction_sets[i],
                  missing ? "cannot run here: " : "runs here", missing ? missing : "");
  }
}

/* " (f32 320, bf16 5120)"; nothing if all are f32. */
static void print_types(StrBuf *out, const LibraryFile *library) {
  const char *type, *separator = " (";
  const json_t *bytes, *types = json_object_get(library->description, "weights_by_type");
  json_object_foreach((json_t *)types, type, bytes) {
    strbuf_printf(out, "%s%s %lld", separator, type, (long long)json_integer_value(bytes));
    separator = ", ";
  }
  if (json_object_size(types)) strbuf_add_char(out, ')');
}

static void print_rules(StrBuf *out, const LibraryFile *library) {
  const json_t *rules = json_object_get(json_object_get(library->description, "source"), "quantize");
  for (size_t i = 0; i < json_array_size(rules); i++) {
    const char *rule = json_string_value(json_array_get(rules, i));
    strbuf_printf(out, "%s%s%s", i ? "," : "compiled with --quantize=", rule ? rule : "",
                  i + 1 == json_array_size(rules) ? "\n" : "");
  }
}

static const char *what_it_is(const LibraryFile *library) { return library->is_one_file ? "file" : "library"; }

/* The file that is opened when none is named, as far as it can be told from its header. */
static void print_weights(Session *session, StrBuf *out, const LibraryFile *library) {
  strbuf_printf(out, "weights: %llu bytes", (unsigned long long)library->weights_bytes);
  print_types(out, library);
  strbuf_printf(out, ", layout %s", layout_text(session->arena, library->layout));
  const char *beside = file_beside(session->arena, library->path, ".tfmw");
  if (library->weights_embedded)
    strbuf_printf(out, ", in the %s\n", what_it_is(library));
  else if (library->weights_bytes)
    strbuf_printf(out, ", from %s%s\n", beside, access(beside, R_OK) ? ", which is not there" : "");
  else
    strbuf_add_char(out, '\n');
  print_rules(out, library);
}

/* Whoever gives a library away should know that the text of the model goes with it. */
static void print_source(StrBuf *out, const LibraryFile *library) {
  const json_t *files = json_object_get(json_object_get(library->description, "source"), "files");
  if (!json_array_size(files)) {
    strbuf_printf(out, "source: not in the %s\n", what_it_is(library));
    return;
  }
  strbuf_printf(out, "source: in the %s, as text:", what_it_is(library));
  for (size_t i = 0; i < json_array_size(files); i++)
    strbuf_printf(out, "%s %s", i ? "," : "", text_of(out->arena, json_array_get(files, i), "name"));
  strbuf_add(out, "; tfmc compile --strip-source leaves it out\n");
}

/* The description as it lies in the library. "source" is whether the text of the model is there, in place of the text,
 * which is long and may be private. */
static void print_library_json(StrBuf *out, const LibraryFile *library) {
  json_t *copy = json_deep_copy(library->description);
  json_object_set_new(copy, "source", json_boolean(json_is_object(json_object_get(copy, "source"))));
  char *text = json_dumps(copy, 0);
  strbuf_printf(out, "%s\n", text ? text : "{}");
  free(text);
  json_decref(copy);
}

/* Reads the file; no code of the library is run. */
void tell_library(Session *session, StrBuf *out, const char *path) {
  LibraryFile *library = session->library = library_of_file(session, path);
  if (!library) return;
  if (option_given(&session->options, OPTION_JSON)) {
    print_library_json(out, library);
    return;
  }
  strbuf_printf(out, "%s: the model %s, made by tfmc %s; ", text_shown(out->arena, path),
                text_of(out->arena, library->description, "model"),
                text_shown(out->arena, library->version));
  if (library->is_one_file) strbuf_add(out, "code and weights in one file\n");
  else strbuf_printf(out, "functions %s_...\n", text_shown(out->arena, library->prefix));
  print_tensors(out, "inputs", json_object_get(library->description, "inputs"));
  print_tensors(out, "outputs", json_object_get(library->description, "outputs"));
  print_generation(out, json_object_get(library->description, "generate"));
  print_instruction_sets(out, library);
  print_weights(session, out, library);
  print_source(out, library);
}
