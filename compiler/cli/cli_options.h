/* Options: what the command line says, checked.
 *
 * In: argc and argv. Out: the verb, its files, and the values of its options, each of them valid for its kind. Refuses
 * (DIAG_USAGE) unknown verbs and options, naming the nearest known one; options of other verbs; options that are given
 * twice; and values that are not of the option's kind. options.def, verbs.def and stages.def are the only lists:
 * adding a row is all that a new option needs here. */
#ifndef TFM_CLI_OPTIONS_H
#define TFM_CLI_OPTIONS_H

#include <stdint.h>

#include "base/strbuf.h"
#include "diag/diag.h"

typedef enum Verb {
#define VERB(Enum, name, arguments, least, most, takes, output, line, details) VERB_##Enum,
#include "cli/verbs.def"
  N_VERBS
} Verb;

/* What stands in place of FILE, as bits. */
enum {
  TAKES_OTHER = 0,
  TAKES_MODEL = 1 << 0,
  TAKES_LIBRARY = 1 << 1 | TAKES_MODEL,
  TAKES_PACKED = 1 << 2 | TAKES_LIBRARY, /* packed weights serve in place of tensors */
  TAKES_OBJECTIVE = 1 << 3
};

typedef enum VerbOutput { OUTPUT_NONE, OUTPUT_FILE, OUTPUT_OWN } VerbOutput;

enum {
#define VERB(Enum, name, arguments, least, most, takes, output, line, details) V_##Enum = 1 << VERB_##Enum,
#include "cli/verbs.def"
  V_EXECUTE = V_RUN | V_GENERATE | V_VERIFY | V_BENCH | V_PROFILE,
  V_TRIED = V_EXECUTE | V_CHECK, /* check runs nothing, but it takes the options of run, so that a line can be tried */
  V_PASSES = V_DUMP | V_OPT | V_GRAPH | V_COMPILE | V_PACK,
  V_ALL = (1 << N_VERBS) - 1,
  /* From the columns of verbs.def. */
  V_MODEL = 0
#define VERB(Enum, name, arguments, least, most, takes, output, line, details) \
  | (TAKES_##takes & TAKES_MODEL ? V_##Enum : 0)
#include "cli/verbs.def"
  ,
  V_TRAINING = 0
#define VERB(Enum, name, arguments, least, most, takes, output, line, details) \
  | (TAKES_##takes & TAKES_OBJECTIVE ? V_##Enum : 0)
#include "cli/verbs.def"
  ,
  V_OUTPUT = 0
#define VERB(Enum, name, arguments, least, most, takes, output, line, details) \
  | (OUTPUT_##output != OUTPUT_NONE ? V_##Enum : 0)
#include "cli/verbs.def"
};

typedef enum Option {
#define OPTION(Enum, letter, name, kind, argument, rule, verbs, help) OPTION_##Enum,
#include "cli/options.def"
  N_OPTIONS
} Option;

/* What --stage may name. */
typedef struct StageInfo {
  const char *name;
  enum StagePart { PART_MODEL, PART_TRAINING, PART_ENCODER, PART_STEP } part;
  enum StageForm { FORM_AST, FORM_GRAPH, FORM_FUSED, FORM_PLAN, FORM_LLVM, FORM_ASM } form;
  const char *line;
} StageInfo;

enum {
  N_STAGES = 0
#define STAGE(name, part, form, line) +1
#include "cli/stages.def"
};

typedef enum OptionKind { KIND_FLAG, KIND_ONCE, KIND_MANY, KIND_COUNT, KIND_NUMBER, KIND_CHOICE } OptionKind;

typedef struct OptionInfo {
  char letter;
  const char *name; /* NULL: there is only the letter */
  OptionKind kind;
  const char *argument, *rule;
  unsigned verbs;
  const char *help;
} OptionInfo;

typedef struct VerbInfo {
  const char *name, *arguments;
  unsigned least, most;
  unsigned takes; /* TAKES_... */
  VerbOutput output;
  const char *line, *details;
} VerbInfo;

extern const OptionInfo option_table[N_OPTIONS];
extern const VerbInfo verb_table[N_VERBS];
extern const StageInfo stage_table[N_STAGES];

/* Whether help and the documents mention it. */
static inline bool verb_is_listed(int verb) { return *verb_table[verb].line; }

static inline bool verb_takes_library(Verb verb) {
  return (verb_table[verb].takes & TAKES_LIBRARY) == TAKES_LIBRARY;
}

static inline bool verb_takes_packed_weights(Verb verb) {
  return (verb_table[verb].takes & TAKES_PACKED) == TAKES_PACKED;
}

typedef struct OptionValues {
  VEC(const char *) texts; /* "" for a flag */
} OptionValues;

typedef struct Options {
  Verb verb;
  bool wants_version;
  VEC(const char *) files;
  OptionValues values[N_OPTIONS];
} Options;

/* Reads the command line. False after an error; even then `options` can be read, as far as the line was understood. */
bool options_parse(Arena *arena, Diag *diag, int argc, char **argv, Options *options);
/* N_VERBS if no verb has this name. */
Verb verb_find(const char *name);
/* The listed verb whose name is most like this one; NULL if none is close enough to be meant. */
const char *verb_nearest(const char *name);
/* "--weights" or "-O" */
const char *option_spelling(Arena *arena, Option option);
/* "-o, --output FILE", "--weights=FILE" or "-O0|2" */
const char *option_usage(Arena *arena, Option option);

bool option_given(const Options *options, Option option);
/* The text given last, or `otherwise`. */
const char *option_text(const Options *options, Option option, const char *otherwise);
uint64_t option_count(const Options *options, Option option, uint64_t otherwise);
double option_number(const Options *options, Option option, double otherwise);
/* Whether the text given, or `otherwise`, is `word`. */
bool option_is(const Options *options, Option option, const char *otherwise, const char *word);
/* Reports an error of the command line about an option: "--threads: ...". */
void option_error(Diag *diag, Option option, const char *format, ...) __attribute__((format(printf, 3, 4)));

#endif
