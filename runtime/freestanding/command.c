/* The command: its arguments, a run or a generation, its results. In: the words of the call. Out: a file of tensors,
 * and the end of the process. Refused, with a message: words that are no option or size, tensors that are no inputs,
 * inputs that are not there. See command.h. */
#include "freestanding/command.h"

#include "context/binding.h"
#include "context/context.h"
#include "freestanding/freestanding.h"
#include "freestanding/wasi.h"
#include "library/open.h"

enum { MOST_SIZES = 64, NOT_KNOWN = -1 };

typedef struct Command {
  const tfm_library *library;
  const tfm_program *program;
  tfm_context *context;
  char **words; /* sizes, or options of generation; the last one is NULL */
  const char *inputs, *outputs, *weights;
  bool generates;
  CommandTensors given, made;
  int64_t sizes[MOST_SIZES];
  uint64_t *args;         /* the library's struct, in words */
  const int64_t *lengths; /* of prompts; NULL: they are as long as one another */
} Command;

static void check(tfm_status status, const tfm_error *error) {
  if (status) command_fail(status, "%s", error->message);
}

static void *zeroes(size_t n, size_t size) {
  void *memory = calloc(n ? n : 1, size);
  if (!memory) command_fail(TFM_E_NOMEM, "no memory");
  return memory;
}

/* The value of NAME=VALUE or --NAME=VALUE; NULL: the word has another name. */
static const char *value_of_word(const char *word, const char *name) {
  const size_t n = strlen(name);
  return strncmp(word, name, n) == 0 && word[n] == '=' ? word + n + 1 : NULL;
}

// ---- numbers ----

static int64_t whole_number(const char *text, const char *word) {
  const bool is_negative = *text == '-';
  int64_t value = 0;
  const char *at = text + is_negative;
  do {
    if (*at < '0' || *at > '9' || __builtin_mul_overflow(value, 10, &value) ||
        __builtin_add_overflow(value, *at - '0', &value))
      command_fail(TFM_E_USAGE, "%s: a whole number is needed", word);
  } while (*++at);
  return is_negative ? -value : value;
}

/* Up to 15 digits and powers of ten up to 22 are exact, so one operation rounds to what the text says. */
static double real_number(const char *text, const char *word) {
  enum { MOST_DIGITS = 15, MOST_POWER = 22 };
  const bool is_negative = *text == '-';
  const char *at = text + is_negative;
  double value = 0, power = 1;
  int digits = 0, behind = 0;
  int64_t scale = 0;
  bool has_point = false, has_digit = false;
  for (; (*at >= '0' && *at <= '9') || (*at == '.' && !has_point); at++) {
    if (*at == '.') {
      has_point = true;
      continue;
    }
    value = value * 10 + (*at - '0');
    has_digit = true;
    digits += value != 0;
    behind += has_point;
  }
  if (*at == 'e' || *at == 'E') scale = whole_number(at[1] == '+' ? at + 2 : at + 1, word), at = "";
  if (*at || !has_digit || digits > MOST_DIGITS || scale > MOST_POWER + behind || scale < behind - MOST_POWER)
    command_fail(TFM_E_USAGE, "%s: a number of up to 15 digits is needed", word);
  scale -= behind;
  for (int64_t i = scale < 0 ? -scale : scale; i; i--) power *= 10;
  value = scale < 0 ? value / power : value * power;
  return is_negative ? -value : value;
}

// ---- options of generation ----

static void set_count(void *to, const char *text, const char *word) { *(int64_t *)to = whole_number(text, word); }
static void set_limit(void *to, const char *text, const char *word) { set_count(to, text, word); }
static void set_token(void *to, const char *text, const char *word) { set_count(to, text, word); }

static void set_seed(void *to, const char *text, const char *word) {
  if (*text == '-') command_fail(TFM_E_USAGE, "%s: a seed is 0 or more", word);
  set_count(to, text, word);
}

static void set_real(void *to, const char *text, const char *word) { *(double *)to = real_number(text, word); }

