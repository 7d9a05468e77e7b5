/* In: "time <= 64, "the sequence is {time} long"" after the word check. Out: the check of the graph. In the text, {size}
 * stands for a value, {size=} for "size = value", {{ and }} for braces. Conditions nest at most 256 deep. */
#include <string.h>

#include "graph/graph_reader.h"

enum { MAX_DEPTH = 256 };

static const Cond *read_cond(GraphReader *r, int depth);

static bool scan_comparison(GraphReader *r, OpKind *op) {
  static const struct {
    const char *sign;
    OpKind op;
  } signs[] = {{"==", OP_EQ}, {"!=", OP_NE}, {"<=", OP_LE}, {">=", OP_GE}, {"<", OP_LT}, {">", OP_GT}};
  scan_blanks(&r->text);
  for (size_t i = 0; i < sizeof signs / sizeof *signs; i++) {
    if (strncmp(r->text, signs[i].sign, strlen(signs[i].sign)) != 0) continue;
    r->text += strlen(signs[i].sign);
    *op = signs[i].op;
    return true;
  }
  return read_fault(r, "expected a comparison");
}

static const Cond *read_compare(GraphReader *r) {
  Cond *cond = ARENA_NEW(r->arena, Cond);
  cond->kind = COND_COMPARE;
  cond->left = read_size(r);
  if (!cond->left || !scan_comparison(r, &cond->op)) return NULL;
  cond->right = read_size(r);
  return cond->right ? cond : NULL;
}

static const Cond *make_cond(GraphReader *r, CondKind kind, const Cond *a, const Cond *b) {
  Cond *cond = ARENA_NEW(r->arena, Cond);
  *cond = (Cond){.kind = kind, .a = a, .b = b};
  return cond;
}

/* A comparison, the contrary of one, or any condition in parentheses. */
static const Cond *read_simple(GraphReader *r, int depth) {
  if (depth > MAX_DEPTH) {
    read_fault(r, "conditions are nested more than %d deep", MAX_DEPTH);
    return NULL;
  }
  if (scan_word(&r->text, "not")) {
    const Cond *cond = read_simple(r, depth + 1);
    return cond ? make_cond(r, COND_NOT, cond, NULL) : NULL;
  }
  if (!scan_char(&r->text, '(')) return read_compare(r);
  const Cond *cond = read_cond(r, depth + 1);
  return cond && read_expect(r, ')') ? cond : NULL;
}

static const Cond *read_cond(GraphReader *r, int depth) {
  const Cond *a = read_simple(r, depth);
  if (!a) return NULL;
  bool both = scan_word(&r->text, "and");
  if (!both && !scan_word(&r->text, "or")) return a;
  const Cond *b = read_simple(r, depth);
  return b ? make_cond(r, both ? COND_AND : COND_OR, a, b) : NULL;
}

/* "{time=}" at *text; false if it is none. */
static bool read_hole(GraphReader *r, const char **text, CheckPart *part) {
  ++*text;
  part->size = size_read(r->graph->sizes, text);
  if (!part->size) return false;
  part->named = **text == '=';
  if (part->named) ++*text;
  return *(*text)++ == '}';
}

static bool read_message(GraphReader *r, const char *text, Check *check) {
  StrBuf plain = strbuf_new(r->arena);
  while (*text) {
    bool brace = *text == '{' || *text == '}';
    if (!brace || text[1] == *text) {
      strbuf_add_char(&plain, *text);
      text += brace ? 2 : 1;
      continue;
    }
    CheckPart part = {.text = arena_strdup(r->arena, plain.text)};
    if (*text == '}' || !read_hole(r, &text, &part)) return false;
    vec_push(r->arena, &check->message, part);
    plain = strbuf_new(r->arena);
  }
  if (plain.length) vec_push(r->arena, &check->message, (CheckPart){.text = plain.text});
  return true;
}

bool read_check(GraphReader *r) {
  scan_blanks(&r->text);
  uint32_t begin = (uint32_t)(r->text - r->source->text);
  Check check = {.condition = read_cond(r, 0)};
  if (!check.condition || !read_expect(r, ',')) return false;
  const char *place = r->text, *text;
  if (!scan_string(r->arena, &r->text, &text)) return read_fault(r, "expected the message in quotes");
  uint32_t end = (uint32_t)(r->text - r->source->text);
  if (!read_message(r, text, &check)) {
    r->text = place;
    return read_fault(r, "braces in the message must hold a declared size or be doubled");
  }
  check.origin = (Origin){.span = {r->source, begin, end}, .path = ""};
  vec_push(r->arena, &r->graph->checks, check);
  return true;
}
