/* In: polynomials, conditions and checks of the model. Out: the same in the sizes of another graph, with another size in
 * place of each symbol. */
#include "passes/incremental_parts.h"

static const Size *map_term(const SizeMap *map, const SizeTerm *term) {
  const Size *product = size_const(map->to, term->coefficient);
  for (uint8_t i = 0; i < term->degree && product; i++) {
    const Size *factor = map->of[term->symbols[i]];
    product = factor ? size_mul(map->to, product, factor) : NULL;
  }
  return product;
}

const Size *map_size(const SizeMap *map, const Size *size) {
  const Size *sum = size_const(map->to, 0);
  for (uint32_t i = 0; i < size->n_terms && sum; i++) {
    const Size *term = map_term(map, &size->terms[i]);
    sum = term ? size_add(map->to, sum, term) : NULL;
  }
  return sum;
}

// ---- checks ----

static bool cond_has(const Cond *cond, uint32_t symbol) {
  if (!cond) return false;
  if (cond->kind == COND_COMPARE) return size_involves(cond->left, symbol) || size_involves(cond->right, symbol);
  return cond_has(cond->a, symbol) || cond_has(cond->b, symbol);
}

/* NULL: a size is too large. */
static const Cond *map_cond(Arena *arena, const SizeMap *map, const Cond *cond) {
  Cond *copy = arena_copy(arena, cond, sizeof *cond);
  if (cond->kind == COND_COMPARE) {
    copy->left = map_size(map, cond->left);
    copy->right = map_size(map, cond->right);
    return copy->left && copy->right ? copy : NULL;
  }
  copy->a = map_cond(arena, map, cond->a);
  copy->b = cond->b ? map_cond(arena, map, cond->b) : NULL;
  return copy->a && (copy->b || !cond->b) ? copy : NULL;
}

/* What is said of a size keeps the name that the model gives it: "time = 13", never "time.past + time.fresh = 13". A
 * size that cannot be said here is left out. */
static CheckPart map_part(Arena *arena, const SizeTable *from, const SizeMap *map, CheckPart part) {
  const Size *size = part.size ? map_size(map, part.size) : NULL;
  if (!size || !part.named) return (CheckPart){.text = part.text, .size = size};
  StrBuf text = strbuf_new(arena);
  strbuf_add(&text, part.text ? part.text : "");
  size_print(&text, from, part.size);
  strbuf_add(&text, " = ");
  return (CheckPart){.text = text.text, .size = size};
}

static bool map_check(const SizeTable *from, Graph *to, const SizeMap *map, const Check *check) {
  Check copy = {.condition = map_cond(to->arena, map, check->condition), .origin = check->origin};
  for (size_t i = 0; i < check->message.n; i++)
    vec_push(to->arena, &copy.message, map_part(to->arena, from, map, check->message.items[i]));
  if (copy.condition) vec_push(to->arena, &to->checks, copy);
  return copy.condition != NULL;
}

bool map_checks(const Cut *cut, Graph *to, const SizeMap *map, bool about_length) {
  for (size_t i = 0; i < cut->graph->checks.n; i++) {
    const Check *check = &cut->graph->checks.items[i];
    if (cond_has(check->condition, cut->time) == about_length && !map_check(cut->graph->sizes, to, map, check)) return false;
  }
  return true;
}
