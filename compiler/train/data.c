/* In: safetensors files. Out: items, checked, and batches of them. See data.h. */
#include "train/data.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked_size.h"
#include "base/hash.h"
#include "train/labels.h"
#include "weights/safetensors.h"

static Arena *arena_of(const DataSet *data) { return data->request.arena; }
static Diag *diag_of(const DataSet *data) { return data->request.diag; }
static const char *name_of(const DataInput *input) { return input->node->attr.name; }

// ---- what the objective says about its inputs ----

static bool refuse_input(const DataSet *data, const Node *node, const char *why) {
  StrBuf shape = strbuf_new(arena_of(data));
  node_print_shape(&shape, data->request.graph->sizes, node);
  diag_error(diag_of(data), origin_place(&node->origin), DIAG_INPUT_DECLARATION,
             "input '%s', %s, cannot be read from --data: %s", node->attr.name, shape.text, why);
  return false;
}

/* The batch, then perhaps one size that differs from item to item, then numbers. */
static bool describe_input(const DataSet *data, DataInput *input) {
  const Node *node = input->node;
  const bool has_batch = node->rank && size_symbol_of(node->dims[0]) == data->request.batch;
  if (data->request.batch < 0 || !has_batch) return refuse_input(data, node, "its first axis must be the batch");
  input->symbol = node->rank > 1 ? size_symbol_of(node->dims[1]) : -1;
  input->numbers = 1;
  input->limit = -1;
  for (uint32_t i = input->symbol >= 0 ? 2 : 1; i < node->rank; i++) {
    int64_t dim;
    if (!size_is_const(node->dims[i], &dim))
      return refuse_input(data, node, "behind the batch one size may be of the run, and it must come first");
    if (!checked_mul(input->numbers, dim, &input->numbers)) return refuse_input(data, node, "it is too large");
  }
  return true;
}

/* `where(x != number, x, ...)`, as cross_entropy says which labels it leaves out. */
static bool is_ignoring(const Node *where, const Node *value, int64_t *ignored) {
  if (where->op != OP_WHERE || where->inputs.items[1] != value) return false;
  const Node *condition = where->inputs.items[0];
  const Node *number = condition->op == OP_NE ? condition->inputs.items[1] : NULL;
  if (!number || number->op != OP_FULL || condition->inputs.items[0] != value) return false;
  *ignored = number->attr.integer;
  return true;
}

/* Follows the value of an input to where its elements are used as numbers of rows; views show the same elements. What
 * is computed from ids is checked when it is used. */
static void find_limit(DataInput *input, const Node *value, uint32_t depth) {
  enum { DEEPEST = 16 };
  for (size_t i = 0; i < value->users.n && depth < DEEPEST; i++) {
    const Node *user = value->users.items[i];
    const bool is_table = user->op == OP_GATHER || user->op == OP_TAKE;
    int64_t limit, ignored;
    if (is_table && user->inputs.items[1] == value) {
      const Node *table = user->inputs.items[0];
      const Size *rows = table->dims[user->op == OP_TAKE ? user->attr.axis : 0];
      if (size_is_const(rows, &limit) && (input->limit < 0 || limit < input->limit)) input->limit = limit;
    } else if (op_table[user->op].category == CATEGORY_VIEW) {
      find_limit(input, user, depth + 1);
    } else if (is_ignoring(user, value, &ignored)) {
      input->has_ignored = true;
      input->ignored = ignored;
      find_limit(input, user, depth + 1);
    }
  }
}

/* A mask: it is added to scores, or compared, and multiplied with nothing. */
static bool is_mask(const Node *value, uint32_t depth) {
  enum { DEEPEST = 16 };
  for (size_t i = 0; i < value->users.n; i++) {
    const Node *user = value->users.items[i];
    const bool is_view = op_table[user->op].category == CATEGORY_VIEW && depth < DEEPEST;
    if (!(is_view && is_mask(user, depth + 1)) && user->op != OP_ADD && user->dtype != DTYPE_BOOL) return false;
  }
  return true;
}

static bool describe_inputs(DataSet *data) {
  bool good = true;
  data->inputs = ARENA_ARRAY(arena_of(data), DataInput, data->request.n_inputs + 1);
  for (uint32_t i = 0; i < data->request.n_inputs; i++) {
    data->inputs[i].node = data->request.graph->inputs.items[i];
    good = describe_input(data, &data->inputs[i]) && good;
    data->inputs[i].may_be_infinite = is_mask(data->inputs[i].node, 0);
    if (data->inputs[i].node->dtype == DTYPE_I32) find_limit(&data->inputs[i], data->inputs[i].node, 0);
  }
  return good;
}

// ---- items that are too long ----

int64_t data_tokens(const DataSet *data, int64_t item) {
  int64_t sum = 0;
  bool has_lengths = false;
  for (uint32_t i = 0; i < data->request.n_inputs; i++) {
    if (data->inputs[i].symbol < 0) continue;
    has_lengths = true;
    sum += data->inputs[i].lengths[item];
  }
  return has_lengths ? sum : 1;
}

