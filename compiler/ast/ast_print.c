/* In: a tree. Out: text of the language again, with the same meaning. See ast.h. */
#include "ast/ast.h"

#include <string.h>

#include "base/strbuf.h"

/* How tightly an expression binds, loosest first, as in the precedence table of grammar/tfm.y. An operand that binds
 * less tightly than its position asks for gets brackets. */
typedef enum Level {
  LEVEL_CHOICE,
  LEVEL_PIPE,
  LEVEL_OR,
  LEVEL_AND,
  LEVEL_NOT,
  LEVEL_COMPARE,
  LEVEL_SUM,
  LEVEL_PRODUCT,
  LEVEL_UNARY,
  LEVEL_POWER,
  LEVEL_POSTFIX
} Level;

static void print_expression(StrBuf *out, const Ast *node, Level level);
static void print_block(StrBuf *out, const Ast *block, unsigned indent);
static void print_item(StrBuf *out, const Ast *node, unsigned indent);

/* A string of the language: it has these three escapes and no others, so control characters stand as they are (the
 * parser refuses the rest of them). */
static void print_quoted(StrBuf *out, const char *text) {
  strbuf_add_char(out, '"');
  for (; *text; text++) {
    if (*text == '\n')
      strbuf_add(out, "\\n");
    else if (*text == '"' || *text == '\\')
      strbuf_printf(out, "\\%c", *text);
    else
      strbuf_add_char(out, *text);
  }
  strbuf_add_char(out, '"');
}

/* Children from `first` on, with commas between them. */
static void print_list(StrBuf *out, const Ast *node, uint32_t first) {
  for (uint32_t i = first; i < node->n_children; i++) {
    if (i > first) strbuf_add(out, ", ");
    print_expression(out, node->children[i], LEVEL_CHOICE);
  }
}

// ---- expressions ----

typedef struct ExpressionRow {
  Level level;       /* of the whole */
  Level left, right; /* what its operands must have */
  const char *text;  /* between two operands, before one */
} ExpressionRow;

/* The levels of operands follow the grammar: a left-associative operator takes its own level on the left and a
 * tighter one on the right. Comparisons do not chain, and `not` and `-` do not repeat, so their operands must bind
 * more tightly than they do. */
static const ExpressionRow operators[N_AST_KINDS] = {
    [AST_PIPE] = {LEVEL_PIPE, LEVEL_PIPE, LEVEL_PRODUCT, "->"},
    [AST_OR] = {LEVEL_OR, LEVEL_OR, LEVEL_AND, "or"},
    [AST_AND] = {LEVEL_AND, LEVEL_AND, LEVEL_NOT, "and"},
    [AST_COMPARE] = {LEVEL_COMPARE, LEVEL_SUM, LEVEL_SUM, NULL},
    [AST_NOT] = {LEVEL_NOT, LEVEL_COMPARE, LEVEL_COMPARE, "not "},
    [AST_NEGATE] = {LEVEL_UNARY, LEVEL_POWER, LEVEL_POWER, "-"},
    [AST_RAGGED] = {LEVEL_CHOICE, LEVEL_CHOICE, LEVEL_CHOICE, "ragged "},
};

/* BINARY is one kind for three levels: sums, products (`*`, `/`, `//`, `%`, `@`), and powers, which associate to the
 * right. */
static ExpressionRow row_of(const Ast *node) {
  static const ExpressionRow sum = {LEVEL_SUM, LEVEL_SUM, LEVEL_PRODUCT, NULL};
  static const ExpressionRow product = {LEVEL_PRODUCT, LEVEL_PRODUCT, LEVEL_UNARY, NULL};
  static const ExpressionRow power = {LEVEL_POWER, LEVEL_POSTFIX, LEVEL_UNARY, NULL};
  if (node->kind != AST_BINARY) return operators[node->kind];
  if (strcmp(node->name, "**") == 0) return power;
  return strcmp(node->name, "+") == 0 || strcmp(node->name, "-") == 0 ? sum : product;
}

/* One or two operands with the operator of the row, or, for kinds with several operators, the one that the node
 * names. */
static void print_operator(StrBuf *out, const Ast *node) {
  ExpressionRow row = row_of(node);
  if (node->n_children == 1) {
    strbuf_add(out, row.text);
    print_expression(out, node->children[0], row.left);
    return;
  }
  print_expression(out, node->children[0], row.left);
  strbuf_printf(out, " %s ", row.text ? row.text : node->name);
  print_expression(out, node->children[1], row.right);
}

/* The grammar takes a pipe as the condition, so a bare choice there gets brackets; after `then` and `else` it needs
 * none. */
