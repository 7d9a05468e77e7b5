/* The settings of a train block, and the patterns of weights among them.
 *
 * In: the block, what the command line says in its place; paths of weights. Out: settings; which weights are trained,
 * and by which rate. Refuses settings out of range, those that nothing uses, and patterns that match nothing. See
 * train_settings.h. */
#include "elaborate/train_settings.h"

#include <fnmatch.h>
#include <math.h>
#include <string.h>

#include "elaborate/adapters.h"
#include "elaborate/elaborate_eval.h"
#include "elaborate/tensors.h"

// ---- the settings ----

typedef enum SettingKind {
  SETTING_POSITIVE,  /* a number greater than 0 */
  SETTING_FROM_ZERO, /* a number of 0 or more */
  SETTING_BELOW_ONE, /* a number in [0, 1) */
  SETTING_COUNT,     /* a whole number of 0 or more */
  SETTING_BETAS,     /* two numbers in [0, 1) */
  SETTING_TRUTH,
  SETTING_PATTERNS, /* a list of strings */
  SETTING_RATES,    /* a list of lists of a string and a number greater than 0 */
  SETTING_OPTIMIZER,
  SETTING_SCHEDULE,
  SETTING_FROZEN,
  SETTING_SAVED
} SettingKind;

typedef struct SettingRow {
  const char *name;
  SettingKind kind;
  size_t offset;           /* in TrainSettings */
  unsigned of_optimizers;  /* which of them use it, as bits; 0: all */
  unsigned of_schedules;   /* the same */
} SettingRow;

enum {
  OF_ADAM = 1 << OPTIMIZER_ADAM | 1 << OPTIMIZER_ADAMW,
  OF_SGD = 1 << OPTIMIZER_SGD,
  OF_ENDING = 1 << SCHEDULE_LINEAR | 1 << SCHEDULE_COSINE,
  OF_NOAM = 1 << SCHEDULE_NOAM,
  OF_EXPONENTIAL = 1 << SCHEDULE_EXPONENTIAL
};

/* `steps` says how long a run is, whatever the schedule. */
static const SettingRow rows[] = {
    {"optimizer", SETTING_OPTIMIZER, offsetof(TrainSettings, optimizer), 0, 0},
    {"lr", SETTING_POSITIVE, offsetof(TrainSettings, lr), 0, 0},
    {"betas", SETTING_BETAS, offsetof(TrainSettings, beta1), OF_ADAM, 0},
    {"eps", SETTING_POSITIVE, offsetof(TrainSettings, eps), OF_ADAM, 0},
    {"weight_decay", SETTING_FROM_ZERO, offsetof(TrainSettings, weight_decay), 0, 0},
    {"momentum", SETTING_BELOW_ONE, offsetof(TrainSettings, momentum), OF_SGD, 0},
    {"nesterov", SETTING_TRUTH, offsetof(TrainSettings, nesterov), OF_SGD, 0},
    {"schedule", SETTING_SCHEDULE, offsetof(TrainSettings, schedule), 0, 0},
    {"warmup", SETTING_COUNT, offsetof(TrainSettings, warmup), 0, 0},
    {"steps", SETTING_COUNT, offsetof(TrainSettings, steps), 0, 0},
    {"final_lr", SETTING_FROM_ZERO, offsetof(TrainSettings, final_lr), 0, OF_ENDING},
    {"model_size", SETTING_POSITIVE, offsetof(TrainSettings, model_size), 0, OF_NOAM},
    {"gamma", SETTING_POSITIVE, offsetof(TrainSettings, gamma), 0, OF_EXPONENTIAL},
    {"clip_norm", SETTING_POSITIVE, offsetof(TrainSettings, clip_norm), 0, 0},
    {"freeze", SETTING_PATTERNS, offsetof(TrainSettings, freeze), 0, 0},
    {"train_only", SETTING_PATTERNS, offsetof(TrainSettings, train_only), 0, 0},
    {"no_decay", SETTING_PATTERNS, offsetof(TrainSettings, no_decay), 0, 0},
    {"rates", SETTING_RATES, offsetof(TrainSettings, rates), 0, 0},
    {"frozen", SETTING_FROZEN, offsetof(TrainSettings, frozen), 0, 0},
    {"saved", SETTING_SAVED, offsetof(TrainSettings, saved), 0, 0},
    {"dropout", SETTING_TRUTH, offsetof(TrainSettings, drops), 0, 0},
    {"average", SETTING_BELOW_ONE, offsetof(TrainSettings, average), 0, 0},
};
enum { N_ROWS = sizeof rows / sizeof *rows, ROW_OPTIMIZER = 0, ROW_SCHEDULE = 7 };

