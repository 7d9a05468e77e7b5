/* In: the options of a command line, each of them valid. Out: whether the command reads all of them. Refuses options
 * that would change nothing beside the others, by the rules of option_rules.def. */
#include "cli/option_rules.h"

#include <string.h>

typedef enum RuleKind { IF, UNLESS } RuleKind;

typedef struct OptionRule {
  unsigned verbs;
  Option option;
  RuleKind kind;
  Option other;
  const char *words, *otherwise, *why;
} OptionRule;

static const OptionRule rules[] = {
#define RULE(verbs, Option, kind, Other, words, otherwise, why) \
  {verbs, OPTION_##Option, kind, OPTION_##Other, words, otherwise, why},
#include "cli/option_rules.def"
};

/* Whether `text` is one of the words with bars between them. */
static bool is_one_of(const char *text, const char *words) {
  const size_t length = strlen(text);
  for (const char *word = words; *word; word += strcspn(word, "|"), word += *word == '|')
    if (strcspn(word, "|") == length && strncmp(word, text, length) == 0) return true;
  return false;
}

static bool holds(const Options *options, const OptionRule *rule) {
  if (!*rule->words) return option_given(options, rule->other);
  return is_one_of(option_text(options, rule->other, rule->otherwise), rule->words);
}

bool options_have_random_input(const Options *options) {
  const OptionValues *values = &options->values[OPTION_INPUT];
  size_t i = 0;
  while (i < values->texts.n && strstr(values->texts.items[i], "=@")) i++;
  return i < values->texts.n;
}

/* Of generate the settings of generation have a say, too. */
static void check_seed(Diag *diag, const Options *options) {
  static const unsigned verbs = V_RUN | V_VERIFY | V_BENCH | V_PROFILE;
  if (verbs >> options->verb & 1 && option_given(options, OPTION_SEED) && !options_have_random_input(options))
    option_error(diag, OPTION_SEED, "it would change nothing: no input is random");
}

/* An option that several rules refuse is named once. */
bool options_are_all_read(Diag *diag, const Options *options) {
  Option last = N_OPTIONS;
  for (size_t i = 0; i < sizeof rules / sizeof *rules; i++) {
    const OptionRule *rule = &rules[i];
    if (!(rule->verbs >> options->verb & 1) || !option_given(options, rule->option) || rule->option == last) continue;
    if (holds(options, rule) != (rule->kind == IF)) continue;
    last = rule->option;
    option_error(diag, rule->option, "it would change nothing: %s", rule->why);
  }
  check_seed(diag, options);
  return !diag_has_errors(diag);
}