static bool holds(const Cond *cond, const int64_t *symbols) {
  int64_t left = 0, right = 0;
  switch (cond->kind) {
    case COND_AND:
      return holds(cond->a, symbols) && holds(cond->b, symbols);
    case COND_OR:
      return holds(cond->a, symbols) || holds(cond->b, symbols);
    case COND_NOT:
      return !holds(cond->a, symbols);
    default:
      break;
  }
  if (!size_value(cond->left, symbols, &left) || !size_value(cond->right, symbols, &right)) return true;
  return cond->op == OP_EQ   ? left == right
         : cond->op == OP_NE ? left != right
         : cond->op == OP_LT ? left < right
         : cond->op == OP_GT ? left > right
         : cond->op == OP_LE ? left <= right
                             : left >= right;
}

/* Whether batches with this item can meet the condition: it may want several items. */
static bool may_hold(const DataSet *data, const Cond *condition, int64_t *symbols) {
  enum { MANY = 1 << 20 };
  symbols[data->request.batch] = 1;
  if (holds(condition, symbols)) return true;
  symbols[data->request.batch] = MANY;
  return holds(condition, symbols);
}

/* What the model requires of sizes and no batch of this item and others like it meets; NULL: all can be met. */
static const Check *broken_check(const DataSet *data, int64_t item) {
  const Graph *graph = data->request.graph;
  int64_t symbols[SIZE_MAX_SYMBOLS] = {0};
  for (uint32_t i = 0; i < data->request.n_inputs; i++)
    if (data->inputs[i].symbol >= 0) symbols[data->inputs[i].symbol] = data->inputs[i].lengths[item];
  for (size_t i = 0; i < graph->checks.n; i++)
    if (!may_hold(data, graph->checks.items[i].condition, symbols)) return &graph->checks.items[i];
  return NULL;
}

static void explain_check(StrBuf *out, const DataSet *data, const Check *check, int64_t item) {
  int64_t symbols[SIZE_MAX_SYMBOLS] = {0}, value;
  symbols[data->request.batch] = 1;
  for (uint32_t i = 0; i < data->request.n_inputs; i++)
    if (data->inputs[i].symbol >= 0) symbols[data->inputs[i].symbol] = data->inputs[i].lengths[item];
  for (size_t i = 0; i < check->message.n; i++) {
    const CheckPart *part = &check->message.items[i];
    if (part->text) strbuf_add(out, part->text);
    if (!part->size || !size_value(part->size, symbols, &value)) continue;
    if (part->named && !size_is_const(part->size, NULL)) {
      size_print(out, data->request.graph->sizes, part->size);
      strbuf_add(out, " = ");
    }
    strbuf_printf(out, "%lld", (long long)value);
  }
}

/* False after an error; *is_kept says whether the item fits. */
static bool judge(const DataSet *data, const char *path, int64_t item, int64_t place, bool *is_kept) {
  const int64_t tokens = data_tokens(data, item), most = data->request.most_tokens;
  const Check *broken = broken_check(data, item);
  *is_kept = !broken && (!most || tokens <= most);
  if (*is_kept || data->request.skips_long) return true;
  StrBuf why = strbuf_new(arena_of(data));
  if (broken)
    explain_check(&why, data, broken, item);
  else
    strbuf_printf(&why, "it has %lld tokens, --batch-tokens is %lld", (long long)tokens, (long long)most);
  diag_error_at(diag_of(data), path, DIAG_INPUT_SHAPE, "item %lld cannot be trained on: %s; --skip-long leaves it out",
                (long long)place, why.text);
  return false;
}

/* Leaves out what does not fit; items keep their order. */
static bool keep_items(DataSet *data) {
  int64_t kept = 0;
  data->places = ARENA_ARRAY(arena_of(data), int64_t, data->n_items + 1);
  for (size_t f = 0; f < data->files.n; f++) {
    const int64_t from = data->firsts.items[f], to = f + 1 < data->files.n ? data->firsts.items[f + 1] : data->n_items;
    data->firsts.items[f] = kept;
    for (int64_t item = from; item < to; item++) {
      bool is_kept;
      if (!judge(data, data->files.items[f]->file.path, item, item - from, &is_kept)) return false;
      data->places[kept] = item;
      for (uint32_t i = 0; i < data->request.n_inputs; i++) {
        data->inputs[i].starts[kept] = data->inputs[i].starts[item];
        data->inputs[i].lengths[kept] = data->inputs[i].lengths[item];
      }
      kept += is_kept;
    }
  }
  data->n_skipped = data->n_items - kept;
  data->n_items = kept;
  data->hash = hash_bytes(data->hash, data->places, (size_t)kept * sizeof *data->places);
  return true;
}

// ---- opening ----

static bool find_padding(DataSet *data) {
  bool good = true;
  for (uint32_t i = 0; i < data->request.n_inputs; i++) {
    DataInput *input = &data->inputs[i];
    good = labels_find_padding(data, input) && good;
    data->hash = hash_bytes(data->hash, &input->padding, sizeof input->padding);
  }
  return good;
}