static const char *const optimizers[] = {"sgd", "adam", "adamw"};
static const char *const schedules[] = {"constant", "linear", "cosine", "exponential", "noam", "inverse_sqrt"};
static const char *const frozen[] = {"as-stored", "f32", "bf16"};
static const char *const saved[] = {"all", "trained"};

typedef struct Words { /* of a kind whose values are words, in the order of its enum */
  const char *const *words;
  uint32_t n;
} Words;

#define WORDS(array) {array, sizeof array / sizeof *array}
static const Words words_of_kinds[] = {[SETTING_OPTIMIZER] = WORDS(optimizers),
                                       [SETTING_SCHEDULE] = WORDS(schedules),
                                       [SETTING_FROZEN] = WORDS(frozen),
                                       [SETTING_SAVED] = WORDS(saved)};
#undef WORDS
/* A word is written as an int. */
_Static_assert(sizeof(Optimizer) == sizeof(int) && sizeof(Schedule) == sizeof(int) && sizeof(Frozen) == sizeof(int) &&
                   sizeof(Saved) == sizeof(int),
               "enums of settings");

bool setting_is_word(const char *name) {
  for (size_t i = 0; i < N_ROWS; i++)
    if (strcmp(rows[i].name, name) == 0)
      return rows[i].kind < sizeof words_of_kinds / sizeof *words_of_kinds && words_of_kinds[rows[i].kind].n > 0;
  return false;
}

static void set_word(Elaborator *e, const SettingRow *row, Value v, int *to) {
  const Words *known = &words_of_kinds[row->kind];
  for (uint32_t i = 0; v.kind == VALUE_STRING && i < known->n; i++) {
    if (strcmp(known->words[i], v.as.string) != 0) continue;
    *to = (int)i;
    return;
  }
  if (v.kind != VALUE_STRING)
    fail(e, DIAG_KIND, "%s must be a string, one of %s, not %K", row->name, listed(e, known->words, known->n), v);
  else
    fail(e, DIAG_RANGE, "%s has no value \"%V\"%s", row->name, v,
         nearest_or_all(e, v.as.string, "has", known->words, known->n));
}

/* What the kind asks of a number, as the end of a message. */
static const char *range_of(SettingKind kind) {
  switch (kind) {
    case SETTING_POSITIVE:
      return "greater than 0";
    case SETTING_FROM_ZERO:
      return "0 or greater";
    case SETTING_COUNT:
      return "a whole number of 0 or more";
    default:
      return "in [0, 1)";
  }
}

static bool is_in_range(SettingKind kind, double x) {
  switch (kind) {
    case SETTING_POSITIVE:
      return x > 0 && isfinite(x);
    case SETTING_FROM_ZERO:
      return x >= 0 && isfinite(x);
    case SETTING_COUNT:
      return x >= 0 && x < 0x1p53 && x == floor(x);
    default:
      return x >= 0 && x < 1;
  }
}

static void set_number(Elaborator *e, const char *name, SettingKind kind, Value v, double *to) {
  double x = 0;
  if (!real_of(e, v, name, &x)) return;
  if (!is_in_range(kind, x)) fail(e, DIAG_RANGE, "%s must be %s, not %V", name, range_of(kind), v);
  *to = x;
}

static void set_betas(Elaborator *e, Value v, TrainSettings *settings) {
  if (v.kind != VALUE_LIST || v.as.list->n != 2) {
    fail(e, DIAG_KIND, "betas must be a list of two numbers, not %V", v);
    return;
  }
  set_number(e, "betas", SETTING_BETAS, v.as.list->items[0], &settings->beta1);
  set_number(e, "betas", SETTING_BETAS, v.as.list->items[1], &settings->beta2);
}