static void print_choice(StrBuf *out, const Ast *node) {
  strbuf_add(out, "if ");
  print_expression(out, node->children[0], LEVEL_PIPE);
  strbuf_add(out, " then ");
  print_expression(out, node->children[1], LEVEL_CHOICE);
  strbuf_add(out, " else ");
  print_expression(out, node->children[2], LEVEL_CHOICE);
}

/* A call, an index or a member: what stands to the left binds at least as tightly, what stands in the brackets is
 * free. */
static void print_postfix(StrBuf *out, const Ast *node) {
  print_expression(out, node->children[0], LEVEL_POSTFIX);
  if (node->kind == AST_DOT) {
    /* `2.x` would be read as a number with its point. */
    strbuf_printf(out, "%s.%s", node->children[0]->kind == AST_NUMBER ? " " : "", node->name);
    return;
  }
  strbuf_add_char(out, node->kind == AST_CALL ? '(' : '[');
  print_list(out, node, 1);
  strbuf_add_char(out, node->kind == AST_CALL ? ')' : ']');
}

static void print_named(StrBuf *out, const Ast *node) {
  if (node->name) strbuf_printf(out, "%s = ", node->name);
  print_expression(out, node->children[0], LEVEL_CHOICE);
}

/* Blanks around the colon, so that `a : -b` and `a : b` look alike. */
static void print_range(StrBuf *out, const Ast *node) {
  if (node->children[0]) print_expression(out, node->children[0], LEVEL_CHOICE);
  strbuf_add(out, node->children[0] ? " :" : ":");
  if (node->children[1]) {
    if (node->children[0]) strbuf_add_char(out, ' ');
    print_expression(out, node->children[1], LEVEL_CHOICE);
  }
  if (!node->children[2]) return;
  strbuf_add(out, node->children[0] || node->children[1] ? " : " : ":");
  print_expression(out, node->children[2], LEVEL_CHOICE);
}

static void print_comprehension(StrBuf *out, const Ast *node) {
  strbuf_add_char(out, '[');
  print_expression(out, node->children[0], LEVEL_CHOICE);
  strbuf_printf(out, " for %s in ", node->name);
  print_expression(out, node->children[1], LEVEL_CHOICE);
  strbuf_add_char(out, ']');
}

static void print_as(StrBuf *out, const Ast *node);

static void print_placed(StrBuf *out, const Ast *node) {
  print_expression(out, node->children[0], LEVEL_CHOICE);
  print_as(out, node);
}

/* The kinds that are left (none, true, false) are spelled as they are called. */
static void print_leaf(StrBuf *out, const Ast *node) {
  if (node->kind == AST_NUMBER && node->is_integer)
    strbuf_printf(out, "%lld", (long long)node->integer);
  else if (node->kind == AST_NUMBER)
    number_add(out, node->number);
  else if (node->kind == AST_STRING)
    print_quoted(out, node->text);
  else if (node->kind == AST_NAME)
    strbuf_add(out, node->name);
  else if (node->kind == AST_ELLIPSIS)
    strbuf_add(out, "...");
  else
    strbuf_add(out, ast_kind_text(node->kind));
}

/* A list, or a type, whose name stands before the bracket. */
static void print_sizes(StrBuf *out, const Ast *node) {
  strbuf_printf(out, "%s[", node->name ? node->name : "");
  print_list(out, node, 0);
  strbuf_add_char(out, ']');
}

/* How each kind of expression is printed; kinds without a row are leaves. */
static void (*const printers[N_AST_KINDS])(StrBuf *, const Ast *) = {
    [AST_CHOICE] = print_choice,   [AST_PIPE] = print_operator,   [AST_OR] = print_operator,
    [AST_AND] = print_operator,    [AST_NOT] = print_operator,    [AST_COMPARE] = print_operator,
    [AST_BINARY] = print_operator, [AST_NEGATE] = print_operator, [AST_RAGGED] = print_operator,
    [AST_CALL] = print_postfix,    [AST_INDEX] = print_postfix,   [AST_DOT] = print_postfix,
    [AST_ARG] = print_named,       [AST_RESULT] = print_named,    [AST_RANGE] = print_range,
    [AST_LIST] = print_sizes,      [AST_TYPE] = print_sizes,      [AST_COMPREHENSION] = print_comprehension,
    [AST_PLACED] = print_placed,
};

static void print_bare(StrBuf *out, const Ast *node) {
  if (printers[node->kind])
    printers[node->kind](out, node);
  else
    print_leaf(out, node);
}

/* Brackets that the user wrote are kept (see `flag` in ast_nodes.def): in a pipe they change the meaning. A row
 * without operands (left = 0) is a leaf or a postfix and never needs any. */
static bool needs_brackets(const Ast *node, Level level) {
  if (node->flag) return true;
  if (node->kind == AST_CHOICE) return level > LEVEL_CHOICE;
  return row_of(node).left && row_of(node).level < level;
}

