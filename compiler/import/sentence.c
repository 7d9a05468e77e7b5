/* modules.json and the files of its modules. See sentence.h.
 *
 * Read is a Transformer in the folder itself, a Pooling, and behind it any number of Dense, LayerNorm, Normalize and
 * Dropout; or a Transformer alone, whose task is then that of its class (a cross encoder); one that writes, and the
 * LogitScore of it; one with a head for masked words, and the SpladePooling of it; one with Dense and Normalize of each
 * token's vector (ColBERT), and MultiVectorMask, which text classes follow; or a StaticEmbedding in the place of a
 * Transformer and its Pooling. */
#include "import/sentence.h"

#include <string.h>

#include "import/json_file.h"
#include "import/sentence_keys.h"
#include "import/value_text.h"

typedef struct Reader {
  Arena *arena;
  Diag *diag;
  const char *folder;
  const Map *ignored;
  json_t *modules;  /* what is found: a list for each module behind the transformer */
  json_t *score;    /* of a LogitScore: its tokens */
  json_t *splade;   /* of a SpladePooling: how it pools, and by which function */
  bool is_static;   /* the first module is a StaticEmbedding */
  bool is_by_token; /* no module makes one vector of those of the tokens */
} Reader;

/* The keys of a file that may be missing; the caller owns what is returned, which is NULL then. */
static json_t *checked_file(const Reader *r, SentenceFile file, const char *path) {
  json_t *object = file_exists(path) ? read_json(r->arena, r->diag, path, JSON_OBJECT) : NULL;
  if (object) sentence_check_keys(r->arena, r->diag, r->ignored, file, path, object);
  return object;
}

// ---- modules ----

/* What the type of a module says: "Pooling" of "sentence_transformers.models.Pooling"; other code's name as a whole. */
static const char *kind_of(const json_t *module) {
  const char *type = json_string_value(json_object_get(module, "type"));
  if (!type) return "without a type";
  const char *dot = strrchr(type, '.');
  return dot && strncmp(type, "sentence_transformers.", 22) == 0 ? dot + 1 : type;
}

static bool refuse_module(const Reader *r, const char *path, const char *kind, const char *why) {
  diag_error_at(r->diag, path, DIAG_CHECKPOINT, "\"type\": a module %s %s", kind, why);
  return false;
}

// ---- pooling ----

static const char *const modes[][2] = {{"pooling_mode_cls_token", "cls"}, /* in the order in which they are joined */
                                       {"pooling_mode_max_tokens", "max"},
                                       {"pooling_mode_mean_tokens", "mean"},
                                       {"pooling_mode_mean_sqrt_len_tokens", "mean_sqrt_len_tokens"},
                                       {"pooling_mode_weightedmean_tokens", "weightedmean"},
                                       {"pooling_mode_lasttoken", "lasttoken"}};
enum { N_MODES = sizeof modes / sizeof *modes };

static void add_mode(const Reader *r, const char *path, json_t *found, const json_t *mode) {
  for (size_t i = 0; i < N_MODES; i++)
    if (json_is_string(mode) && strcmp(json_string_value(mode), modes[i][1]) == 0) {
      json_array_append(found, (json_t *)mode);
      return;
    }
  StrBuf shown = strbuf_new(r->arena);
  value_print(&shown, mode);
  diag_error_at(r->diag, path, DIAG_CHECKPOINT,
                "\"pooling_mode\": there is no pooling %s; there are cls, max, mean, mean_sqrt_len_tokens, "
                "weightedmean, lasttoken",
                shown.text);
}

/* ["mean"] of {"pooling_mode_mean_tokens": true, ...}, or of {"pooling_mode": "mean"}, beside which the former says
 * nothing; the mean if neither says anything. */