static void set_patterns(Elaborator *e, const char *name, Value v, Patterns *to) {
  bool good = v.kind == VALUE_LIST;
  for (uint32_t i = 0; good && i < v.as.list->n; i++) {
    good = v.as.list->items[i].kind == VALUE_STRING;
    if (good) vec_push(e->arena, &to->texts, v.as.list->items[i].as.string);
  }
  if (!good) fail(e, DIAG_KIND, "%s must be a list of strings, patterns of weight paths, not %V", name, v);
}

void read_rates(Elaborator *e, const char *name, Value v, Rates *to) {
  bool good = v.kind == VALUE_LIST;
  for (uint32_t i = 0; good && i < v.as.list->n; i++) {
    const Value row = v.as.list->items[i];
    good = row.kind == VALUE_LIST && row.as.list->n == 2 && row.as.list->items[0].kind == VALUE_STRING;
    if (!good) break;
    RateOf rate = {.pattern = row.as.list->items[0].as.string};
    const char *what = arena_printf(e->arena, "a number of %s", name);
    set_number(e, what, SETTING_POSITIVE, row.as.list->items[1], &rate.factor);
    vec_push(e->arena, to, rate);
  }
  if (!good)
    fail(e, DIAG_KIND, "%s must be a list of patterns with their numbers, [[\"head.*\", 10]], not %V", name, v);
}

static void set_one(Elaborator *e, const SettingRow *row, Value v, TrainSettings *settings) {
  void *to = (char *)settings + row->offset;
  switch (row->kind) {
    case SETTING_OPTIMIZER:
    case SETTING_SCHEDULE:
    case SETTING_FROZEN:
    case SETTING_SAVED:
      set_word(e, row, v, to);
      break;
    case SETTING_BETAS:
      set_betas(e, v, settings);
      break;
    case SETTING_PATTERNS:
      set_patterns(e, row->name, v, to);
      if (to == &settings->train_only && v.kind == VALUE_LIST && v.as.list->n == 0)
        fail(e, DIAG_RANGE,
             "train_only is [], so nothing would be trained: leave it out, or write none, to train all that freeze "
             "leaves");
      break;
    case SETTING_RATES:
      read_rates(e, row->name, v, to);
      break;
    case SETTING_TRUTH:
      if (v.kind != VALUE_BOOL)
        fail(e, DIAG_KIND, "%s must be true or false, not %K", row->name, v);
      else
        *(bool *)to = v.as.boolean;
      break;
    default:
      set_number(e, row->name, row->kind, v, to);
      break;
  }
}

/* The row of a setting; NULL after an error. */
static const SettingRow *row_of(Elaborator *e, const char *name) {
  const char *names[N_ROWS];
  for (uint32_t i = 0; i < N_ROWS; i++) {
    names[i] = rows[i].name;
    if (strcmp(names[i], name) == 0) return &rows[i];
  }
  fail(e, DIAG_INPUT_DECLARATION, "train has no setting '%s'%s", name, nearest_or_all(e, name, "has", names, N_ROWS));
  return NULL;
}

/* What a schedule cannot do without. */
static void check_schedule(Elaborator *e, const TrainSettings *s) {
  const char *name = schedules[s->schedule], *missing = NULL;
  const bool has_peak = s->schedule == SCHEDULE_NOAM || s->schedule == SCHEDULE_INVERSE_SQRT;
  const bool has_end = s->schedule == SCHEDULE_LINEAR || s->schedule == SCHEDULE_COSINE;
  if (has_peak && !(s->warmup > 0)) missing = "warmup";
  if (s->schedule == SCHEDULE_NOAM && !(s->model_size > 0)) missing = "model_size";
  if (has_end && !(s->steps > 0)) missing = "steps";
  if (s->schedule == SCHEDULE_EXPONENTIAL && !(s->gamma > 0)) missing = "gamma";
  if (missing)
    fail(e, DIAG_INPUT_DECLARATION, "the schedule \"%s\" needs the setting '%s', greater than 0", name, missing);
  else if (has_end && s->steps <= s->warmup)
    fail(e, DIAG_RANGE, "the schedule \"%s\" ends at steps, which must be greater than warmup", name);
  if (s->nesterov && (s->optimizer != OPTIMIZER_SGD || !(s->momentum > 0)))
    fail(e, DIAG_INPUT_DECLARATION, "nesterov needs momentum greater than 0, and the optimizer \"sgd\"");
}

