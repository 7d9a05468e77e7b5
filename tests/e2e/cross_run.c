/* usage: cross_run LIBRARY PREFIX WEIGHTS CALL OUT THREADS [ROWS OPTION=VALUE...]
 *        cross_run LIBRARY PREFIX WEIGHTS
 *
 * Runs a compiled library as its users do, by its functions alone; the same source for every machine (cross.py). In:
 * WEIGHTS, a .tfmw file, or - if the library holds them; CALL, words of 8 bytes: how many members the args struct has
 * behind its size, then for each 0 and its value, 1, a size in bytes and the bytes of an input (filled up to whole
 * words), or 2 and the size of an output. With ROWS and options the rows are generated, with prompts of different lengths.
 * Out: the bytes of the outputs, or what was generated. Without CALL the model is opened, and the instruction set printed
 * that was chosen. CROSS_MODE in the environment, a name of `modes`, is the floating-point mode of the caller, which must be
 * the same behind the calls. Refused: nothing; a call that fails prints why and exits 3. */
#include <dlfcn.h>
#include <fenv.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "library/open.h" /* what was chosen, no function tells */
#include "tfm/generate_types.h"
#include "tfm/types.h"

enum { MOST_MEMBERS = 256, MOST_TOKENS = 64 };

static void *library;
static const char *prefix;
static tfm_error error;

static void die(const char *what) {
  fprintf(stderr, "cross_run: %s\n", what);
  exit(3);
}

static void *function(const char *suffix) {
  char name[256];
  snprintf(name, sizeof name, "%s_%s", prefix, suffix);
  void *found = dlsym(library, name);
  if (!found) die(name);
  return found;
}

/* The union is what C allows in place of a cast from a pointer to an object. */
#define CALL(suffix, type) (((union { void *object; type; }){function(suffix)}).call)

static uint64_t word(FILE *file) {
  uint64_t value;
  if (fread(&value, sizeof value, 1, file) != 1) die("CALL is short");
  return value;
}

// ---- the args struct ----

typedef struct Call {
  uint64_t args[MOST_MEMBERS + 1]; /* the size, then the members */
  void *outputs[MOST_MEMBERS];
  size_t sizes[MOST_MEMBERS], n_outputs;
} Call;

static void *memory(size_t bytes) {
  void *made = malloc(bytes + 8);
  if (!made) die("no memory");
  return memset(made, 77, bytes + 8);
}

static uint64_t member(Call *call, FILE *file) {
  const uint64_t kind = word(file), value = word(file);
  if (kind == 0) return value;
  void *data = memory(value);
  if (kind == 2) {
    call->sizes[call->n_outputs] = value;
    call->outputs[call->n_outputs++] = data;
  } else if (value && fread(data, 8, (value + 7) / 8, file) != (value + 7) / 8) {
    die("CALL is short");
  }
  return (uint64_t)(uintptr_t)data;
}

static void read_call(Call *call, const char *path) {
  FILE *file = fopen(path, "rb");
  const uint64_t n = file ? word(file) : MOST_MEMBERS + 1;
  if (n > MOST_MEMBERS) die(path);
  call->args[0] = 8 * (n + 1);
  for (uint64_t i = 1; i <= n; i++) call->args[i] = member(call, file);
  fclose(file);
}

// ---- options of generation, by the names of a generation_config.json ----

static void set_count(void *to, const char *text) { *(int64_t *)to = strtoll(text, NULL, 10); }
static void set_limit(void *to, const char *text) { set_count(to, text); }
static void set_token(void *to, const char *text) { set_count(to, text); }
static void set_seed(void *to, const char *text) { *(uint64_t *)to = strtoull(text, NULL, 10); }
static void set_real(void *to, const char *text) { *(double *)to = strtod(text, NULL); }
static void set_flag(void *to, const char *text) { *(int32_t *)to = strcmp(text, "true") == 0; }

static void set_early(void *to, const char *text) {
  *(tfm_early_stopping *)to = strcmp(text, "never") == 0  ? TFM_EARLY_NEVER
                              : strcmp(text, "true") == 0 ? TFM_EARLY_TRUE
                                                          : TFM_EARLY_FALSE;
}

static void set_tokens(void *to, const char *text) {
  int64_t *tokens = memory(MOST_TOKENS * sizeof *tokens);
  uint64_t n = 0;
  for (char *rest; *text && n < MOST_TOKENS; text = *rest ? rest + 1 : rest) tokens[n++] = strtoll(text, &rest, 10);
  *(tfm_token_list *)to = (tfm_token_list){tokens, n};
}

static void set_start(void *to, const char *text) { (void)to, (void)text; } /* the caller's prompt */
static void set_biases(void *to, const char *text) { (void)to, (void)text, die("no biases here"); }