static json_t *modes_of(const Reader *r, const char *path, const json_t *pooling) {
  const json_t *named = json_object_get(pooling, "pooling_mode");
  json_t *found = json_array(), *mode;
  size_t i;
  if (json_is_array(named)) {
    json_array_foreach((json_t *)named, i, mode) add_mode(r, path, found, mode);
  } else if (named) {
    add_mode(r, path, found, named);
  }
  for (i = 0; !named && i < N_MODES; i++)
    if (json_is_true(json_object_get(pooling, modes[i][0]))) json_array_append_new(found, json_string(modes[i][1]));
  if (!named && !json_array_size(found)) json_array_append_new(found, json_string("mean"));
  if (!json_array_size(found))
    diag_error_at(r->diag, path, DIAG_CHECKPOINT, "\"pooling_mode\" is empty: no vector is made of a text");
  return found;
}

/* A key that Python asks for its truth: only true and false say the same here. `otherwise`: what it is if missing. */
static bool flag_of(const Reader *r, const char *path, const json_t *object, const char *key, bool otherwise) {
  const json_t *value = json_object_get(object, key);
  if (value && !json_is_boolean(value)) {
    StrBuf shown = strbuf_new(r->arena);
    value_print(&shown, value);
    diag_error_at(r->diag, path, DIAG_CHECKPOINT, "\"%s\" is %s; it is true or false", key, shown.text);
  }
  return value ? json_is_true(value) : otherwise;
}

/* A module wants one of the two names of its width, though no number depends on it. */
static void add_pooling(const Reader *r, const char *path, const json_t *pooling) {
  if (!json_object_get(pooling, "word_embedding_dimension") && !json_object_get(pooling, "embedding_dimension"))
    diag_error_at(r->diag, path, DIAG_CHECKPOINT,
                  "\"word_embedding_dimension\" is missing; a Pooling is not made without it");
  for (size_t i = 0; i < N_MODES; i++) flag_of(r, path, pooling, modes[i][0], false);
  json_t *found = modes_of(r, path, pooling);
  const bool all = flag_of(r, path, pooling, "include_prompt", true);
  json_array_append_new(r->modules, json_pack("[s, o, b]", "pool", found, all));
}

// ---- what stands behind the pooling ----

/* A width: a whole number from 1 on; 0 after an error. */
static json_int_t width_of(const Reader *r, const char *path, const json_t *object, const char *key) {
  const json_t *value = json_object_get(object, key);
  if (json_is_integer(value) && json_integer_value(value) > 0) return json_integer_value(value);
  diag_error_at(r->diag, path, DIAG_CHECKPOINT, "\"%s\": a whole number from 1 on is expected", key);
  return 0;
}

/* Of torch.nn: where a class lies, and the name that models/parts/sentence.tfm has. */
static const char *const activations[][3] = {
#define DENSE_ACTIVATION(class, module, name) {class, module, name},
#include "import/dense_activations.def"
};
enum { N_ACTIVATIONS = sizeof activations / sizeof *activations };

static void report_activation(const Reader *r, const char *path, const char *class) {
  StrBuf known = strbuf_new(r->arena);
  for (size_t i = 0; i < N_ACTIVATIONS; i++) strbuf_printf(&known, "%s%s", i ? ", " : "", activations[i][0]);
  diag_error_at(r->diag, path, DIAG_CHECKPOINT, "\"activation_function\" is %s; of torch.nn are computed %s",
                class ? class : "no string", known.text);
}

/* The name of "torch.nn.modules.activation.Tanh", which torch.nn and torch.nn.modules have too; a class of other code
 * is not run. Softmax is along the last axis of texts' vectors alone: of those of tokens torch goes along the batch. */
static const char *activation_of(const Reader *r, const char *path, const json_t *dense) {
  const json_t *value = json_object_get(dense, "activation_function");
  const char *class = value ? json_string_value(value) : "torch.nn.Tanh", *rest = class;
  if (rest && strncmp(rest, "torch.nn.", 9) == 0) rest += 9;
  if (rest && rest != class && strncmp(rest, "modules.", 8) == 0) rest += 8;
  for (size_t i = 0; rest && rest != class && i < N_ACTIVATIONS; i++) {
    const size_t length = strlen(activations[i][1]);
    const bool is_in = rest != class + 9 && strncmp(rest, activations[i][1], length) == 0 && rest[length] == '.';
    if (strcmp(is_in ? rest + length + 1 : rest, activations[i][0]) != 0) continue;
    if (!r->is_by_token || strcmp(activations[i][2], "softmax") != 0) return activations[i][2];
    diag_error_at(r->diag, path, DIAG_CHECKPOINT,
                  "\"activation_function\" is Softmax: of vectors of tokens torch takes it over the texts of a batch, "
                  "which is not computed");
    return "none";
  }
  report_activation(r, path, class);
  return "none";
}