// ---- settings that nothing uses ----

typedef struct GivenSetting { /* of a row: who sets it */
  bool is_given, is_of_command;
  SrcSpan span;
} GivenSetting;

/* What is set but not used is a slip, so it is an error. If the command line chose another optimizer or schedule than
 * the block, what the block says for its own is only told of. */
typedef struct ChosenBy { /* the setting that says which others are used: the optimizer, the schedule */
  const SettingRow *row;
  bool is_of_command;
  const char *chosen;
} ChosenBy;

static void complain(Elaborator *e, const SettingRow *row, const GivenSetting *given, ChosenBy by, const char *users) {
  const char *text = arena_printf(e->arena, "the %s \"%s\" does not use '%s', which is for %s", by.row->name, by.chosen,
                                  row->name, users);
  const bool is_error = !by.is_of_command || given->is_of_command;
  if (is_error)
    fail_at(e, given->span, DIAG_INPUT_DECLARATION, "%s", text);
  else if (e->is_training) /* once: an objective is often elaborated without dropout too */
    diag_warning(e->diag, given->span, DIAG_UNUSED, "%s", text);
}

/* "a, b" */
static const char *users_of(Elaborator *e, unsigned bits, const char *const *words, uint32_t n) {
  const char *users[N_ROWS];
  uint32_t n_users = 0;
  for (uint32_t i = 0; i < n; i++)
    if (bits >> i & 1) users[n_users++] = words[i];
  return listed(e, users, n_users);
}

static void check_uses(Elaborator *e, const GivenSetting *given, const TrainSettings *s) {
  enum { N_OPTIMIZERS = sizeof optimizers / sizeof *optimizers, N_SCHEDULES = sizeof schedules / sizeof *schedules };
  const ChosenBy optimizer = {&rows[ROW_OPTIMIZER], given[ROW_OPTIMIZER].is_of_command, optimizers[s->optimizer]};
  const ChosenBy schedule = {&rows[ROW_SCHEDULE], given[ROW_SCHEDULE].is_of_command, schedules[s->schedule]};
  for (uint32_t i = 0; i < N_ROWS; i++) {
    const unsigned by_optimizer = rows[i].of_optimizers, by_schedule = rows[i].of_schedules;
    if (!given[i].is_given) continue;
    if (by_optimizer && !(by_optimizer >> s->optimizer & 1))
      complain(e, &rows[i], &given[i], optimizer, users_of(e, by_optimizer, optimizers, N_OPTIMIZERS));
    if (by_schedule && !(by_schedule >> s->schedule & 1))
      complain(e, &rows[i], &given[i], schedule, users_of(e, by_schedule, schedules, N_SCHEDULES));
  }
}

// ---- reading them ----

typedef struct SettingReader {
  Scope *scope;
  TrainSettings *settings;
  GivenSetting given[N_ROWS];
  bool is_of_command; /* what is read now */
} SettingReader;

static const double UNSET = -1;
static const TrainSettings defaults = {
    .optimizer = OPTIMIZER_ADAMW, .lr = 1e-3, .beta1 = 0.9,   .beta2 = 0.999,
    .eps = 1e-8,                  .drops = true, .weight_decay = UNSET};

static size_t bytes_of(SettingKind kind) {
  switch (kind) {
    case SETTING_OPTIMIZER:
      return sizeof defaults.optimizer;
    case SETTING_SCHEDULE:
      return sizeof defaults.schedule;
    case SETTING_FROZEN:
      return sizeof defaults.frozen;
    case SETTING_SAVED:
      return sizeof defaults.saved;
    case SETTING_BETAS:
      return sizeof defaults.beta1 + sizeof defaults.beta2;
    case SETTING_PATTERNS:
      return sizeof defaults.freeze;
    case SETTING_RATES:
      return sizeof defaults.rates;
    case SETTING_TRUTH:
      return sizeof defaults.nesterov;
    default:
      return sizeof(double);
  }
}