static void set_flag(void *to, const char *text, const char *word) {
  if (strcmp(text, "true") != 0 && strcmp(text, "false") != 0)
    command_fail(TFM_E_USAGE, "%s: true or false is needed", word);
  *(int32_t *)to = *text == 't';
}

static void set_early(void *to, const char *text, const char *word) {
  int32_t flag = 0;
  const bool is_never = strcmp(text, "never") == 0;
  if (!is_never) set_flag(&flag, text, word);
  *(tfm_early_stopping *)to = is_never ? TFM_EARLY_NEVER : flag ? TFM_EARLY_TRUE : TFM_EARLY_FALSE;
}

/* Ends the text where `mark` stands. What is behind it; NULL: it does not stand there. */
static char *cut_at(char *text, char mark) {
  while (*text && *text != mark) text++;
  if (!*text) return NULL;
  *text = 0;
  return text + 1;
}

static char *copy_of(const char *text) { return memcpy(zeroes(strlen(text) + 1, 1), text, strlen(text)); }

static void set_tokens(void *to, const char *text, const char *word) {
  uint64_t n = 0;
  int64_t *tokens = zeroes(strlen(text), sizeof *tokens);
  for (char *at = copy_of(text), *rest; at; at = rest) {
    rest = cut_at(at, ',');
    tokens[n++] = whole_number(at, word);
  }
  *(tfm_token_list *)to = (tfm_token_list){tokens, n};
}

/* 17:-100,4:0.5 */
static void set_biases(void *to, const char *text, const char *word) {
  tfm_bias_list list = {0};
  tfm_token_bias *biases = zeroes(strlen(text), sizeof *biases);
  char *at = copy_of(text);
  while (at) {
    char *rest = cut_at(at, ','), *bias = cut_at(at, ':');
    if (!bias) command_fail(TFM_E_USAGE, "%s: a token, a colon and a number are needed, as in 17:-1.5,4:2", word);
    biases[list.n++] = (tfm_token_bias){whole_number(at, word), real_number(bias, word)};
    at = rest;
  }
  list.biases = biases;
  *(tfm_bias_list *)to = list;
}

static void set_start(void *to, const char *text, const char *word) {
  (void)to, (void)text;
  command_fail(TFM_E_USAGE, "%s: what rows begin with is their prompt, an input", word);
}