static void set_option(tfm_generate_options *options, const char *text) {
  char name[64];
  const char *equals = strchr(text, '=');
  if (!equals || (size_t)(equals - text) >= sizeof name) die(text);
  memcpy(name, text, (size_t)(equals - text));
  name[equals - text] = 0;
#define GENERATE_OPTION(option, of, kind, ...)     \
  if (strcmp(name, #option) == 0) {                \
    set_##kind(&options->of, equals + 1);          \
    return;                                        \
  }
#include "tfm/abi/generate_options.def"
  die(text);
}

static void write_generated(FILE *out, const tfm_generated *g) {
  const size_t n = (size_t)g->n, all = n * (size_t)g->width;
  fwrite(&g->n, sizeof g->n, 1, out);
  fwrite(&g->width, sizeof g->width, 1, out);
  fwrite(g->lengths, sizeof *g->lengths, n, out);
  fwrite(g->sequences, sizeof *g->sequences, all, out);
  if (g->scores) fwrite(g->scores, sizeof *g->scores, n, out);
  fwrite(g->token_scores, sizeof *g->token_scores, all, out);
}

/* Row i's prompt is i tokens shorter than the longest, as far as there are any. */
static void generate(tfm_context *context, Call *call, char **options, FILE *out) {
  tfm_generate_options chosen = {.struct_size = sizeof chosen};
  tfm_generated generated = {0};
  const int64_t rows = strtoll(options[0], NULL, 10), longest = strtoll(strchr(options[0], ':') + 1, NULL, 10);
  int64_t *lengths = memory((size_t)rows * sizeof *lengths);
  for (int64_t i = 0; i < rows; i++) lengths[i] = longest - i > 1 ? longest - i : longest ? 1 : 0;
  CALL("generate_defaults", void (*call)(tfm_generate_options *))(&chosen);
  for (options++; *options; options++) set_option(&chosen, *options);
  chosen.return_token_scores = 1;
  if (CALL("generate", tfm_status (*call)(tfm_context *, const void *, const int64_t *, const tfm_generate_options *,
                                          tfm_generated *, tfm_error *))(context, call->args, lengths, &chosen,
                                                                         &generated, &error))
    die(error.message);
  write_generated(out, &generated);
}

// ---- the caller's floating-point mode ----

enum { FLUSHES = -1 };

static const struct {
  const char *name;
  int rounding; /* or FLUSHES: subnormal numbers are 0, where the machine can */
} modes[] = {{"nearest", FE_TONEAREST}, {"up", FE_UPWARD}, {"down", FE_DOWNWARD}, {"zero", FE_TOWARDZERO}, {"flush", FLUSHES}};

/* The whole mode, without what has been raised. */
static uint64_t get_mode(void) {
  uint64_t mode = (uint64_t)fegetround();
#if defined __x86_64__
  mode = __builtin_ia32_stmxcsr() & ~0x3fu;
#elif defined __aarch64__
  __asm__ volatile("mrs %0, fpcr" : "=r"(mode));
#endif
  return mode;
}

static void set_mode(int rounding) {
  if (rounding != FLUSHES) {
    if (fesetround(rounding)) die("no such rounding");
    return;
  }
#if defined __x86_64__
  __builtin_ia32_ldmxcsr(__builtin_ia32_stmxcsr() | 0x8040);
#elif defined __aarch64__
  __asm__ volatile("msr fpcr, %0" ::"r"(get_mode() | 1u << 24));
#endif
}

static uint64_t take_mode(void) {
  const char *name = getenv("CROSS_MODE");
  for (size_t i = 0; name && i < sizeof modes / sizeof *modes; i++)
    if (strcmp(modes[i].name, name) == 0) set_mode(modes[i].rounding);
  return get_mode();
}

// ---- all of it ----

static void *open_model(const char *weights) {
  void *model;
  if (CALL("open", tfm_status (*call)(const char *, void **, tfm_error *))(weights, &model, &error)) die(error.message);
  return model;
}

int main(int argc, char **argv) {
  static Call call;
  if (argc != 4 && argc < 7) die("see the head of the file");
  library = dlopen(argv[1], RTLD_NOW);
  if (!library) die(dlerror());
  prefix = argv[2];
  void *model = open_model(strcmp(argv[3], "-") == 0 ? NULL : argv[3]);
  if (argc == 4) return puts(((const tfm_model *)model)->program->isa) < 0;
  read_call(&call, argv[4]);
  FILE *out = fopen(argv[5], "wb");
  if (!out) die(argv[5]);
  tfm_context *context;
  const tfm_context_options options = {.struct_size = sizeof options, .threads = (int32_t)strtol(argv[6], NULL, 10)};
  if (CALL("context_new", tfm_status (*call)(void *, const tfm_context_options *, tfm_context **, tfm_error *))(
          model, &options, &context, &error))
    die(error.message);
  const uint64_t mode = take_mode();
  if (argc > 7) {
    generate(context, &call, argv + 7, out);
  } else {
    if (CALL("forward", tfm_status (*call)(tfm_context *, const void *, tfm_error *))(context, call.args, &error))
      die(error.message);
    for (size_t i = 0; i < call.n_outputs; i++) fwrite(call.outputs[i], 1, call.sizes[i], out);
  }
  if (get_mode() != mode) die("the floating-point mode is another");
  CALL("context_free", void (*call)(tfm_context *))(context);
  CALL("close", void (*call)(void *))(model);
  return fclose(out) ? 3 : 0;
}
