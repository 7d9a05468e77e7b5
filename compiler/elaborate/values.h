/* Values: what the language computes with while a model is compiled.
 *
 * A tensor is a node of the graph; everything else is gone after elaboration. After an error a value is POISON:
 * whatever it touches is poison too, and silent. */
#ifndef TFM_ELABORATE_VALUES_H
#define TFM_ELABORATE_VALUES_H

#include "ast/ast.h"
#include "graph/graph.h"

/* VALUE(Enum, "what messages call it") */
#define VALUE_KINDS(VALUE)                              \
  VALUE(POISON, "a value in error")                     \
  VALUE(MISSING, "nothing") /* an argument not given */ \
  VALUE(NONE, "none")                                   \
  VALUE(BOOL, "a boolean")                              \
  VALUE(INTEGER, "a number")                            \
  VALUE(NUMBER, "a number")                             \
  VALUE(SIZE, "a run-time size") /* never constant */   \
  VALUE(CONDITION, "a comparison of run-time sizes")    \
  VALUE(STRING, "a string")                             \
  VALUE(INITIAL, "an initial value")                    \
  VALUE(LIST, "a list")                                 \
  VALUE(PRIMITIVE, "a function")                        \
  VALUE(FUNCTION, "a function")                         \
  VALUE(LAYER, "a layer")                               \
  VALUE(TEMPLATE, "a module")                           \
  VALUE(MODULE, "a module")                             \
  VALUE(TENSOR, "a tensor")                             \
  VALUE(TUPLE, "a tuple of tensors")

typedef enum ValueKind {
#define VALUE(Enum, text) VALUE_##Enum,
  VALUE_KINDS(VALUE)
#undef VALUE
  N_VALUE_KINDS
} ValueKind;

typedef struct Primitive Primitive;
typedef struct Function Function;
typedef struct Layer Layer;
typedef struct Template Template;
typedef struct Module Module;
typedef struct List List;
typedef struct Scope Scope;

typedef struct SizeList {
  uint32_t n;
  const Size **items;
} SizeList;

typedef struct Tuple {
  uint32_t n; /* at least 2 */
  Node **items; /* NULL: poison */
} Tuple;

typedef struct Value {
  ValueKind kind;
  union {
    bool boolean;
    int64_t integer;
    double number;
    const Size *size;
    const Cond *condition;
    const char *string;
    const struct Initial *initial;
    const List *list;
    const Primitive *primitive;
    Function *function;
    Layer *layer;
    const Template *template;
    Module *module;
    Node *tensor;
    const Tuple *tuple;
  } as;
} Value;

/* Values of any kind, one after the other. */
struct List {
  uint32_t n, depth; /* depth: of lists and templates in one another */
  bool has_new;      /* some element is a module without a name, or a list with such */
  Value *items;
  const char **paths; /* of elements that `as` gives one, else NULL; NULL: of none */
};

/* An `fn` or `forward` of one module, or of no module. */
struct Function {
  const char *name;
  const Ast *ast; /* AST_FN */
  Scope *scope;
  bool active; /* being called: a second call is recursion */
};

struct Layer {
  const char *name;
  const Ast *ast; /* AST_LAYER */
  Scope *scope; /* the file's names */
  bool is_model, is_main; /* is_main: of the file that the user named */
};

/* A module that has no name yet: a layer with its configuration, or a list of `count` times `inner`. */
struct Template {
  const Ast *place; /* where it was written */
  Layer *layer;     /* NULL: a repetition */
  Scope *config;
  int64_t count;
  const Template *inner;
  uint32_t depth;   /* of templates and lists in one another */
  bool is_in_loop;  /* its text stands inside a `for` */
};

typedef struct PathPart { /* the path of a submodule below its module */
  bool is_inline; /* made where it is applied, without a name */
  int n_same;     /* how many inline ones have this name, with _2, _3 ... */
} PathPart;

