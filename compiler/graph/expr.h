/* Expr: a small pointwise expression, the body of fused nodes: epilogues, prologues, scores, leftover elementwise work.
 *
 * In: leaves and operations of the categories UNARY, BINARY, TERNARY of ops.def. Out: a tree, in which subtrees may be
 * shared (so it is a DAG), that kernels turn into vector code and eval computes. Every Expr has a dtype. Shapes are
 * those of the node that owns it: each leaf broadcasts to the shape the expression is computed over (its *domain*). */
#ifndef TFM_GRAPH_EXPR_H
#define TFM_GRAPH_EXPR_H

#include "base/strbuf.h"
#include "diag/source.h"
#include "graph/ops.h"
#include "graph/size.h"

enum { EXPR_MAX_OPERATIONS = 4096 }; /* of one expression; verify refuses more */

typedef enum ExprKind {
  EXPR_OP,      /* op of 1 to 3 arguments */
  EXPR_ACC,     /* what the owning node computes itself: x wT, q kT, x y; f32 */
  EXPR_INPUT,   /* input number `input` of the owning node, broadcast to the domain */
  EXPR_CONST,   /* `number` (f32) or `integer` (i32, bool) */
  EXPR_SIZE,    /* a run-time size as i32 or f32 */
  EXPR_INDEX,   /* i32: the coordinate along axis `axis` of the domain, counted from the last: 0 is the last axis */
  EXPR_GATHER,  /* row args.ids of a rank-2 input table: table[ids], where the ids broadcast to the domain without its
                   last axis and the table's last axis is the domain's last. `input` = the table, `ids` = the ids */
} ExprKind;

typedef struct Expr Expr;
struct Expr {
  ExprKind kind;
  DType dtype;
  OpKind op;
  uint32_t n_args;
  Expr *args[3];
  uint32_t input, ids;
  uint32_t axis;
  double number;
  int64_t integer;
  const Size *size;
  SrcSpan place; /* of a division of integers, which a run may refuse: where it is written, if that is known */
  const char *refusal; /* as of an Origin */
};

Expr *expr_op(Arena *arena, OpKind op, DType dtype, Expr *a, Expr *b, Expr *c); /* b, c may be NULL */
/* One of integers that refuses a divisor of 0. */
bool expr_is_division(const Expr *expr);
Expr *expr_acc(Arena *arena);
Expr *expr_input(Arena *arena, DType dtype, uint32_t input);
Expr *expr_number(Arena *arena, double number);                    /* f32 */
Expr *expr_integer(Arena *arena, DType dtype, int64_t integer);    /* i32 or bool */
Expr *expr_size(Arena *arena, DType dtype, const Size *size);
Expr *expr_index(Arena *arena, uint32_t axis);
Expr *expr_gather(Arena *arena, DType dtype, uint32_t table, uint32_t ids);

bool expr_equal(const Expr *a, const Expr *b);
/* A copy in which every INPUT i (and table, ids of GATHER) is renamed to inputs[i], and ACC is replaced by `acc`
 * (NULL: stays). */
Expr *expr_rename(Arena *arena, const Expr *expr, const uint32_t *inputs, Expr *acc);
uint32_t expr_count(const Expr *expr); /* operations in it, shared ones once */
bool expr_uses_acc(const Expr *expr);
/* Of an attention_grad: the scores, what is kept, what q kT gets. False: the expression is no such sum. */
enum { ATTENTION_SCORE, ATTENTION_KEEP, ATTENTION_BACK, ATTENTION_TERMS };
/* The first `n` of them, ATTENTION_BACK (of an attention_kept) or ATTENTION_TERMS. */
bool expr_attention_terms(const Expr *expr, uint32_t n, Expr **terms);
Expr *expr_of_attention_terms(Arena *arena, uint32_t n, Expr *const *terms);

/* The distinct subexpressions of `root`, each after its arguments; `root` is the last. */
typedef struct ExprList {
  const Expr **items;
  uint32_t n;
  uint32_t *args[3]; /* for each item the numbers of its arguments; `ids` of a GATHER is no argument */
} ExprList;
ExprList expr_list(Arena *arena, const Expr *root);

/* Prefix form: "gelu(add(acc, $2))", "where(gt(index0, index1), -inf, mul(acc, 0.125))", "gather($0, $1)",
 * "size(i32, time)". Numbers print with the digits that give the same f32 (i32) back; an f32 has a point, an exponent
 * or is inf or nan. An operation that is used more than once is named first: "t0 = mul($0, $0); mul(t0, t0)". */
void expr_print(StrBuf *out, const SizeTable *sizes, const Expr *expr);
/* Reads what expr_print wrote from *text, which is moved past it. `inputs` are the types of the node's inputs. NULL
 * after an error: *text is where, *error what. */
Expr *expr_read(Arena *arena, SizeTable *sizes, const char **text, uint32_t n_inputs, const DType *inputs,
                const char **error);

#endif