/* Which states a module takes: those of tokens where nothing pools them, else the text's. */
static void check_input(const Reader *r, const char *path, const json_t *module) {
  const char *wanted = r->is_by_token ? "token_embeddings" : "sentence_embedding";
  const json_t *from = json_object_get(module, "module_input_name");
  const json_t *to = json_object_get(module, "module_output_name");
  const char *input = from ? json_string_value(from) : "sentence_embedding";
  const char *output = to && !json_is_null(to) ? json_string_value(to) : input;
  if (input && output && strcmp(input, wanted) == 0 && strcmp(output, wanted) == 0) return;
  diag_error_at(r->diag, path, DIAG_CHECKPOINT,
                "\"module_input_name\" is %s and \"module_output_name\" %s; at this place both are %s",
                input ? input : "no name", output ? output : "no name", wanted);
}

static void add_dense(const Reader *r, const char *path, const json_t *dense, const char *place) {
  const json_int_t from = width_of(r, path, dense, "in_features"), to = width_of(r, path, dense, "out_features");
  const bool bias = flag_of(r, path, dense, "bias", true);
  const bool residual = flag_of(r, path, dense, "use_residual", false);
  json_array_append_new(r->modules, json_pack("[s, s, I, I, b, s, b]", "dense", place, from, to, bias,
                                              activation_of(r, path, dense), residual));
}

/* The tokens whose logits are compared: the second may be null or missing. */
static void add_score(const Reader *r, const char *path, const json_t *score) {
  static const char *const keys[] = {"true_token_id", "false_token_id"};
  for (size_t i = 0; i < 2; i++) {
    const json_t *token = json_object_get(score, keys[i]);
    if (i == 1 && (!token || json_is_null(token))) return;
    if (json_is_integer(token) && json_integer_value(token) >= 0)
      json_array_append(r->score, (json_t *)token);
    else
      diag_error_at(r->diag, path, DIAG_CHECKPOINT, "\"%s\": the number of a token is expected", keys[i]);
  }
}

/* One of the strings of a key, the first if there is no such key. */
static void add_choice(const Reader *r, const char *path, const json_t *object, const char *key, const char *a,
                       const char *b) {
  const json_t *value = json_object_get(object, key);
  const char *text = value ? json_string_value(value) : a;
  if (text && (strcmp(text, a) == 0 || strcmp(text, b) == 0))
    json_array_append_new(r->splade, json_string(text));
  else
    diag_error_at(r->diag, path, DIAG_CHECKPOINT, "\"%s\" is %s; it is %s or %s", key, text ? text : "no string", a, b);
}

static void add_splade(const Reader *r, const char *path, const json_t *splade) {
  add_choice(r, path, splade, "pooling_strategy", "max", "sum");
  add_choice(r, path, splade, "activation_function", "relu", "log1p_relu");
}

// ---- their order ----

typedef struct ModuleKind {
  const char *name;
  SentenceFile file;
  bool needs_config, is_first, is_pooling; /* a pooling makes what the folder gives of what the first module gives */
} ModuleKind;

static const ModuleKind module_kinds[] = {{"Transformer", Bert, false, true, false},
                                          {"MLMTransformer", Bert, false, true, false},
                                          {"StaticEmbedding", Bert, false, true, false},
                                          {"Pooling", Pooling, true, false, true},
                                          {"LogitScore", Score, true, false, true},
                                          {"SpladePooling", Splade, true, false, true},
                                          {"Dense", Dense, true, false, false},
                                          {"LayerNorm", Norm, true, false, false},
                                          {"Normalize", Normalize, false, false, false},
                                          {"Dropout", Drop, false, false, false},
                                          {"MultiVectorMask", Mask, true, false, false}};

