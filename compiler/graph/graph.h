/* Graph: what a model computes, as tensors in single assignment with symbolic shapes.
 *
 * In: nodes added in an order in which they can be computed. Out: what passes rewrite and plan turns into steps.
 * Layers, repetition and `if` are gone; each node remembers the source text, the module path and the calls it came
 * from. A node's inputs come before it in the list. The functions below keep its users up to date, never a hand. */
#ifndef TFM_GRAPH_GRAPH_H
#define TFM_GRAPH_GRAPH_H

#include "base/vec.h"
#include "diag/diag.h"
#include "graph/expr.h"
#include "graph/graph_adapter.h"
#include "graph/graph_notes.h"
#include "graph/roles.h"
#include "graph/stored.h"
#include "graph/tensor.h"

typedef struct Frame Frame;
struct Frame { /* a call that was being evaluated: "in Linear, called here" */
  const Frame *caller;
  SrcSpan span;
  const char *name, *path; /* path: of the module that it computes in, as in Origin */
};

typedef struct Origin {
  SrcSpan span;
  const char *path; /* module path such as "layers.3.self_attn"; "" for the model itself; never NULL */
  const Frame *frame;
  const char *name; /* the first variable of the model's text that the value was bound to; NULL: none */
  const char *refusal; /* of a division of integers: what a run says where the divisor is 0; NULL: that it is */
} Origin;

#define MEMBER_OF_FLAG(member) bool member; /* of a row of attributes.def, by its type */
#define MEMBER_OF_F64(member) double member;
#define MEMBER_OF_AXIS(member) int32_t member;
#define MEMBER_OF_AXES(member) uint8_t member[MAX_RANK];
#define MEMBER_OF_OPERATION(member) OpKind member;
#define MEMBER_OF_STORED(member) Stored member;
#define MEMBER_OF_FORM(member) tfm_form member;
#define MEMBER_OF_TEXT(member) const char *member;
#define MEMBER_OF_VALUE(member) double member;
#define MEMBER_OF_DEFAULT(member) bool member;
#define MEMBER_OF_RANGE(member) const char *member;
#define MEMBER_OF_SIZE(member) const Size *member;
#define MEMBER_OF_STARTS(member) const Size *member[MAX_RANK];
#define MEMBER_OF_SHAPE(member) const Size *member[MAX_RANK];
#define MEMBER_OF_ROWS(member) uint8_t member;
#define MEMBER_OF_STEPS(member) bool member;
#define MEMBER_OF_EXPR(member) Expr *member;

typedef struct NodeAttr { /* attributes.def says what each is */
#define ATTRIBUTE(Enum, text, form, type, member) MEMBER_OF_##type(member)
#include "graph/attributes.def"
  Role role;                  /* INPUT: goes with the name */
  int64_t integer;            /* i32, bool: goes with the number */
  int32_t least, most;        /* INPUT i32: of its elements, go with the text of the range */
  uint8_t rank_in;            /* of dims_in */
  bool rows_where, rows_zero; /* the value of the mask in the live rows; the others are 0, not anything */
  bool is_shared;             /* WEIGHT: another graph, of the same model and weights, uses it too */
} NodeAttr;

struct Node {
  OpKind op;
  DType dtype;
  uint8_t rank;
  uint32_t id; /* unique in the graph; dense after graph_renumber */
  const Size *dims[MAX_RANK];
  NodeAttr attr;
  Origin origin;
  VEC(Node *) inputs, users; /* users: an entry per use, so a node that uses this one twice is there twice */
  Node *prev, *next; /* the list of the graph */
  Arena *arena;      /* the graph's */
  bool deleted;
};

/* A condition on run-time sizes. */
typedef enum CondKind { COND_COMPARE, COND_AND, COND_OR, COND_NOT } CondKind;
typedef struct Cond Cond;
struct Cond {
  CondKind kind;
  OpKind op; /* COMPARE: EQ NE LT GT LE GE */
  const Size *left, *right;
  const Cond *a, *b;
};

typedef struct CheckPart {
  const char *text; /* then the value of size, if any */
  const Size *size;
  bool named; /* "time = 7" instead of "7" */
} CheckPart;

typedef struct Check { /* a condition that every run must meet; where one does not, the message is its error */
  const Cond *condition;
  VEC(CheckPart) message;
  Origin origin;
  bool is_stated; /* by a `require`: whoever wrote the model knows of it. Not in the text form */
} Check;

typedef struct GraphOutput {
  const char *name;
  Node *node;
  Role role;
} GraphOutput;

typedef struct GenerateSetting {
  const char *name;
  VEC(double) values; /* one, or a list */
} GenerateSetting;

typedef struct Graph {
  Arena *arena;
  SizeTable *sizes;
  const char *name; /* the model's */
  Node *first, *last;
  uint32_t next_id;
  VEC(Node *) inputs;  /* INPUT nodes in order of declaration, used or not */
  VEC(GraphOutput) outputs;
  VEC(Check) checks;
  bool ragged[SIZE_MAX_SYMBOLS]; /* symbols whose value differs from item to item, and the symbol of the batch: */
  int32_t ragged_batch; /* symbol index; -1: nothing is ragged */
  int32_t size_roles[N_SIZE_ROLES]; /* symbol index of the size that has the role; -1: none has */
  bool is_of_step; /* a step of training, cut off from its gradients (train/cut_graphs.h) */
  bool is_half_lowered; /* a pass that lowers graphs was left out: the plan may not know all operations */
  bool is_portable; /* places in its plans name a file by Source.name, not by its path: for libraries, which move */
  const char *generate_input, *generate_output; /* the generate block, if there is one */
  VEC(GenerateSetting) generate_settings;
  VEC(GraphAdapter) adapters; /* of the model: files of adapters are read as theirs, not merged */
  GraphNotes notes; /* not of copies */
  Map declared_weights; /* name -> Node *, used or not: compared with those of the file for warnings */
} Graph;