DataSet *data_open(const DataRequest *request) {
  DataSet *data = ARENA_NEW(request->arena, DataSet);
  *data = (DataSet){.request = *request, .hash = HASH_BEGIN};
  bool good = describe_inputs(data);
  for (size_t i = 0; i < request->n_paths && good; i++) good = data_add_file(data, request->paths[i]);
  good = good && keep_items(data) && find_padding(data);
  if (good && !data->n_items) {
    diag_error_at(request->diag, request->paths[0], DIAG_INPUT_SHAPE, "there is no item to train on%s",
                  data->n_skipped ? ": all were left out" : "");
    good = false;
  }
  if (good) return data;
  data_close(data);
  return NULL;
}

void data_close(DataSet *data) {
  for (size_t i = 0; data && i < data->files.n; i++) tensor_file_close(data->files.items[i]);
}

// ---- batches ----

static size_t file_number(const DataSet *data, int64_t item) {
  size_t f = data->files.n - 1;
  while (data->firsts.items[f] > item) f--;
  return f;
}

static const TensorFile *file_of(const DataSet *data, int64_t item) {
  return data->files.items[file_number(data, item)];
}

int64_t data_place(const DataSet *data, int64_t item, const char **path) {
  const size_t f = file_number(data, item);
  *path = data->files.items[f]->file.path;
  return data->places[item] - data->begins.items[f];
}

static void fill(Tensor *tensor, double value) {
  const int64_t n = tensor_elements(tensor);
  if (value == 0) return; /* memory of an arena is zero */
  for (int64_t i = 0; i < n; i++) {
    if (tensor->dtype == DTYPE_F32) ((float *)tensor->data)[i] = (float)value;
    if (tensor->dtype == DTYPE_I32) ((int32_t *)tensor->data)[i] = (int32_t)value;
    if (tensor->dtype == DTYPE_BOOL) ((uint8_t *)tensor->data)[i] = value != 0;
  }
}

typedef struct BatchItems {
  const int64_t *items;
  int64_t n, longest; /* longest: what they are padded to at least */
} BatchItems;

/* The longest item of those that share the size decides; a size that has its name twice is the same for both. */
static bool read_input(const DataSet *data, const DataInput *input, Arena *arena, BatchItems batch, Tensor *to) {
  const int64_t *items = batch.items, n = batch.n;
  int64_t dims[MAX_RANK] = {n}, longest = batch.longest;
  for (int64_t i = 0; i < n && input->symbol >= 0; i++)
    if (input->lengths[items[i]] > longest) longest = input->lengths[items[i]];
  for (uint32_t axis = 1; axis < input->node->rank; axis++)
    if (!size_is_const(input->node->dims[axis], &dims[axis])) dims[axis] = longest;
  *to = *tensor_new_named(arena, "input", name_of(input), input->node->dtype, input->node->rank, dims);
  fill(to, input->padding);
  const int64_t row = input->symbol >= 0 ? longest * input->numbers : input->numbers;
  for (int64_t i = 0; i < n; i++) {
    const TensorFile *file = file_of(data, items[i]);
    const int64_t places = input->symbol >= 0 ? input->lengths[items[i]] : 1;
    void *at = (char *)to->data + (size_t)(i * row) * dtype_bytes[to->dtype];
    if (places * input->numbers > 0 &&
        !data_read_part(data, file, input, input->starts[items[i]] * input->numbers, places * input->numbers, at))
      return false;
  }
  return true;
}

bool data_batch_padded(const DataSet *data, Arena *arena, const int64_t *items, int64_t n, const int64_t *least,
                       EvalInputs *inputs) {
  const uint32_t n_inputs = data->request.n_inputs;
  const char **names = ARENA_ARRAY(arena, const char *, n_inputs + 1);
  Tensor *tensors = ARENA_ARRAY(arena, Tensor, n_inputs + 1);
  *inputs = (EvalInputs){names, tensors, n_inputs};
  for (uint32_t i = 0; i < n_inputs; i++) {
    names[i] = name_of(&data->inputs[i]);
    const int32_t symbol = data->inputs[i].symbol;
    const BatchItems batch = {items, n, symbol < 0 ? 0 : least[symbol]};
    if (!read_input(data, &data->inputs[i], arena, batch, &tensors[i])) return false;
  }
  return true;
}

bool data_batch(const DataSet *data, Arena *arena, const int64_t *items, int64_t n, EvalInputs *inputs) {
  const int64_t least[SIZE_MAX_SYMBOLS] = {0};
  return data_batch_padded(data, arena, items, n, least, inputs);
}

void data_longest(const DataSet *data, const int64_t *items, int64_t n, uint64_t sizes, int64_t *longest) {
  for (uint32_t k = 0; k < data->request.n_inputs; k++) {
    const DataInput *input = &data->inputs[k];
    if (input->symbol < 0 || !(sizes >> input->symbol & 1)) continue;
    for (int64_t i = 0; i < n; i++) {
      const int64_t length = input->lengths[items ? items[i] : i];
      if (length > longest[input->symbol]) longest[input->symbol] = length;
    }
  }
}