static const ModuleKind *module_kind(const char *name) {
  for (size_t i = 0; i < sizeof module_kinds / sizeof *module_kinds; i++)
    if (strcmp(module_kinds[i].name, name) == 0) return &module_kinds[i];
  return NULL;
}

/* What the first module is decides what may follow, and so does whether any of them pools. */
static void look_ahead(Reader *r, const json_t *modules) {
  const json_t *module;
  bool pools = false;
  size_t i;
  json_array_foreach((json_t *)modules, i, module) {
    const ModuleKind *kind = module_kind(kind_of(module));
    pools = pools || (kind && kind->is_pooling);
    if (i == 0) r->is_static = strcmp(kind_of(module), "StaticEmbedding") == 0;
  }
  r->is_by_token = !pools && !r->is_static && json_array_size(modules) > 1;
  if (r->is_by_token) json_array_append_new(r->modules, json_pack("[s]", "tokens"));
  if (r->is_static) json_array_append_new(r->modules, json_pack("[s, [s], b]", "pool", "mean", 1));
}

/* False after an error: a module at a place where nothing here computes it. */
static bool check_place(const Reader *r, const char *modules, const ModuleKind *kind, size_t i) {
  const bool is_pooled = !r->is_static && !r->is_by_token;
  const bool is_last = json_array_size(r->score) || json_array_size(r->splade);
  if (kind->is_first == (i == 0) && kind->is_pooling == (is_pooled && i == 1) && !is_last &&
      (kind->file != Mask || r->is_by_token) && (kind->file != Norm || !r->is_by_token))
    return true;
  return refuse_module(r, modules, kind->name,
                       "stands in another place than a Transformer, one Pooling, and what is behind it");
}

static void add_what(const Reader *r, const char *path, SentenceFile file, const json_t *config, const char *place) {
  if (file == Dense || file == Normalize) check_input(r, path, config);
  if (file == Pooling) add_pooling(r, path, config);
  if (file == Score) add_score(r, path, config);
  if (file == Splade) add_splade(r, path, config);
  if (file == Dense) add_dense(r, path, config, place);
  if (file == Norm)
    json_array_append_new(r->modules, json_pack("[s, s, I]", "norm", place, width_of(r, path, config, "dimension")));
  if (file == Normalize) json_array_append_new(r->modules, json_pack("[s]", "normalize"));
}

/* A name of its own, by which torch keeps the module. */
static void check_name(const Reader *r, const char *path, const json_t *modules, size_t i) {
  const char *name = json_string_value(json_object_get(json_array_get(modules, i), "name"));
  bool is_good = name && *name && !strchr(name, '.');
  for (size_t k = 0; is_good && k < i; k++) {
    const char *other = json_string_value(json_object_get(json_array_get(modules, k), "name"));
    is_good = !other || strcmp(other, name) != 0;
  }
  if (!is_good)
    diag_error_at(r->diag, path, DIAG_CHECKPOINT,
                  "\"name\" of module %zu: a string without a dot is expected that no other module has", i);
}

/* Adds what one module does; `i`: its place. False after an error. */
static bool add_module(const Reader *r, const char *modules, const json_t *module, size_t i) {
  const char *name = kind_of(module), *place = json_string_value(json_object_get(module, "path"));
  const ModuleKind *kind = module_kind(name);
  sentence_check_keys(r->arena, r->diag, r->ignored, Modules, modules, module);
  if (!kind) return refuse_module(r, modules, name, sentence_what_instead(name));
  if (!check_place(r, modules, kind, i)) return false;
  if (kind->is_first && place && strcmp(place, ".") == 0) place = ""; /* so model2vec writes it */
  if (!place || strchr(place, '/') || *place == '.' || ((kind->needs_config || kind->file == Drop) && !*place))
    return refuse_module(r, modules, name, "has no \"path\" of a folder in this one");
  if (kind->is_first && *place)
    return refuse_module(r, modules, name,
                         arena_printf(r->arena,
                                      "lies in \"%s\": copy the files of that folder beside modules.json, and write "
                                      "\"path\": \"\"",
                                      place));
  if (kind->is_first) return true;
  const char *path = folder_file(r->arena, folder_file(r->arena, r->folder, place), "config.json");
  json_t *config = *place ? checked_file(r, kind->file, path) : NULL;
  if (!config && kind->needs_config) {
    if (!file_exists(path))
      diag_error_at(r->diag, path, DIAG_CHECKPOINT, "there is no such file; it says what the %s computes", name);
    return false;
  }
  add_what(r, path, kind->file, config, place);
  json_decref(config);
  return true;
}