struct Module {
  Layer *layer;
  const Module *maker; /* the module whose text made this one; NULL: the model */
  const char *path; /* "layers.3.self_attn"; "" for the model */
  const char *shown; /* the same for people: `as` takes any text, and a line break would forge lines of a report */
  Scope *scope;
  Function *forward;
  const Ast *generate, *train, *adapt;
  bool is_faulty; /* a member has an error: what seems to be missing may be that one */
  bool is_refused; /* a `require` among the members failed: nothing else is said about the module */
  Map parts;       /* path below this module -> PathPart */
  Map weights;     /* path of a weight below this module -> Node, NULL: poison */
  Map inline_modules; /* place in the text (a pointer) -> InlineModule of modules.c */
};

#define POISON ((Value){.kind = VALUE_POISON})
#define MISSING ((Value){.kind = VALUE_MISSING})
#define NONE_VALUE ((Value){.kind = VALUE_NONE})

static inline Value value_bool(bool b) { return (Value){VALUE_BOOL, {.boolean = b}}; }
static inline Value value_integer(int64_t i) { return (Value){VALUE_INTEGER, {.integer = i}}; }
static inline Value value_number(double d) { return (Value){VALUE_NUMBER, {.number = d}}; }
static inline Value value_string(const char *text) { return (Value){VALUE_STRING, {.string = text}}; }
/* A node, or poison if it is NULL. */
static inline Value value_tensor(Node *node) { return node ? (Value){VALUE_TENSOR, {.tensor = node}} : POISON; }
/* An integer if the size is constant; poison if it is NULL. */
Value value_size(const Size *size);
/* The condition `left op right`, already decided if that is possible; poison if a size is too large. */
Value value_compare(Arena *arena, SizeTable *sizes, OpKind op, const Size *left, const Size *right);
Value value_condition(Arena *arena, CondKind kind, const Cond *a, const Cond *b);

static inline bool is_poison(Value v) { return v.kind == VALUE_POISON; }
static inline bool is_size(Value v) { return v.kind == VALUE_INTEGER || v.kind == VALUE_SIZE; }
static inline bool is_number(Value v) { return v.kind == VALUE_INTEGER || v.kind == VALUE_NUMBER; }
static inline bool is_tensor(Value v) { return v.kind == VALUE_TENSOR || v.kind == VALUE_TUPLE; }
/* A module that has no name yet, or a list with such. */
static inline bool is_new_module(Value v) {
  return v.kind == VALUE_TEMPLATE || (v.kind == VALUE_LIST && v.as.list->has_new);
}
/* Of a size: as a polynomial. */
const Size *size_of(SizeTable *sizes, Value v);
/* Of a number. */
double number_of(Value v);

/* `==` of values that are no tensors and no run-time sizes: of one kind and with the same contents. Modules without a
 * name are equal if they would be made equal; beyond 10,000 values in one another they count as different. */
bool values_equal(Value a, Value b);
bool templates_equal(const Template *a, const Template *b);

const char *value_kind_text(ValueKind kind);

// ---- scopes ----

/* Names and their values, one scope inside another: primitives, standard layers, the files, a module, a function. Names
 * are interned and compared as pointers; bindings stand in the order in which they were made. */
typedef struct Binding {
  const char *name;
  Value value;
  SrcSpan span;   /* where it was defined; none for primitives and locals */
  bool is_member; /* of a layer, no config value */
} Binding;

struct Scope {
  Scope *parent;
  Module *module; /* whose names these are; NULL above all modules */
  bool is_file;   /* what files or the language define */
  VEC(Binding) bindings;
  uint32_t *slots; /* for many names: index + 1 by hash of the pointer */
  uint32_t n_slots;
};

Scope *scope_new(Arena *arena, Scope *parent, Module *module);
/* Room for n more names; more than that grow it. */
void scope_reserve(Arena *arena, Scope *scope, uint32_t n);
/* In this scope alone; NULL if it is not there. Valid until the next scope_put. */
Binding *scope_find(const Scope *scope, const char *name);
/* In this scope or an outer one. */
Binding *scope_search(const Scope *scope, const char *name);
/* Adds or replaces. */
Binding *scope_put(Arena *arena, Scope *scope, const char *name, Value value);
/* The known name nearest to `name`, or NULL. */
const char *scope_nearest(Arena *arena, const Scope *scope, const char *name);

#endif