Graph *graph_new(Arena *arena, const char *name);
/* A new node before `before`, or at the end if that is NULL; dims and inputs are copied, an INPUT joins the inputs. */
Node *graph_add(Graph *graph, Node *before, OpKind op, DType dtype, uint32_t rank, const Size *const *dims,
                uint32_t n_inputs, Node *const *inputs, Origin origin);
void graph_set_input(Node *node, uint32_t index, Node *input);
void graph_set_inputs(Graph *graph, Node *node, uint32_t n, Node *const *inputs);
/* Every use of `node`, outputs included, becomes a use of `by`, which must not use `node` itself. */
void graph_replace_uses(Graph *graph, Node *node, Node *by);
/* Unlinks a node that has no uses left and is no INPUT; its own inputs lose a use. */
void graph_delete(Graph *graph, Node *node);
/* Of a graph in which nothing uses its inputs: it has none then. */
void graph_delete_inputs(Graph *graph);
bool graph_is_output(const Graph *graph, const Node *node);
/* Moves a node in the list to just before another, which must come after all of its inputs. */
void graph_move_before(Graph *graph, Node *node, Node *before);
void graph_renumber(Graph *graph); /* ids 0, 1, 2 ... in list order */
uint32_t graph_count(const Graph *graph);
/* Whether the value depends on weights and constants only (it can be computed before any run). Walks what the node is
 * computed from, each node once; for all nodes of a graph use graph_static_flags. */
bool node_is_static(const Node *node);
/* The same for every node, by id. The ids must be dense (graph_renumber). */
bool *graph_static_flags(Arena *arena, const Graph *graph);
/* A copy in another arena, with the same ids and a SizeTable of its own. Source texts and their spans are shared. */
Graph *graph_clone(Arena *arena, const Graph *graph);
/* Turns a graph with ragged sizes into one whose items all have the same sizes in a run; checks then speak of one item,
 * whose batch is 1. No operation mixes items, so each is computed as if it were alone. */
void graph_make_uniform(Graph *graph);

/* The place in the user's own text that led here, past calls within standard layers. No source: there is none. */
SrcSpan origin_place(const Origin *origin);
void origin_note_calls(Diag *diag, const Origin *origin); /* that led to that place, at most eight */
void origin_error(Diag *diag, const Origin *origin, DiagCode code, const char *format, ...) /* there, with these */
    __attribute__((format(printf, 4, 5)));
bool node_same_shape(const Node *a, const Node *b);
/* The bool input that marks the live rows of the node; NULL if all are live. */
static inline Node *node_rows_mask(const Node *node) {
  return node->attr.rows_mask && !node->attr.rows_are_steps ? node->inputs.items[node->attr.rows_mask - 1] : NULL;
}
/* The tensor whose elements the node shows: past slices, reshapes and permutations. */
static inline const Node *node_behind_views(const Node *node) {
  while (op_table[node->op].category == CATEGORY_VIEW) node = node->inputs.items[0];
  return node;
}
const Size *node_elements(SizeTable *table, const Node *node); /* the product of its dims */
void node_print_value(StrBuf *out, const Node *node); /* "0.5", "3", "true": of FULL, the default of an INPUT */
void node_print_shape(StrBuf *out, const SizeTable *table, const Node *node); /* "f32[batch, time, 64]" */

/* What has the role; NULL: nothing has. */
Node *graph_input_with(const Graph *graph, Role role);
const GraphOutput *graph_output_with(const Graph *graph, Role role);
const Size *graph_size_with(const Graph *graph, SizeRole role);

/* Text form (print.c, read.c, cond_text.c): what is printed is read back to the same text. */
void check_print(StrBuf *out, const SizeTable *table, const Check *check);
void cond_print(StrBuf *out, const SizeTable *table, const Cond *cond); /* "time <= 64" */
/* Reads what follows the word "check" and moves *text past it, but no origin. False: *text is where, *error what. */
bool check_read(Arena *arena, SizeTable *sizes, const char **text, Check *check, const char **error);
void node_print(StrBuf *out, const SizeTable *table, const Node *node); /* "%3 = add %1, %2 : f32[batch]" */
/* What follows its inputs, `separator` before the first attribute: ", axis=1 : f32[batch]". */
void node_print_attributes(StrBuf *out, const SizeTable *table, const Node *node, const char *separator);
void graph_print(StrBuf *out, Graph *graph); /* renumbers */
void graph_print_with_origins(StrBuf *out, Graph *graph);
Graph *graph_read(Arena *arena, Diag *diag, Source *source); /* NULL after an error */
/* Every broken rule gives a diagnostic (DIAG_GRAPH_INVALID, text form of the node); false if there was one. */
bool graph_verify(Graph *graph, Diag *diag);
void graph_dump(Graph *graph); /* these two are for the debugger */
void node_dump(const Graph *graph, const Node *node);

#endif