/* A Transformer alone gives what its class gives, if that is said. The task of the first module, which files may leave
 * to its kind, fits what stands behind it. */
static void check_task(const Reader *r, const json_t *modules, const char *task, const char *path) {
  const bool is_alone = json_array_size(modules) < 2 && !r->is_static;
  const json_t *first = json_array_get(modules, 0);
  const char *wanted = is_alone                       ? "sequence-classification"
                       : json_array_size(r->score)    ? "text-generation"
                       : json_array_size(r->splade)   ? "fill-mask"
                                                      : "feature-extraction";
  if (!task) task = first && strcmp(kind_of(first), "MLMTransformer") == 0 ? "fill-mask" : "feature-extraction";
  if (is_alone && strcmp(task, wanted) != 0)
    diag_error_at(r->diag, path, DIAG_CHECKPOINT, "there is no module Pooling, which makes one vector of a text");
  else if (strcmp(task, wanted) != 0)
    diag_error_at(r->diag, path, DIAG_CHECKPOINT,
                  "\"transformer_task\" of the model is %s; what stands behind it is of %s", task, wanted);
}

/* What of the first module's result goes to the modules behind it, and under which name. */
static void check_states(const Reader *r, const json_t *modules, const json_t *bert, const char *path) {
  const json_t *modality = json_object_get(bert, "modality_config");
  const json_t *named = json_object_get(bert, "module_output_name");
  if (!modality) return; /* then the file says nothing of either */
  const bool is_alone = json_array_size(modules) < 2, is_scored = json_array_size(r->score) > 0;
  const char *wanted = is_scored ? "causal_logits" : is_alone ? "scores" : "token_embeddings";
  const char *output = is_alone || is_scored || json_array_size(r->splade) ? "logits" : "last_hidden_state";
  const json_t *text = json_object_get(modality, "text");
  const char *from = json_string_value(json_object_get(text, "method_output_name")), *to = json_string_value(named);
  if (!to || strcmp(to, wanted) != 0)
    diag_error_at(r->diag, path, DIAG_CHECKPOINT, "\"module_output_name\" is %s; what stands behind it takes %s",
                  to ? to : "no name", wanted);
  if (!from || strcmp(from, output) != 0)
    diag_error_at(r->diag, path, DIAG_CHECKPOINT,
                  "\"modality_config\": the output is %s; what stands behind it is of %s", from ? from : "no name",
                  output);
}

/* How many numbers of the vector of a text are kept; a vector with fewer stays as it is. */
static void add_cut(const Reader *r, const char *path, const json_t *most) {
  if (!most || json_is_null(most)) return;
  if (!json_is_integer(most) || json_integer_value(most) < 1)
    diag_error_at(r->diag, path, DIAG_CHECKPOINT, "\"truncate_dim\": a whole number from 1 on is expected");
  else if (r->is_by_token || !json_array_size(r->modules))
    diag_error_at(r->diag, path, DIAG_CHECKPOINT, "\"truncate_dim\": the folder makes no vector of a text");
  else
    json_array_append_new(r->modules, json_pack("[s, O]", "first", most));
}

/* The class of sentence transformers that takes such modules: another one leaves them, and makes its own. */
static const char *class_of(const Reader *r) {
  if (json_array_size(r->splade)) return "SparseEncoder";
  if (json_array_size(r->score) || !json_array_size(r->modules)) return "CrossEncoder";
  return r->is_by_token ? "MultiVectorEncoder" : "SentenceTransformer";
}