/* `level` is what the surroundings ask for; brackets go around whatever binds less tightly. */
static void print_expression(StrBuf *out, const Ast *node, Level level) {
  bool has_brackets = needs_brackets(node, level);
  if (has_brackets) strbuf_add_char(out, '(');
  print_bare(out, node);
  if (has_brackets) strbuf_add_char(out, ')');
}

// ---- members and statements ----

static void print_param(StrBuf *out, const Ast *param, unsigned indent) {
  (void)indent;
  strbuf_add(out, param->name);
  if (param->children[0]) {
    strbuf_add(out, ": ");
    print_expression(out, param->children[0], LEVEL_CHOICE);
  }
  if (param->children[1]) {
    strbuf_add(out, " = ");
    print_expression(out, param->children[1], LEVEL_CHOICE);
  }
}

/* Parameters in brackets; the config of a layer without any prints none, which print_layer sees to. */
static void print_params(StrBuf *out, const Ast *params, unsigned indent) {
  strbuf_add_char(out, '(');
  for (uint32_t i = 0; i < params->n_children; i++) {
    if (i) strbuf_add(out, ", ");
    print_param(out, params->children[i], indent);
  }
  strbuf_add_char(out, ')');
}

/* `if` with its branches. A chain of `else if` is a loop rather than a recursion, so its length does not count
 * against the stack. */
static void print_if(StrBuf *out, const Ast *node, unsigned indent) {
  for (;;) {
    strbuf_add(out, "if ");
    print_expression(out, node->children[0], LEVEL_CHOICE);
    strbuf_add_char(out, ' ');
    print_block(out, node->children[1], indent);
    if (!node->children[2]) return;
    strbuf_add(out, " else ");
    if (node->children[2]->kind == AST_BLOCK) break;
    node = node->children[2];
  }
  print_block(out, node->children[2], indent);
}

/* The path after `as`. `as ""` is a path too, so the text is compared with NULL, not with "". */
static void print_as(StrBuf *out, const Ast *node) {
  if (!node->text) return;
  strbuf_add(out, " as ");
  print_quoted(out, node->text);
}

/* A function, or `forward` (flag), with either form of body. */
static void print_fn(StrBuf *out, const Ast *node, unsigned indent) {
  strbuf_printf(out, "%s%s", node->flag ? "" : "fn ", node->name);
  print_params(out, node->children[0], indent);
  const Ast *body = node->children[1];
  strbuf_add(out, body->kind == AST_BLOCK ? " " : " = ");
  if (body->kind == AST_BLOCK)
    print_block(out, body, indent);
  else
    print_expression(out, body, LEVEL_CHOICE);
}

static void print_adapt(StrBuf *out, const Ast *node) {
  strbuf_add(out, "adapt ");
  print_expression(out, node->children[0], LEVEL_CHOICE);
  strbuf_add(out, " {\n");
}

/* The settings stand one a line like statements, but they are no block of the tree. */
static void print_settings(StrBuf *out, const Ast *node, unsigned indent) {
  if (node->kind == AST_GENERATE)
    strbuf_printf(out, "generate %s from %s {\n", node->name, node->text);
  else if (node->kind == AST_TRAIN)
    strbuf_printf(out, "train %s {\n", node->name);
  else
    print_adapt(out, node);
  for (uint32_t i = node->kind == AST_ADAPT; i < node->n_children; i++) {
    strbuf_printf(out, "%*s", (int)(2 * indent + 2), "");
    print_named(out, node->children[i]);
    strbuf_add_char(out, '\n');
  }
  strbuf_printf(out, "%*s}", (int)(2 * indent), "");
}

/* `expect key = value`. */
static void print_expect(StrBuf *out, const Ast *node, unsigned indent) {
  (void)indent;
  strbuf_add(out, "expect ");
  print_expression(out, node->children[0], LEVEL_POSTFIX);
  strbuf_add(out, " = ");
  print_expression(out, node->children[1], LEVEL_CHOICE);
}

static void print_ignore(StrBuf *out, const Ast *node, unsigned indent) {
  (void)indent;
  strbuf_add(out, "ignore ");
  print_list(out, node, 0);
}

static void print_listing(StrBuf *out, const Ast *node, unsigned indent) {
  (void)indent;
  strbuf_printf(out, "%s ", node->name);
  print_list(out, node, 0);
}

static void print_require(StrBuf *out, const Ast *node, unsigned indent) {
  (void)indent;
  strbuf_add(out, "require ");
  print_expression(out, node->children[0], LEVEL_CHOICE);
  if (!node->text) return;
  strbuf_add(out, ", ");
  print_quoted(out, node->text);
}

static void print_value(StrBuf *out, const Ast *node, unsigned indent) {
  (void)indent;
  print_named(out, node);
  print_as(out, node);
}

