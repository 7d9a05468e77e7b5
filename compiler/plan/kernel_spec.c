/* In: a KernelSpec. Out: its canonical text. Expressions are printed with one line per different operation, so the
 * text does not depend on which subexpressions happen to be shared in memory. */
#include "plan/kernel_spec.h"

#include <inttypes.h>
#include <math.h>

#include "base/hash.h"
#include "base/map.h"
#include "graph/graph.h"

const KernelFamilyInfo kernel_families[N_KERNEL_FAMILIES] = {
#define KERNEL(Enum, text, Type, letters, line) [KERNEL_##Enum] = {text, #Type, letters, line},
#include "plan/kernels.def"
};

#define KERNEL(Enum, text, Type, letters, line) \
  _Static_assert(sizeof(Type) == sizeof(void *), "a function of the runtime");
#include "plan/kernels.def"

static const char *const line_names[] = {"", " long", " of any length"};
static const char *const access_names[] = {"contiguous", "broadcast", "strided", "transposed", "looked up"};

/* f32 goes without saying. */
static const char *shown_form(uint8_t form) {
  static const char *const names[TFM_N_FORMS] = {
#define FORM(ENUM, name, ...) " " #name,
#include "tfm/abi/forms.def"
  };
  return form == TFM_FORM_F32 ? "" : names[form];
}

// ---- expressions ----

/* Hexadecimal floats are exact. NaN has one spelling, whatever its payload: the emitter makes the same constant of
 * all. */
static void print_number(StrBuf *out, const Expr *expr) {
  if (expr->dtype != DTYPE_F32) strbuf_printf(out, "%lld", (long long)expr->integer);
  else if (isnan(expr->number)) strbuf_add(out, "nan");
  else strbuf_printf(out, "%a", (double)(float)expr->number);
}

static void print_leaf(StrBuf *out, const Expr *expr) {
  switch (expr->kind) {
    case EXPR_OP: strbuf_add(out, op_table[expr->op].name); break;
    case EXPR_ACC: strbuf_add(out, "acc"); break;
    case EXPR_INPUT: strbuf_printf(out, "operand %u", expr->input); break;
    case EXPR_CONST: print_number(out, expr); break;
    case EXPR_SIZE: strbuf_add(out, "size"); break;
    case EXPR_INDEX: strbuf_printf(out, "index %u", expr->axis); break;
    case EXPR_GATHER: strbuf_printf(out, "gather %u %u", expr->input, expr->ids); break;
  }
  strbuf_printf(out, " %s", dtype_names[expr->dtype]);
}

/* Prints every different subexpression once, "t3 = add f32 t1 t2". Two subexpressions are equal exactly if their lines
 * are, because arguments are named by the number of their line. */
static void print_expr(StrBuf *out, const Expr *root) {
  Arena *scratch = arena_create();
  Map classes = map_new(scratch);
  ExprList list = expr_list(scratch, root);
  uint32_t *class = ARENA_ARRAY(scratch, uint32_t, list.n);
  for (uint32_t i = 0; i < list.n; i++) {
    StrBuf line = strbuf_new(scratch);
    print_leaf(&line, list.items[i]);
    for (uint32_t j = 0; j < list.items[i]->n_args; j++) strbuf_printf(&line, " t%u", class[list.args[j][i]]);
    MapEntry *known = map_find(&classes, line.text, line.length);
    class[i] = known ? (uint32_t)(uintptr_t)known->value : (uint32_t)classes.n;
    if (known) continue;
    map_put_n(&classes, line.text, line.length, (void *)(uintptr_t)class[i]);
    strbuf_printf(out, "  t%u = %s\n", class[i], line.text);
  }
  arena_destroy(scratch);
}

// ---- what each family depends on ----

static void print_TILE(StrBuf *out, const KernelSpec *spec) {
  strbuf_printf(out, " %dx%d a %lld b %lld%s%s%s%s%s%s%s%s\n", spec->rows, spec->width, (long long)spec->a_stride,
                (long long)spec->b_stride, shown_form(spec->b_form), spec->b_is_signed ? " signed" : "",
                spec->is_matrix ? " matrix" : "", spec->in_pairs ? " pairs" : "",
                spec->b_is_page ? " page" : "", spec->has_all_columns ? " whole" : "",
                spec->has_whole_panel ? " panel" : "", spec->exact_zero ? " exact_zero" : "");
  if (spec->of_one_row) strbuf_printf(out, "  row by row: %s\n", spec->of_one_row);
  if (spec->k) strbuf_printf(out, "  rows of %lld\n", (long long)spec->k);
  if (spec->chain) strbuf_printf(out, "  chains of %d\n", spec->chain);
  if (spec->goes_on) strbuf_add(out, "  chains that go on\n");
  if (spec->a_step) strbuf_printf(out, "  a step %lld\n", (long long)spec->a_step);
  if (spec->factor != 0) strbuf_printf(out, "  times %a\n", (double)spec->factor);
}