/* What is put before a text is a text, and the one that is taken by itself is among them. */
static void check_encoder(const Reader *r, const char *path) {
  json_t *encoder = checked_file(r, Encoder, path), *prompts = json_object_get(encoder, "prompts"), *prompt;
  const json_t *first = json_object_get(encoder, "default_prompt_name");
  const char *name;
  json_object_foreach(prompts, name, prompt) if (!json_is_string(prompt))
      diag_error_at(r->diag, path, DIAG_CHECKPOINT, "\"prompts\": \"%s\" is no string", name);
  if (json_is_string(first) && !json_object_get(prompts, json_string_value(first)))
    diag_error_at(r->diag, path, DIAG_CHECKPOINT, "\"default_prompt_name\" is %s, which is none of \"prompts\"",
                  json_string_value(first));
  const char *said = json_string_value(json_object_get(encoder, "model_type"));
  if (said && strcmp(said, class_of(r)) != 0 && !(r->ignored && map_has(r->ignored, "model_type")))
    diag_error_at(r->diag, path, DIAG_CHECKPOINT, "\"model_type\" is %s, and the modules are those of a %s", said,
                  class_of(r));
  if (!(r->ignored && map_has(r->ignored, "__version__"))) sentence_check_version(r->diag, path, encoder);
  add_cut(r, path, json_object_get(encoder, "truncate_dim"));
  json_decref(encoder);
}

const char *sentence_param(const json_t *sentence) {
  if (json_object_get(sentence, "modules")) return "sentence";
  if (json_object_get(sentence, "splade")) return "splade";
  return json_object_get(sentence, "score") ? "scored" : NULL;
}

/* How the transformer takes texts. `path`: of the file that says so, or of the first name. */
static json_t *read_text_settings(const Reader *r, const char **path) {
  static const char *const names[] = {
#define SENTENCE_FILE(name) name,
#include "import/sentence_files.def"
  };
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    *path = folder_file(r->arena, r->folder, names[i]);
    json_t *object = checked_file(r, Bert, *path);
    if (json_object_size(object)) return object;
    json_decref(object);
  }
  *path = folder_file(r->arena, r->folder, names[0]);
  return NULL;
}

json_t *sentence_read(Arena *arena, Diag *diag, const char *folder, const Map *ignored) {
  const char *path = folder_file(arena, folder, "modules.json");
  json_t *sentence = json_object(), *module;
  if (!file_exists(path)) return sentence;
  Reader r = {arena, diag, folder, ignored, json_array(), json_array(), json_array(), false, false};
  json_t *modules = read_json(arena, diag, path, JSON_ARRAY);
  if (modules) look_ahead(&r, modules);
  bool is_good = modules != NULL;
  size_t i;
  json_array_foreach(modules, i, module) is_good = is_good && add_module(&r, path, module, i);
  for (i = 0; is_good && i < json_array_size(modules); i++) check_name(&r, path, modules, i);
  const char *bert_path;
  json_t *bert = read_text_settings(&r, &bert_path);
  const char *task = json_string_value(json_object_get(bert, "transformer_task"));
  if (is_good) check_task(&r, modules, task, path);
  if (is_good) check_states(&r, modules, bert, bert_path);
  sentence_check_expansion(diag, bert_path, json_object_get(bert, "query_expansion"));
  json_decref(bert);
  check_encoder(&r, folder_file(arena, folder, "config_sentence_transformers.json"));
  json_decref(modules);
  if (json_array_size(r.modules)) json_object_set(sentence, "modules", r.modules);
  if (json_array_size(r.score)) json_object_set(sentence, "score", r.score);
  if (json_array_size(r.splade)) json_object_set(sentence, "splade", r.splade);
  json_decref(r.modules);
  json_decref(r.score);
  json_decref(r.splade);
  if (is_good && !diag_has_errors(diag)) return sentence;
  json_decref(sentence);
  return NULL;
}
