/* In: an input, the graph that reads it. Out: what pads it. See labels.h. */
#include "train/labels.h"

typedef struct Readers { /* of an input and of views of it */
  bool is_left_out;      /* a cross_entropy leaves out `number` */
  int64_t number;
  const Node *leaving, *disagreeing; /* that cross_entropy; another, with another number */
  const Node *other;                 /* what would take the number for a value */
  const Node *counting;              /* a cross_entropy that adds up all its rows */
} Readers;

static const Node *input_of(const Node *node, size_t i) { return node->inputs.items[i]; }

static bool is_whole_number(const Node *node, int64_t *number) {
  if (node->op != OP_FULL || node->dtype != DTYPE_I32) return false;
  *number = node->attr.integer;
  return true;
}

/* `where(x != number, x, 0)`, as cross_entropy says which labels it leaves out. */
static bool leaves_out(const Node *where, const Node *value, int64_t *number) {
  if (where->op != OP_WHERE || input_of(where, 1) != value || input_of(where, 0)->op != OP_NE) return false;
  return input_of(input_of(where, 0), 0) == value && is_whole_number(input_of(input_of(where, 0), 1), number);
}

/* The rows of a cross_entropy that are added up as they are: nothing can leave padding out. */
static bool adds_up(const Node *picked) {
  const Node *x = picked;
  for (int depth = 0; depth < 6 && x->users.n == 1; depth++) {
    x = x->users.items[0];
    if (x->op == OP_SUM || x->op == OP_MEAN) return true;
    const bool is_scaled = x->op == OP_MUL && (input_of(x, 1)->op == OP_FULL || input_of(x, 1)->op == OP_GATHER);
    if (!is_scaled && x->op != OP_RESHAPE && x->op != OP_SUB) return false;
  }
  return false;
}

static void look_at(Readers *found, const Node *user, const Node *value, unsigned depth);

static void look_at_users(Readers *found, const Node *value, unsigned depth) {
  for (size_t i = 0; i < value->users.n && depth; i++) look_at(found, value->users.items[i], value, depth - 1);
}

static void look_at(Readers *found, const Node *user, const Node *value, unsigned depth) {
  int64_t number;
  if (op_table[user->op].category == CATEGORY_VIEW) {
    look_at_users(found, user, depth);
  } else if (leaves_out(user, value, &number)) {
    if (found->is_left_out && found->number != number) found->disagreeing = user;
    found->is_left_out = true;
    found->number = number;
    found->leaving = user;
  } else if (user->op == OP_TAKE && input_of(user, 1) == value && input_of(user, 0)->op == OP_LOG_SOFTMAX) {
    found->other = user;
    if (adds_up(user)) found->counting = user;
  } else if ((user->op == OP_EQ || user->op == OP_NE) &&
             is_whole_number(input_of(user, input_of(user, 0) == value), &number)) {
    /* compared with a number: harmless if it is what pads, as where cross_entropy and metrics count labels */
    if (!found->is_left_out || found->number != number) found->other = user;
  } else if (user->op != OP_EQ && user->op != OP_NE) {
    found->other = user;
  }
}

static bool is_padded(const DataSet *data, const DataInput *input) {
  for (int64_t i = 1; input->symbol >= 0 && i < data->n_items; i++)
    if (input->lengths[i] != input->lengths[0]) return true;
  return false;
}

static bool refuse(const DataSet *data, const DataInput *input, const Node *where, const char *why) {
  diag_error(data->request.diag, origin_place(&where->origin), DIAG_INPUT_DECLARATION,
             "items of '%s' differ in length, and what pads it is not known: %s; the metadata \"%s.pad\" of the data "
             "says it",
             input->node->attr.name, why, input->node->attr.name);
  return false;
}

/* It may be meant, and was always so. */
static void warn(const DataSet *data, const DataInput *input, const Node *where) {
  diag_warning(data->request.diag, origin_place(&where->origin), DIAG_TRAIN_MEANT,
               "items of '%s' differ in length and are padded with 0, which this cross_entropy counts as a label: an "
               "ignore_index leaves padding out",
               input->node->attr.name);
}

bool labels_find_padding(const DataSet *data, DataInput *input) {
  enum { DEEPEST = 16 };
  Readers found = {0};
  Arena *arena = data->request.arena;
  if (input->has_padding || input->node->dtype != DTYPE_I32) return true;
  look_at_users(&found, input->node, DEEPEST); /* which number is left out */
  found.other = NULL;
  look_at_users(&found, input->node, DEEPEST); /* then what else reads it */
  input->padding = found.is_left_out ? (double)found.number : 0;
  if (!is_padded(data, input)) return true;
  if (found.disagreeing)
    return refuse(data, input, found.disagreeing, "cross_entropy leaves out other numbers here than elsewhere");
  if (found.counting && !found.is_left_out) warn(data, input, found.counting);
  if (!found.is_left_out || found.number == 0 || !found.other) return true;
  return refuse(
      data, input, found.other,
      arena_printf(arena, "cross_entropy leaves out %lld, which would be a value here", (long long)found.number));
}
