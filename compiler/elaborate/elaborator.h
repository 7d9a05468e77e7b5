/* Elaborator: the state of one elaboration, shared by the files of this folder, and how they report faults.
 *
 * In: nothing of the caller's but what elaborate.h names. Functions return POISON, NULL or false after reporting; a
 * fault is reported once, at the place `here`, with notes for the calls that led there. */
#ifndef TFM_ELABORATE_ELABORATOR_H
#define TFM_ELABORATE_ELABORATOR_H

#include "elaborate/elaborate.h"
#include "elaborate/values.h"
#include "graph/build.h"

enum {
  MAX_OPERATIONS = 1000000,  /* nodes of the graph */
  MAX_MODULES = 1000000,     /* modules made */
  MAX_STEPS = 8000000,       /* expressions and statements evaluated */
  MAX_CALL_DEPTH = 256,      /* calls and modules in one another */
  MAX_EVALUATION_DEPTH = 4000, /* expressions in one another, through all calls */
  MAX_CONDITION = 1000,      /* comparisons in one check of a run */
  MAX_CHECKS = 10000,        /* checks of a run */
};
static const int64_t MAX_DIMENSION = INT32_MAX;
static const int64_t MAX_ELEMENTS = (int64_t)1 << 40;

typedef struct InitialOfAll { /* `weight * = value` */
  const char *path;           /* of the module that says so */
  const struct Initial *initial;
} InitialOfAll;

typedef struct Elaborator {
  Arena *arena;
  Map *names;
  Diag *diag;
  Graph *graph;
  SizeTable *sizes;
  Builder builder;
  const char *refusal; /* of the nodes that are made, as in Origin: a text of `checked` */
  const char *weights_prefix;
  Scope *files;       /* the layers of the user's files; its parents: the standard ones, the primitives */
  SrcSpan here;       /* what is being evaluated */
  const Frame *frame; /* the calls, innermost first */
  Module *module;     /* whose function is running or whose members are evaluated; NULL: none */
  VEC(const Ast *) spine; /* eval: what still waits for its left operand */
  uint32_t depth, call_depth;
  uint32_t n_loops; /* `for`s around the text that is evaluated, in its function or member */
  uint32_t n_operations, n_modules, n_steps;
  Value dtypes[N_DTYPES]; /* the primitives f32, i32, bool */
  bool stopped;       /* after too many errors or a limit: nothing is evaluated any more */
  Map weights;        /* path without prefix -> WEIGHT node */
  Map initials;       /* path without prefix -> Initial *, of weights that say theirs */
  VEC(InitialOfAll) initials_of_all;
  struct Adapters *adapters;   /* of the model; NULL: none */
  struct Objective *objective; /* what is elaborated, in place of forward; NULL: it is forward */
  bool is_training;            /* dropout drops */
  const ElaborateOptions *options;
  ElaborateObserver *observer; /* NULL: nobody */
  Map reported;       /* places that have an error already */
  Map counted;        /* text of a fault of fail_counted -> Counted *, its message */
  Map checked;        /* comparisons that every run checks already */
} Elaborator;

/* Formats of messages: %s text, %d int, %D int64_t, %Z const Size *, %V Value (its text), %K Value (its kind, for a
 * tensor with type and shape), %T Node * (its shape), %J uint32_t and Node *const * (shapes joined by "and"),
 * %L const SizeList *. In a check of a run, sizes print with their values. */
Value fail(Elaborator *e, DiagCode code, const char *format, ...);
Value fail_at(Elaborator *e, SrcSpan span, DiagCode code, const char *format, ...);
/* For faults of one cause that show in many places, such as a config value that many weights take: the first place has
 * the message, which says how many there are. Other values in the text make another message. */
Value fail_counted(Elaborator *e, SrcSpan span, DiagCode code, const char *format, ...);
typedef struct OtherPlace { /* that an error is about, too */
  SrcSpan span;
  const char *note;
} OtherPlace;
/* With a note at another place, put before the notes about calls. */
Value fail_with_note(Elaborator *e, SrcSpan span, DiagCode code, OtherPlace other, const char *format, ...);
/* Fails unless the condition holds; one that depends on run-time sizes becomes a check of every run. A poisoned
 * condition says that a size was too large. */
bool need(Elaborator *e, Value condition, DiagCode code, const char *format, ...);
bool need_same(Elaborator *e, const Size *a, const Size *b, const char *format, ...);
/* The text of `require`, with {name} filled in. */
bool need_required(Elaborator *e, Value condition, const char *text, const Scope *scope);
/* What `require x in list` without a text says of an x, written at `place`, that is no element of the list: false. */
bool need_element(Elaborator *e, const Ast *place, Value x, const List *list);
/* The text of `as`, with {name} filled in; NULL after an error. */
/* The text of a `require` that says nothing of a run; NULL after an error. */
const char *filled_text(Elaborator *e, const char *text, const Scope *scope);
const char *filled_path(Elaborator *e, const char *text, const Scope *scope);
/* ", did you mean 'x'?" or "". */
const char *did_you_mean(Elaborator *e, const char *nearest);
/* "a, b, c" */
const char *listed(Elaborator *e, const char *const *words, size_t n);
/* The end of a message about a name that is none of these words: the one that is most like it, or else all of them,
 * "; it has a, b, c" with the verb "has". */
const char *nearest_or_all(Elaborator *e, const char *name, const char *verb, const char *const *words, size_t n);
/* What to write instead of a name, or of an argument, that PyTorch has and the language has not: "it is called
 * Encoder". NULL for a name that is not in torch_names.def. */
const char *torch_name_hint(const char *name);
const char *torch_argument_hint(const char *name);

static inline void show_value(const Elaborator *e, const Ast *node, Value v) {
  if (e->observer) e->observer->saw(e->observer->context, node, &v);
}

/* One more expression or call; false (after reporting) when there were too many. */
bool count_step(Elaborator *e);
/* One more call or module; false (after reporting) when they nest too deep. */
bool enter_call(Elaborator *e, SrcSpan span, const char *name, const Module *module);
void leave_call(Elaborator *e);

/* Origin of nodes: what is evaluated now. */
Origin origin_of(const Elaborator *e);

#endif