/* The distances in the source are arguments; only the width and the direction are code. */
static void print_PACK(StrBuf *out, const KernelSpec *spec) {
  strbuf_printf(out, " width %d%s%s\n", spec->width, spec->pack_transposes ? " transposes" : "",
                shown_form(spec->b_form));
}

static void print_QUANTIZE(StrBuf *out, const KernelSpec *spec) {
  strbuf_printf(out, " k %lld%s%s%s%s\n", (long long)spec->k, spec->is_rotated ? "" : " as it is",
                spec->as_bytes ? " bytes" : "", spec->is_mixed ? " mixed" : spec->is_grouped ? " groups" : "",
                spec->in_pairs ? " pairs" : "");
}

static void print_WEIGH(StrBuf *out, const KernelSpec *spec) {
  strbuf_add(out, spec->is_weighed ? " weighed\n" : "\n");
}

static void print_DIRECT(StrBuf *out, const KernelSpec *spec) {
  const char *lines = spec->all_columns ? " all columns" : spec->y_is_line ? " line" : "";
  strbuf_printf(out, " %dx%d%s\n", spec->rows, spec->width, lines);
  if (spec->chain) strbuf_printf(out, "  chains of %d\n", spec->chain);
}

/* All attentions of a form share one: the number of keys and rows are arguments. */
static void print_SOFTMAX(StrBuf *out, const KernelSpec *spec) {
  strbuf_printf(out, "%s%s\n", spec->is_weighed ? " weighed" : "", spec->drops_small ? " dropping" : "");
}

static void print_FINITE(StrBuf *out, const KernelSpec *spec) {
  (void)spec;
  strbuf_add_char(out, '\n');
}

static void print_STATE_GRAD(StrBuf *out, const KernelSpec *spec) {
  strbuf_printf(out, " width %d%s beta %d\n", spec->width,
                spec->fades_by_rows ? " fades by rows" : spec->fades ? " fades" : "", spec->beta);
}

static void print_STATE_KEPT(StrBuf *out, const KernelSpec *spec) { print_STATE_GRAD(out, spec); }

static void print_STATE(StrBuf *out, const KernelSpec *spec) {
  static const char *const parts[N_STATE_PARTS] = {"", " one", " passes"};
  strbuf_add(out, parts[spec->part]);
  if (spec->passes_caches) strbuf_add(out, " past caches");
  print_STATE_GRAD(out, spec);
}

static void print_ROW(StrBuf *out, const KernelSpec *spec) {
  strbuf_printf(out, " %s reduce %d weight %d bias %d eps %a%s\n", op_table[spec->reduction].name, spec->reduce,
                spec->weight, spec->bias, spec->eps, line_names[spec->lines]);
  if (spec->drops_small) strbuf_add(out, "  dropping\n");
  if (spec->grad_of) strbuf_printf(out, "  gradient of %d second %d\n", spec->grad_of, spec->second);
  for (uint32_t i = 0; i < spec->n_operands; i++) {
    const RowOperandSpec *operand = &spec->operands[i];
    strbuf_printf(out, "  operand %u: %s %s%s", i, dtype_names[operand->dtype], access_names[operand->access],
                  shown_form(operand->form));
    if (operand->gathered) strbuf_printf(out, " rows from %d", operand->gathered);
    strbuf_add_char(out, '\n');
  }
  print_expr(out, spec->expr);
}

void kernel_spec_print(StrBuf *out, const KernelSpec *spec) {
  static void (*const print[N_KERNEL_FAMILIES])(StrBuf *out, const KernelSpec *spec) = {
#define KERNEL(Enum, text, Type, letters, line) [KERNEL_##Enum] = print_##Enum,
#include "plan/kernels.def"
  };
  strbuf_add(out, kernel_families[spec->family].name);
  print[spec->family](out, spec);
}

const char *kernel_name(Arena *arena, const KernelSpec *spec) {
  StrBuf text = strbuf_new(arena);
  kernel_spec_print(&text, spec);
  return arena_printf(arena, "tfm_%s_%016" PRIx64, kernel_families[spec->family].name,
                      hash_bytes(HASH_BEGIN, text.text, text.length));
}
