/* In: adapters of a model. Out: their config as peft writes it. See adapter_text.h. */
#include "train/adapter_text.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "elaborate/adapters.h"
#include "tfm/abi/adapts.h"

typedef VEC(const char *) Names;

typedef struct Described {
  Arena *arena;
  const TrainGraphs *graphs;
  const Adapters *adapters;
  Names whole; /* modules that are trained whole */
  const char *fault;
} Described;

static bool has(const Names *names, const char *name) {
  for (size_t i = 0; i < names->n; i++)
    if (strcmp(names->items[i], name) == 0) return true;
  return false;
}

static bool is_adapted(const Adapters *adapters, const char *module) {
  for (size_t i = 0; i < adapters->weights.n; i++)
    if (strcmp(adapters->weights.items[i].module, module) == 0) return true;
  return false;
}

/* The module of a weight, all of its path but the last name; NULL: it is the model's own. */
static const char *module_of(Arena *arena, const char *path) {
  const char *dot = strrchr(path, '.');
  return dot ? arena_strndup(arena, path, (size_t)(dot - path)) : NULL;
}

// ---- what it has ----

static void check_adapted(Described *d) {
  for (size_t i = 0; i < d->adapters->weights.n && !d->fault; i++) {
    const AdaptedWeight *adapted = &d->adapters->weights.items[i];
    const char *name = adapted->weight->attr.name;
    if (strcmp(name, adapted->module) == 0)
      d->fault = arena_printf(d->arena, "the adapter of '%s' has no place in peft's files of MODULE.weight", name);
  }
}

static void find_whole(Described *d) {
  for (size_t i = 0; i < d->graphs->parameters.n && !d->fault; i++) {
    const Parameter *p = &d->graphs->parameters.items[i];
    if (p->gradient == NO_OUTPUT || adapters_have(d->adapters, p->path)) continue;
    const char *module = module_of(d->arena, p->path);
    if (!module || is_adapted(d->adapters, module))
      d->fault = arena_printf(d->arena,
                              "the weight '%s' is trained whole and %s, so peft's files have no place for it", p->path,
                              module ? "is of a module with an adapter" : "belongs to no module");
    else if (!has(&d->whole, module))
      vec_push(d->arena, &d->whole, module);
  }
}

/* A module that is trained whole is saved whole. */
static tfm_adapts place_of(const Described *d, const char *path) {
  const char *module = module_of(d->arena, path);
  if (adapters_have(d->adapters, path)) return TFM_ADAPTS_PAIR;
  return module && has(&d->whole, module) ? TFM_ADAPTS_WHOLE : TFM_ADAPTS_NOT;
}

// ---- the text ----

static json_t *list_of(const Names *names) {
  json_t *list = json_array();
  for (size_t i = 0; i < names->n; i++)
    if (json_array_append_new(list, json_string(names->items[i]))) out_of_memory("for the config of an adapter", 0);
  return list;
}

static json_t *targets_of(Described *d, bool *is_turned) {
  Names names = {0};
  for (size_t i = 0; i < d->adapters->weights.n; i++) {
    vec_push(d->arena, &names, d->adapters->weights.items[i].module);
    *is_turned |= d->adapters->weights.items[i].is_turned;
  }
  return list_of(&names);
}

static json_t *number(double x) {
  return x == floor(x) && fabs(x) < 0x1p53 ? json_integer((json_int_t)x) : json_real(x);
}

/* Modules whose rank or alpha is another one: peft's patterns, which a whole path is, too. */
static json_t *pattern_of(const Adapters *adapters, bool is_rank) {
  json_t *object = json_object();
  for (size_t i = 0; i < adapters->weights.n; i++) {
    const AdaptedWeight *of = &adapters->weights.items[i];
    const double own = is_rank ? (double)of->rank : of->alpha;
    if (own == (is_rank ? (double)adapters->rank : adapters_alpha(adapters))) continue;
    if (json_object_set_new(object, of->module, number(own))) out_of_memory("for the config of an adapter", 0);
  }
  return object;
}

static void set(json_t *config, const char *key, json_t *value) {
  if (!value || json_object_set_new(config, key, value)) out_of_memory("for the config of an adapter", 0);
}

static const char *text_of(Described *d) {
  const Adapters *adapters = d->adapters;
  bool is_turned = false;
  json_t *config = json_object();
  set(config, "peft_type", json_string("LORA"));
  set(config, "task_type", json_null());
  set(config, "r", json_integer(adapters->rank));
  set(config, "lora_alpha", number(adapters_alpha(adapters)));
  set(config, "rank_pattern", pattern_of(adapters, true));
  set(config, "alpha_pattern", pattern_of(adapters, false));
  set(config, "lora_dropout", number(adapters->dropout));
  set(config, "use_rslora", json_boolean(adapters->is_rslora));
  set(config, "target_modules", targets_of(d, &is_turned));
  set(config, "modules_to_save", d->whole.n ? list_of(&d->whole) : json_null());
  set(config, "fan_in_fan_out", json_boolean(is_turned));
  set(config, "bias", json_string("none"));
  set(config, "init_lora_weights", json_true());
  set(config, "inference_mode", json_true());
  char *text = json_dumps(config, JSON_INDENT(2));
  if (!text) out_of_memory("for the config of an adapter", 0);
  const char *kept = arena_printf(d->arena, ",%s\n", text + 1); /* behind the first key */
  free(text);
  json_decref(config);
  return kept;
}

void adapter_describe(Arena *arena, const TrainGraphs *graphs, tfm_training *training, tfm_parameter *parameters) {
  Described d = {.arena = arena, .graphs = graphs, .adapters = graphs->objective->adapters};
  if (!d.adapters) return;
  check_adapted(&d);
  find_whole(&d);
  for (uint32_t i = 0; i < graphs->parameters.n; i++)
    parameters[i].adapts = (uint8_t)place_of(&d, graphs->parameters.items[i].path);
  training->no_adapter = d.fault;
  if (!d.fault) training->adapter = text_of(&d);
}

const char *adapter_base(Arena *arena, const char *folder) {
  json_t *config = json_load_file(arena_printf(arena, "%s/adapter_config.json", folder), 0, NULL);
  const char *base = json_string_value(json_object_get(config, "base_model_name_or_path"));
  if (base) base = arena_strdup(arena, base);
  json_decref(config);
  return base;
}
