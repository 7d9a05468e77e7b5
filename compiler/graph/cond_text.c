/* Conditions on run-time sizes and the checks made of them, as text: "check time <= 64, "the sequence is {time} long"".
 *
 * In: a condition or a check, or the text of one. Out: the other. In a message {size} stands for a value, {size=} for
 * "size = value", {{ and }} for braces. Refused: conditions nested more than MAX_DEPTH deep, which only a hand-written
 * text has, so that reading needs a bounded stack. */
#include <string.h>

#include "base/check.h"
#include "graph/graph.h"
#include "graph/text.h"

enum { MAX_DEPTH = 256 };

/* The reader takes the first sign that fits, so "<=" must stand before "<". */
static const struct {
  const char *sign;
  OpKind op;
} comparisons[] = {{"==", OP_EQ}, {"!=", OP_NE}, {"<=", OP_LE}, {">=", OP_GE}, {"<", OP_LT}, {">", OP_GT}};
enum { N_COMPARISONS = sizeof comparisons / sizeof *comparisons };

// ---- printing ----

static const char *sign_of(OpKind op) {
  size_t i = 0;
  while (i < N_COMPARISONS && comparisons[i].op != op) i++;
  CHECK(i < N_COMPARISONS, "%s is no comparison", op_table[op].name);
  return comparisons[i].sign;
}

/* Parentheses around everything but a comparison: the grammar has no precedence between `and` and `or`. */
static void print_operand(StrBuf *out, const SizeTable *table, const Cond *cond) {
  if (cond->kind != COND_COMPARE) strbuf_add_char(out, '(');
  cond_print(out, table, cond);
  if (cond->kind != COND_COMPARE) strbuf_add_char(out, ')');
}

void cond_print(StrBuf *out, const SizeTable *table, const Cond *cond) {
  switch (cond->kind) {
    case COND_COMPARE:
      size_print(out, table, cond->left);
      strbuf_printf(out, " %s ", sign_of(cond->op));
      size_print(out, table, cond->right);
      break;
    case COND_NOT:
      strbuf_add(out, "not ");
      print_operand(out, table, cond->a);
      break;
    case COND_AND:
    case COND_OR:
      print_operand(out, table, cond->a);
      strbuf_add(out, cond->kind == COND_AND ? " and " : " or ");
      print_operand(out, table, cond->b);
      break;
  }
}

/* Braces that belong to the message itself are doubled. */
void check_print(StrBuf *out, const SizeTable *table, const Check *check) {
  StrBuf message = strbuf_new(out->arena);
  for (size_t i = 0; i < check->message.n; i++) {
    const CheckPart *part = &check->message.items[i];
    for (const char *c = part->text ? part->text : ""; *c; c++) {
      strbuf_add_char(&message, *c);
      if (*c == '{' || *c == '}') strbuf_add_char(&message, *c);
    }
    if (!part->size) continue;
    strbuf_add_char(&message, '{');
    size_print(&message, table, part->size);
    strbuf_add(&message, part->named ? "=}" : "}");
  }
  strbuf_add(out, "check ");
  cond_print(out, table, check->condition);
  strbuf_add(out, ", ");
  strbuf_add_quoted(out, message.text);
}

// ---- reading ----

typedef struct Reader {
  Arena *arena;
  SizeTable *sizes;
  const char *text;
  const char *error; /* the first; `text` stays where it was found */
} Reader;

static const Cond *read_cond(Reader *r, int depth);

static bool fail(Reader *r, const char *error) {
  if (!r->error) r->error = error;
  return false;
}

static const Size *read_size(Reader *r) {
  scan_blanks(&r->text);
  const char *end = r->text;
  const Size *size = size_read(r->sizes, &end);
  if (size) r->text = end;
  else fail(r, "expected a size: integers and declared sizes with +, -, * and // by a number");
  return size;
}

static bool read_comparison(Reader *r, OpKind *op) {
  scan_blanks(&r->text);
  for (size_t i = 0; i < N_COMPARISONS; i++) {
    size_t length = strlen(comparisons[i].sign);
    if (strncmp(r->text, comparisons[i].sign, length) != 0) continue;
    r->text += length;
    *op = comparisons[i].op;
    return true;
  }
  return fail(r, "expected a comparison");
}

static const Cond *read_compare(Reader *r) {
  Cond *cond = ARENA_NEW(r->arena, Cond);
  cond->kind = COND_COMPARE;
  cond->left = read_size(r);
  if (!cond->left || !read_comparison(r, &cond->op)) return NULL;
  cond->right = read_size(r);
  return cond->right ? cond : NULL;
}

static const Cond *make_cond(Reader *r, CondKind kind, const Cond *a, const Cond *b) {
  Cond *cond = ARENA_NEW(r->arena, Cond);
  *cond = (Cond){.kind = kind, .a = a, .b = b};
  return cond;
}

/* Whether a comparison stands here: a size may begin with a bracket too, "(time + 1)//2 > 4". */
static bool is_compare(Reader *r) {
  Reader ahead = *r;
  OpKind op;
  return read_size(&ahead) && read_comparison(&ahead, &op);
}

/* A comparison, the negation of one, or any condition in parentheses. */
static const Cond *read_simple(Reader *r, int depth) {
  if (depth > MAX_DEPTH) {
    fail(r, arena_printf(r->arena, "conditions are nested more than %d deep", MAX_DEPTH));
    return NULL;
  }
  if (scan_word(&r->text, "not")) {
    const Cond *cond = read_simple(r, depth + 1);
    return cond ? make_cond(r, COND_NOT, cond, NULL) : NULL;
  }
  if (is_compare(r) || !scan_char(&r->text, '(')) return read_compare(r);
  const Cond *cond = read_cond(r, depth + 1);
  if (cond && !scan_char(&r->text, ')')) fail(r, "expected ')'");
  return r->error ? NULL : cond;
}

/* One or two simple conditions. Longer chains are nested in parentheses, as print_operand writes them. */
static const Cond *read_cond(Reader *r, int depth) {
  const Cond *a = read_simple(r, depth);
  if (!a) return NULL;
  bool both = scan_word(&r->text, "and");
  if (!both && !scan_word(&r->text, "or")) return a;
  const Cond *b = read_simple(r, depth);
  return b ? make_cond(r, both ? COND_AND : COND_OR, a, b) : NULL;
}

/* Reads "{time=}" at *text; false if there is no such thing. */
static bool read_hole(Reader *r, const char **text, CheckPart *part) {
  ++*text;
  part->size = size_read(r->sizes, text);
  if (!part->size) return false;
  part->named = **text == '=';
  if (part->named) ++*text;
  return *(*text)++ == '}';
}

/* Splits a message into parts of text, each with the size that follows it. */
static bool read_message(Reader *r, const char *text, Check *check) {
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

static bool read_parts(Reader *r, Check *check) {
  check->condition = read_cond(r, 0);
  if (!check->condition) return false;
  if (!scan_char(&r->text, ',')) return fail(r, "expected ','");
  const char *place = r->text, *text;
  if (!scan_string(r->arena, &r->text, &text)) return fail(r, "expected the message in quotes");
  if (read_message(r, text, check)) return true;
  r->text = place;
  return fail(r, "braces in the message must hold a declared size or be doubled");
}

/* Moves *text to where reading stopped, so that the caller can point at the fault. */
bool check_read(Arena *arena, SizeTable *sizes, const char **text, Check *check, const char **error) {
  Reader r = {.arena = arena, .sizes = sizes, .text = *text};
  bool ok = read_parts(&r, check);
  *text = r.text;
  *error = r.error;
  return ok;
}
