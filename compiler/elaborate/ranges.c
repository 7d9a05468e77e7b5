/* In: the condition of a `require` that speaks of the elements of an input, and its text. Out: the range of the INPUT
 * node, which is checked before a run, element by element, like ids.
 *
 * Such a condition compares inputs i32 with integers that are known when compiling, by <, <=, > and >=, joined by
 * `and`. Several requirements of one input must all hold. Refuses tensors that are computed or no i32, bounds that a
 * run decides, ranges without a number, and conditions that speak of sizes, too: these have a message of their own. */
#include "elaborate/ranges.h"

#include <string.h>

static Node *tensor_named(const Ast *ast, const Scope *scope) {
  const Binding *binding = ast->kind == AST_NAME ? scope_search(scope, ast->name) : NULL;
  return binding && binding->value.kind == VALUE_TENSOR ? binding->value.as.tensor : NULL;
}

bool is_range(const Ast *condition, const Scope *scope) {
  const Ast *left = condition->n_children == 2 ? condition->children[0] : NULL;
  if (condition->kind == AST_AND) return is_range(left, scope) || is_range(condition->children[1], scope);
  const bool is_order = condition->kind == AST_COMPARE && strchr("<>", condition->name[0]);
  return is_order && (tensor_named(left, scope) || tensor_named(condition->children[1], scope));
}

static void narrow(Node *input, char order, bool is_strict, int64_t bound) {
  int64_t least = input->attr.least, most = input->attr.most;
  if (order == '<' && bound - is_strict < most) most = bound - is_strict;
  if (order == '>' && bound + is_strict > least) least = bound + is_strict;
  /* An empty range stays one, within 32 bits. */
  input->attr.least = (int32_t)(least > INT32_MAX ? INT32_MAX : least);
  input->attr.most = (int32_t)(most < INT32_MIN ? INT32_MIN : most);
  if (least > INT32_MAX) input->attr.most = INT32_MIN;
  if (most < INT32_MIN) input->attr.least = INT32_MAX;
}

/* The message is that of all requirements of the input, one behind the other. */
static void add_why(Elaborator *e, Node *input, const char *text) {
  const char *before = input->attr.range_text;
  if (!before) input->attr.range_text = text;
  else if (!strstr(before, text)) input->attr.range_text = arena_printf(e->arena, "%s; %s", before, text);
}

/* `x < 3` or `3 > x`. */
static bool take_bound(Elaborator *e, const Ast *compare, const char *text, Scope *scope) {
  Node *input = tensor_named(compare->children[0], scope);
  const bool is_mirrored = !input;
  const Ast *other = compare->children[!is_mirrored];
  if (is_mirrored) input = tensor_named(compare->children[1], scope);
  Value bound = eval(e, other, scope);
  e->here = compare->span;
  if (is_poison(bound)) return false;
  if (input->op != OP_INPUT || input->dtype != DTYPE_I32) {
    fail(e, DIAG_KIND, "what is required of values is a range of an i32 input of the model; this is %K",
         value_tensor(input));
    return false;
  }
  if (bound.kind != VALUE_INTEGER) {
    fail(e, DIAG_KIND, "the bound of '%s' must be an integer that is known when compiling, not %K", input->attr.name,
         bound);
    return false;
  }
  const int64_t limit = (int64_t)1 << 40; /* beyond all i32, and far from overflow */
  const int64_t number = bound.as.integer > limit ? limit : bound.as.integer < -limit ? -limit : bound.as.integer;
  const char order = (compare->name[0] == '<') != is_mirrored ? '<' : '>';
  if (!input->attr.range_text) {
    input->attr.least = INT32_MIN;
    input->attr.most = INT32_MAX;
  }
  narrow(input, order, compare->name[1] != '=', number);
  if (input->attr.least > input->attr.most) {
    fail(e, DIAG_REQUIRE, "no integer is what is required of '%s'", input->attr.name);
    return false;
  }
  if (input->attr.least != INT32_MIN || input->attr.most != INT32_MAX) add_why(e, input, text);
  return true;
}

static bool take_bounds(Elaborator *e, const Ast *condition, const char *text, Scope *scope) {
  if (condition->kind == AST_AND) {
    const bool left = take_bounds(e, condition->children[0], text, scope);
    return take_bounds(e, condition->children[1], text, scope) && left;
  }
  if (is_range(condition, scope)) return take_bound(e, condition, text, scope);
  fail_at(e, condition->span, DIAG_KIND,
          "what is required beside a range of values must be a range, too: write a `require` of its own");
  return false;
}

bool require_range(Elaborator *e, const Ast *condition, const char *text, Scope *scope) {
  const char *filled = filled_text(e, text, scope);
  return filled && take_bounds(e, condition, filled, scope);
}