static void print_weight(StrBuf *out, const Ast *node, unsigned indent) {
  (void)indent;
  strbuf_printf(out, "weight %s: ", node->name);
  print_expression(out, node->children[0], LEVEL_CHOICE);
  if (node->children[1]) strbuf_add(out, " = ");
  if (node->children[1]) print_expression(out, node->children[1], LEVEL_CHOICE);
  print_as(out, node);
}

static void print_initial(StrBuf *out, const Ast *node, unsigned indent) {
  (void)indent;
  strbuf_add(out, "weight * = ");
  print_expression(out, node->children[0], LEVEL_CHOICE);
}

/* The left side of an assignment. */
static void print_names(StrBuf *out, const Ast *names, unsigned indent) {
  (void)indent;
  for (uint32_t i = 0; i < names->n_children; i++) strbuf_printf(out, "%s%s", i ? ", " : "", names->children[i]->name);
}

static void print_assign(StrBuf *out, const Ast *node, unsigned indent) {
  print_names(out, node->children[0], indent);
  strbuf_add(out, " = ");
  print_expression(out, node->children[1], LEVEL_CHOICE);
}

static void print_for(StrBuf *out, const Ast *node, unsigned indent) {
  strbuf_printf(out, "for %s in ", node->name);
  print_expression(out, node->children[0], LEVEL_CHOICE);
  strbuf_add_char(out, ' ');
  print_block(out, node->children[1], indent);
}

static void print_return(StrBuf *out, const Ast *node, unsigned indent) {
  (void)indent;
  strbuf_add(out, "return ");
  print_list(out, node, 0);
}

/* The caller has printed the indentation of the line on which the block begins; `indent` is the level of that line. */
static void print_block(StrBuf *out, const Ast *block, unsigned indent) {
  strbuf_add(out, "{\n");
  for (uint32_t i = 0; i < block->n_children; i++) {
    strbuf_printf(out, "%*s", (int)(2 * indent + 2), "");
    print_item(out, block->children[i], indent + 1);
    strbuf_add_char(out, '\n');
  }
  strbuf_printf(out, "%*s}", (int)(2 * indent), "");
}

// ---- files ----

static void print_layer(StrBuf *out, const Ast *node, unsigned indent) {
  strbuf_printf(out, "%s %s", node->flag ? "model" : "layer", node->name);
  if (node->children[0]->n_children) print_params(out, node->children[0], indent);
  strbuf_add_char(out, ' ');
  print_block(out, node->children[1], indent);
  strbuf_add_char(out, '\n');
}

static void print_checkpoint(StrBuf *out, const Ast *node, unsigned indent) {
  strbuf_add(out, "checkpoint ");
  print_list(out, node->children[0], 0);
  strbuf_add_char(out, ' ');
  print_block(out, node->children[1], indent);
  strbuf_add_char(out, '\n');
}

static void print_include(StrBuf *out, const Ast *node, unsigned indent) {
  (void)indent;
  strbuf_add(out, "include ");
  print_quoted(out, node->name);
  strbuf_add_char(out, '\n');
}

static void print_file(StrBuf *out, const Ast *node, unsigned indent) {
  for (uint32_t i = 0; i < node->n_children; i++) {
    if (i) strbuf_add_char(out, '\n');
    print_item(out, node->children[i], indent);
    if (node->children[i]->kind == AST_FN) strbuf_add_char(out, '\n');
  }
}

/* How each kind of member, statement and item of a file is printed; kinds without a row are expressions. */
static void (*const item_printers[N_AST_KINDS])(StrBuf *, const Ast *, unsigned) = {
    [AST_FILE] = print_file,         [AST_INCLUDE] = print_include, [AST_LAYER] = print_layer,
    [AST_PARAMS] = print_params,     [AST_PARAM] = print_param,     [AST_BLOCK] = print_block,
    [AST_MEMBER] = print_value,      [AST_SETTING] = print_value,   [AST_WEIGHT] = print_weight,
    [AST_REQUIRE] = print_require,   [AST_IF] = print_if,           [AST_FN] = print_fn,
    [AST_GENERATE] = print_settings, [AST_ASSIGN] = print_assign,   [AST_NAMES] = print_names,
    [AST_RETURN] = print_return,     [AST_FOR] = print_for,         [AST_CHECKPOINT] = print_checkpoint,
    [AST_EXPECT] = print_expect,     [AST_IGNORE] = print_ignore,   [AST_TRAIN] = print_settings,
    [AST_INITIAL] = print_initial,   [AST_LISTING] = print_listing, [AST_ADAPT] = print_settings,
};

static void print_item(StrBuf *out, const Ast *node, unsigned indent) {
  if (item_printers[node->kind])
    item_printers[node->kind](out, node, indent);
  else
    print_expression(out, node, LEVEL_CHOICE);
}

void ast_print(StrBuf *out, const Ast *node) { print_item(out, node, 0); }
