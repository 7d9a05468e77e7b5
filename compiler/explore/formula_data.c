/* Formulas: amounts as polynomials of the run-time sizes, each text once.
 *
 * In: sizes of graphs and programs, and products of them. Out: the number of the text in the list `formulas`. Refuses
 * nothing. */
#include <string.h>

#include "explore/explorer.h"

int explorer_formula(Explorer *x, const char *text) {
  const uintptr_t known = (uintptr_t)map_get(&x->formulas, text);
  if (known) return (int)known - 1;
  const int number = (int)json_array_size(x->formula_list);
  json_array_append_new(x->formula_list, json_string(text));
  map_put(&x->formulas, text, (void *)(uintptr_t)(number + 1));
  return number;
}

int explorer_size(Explorer *x, const Graph *graph, const Size *size) {
  StrBuf text = strbuf_new(x->arena);
  size_print(&text, graph->sizes, size);
  return explorer_formula(x, text.text);
}

int explorer_plan_size(Explorer *x, const Plan *plan, tfm_size size) {
  StrBuf text = strbuf_new(x->arena);
  plan_print_size(&text, plan, size);
  return explorer_formula(x, text.text);
}

/* One term of a polynomial; false: it divides. */
static bool add_names(StrBuf *out, const Plan *plan, const tfm_term *term, const char *times) {
  for (uint8_t i = 0; i < term->degree; i++)
    if (term->symbols[i] >= TFM_FIRST_FLOOR) return false;
  for (uint8_t i = 0; i < term->degree; i++)
    strbuf_printf(out, "%s%s", times, plan->graph->sizes->symbols[term->symbols[i]]);
  return true;
}

const char *explorer_factors(Arena *arena, const Plan *plan, const WorkTerm *term, const char *times, const char *more,
                             double *factor) {
  StrBuf out = strbuf_new(arena);
  *factor = term->factor;
  for (uint8_t i = 0; i < term->n; i++) {
    const tfm_polynomial *polynomial = &plan->program.polynomials[term->sizes[i]];
    const tfm_term *only = &plan->program.terms[polynomial->first_term];
    const char *added = i + 1 == term->n ? more : "";
    if (polynomial->n_terms == 1 && !*added && add_names(&out, plan, only, times)) {
      *factor *= (double)only->coefficient;
      continue;
    }
    strbuf_printf(&out, "%s(", times);
    plan_print_size(&out, plan, term->sizes[i]);
    strbuf_printf(&out, "%s)", added);
  }
  return out.text;
}

/* "3*(batch*time)*(time + 1)": a factor that is a sum stands in brackets. */
static void add_factor(StrBuf *out, const Plan *plan, tfm_size size) {
  StrBuf text = strbuf_new(out->arena);
  plan_print_size(&text, plan, size);
  if (strcmp(text.text, "1") == 0) return;
  const bool is_simple = !strpbrk(text.text, " -+/");
  strbuf_printf(out, is_simple ? "*%s" : "*(%s)", text.text);
}

const char *explorer_term(Explorer *x, const Plan *plan, const WorkTerm *term, uint32_t dropped) {
  StrBuf out = strbuf_new(x->arena);
  strbuf_printf(&out, "%.17g", term->factor);
  for (uint32_t i = 0; term->factor != 0 && i + dropped < term->n; i++) add_factor(&out, plan, term->sizes[i]);
  return out.text;
}

const char *explorer_elements(Explorer *x, const Plan *plan, const tfm_tensor_info *tensor) {
  WorkTerm term = {.factor = 1, .n = tensor->rank};
  memcpy(term.sizes, tensor->dims, tensor->rank * sizeof *tensor->dims);
  return explorer_term(x, plan, &term, 0);
}

/* 2 m n k for each product, as `bench` counts it (roofline_flops_written). */
int explorer_flop_written(Explorer *x, const Graph *graph) {
  SizeTable *sizes = graph->sizes;
  StrBuf text = strbuf_new(x->arena);
  const Size *sum = size_const(sizes, 0), *more;
  for (const Node *node = graph->first; node; node = node->next) {
    const uint32_t factor_of_products = 2 * roofline_products(node);
    if (!factor_of_products) continue;
    const Node *a = node->inputs.items[0];
    const Size *elements = node_elements(sizes, node), *k = a->dims[a->rank - 1];
    const Size *work = elements ? size_mul(sizes, elements, k) : NULL;
    if (work) work = size_mul(sizes, size_const(sizes, factor_of_products), work);
    more = work && sum ? size_add(sizes, sum, work) : NULL;
    if (more) {
      sum = more;
      continue;
    }
    /* More terms than a polynomial may have: the rest is a sum of products. */
    StrBuf factor = strbuf_new(x->arena);
    size_print(&factor, sizes, k);
    strbuf_printf(&text, " + %u*(%s)", factor_of_products, factor.text);
    for (uint32_t axis = 0; axis < node->rank; axis++) {
      factor = strbuf_new(x->arena);
      size_print(&factor, sizes, node->dims[axis]);
      strbuf_printf(&text, "*(%s)", factor.text);
    }
  }
  StrBuf all = strbuf_new(x->arena);
  size_print(&all, sizes, sum);
  strbuf_add(&all, text.text);
  return explorer_formula(x, all.text);
}