static void set_option(tfm_generate_options *options, const char *word) {
  const char *value;
#define GENERATE_OPTION(name, of, kind, ...)       \
  if ((value = value_of_word(word, #name))) {      \
    set_##kind(&options->of, value, word);         \
    return;                                        \
  }
#include "tfm/abi/generate_options.def"
  command_fail(TFM_E_USAGE, "%s: this is no option of generation", word);
}

/* A limit replaces those of the block. One of -1 says in C that none is given; here it was. */
static void unset_limits(tfm_generate_options *options, char *const *words) {
  enum { count, limit, real, flag, token, tokens, early, biases, seed, start };
  bool is_given = false;
#define GENERATE_OPTION(name, member, kind, ...)                    \
  for (char *const *word = words; kind == limit && *word; word++) { \
    const char *value = value_of_word(*word, #name);                \
    is_given |= value != NULL;                                      \
    if (value && whole_number(value, *word) == -1)                  \
      command_fail(TFM_E_USAGE, "%s must be 1 or more", #name);     \
  }
#include "tfm/abi/generate_options.def"
  if (!is_given) return;
#define GENERATE_OPTION(name, member, kind, ...) \
  if (kind == limit) memcpy(&options->member, &(int64_t){-1}, sizeof(int64_t));
#include "tfm/abi/generate_options.def"
}

// ---- inputs ----

static const CommandTensor *given_as(const Command *c, const char *name) {
  for (uint32_t i = 0; i < c->given.n; i++)
    if (c->given.items[i].length == strlen(name) && memcmp(c->given.items[i].name, name, strlen(name)) == 0)
      return &c->given.items[i];
  return NULL;
}

static bool has_lengths(const Command *c, uint32_t symbol) {
  const tfm_args_layout *args = &c->library->args;
  return c->generates && (symbol == c->library->generation->length || (args->lengths && args->lengths[symbol]));
}

/* The tensor NAME.lengths of a size: what it is in each item. */
static const CommandTensor *given_lengths(const Command *c, uint32_t symbol) {
  static const char end[] = ".lengths";
  const char *name = c->program->symbols[symbol];
  const size_t n = strlen(name), whole = n + strlen(end);
  for (uint32_t i = 0; i < c->given.n && has_lengths(c, symbol); i++) {
    const CommandTensor *tensor = &c->given.items[i];
    if (tensor->length == whole && memcmp(tensor->name, name, n) == 0 && memcmp(tensor->name + n, end, whole - n) == 0)
      return tensor;
  }
  return NULL;
}

static bool is_input(const Command *c, const CommandTensor *tensor) {
  for (uint32_t i = 0; i < c->program->n_inputs; i++)
    if (given_as(c, c->program->inputs[i].name) == tensor) return true;
  for (uint32_t i = 0; i < c->program->n_symbols; i++)
    if (given_lengths(c, i) == tensor) return true;
  return false;
}

/* The number of the size that an axis consists of; NOT_KNOWN: another polynomial, or a number. */
static int32_t size_of_axis(const tfm_program *program, tfm_size size) {
  const tfm_polynomial *polynomial = &program->polynomials[size];
  if (polynomial->n_terms != 1) return NOT_KNOWN;
  const tfm_term *term = &program->terms[polynomial->first_term];
  const bool is_symbol = term->coefficient == 1 && term->degree == 1 && term->symbols[0] < TFM_FIRST_FLOOR;
  return is_symbol ? term->symbols[0] : NOT_KNOWN;
}

static void read_sizes_of_inputs(Command *c) {
  for (uint32_t i = 0; i < c->program->n_inputs; i++) {
    const tfm_tensor_info *info = &c->program->inputs[i];
    const CommandTensor *tensor = given_as(c, info->name);
    const bool is_prompt = c->generates && c->library->generation->tokens == i;
    if (!tensor && !info->has_default && !is_prompt)
      command_fail(TFM_E_INPUT, "%s has no tensor \"%s\": %s", c->inputs, info->name, info->shape);
    if (tensor && (tensor->dtype != info->dtype || tensor->rank != info->rank))
      command_fail(TFM_E_INPUT, "input \"%s\" is another tensor than %s", info->name, info->shape);
    for (int32_t axis = 0; tensor && axis < tensor->rank; axis++) {
      const int32_t size = size_of_axis(c->program, info->dims[axis]);
      if (size != NOT_KNOWN && c->sizes[size] == NOT_KNOWN) c->sizes[size] = tensor->dims[axis];
    }
  }
}

/* Sizes that no input has; a prompt that is left out has the length 0. */
static void read_sizes_of_words(Command *c) {
  for (char **word = c->words; *word && !c->generates; word++) {
    const char *value = NULL;
    for (uint32_t i = 0; i < c->program->n_symbols && !value; i++)
      if ((value = value_of_word(*word, c->program->symbols[i]))) c->sizes[i] = whole_number(value, *word);
    if (!value) command_fail(TFM_E_USAGE, "%s: this is no size of the model", *word);
  }
  if (c->generates && c->sizes[c->library->generation->length] == NOT_KNOWN)
    c->sizes[c->library->generation->length] = 0;
  for (uint32_t i = 0; i < c->program->n_symbols; i++)
    if (c->sizes[i] == NOT_KNOWN) command_fail(TFM_E_USAGE, "no input says how large %s is", c->program->symbols[i]);
}

static void check_dims(const Command *c) {
  for (uint32_t i = 0; i < c->program->n_inputs; i++) {
    const tfm_tensor_info *info = &c->program->inputs[i];
    const CommandTensor *tensor = given_as(c, info->name);
    const int64_t *wanted = c->context->binding.input_dims + i * TFM_MAX_RANK;
    for (int32_t axis = 0; tensor && axis < tensor->rank; axis++)
      if (tensor->dims[axis] != wanted[axis])
        command_fail(TFM_E_INPUT, "input \"%s\": axis %d is %lld, expected %lld: %s", info->name, (int)axis,
                     (long long)tensor->dims[axis], (long long)wanted[axis], info->shape);
  }
}

static void set_member(Command *c, uint32_t offset, uint64_t value) { c->args[offset / sizeof *c->args] = value; }

/* Of a size that items of a batch have each their own of. */
static void read_lengths(Command *c, uint32_t symbol) {
  const CommandTensor *tensor = given_lengths(c, symbol);
  if (!tensor) return;
  const uint32_t of_batch = c->library->generation->batch;
  const int64_t items = of_batch == TFM_NONE ? 1 : c->sizes[of_batch];
  if (tensor->dtype != TFM_I32 || tensor->rank != 1 || tensor->dims[0] != items)
    command_fail(TFM_E_INPUT, "input \"%.*s\" is another tensor than i32[%lld], a length for each item",
                 (int)tensor->length, tensor->name, (long long)items);
  int64_t *lengths = zeroes((size_t)items, sizeof *lengths);
  for (int64_t i = 0; i < items; i++) {
    int32_t length;
    memcpy(&length, tensor->data + i * (int64_t)sizeof length, sizeof length);
    lengths[i] = length;
  }
  if (symbol == c->library->generation->length) c->lengths = lengths;
  else set_member(c, c->library->args.lengths[symbol], (uintptr_t)lengths);
}

static void read_inputs(Command *c) {
  tfm_error error;
  command_read_tensors(c->inputs, &c->given);
  for (uint32_t i = 0; i < c->given.n; i++)
    if (!is_input(c, &c->given.items[i]))
      command_fail(TFM_E_INPUT, "%s: \"%.*s\" is no input of the model", c->inputs, (int)c->given.items[i].length,
                   c->given.items[i].name);
  if (c->program->n_symbols > MOST_SIZES) command_fail(TFM_E_USAGE, "the model has too many sizes for a command");
  for (uint32_t i = 0; i < c->program->n_symbols; i++) c->sizes[i] = NOT_KNOWN;
  read_sizes_of_inputs(c);
  read_sizes_of_words(c);
  check(context_set_symbols(c->context, c->sizes, &error), &error);
  check_dims(c);
  c->args = zeroes(1, c->library->args.struct_size);
  set_member(c, 0, c->library->args.struct_size);
  for (uint32_t i = 0; i < c->program->n_symbols; i++)
    set_member(c, c->library->args.symbols[i], (uint64_t)c->sizes[i]);
  for (uint32_t i = 0; i < c->program->n_inputs; i++) {
    const CommandTensor *tensor = given_as(c, c->program->inputs[i].name);
    if (tensor) set_member(c, c->library->args.inputs[i], (uintptr_t)tensor->data);
  }
  for (uint32_t i = 0; i < c->program->n_symbols; i++) read_lengths(c, i);
}

// ---- results ----

static CommandTensor *make_tensor(Command *c, const char *name, int32_t dtype, int32_t rank, const int64_t *dims) {
  if (c->made.n == MOST_COMMAND_TENSORS) command_fail(TFM_E_USAGE, "the model has too many outputs for a command");
  CommandTensor *tensor = &c->made.items[c->made.n++];
  *tensor = (CommandTensor){.name = name, .length = (uint32_t)strlen(name), .dtype = dtype, .rank = rank};
  if (rank) memcpy(tensor->dims, dims, (size_t)rank * sizeof *dims);
  return tensor;
}

static void run_once(Command *c) {
  tfm_error error;
  check(tfm_library_reserve(c->context, c->args, &error), &error);
  for (uint32_t i = 0; i < c->program->n_outputs; i++) {
    const tfm_tensor_info *info = &c->program->outputs[i];
    CommandTensor *tensor = make_tensor(c, info->name, info->dtype, info->rank,
                                        c->context->binding.output_dims + i * TFM_MAX_RANK);
    tensor->data = zeroes((size_t)command_elements(tensor), sizeof(float));
    set_member(c, c->library->args.outputs[i], (uintptr_t)tensor->data);
  }
  check(tfm_library_forward(c->context, c->args, &error), &error);
}

static void generate_all(Command *c) {
  tfm_generate_options options = {.struct_size = sizeof options};
  tfm_generated generated;
  tfm_error error;
  tfm_library_generate_defaults(c->library, &options);
  unset_limits(&options, c->words);
  for (char **word = c->words; *word; word++) set_option(&options, *word);
  check(tfm_library_generate(c->context, c->args, c->lengths, &options, &generated, &error), &error);
  const int64_t dims[] = {generated.n, generated.width};
  int32_t *lengths = zeroes((size_t)generated.n, sizeof *lengths);
  for (int64_t i = 0; i < generated.n; i++) lengths[i] = (int32_t)generated.lengths[i];
  make_tensor(c, "sequences", TFM_I32, 2, dims)->data = (char *)generated.sequences;
  make_tensor(c, "lengths", TFM_I32, 1, dims)->data = (char *)lengths;
  if (generated.scores) make_tensor(c, "scores", TFM_F32, 1, dims)->data = (char *)generated.scores;
  if (generated.token_scores) make_tensor(c, "token_scores", TFM_F32, 2, dims)->data = (char *)generated.token_scores;
}

// ---- the call ----

static char **read_words(void) {
  uint32_t n, bytes;
  if (wasi_args_sizes_get(&n, &bytes)) command_fail(TFM_E_USAGE, "the engine gives no arguments");
  char **words = zeroes(n + 2, sizeof *words);
  if (wasi_args_get(words, zeroes(bytes, 1))) command_fail(TFM_E_USAGE, "the engine gives no arguments");
  words[n] = NULL;
  return *words ? words + 1 : words; /* the first one is the module */
}

static void read_arguments(Command *c) {
  char **kept = c->words;
  for (char **word = c->words; *word; word++) {
    const char *value = value_of_word(*word, "--weights");
    if (value) c->weights = value;
    else if (strcmp(*word, "--generate") == 0) c->generates = true;
    else if (!c->inputs) c->inputs = *word;
    else if (!c->outputs) c->outputs = *word;
    else *kept++ = *word;
  }
  *kept = NULL;
  if (!c->outputs)
    command_fail(TFM_E_USAGE, "usage: INPUTS OUTPUTS [--weights=FILE] [SIZE=N ...], safetensors files; - is standard "
                              "input or output; or --generate INPUTS OUTPUTS [--weights=FILE] [OPTION=VALUE ...]");
  if (c->generates && !c->library->generation) command_fail(TFM_E_USAGE, "the model has no generate block");
}

static tfm_model *open_model(const Command *c) {
  tfm_error error;
  tfm_model *model;
  if (c->library->weights || !c->library->programs[0]->weights_bytes) {
    check(tfm_library_open(c->library, NULL, &model, &error), &error);
  } else {
    const CommandBytes weights = command_read(c->weights);
    check(tfm_library_open_memory(c->library, weights.data, weights.size, &model, &error), &error);
  }
  return model;
}

void tfm_command(const tfm_library *library, const char *weights) {
  static Command c; /* zeroes */
  tfm_error error;
  c.library = library;
  c.weights = weights;
  c.words = read_words();
  read_arguments(&c);
  tfm_model *model = open_model(&c);
  c.program = model->program;
  check(tfm_library_context_new(model, NULL, &c.context, &error), &error);
  read_inputs(&c);
  (c.generates ? generate_all : run_once)(&c);
  command_write_tensors(c.outputs, &c.made);
  wasi_proc_exit(0);
}