/* `none` takes back what the block says. */
static void read_setting(Elaborator *e, SettingReader *r, const char *name, const Ast *expression) {
  const SettingRow *row = row_of(e, name);
  Value v = row ? eval(e, expression, r->scope) : POISON;
  if (!row || is_poison(v)) return;
  memcpy((char *)r->settings + row->offset, (const char *)&defaults + row->offset, bytes_of(row->kind));
  if (v.kind != VALUE_NONE) set_one(e, row, v, r->settings);
  r->given[row - rows] = (GivenSetting){v.kind != VALUE_NONE, r->is_of_command, e->here};
}

/* What the command line says in place of the block. */
static void read_given(Elaborator *e, SettingReader *r, const Definition *given) {
  const char *text = arena_strdup(e->arena, given->expression);
  Source *source = source_new(e->arena, arena_printf(e->arena, "--set %s", given->name), text, (uint32_t)strlen(text));
  const Ast *expression = parse_expression(e->arena, e->names, e->diag, source);
  e->here = (SrcSpan){source, 0, source->size};
  if (expression) read_setting(e, r, given->name, expression);
}

void read_train_settings(Elaborator *e, const Ast *node, Scope *scope, TrainSettings *s) {
  Map seen = map_new(e->arena);
  SettingReader reader = {.scope = scope, .settings = s};
  *s = defaults;
  for (uint32_t i = 0; i < node->n_children; i++) {
    const Ast *setting = node->children[i];
    e->here = setting->span;
    if (map_has(&seen, setting->name)) fail(e, DIAG_REDEFINED, "the setting '%s' appears twice", setting->name);
    map_put(&seen, setting->name, NULL);
    read_setting(e, &reader, setting->name, setting->children[0]);
  }
  reader.is_of_command = true;
  for (uint32_t i = 0; i < e->options->n_settings; i++) read_given(e, &reader, &e->options->settings[i]);
  e->here = node->span;
  if (s->weight_decay == UNSET) s->weight_decay = s->optimizer == OPTIMIZER_ADAMW ? 0.01 : 0;
  if (!diag_has_errors(e->diag)) check_uses(e, reader.given, s);
  if (!diag_has_errors(e->diag)) check_schedule(e, s);
}

// ---- patterns ----

bool patterns_match(const Patterns *patterns, const char *path) {
  for (size_t i = 0; i < patterns->texts.n; i++)
    if (fnmatch(patterns->texts.items[i], path, FNM_NOESCAPE) == 0) return true;
  return false;
}

double rate_factor(const Rates *rates, const char *path, double otherwise) {
  double factor = otherwise;
  for (size_t i = 0; i < rates->n; i++)
    if (fnmatch(rates->items[i].pattern, path, FNM_NOESCAPE) == 0) factor = rates->items[i].factor;
  return factor;
}

bool objective_trains(const Objective *objective, const char *path) {
  const TrainSettings *s = &objective->settings;
  const bool is_chosen = s->train_only.texts.n == 0 || patterns_match(&s->train_only, path);
  return is_chosen && adapters_train(objective->adapters, path) && !patterns_match(&s->freeze, path);
}

/* A pattern that matches nothing is probably a slip. `of`: the weights that are trained alone; NULL: all. */
static void check_pattern(Elaborator *e, const char *name, const char *pattern, const Objective *of) {
  size_t k = 0;
  for (; k < e->weights.n; k++) {
    const char *path = e->weights.items[k].key;
    if (fnmatch(pattern, path, FNM_NOESCAPE) == 0 && (!of || objective_trains(of, path))) return;
  }
  fail(e, DIAG_INPUT_DECLARATION, "%s: no weight %smatches \"%s\"", name, of ? "that is trained " : "", pattern);
}

static void check_patterns(Elaborator *e, const char *name, const Patterns *patterns, const Objective *of) {
  for (size_t i = 0; i < patterns->texts.n; i++) check_pattern(e, name, patterns->texts.items[i], of);
}

void check_train_patterns(Elaborator *e, const Objective *objective) {
  const TrainSettings *s = &objective->settings;
  check_patterns(e, "freeze", &s->freeze, NULL);
  check_patterns(e, "no_decay", &s->no_decay, NULL);
  check_patterns(e, "train_only", &s->train_only, objective);
  for (size_t i = 0; i < s->rates.n; i++) check_pattern(e, "rates", s->rates.items[i].pattern, objective);
}
