/* Elaborate: the interpreter of the language whose tensors are graph nodes.
 *
 * In: a parsed program, the name of the model (NULL: the only one of the main file), -D definitions. Out: the graph of
 * the model's forward with every shape, check, output, ragged size and the generate block; numbers, modules, `if` and
 * repetition are gone. Refuses what docs/language.md calls an error, with the place, both shapes and the calls.
 * The standard layers (std.tfm) are in scope. At most 1,000,000 operations. */
#ifndef TFM_ELABORATE_ELABORATE_H
#define TFM_ELABORATE_ELABORATE_H

#include "graph/graph.h"
#include "parse/include.h"

typedef struct Definition { /* -D name=expression */
  const char *name, *expression;
} Definition;

struct Value;

/* What wants to see values while they are made, as a language server does. Called for each expression that is
 * evaluated, and for what binds a name: AST_PARAM, AST_MEMBER, AST_WEIGHT, AST_FOR, the AST_NAMEs on the left of an
 * assignment, and those in types. `sizes` is set before the first call. */
typedef struct ElaborateObserver {
  void *context;
  void (*saw)(void *context, const Ast *node, const struct Value *value);
  const SizeTable *sizes;
} ElaborateObserver;

typedef struct ElaborateOptions {
  const char *model;
  const Definition *definitions;
  uint32_t n_definitions;
  const char *weights_prefix; /* put before every weight path; NULL: nothing */
  const Definition *settings; /* of an objective, in place of those of its train block */
  uint32_t n_settings;
  bool is_training;          /* an objective has dropout */
  ElaborateObserver *observer; /* NULL: nobody */
} ElaborateOptions;

/* A file of the standard layers and functions: "<std>", "<std/losses>". */
typedef struct StandardFile {
  const char *name, *text;
  uint32_t size;
} StandardFile;

enum { N_STANDARD_FILES = 3 };
StandardFile standard_file(uint32_t i);

/* NULL after an error. */
Graph *elaborate(Arena *arena, Map *names, Diag *diag, const ParsedProgram *program, const ElaborateOptions *options);

#endif
