/* RECOMPUTE: values of the forward half that are cheap to compute, or all that a layer computes, are not kept for the
 * backward half, but computed once more in front of it. Comes last, when all that can be fused is.
 *
 * A norm or pointwise work whose value both halves use, such as an activation or its dropout,
 *
 *   %2 = pointwise %1;  %3 = linear %2, ...;  ...  %9 = linear %g, %2
 *
 * is computed again: %9 reads a copy of %2 in front of it, and %2 ends with the forward half.
 *
 * Legal: always; a copy computes the same bits. Refused is what can fail (ids, divisors): its second check would come
 * behind steps that write results.
 * Pays: where what it is computed of is in memory then anyway, a pass over it takes the place of memory that would be
 * held from one half to the other.
 *
 * RECOMPUTE-LAYERS, if asked for: of one call of one copy of a repetition, such as layers.3, only what others read is
 * kept, such as the rows that it hands to layers.4. In front of the first reader of its backward half all else that is
 * read there is computed again from that. It costs up to a second forward half, and the memory of one layer takes the
 * place of all layers'. */
#include <string.h>

#include "passes/match.h"
#include "passes/pass.h"

/* The first and the last node that read the value, through views too, behind `end`; NULL: none does. */
typedef struct Readers {
  Node *first, *last;
} Readers;

static bool is_view(const Node *node) { return op_table[node->op].category == CATEGORY_VIEW; }

static void find_readers(const Node *value, uint32_t end, Readers *readers) {
  for (size_t i = 0; i < value->users.n; i++) {
    Node *user = value->users.items[i];
    if (is_view(user)) {
      find_readers(user, end, readers);
      continue;
    }
    if (user->id <= end) continue;
    if (!readers->first || user->id < readers->first->id) readers->first = user;
    if (!readers->last || user->id > readers->last->id) readers->last = user;
  }
}

/* A second check of ids, or of a divisor, would come behind steps that write results. */
static bool can_fail(Arena *scratch, const Node *node) {
  if (node->op == OP_GATHER || node->op == OP_FLOORDIV || node->op == OP_FLOORMOD) return true;
  if (!node->attr.expr) return false;
  const ExprList list = expr_list(scratch, node->attr.expr);
  for (uint32_t i = 0; i < list.n; i++) {
    const Expr *expr = list.items[i];
    if (expr->kind == EXPR_GATHER) return true;
    if (expr_is_division(expr)) return true;
  }
  return false;
}

/* Whether what the node is computed of is there when `reader` runs, whether the node is computed again or not. */
static bool has_its_inputs(Pass *pass, const Node *node, uint32_t end, const Node *reader) {
  for (size_t i = 0; i < node->inputs.n; i++) {
    const Node *input = node_behind_views(node->inputs.items[i]);
    Readers readers = {0};
    if (input->op == OP_INPUT || match_is_static(pass, input)) continue;
    find_readers(input, end, &readers);
    if (!readers.last || readers.last->id < reader->id) return false;
  }
  return true;
}

static bool is_cheap(Pass *pass, const Node *node) {
  if ((node->op != OP_POINTWISE && node->op != OP_NORM) || node->dtype != DTYPE_F32 || !node->rank) return false;
  if (match_is_static(pass, node)) return false;
  return !graph_is_output(pass->graph, node) && !can_fail(pass->scratch, node);
}

static Node *copy_before(Graph *graph, const Node *node, Node *const *inputs, Node *before) {
  Node *copy = graph_add(graph, before, node->op, node->dtype, node->rank, (const Size *const *)node->dims,
                         (uint32_t)node->inputs.n, inputs, node->origin);
  copy->attr = node->attr;
  copy->id = before->id; /* its place, until all ids are given anew */
  return copy;
}

/* Readers of `value` behind `end` read `copy` instead, through copies of the views between. */
static void lead_over(Graph *graph, Node *value, Node *copy, uint32_t end, Node *before) {
  const size_t n = value->users.n;
  Node **users = arena_copy(graph->arena, value->users.items, n * sizeof *users);
  for (size_t i = 0; i < n; i++) {
    Readers readers = {0};
    if (users[i] == copy) continue;
    if (is_view(users[i])) find_readers(users[i], end, &readers);
    if (readers.first)
      lead_over(graph, users[i], copy_before(graph, users[i], &copy, before), end, before);
    else if (!is_view(users[i]) && users[i]->id > end)
      for (uint32_t k = 0; k < users[i]->inputs.n; k++)
        if (users[i]->inputs.items[k] == value) graph_set_input(users[i], k, copy);
  }
}

// ---- whole layers ----

/* The copy of a repetition in which a value is made, as the length of its path: "a.layers.3" of "a.layers.3.norm1". The
 * outermost one counts. 0: in none. */
static size_t copy_of_repetition(const Node *node) {
  const char *path = node->origin.path;
  for (const char *part = path; *part;) {
    const size_t length = strcspn(part, "."), digits = strspn(part, "0123456789");
    if (digits == length && part > path) return (size_t)(part + length - path);
    part += length + (part[length] == '.');
  }
  return 0;
}

/* The call in which the copy computes the node, with everything inside it. A tower that two inputs go through, or a
 * layer that is applied again and again, has several, whose values have nothing to do with each other. NULL: not
 * known. */
static const Frame *application_of(const Node *node) {
  const size_t length = copy_of_repetition(node);
  const Frame *outermost = NULL;
  for (const Frame *frame = node->origin.frame; frame; frame = frame->caller)
    if (strlen(frame->path) == length && !strncmp(frame->path, node->origin.path, length)) outermost = frame;
  return outermost;
}

static bool in_same_copy(const Node *a, const Node *b) {
  const size_t length = copy_of_repetition(a);
  return length == copy_of_repetition(b) && !strncmp(a->origin.path, b->origin.path, length) &&
         application_of(a) == application_of(b);
}

/* Whether a node of the forward half that belongs to another copy, or to none, reads the value, through views too. */
static bool is_read_outside(const Node *value, const Node *reader_of, uint32_t end) {
  for (size_t i = 0; i < reader_of->users.n; i++) {
    const Node *user = reader_of->users.items[i];
    if (is_view(user) ? is_read_outside(value, user, end) : user->id <= end && !in_same_copy(value, user)) return true;
  }
  return false;
}

typedef struct Layers {
  Pass *pass;
  uint32_t end;
  bool *again;   /* by id: a value that a copy of a repetition can compute again */
  Node **copies; /* by id: what was made of it; NULL: nothing yet */
  Node *before;  /* where copies go */
} Layers;

static bool reads_output(const Graph *graph, const Node *value) {
  if (graph_is_output(graph, value)) return true;
  for (size_t i = 0; i < value->users.n; i++)
    if (is_view(value->users.items[i]) && reads_output(graph, value->users.items[i])) return true;
  return false;
}

static bool can_be_again(const Layers *l, const Node *node) {
  const OpCategory category = op_table[node->op].category;
  if (!copy_of_repetition(node) || category == CATEGORY_VIEW || !node->inputs.n) return false;
  if (match_is_static(l->pass, node) || reads_output(l->pass->graph, node)) return false;
  return !can_fail(l->pass->scratch, node) && !is_read_outside(node, node, l->end);
}

/* The value made again, with all that its layer makes it of; itself if it is kept. */
static Node *again(Layers *l, Node *node) {
  if (node->id > l->end || (!is_view(node) && !l->again[node->id])) return node;
  if (l->copies[node->id]) return l->copies[node->id];
  const uint32_t n = (uint32_t)node->inputs.n;
  Node **inputs = ARENA_ARRAY(l->pass->scratch, Node *, n);
  bool same = is_view(node);
  for (uint32_t i = 0; i < n; i++) {
    inputs[i] = again(l, node->inputs.items[i]);
    same = same && inputs[i] == node->inputs.items[i];
  }
  return l->copies[node->id] = same ? node : copy_before(l->pass->graph, node, inputs, l->before);
}

/* The first reader, behind the forward half, of anything that the copy of `node` makes again; NULL: there is none. */
static Node *first_reader_of_copy(const Layers *l, Node *node) {
  Node *first = NULL;
  for (Node *other = node; other && other->id <= l->end; other = other->next) {
    Readers readers = {0};
    if (!l->again[other->id] || !in_same_copy(node, other)) continue;
    find_readers(other, l->end, &readers);
    if (readers.first && (!first || readers.first->id < first->id)) first = readers.first;
  }
  return first;
}

/* `node` is the first of its copy. */
static bool make_copy_again(Layers *l, Node *node) {
  bool changed = false;
  l->before = first_reader_of_copy(l, node);
  for (Node *other = node; l->before && other && other->id <= l->end; other = other->next) {
    Readers readers = {0};
    if (!l->again[other->id] || !in_same_copy(node, other)) continue;
    find_readers(other, l->end, &readers);
    if (!readers.first) continue;
    lead_over(l->pass->graph, other, again(l, other), l->end, l->before);
    changed = true;
  }
  return changed;
}

bool pass_recompute_layers(Pass *pass) {
  Layers l = {.pass = pass, .end = match_end_of_forward(pass->graph)};
  const Node *done = NULL; /* the first of the copy that was last looked at */
  bool changed = false;
  if (!l.end) return false;
  l.again = ARENA_ARRAY(pass->scratch, bool, l.end + 1);
  l.copies = ARENA_ARRAY(pass->scratch, Node *, l.end + 1);
  for (Node *node = pass->graph->first; node && node->id <= l.end; node = node->next)
    l.again[node->id] = can_be_again(&l, node);
  for (Node *node = pass->graph->first; node && node->id <= l.end; node = node->next) {
    if (!l.again[node->id] || (done && in_same_copy(done, node))) continue;
    done = node;
    changed |= make_copy_again(&l, node);
  }
  if (changed) graph_renumber(pass->graph);
  return changed;
}

// ---- what is cheap ----

bool pass_recompute(Pass *pass) {
  const uint32_t end = match_end_of_forward(pass->graph);
  bool changed = false;
  for (Node *node = pass->graph->first; node && node->id <= end && end; node = node->next) {
    Readers readers = {0};
    if (!is_cheap(pass, node)) continue;
    find_readers(node, end, &readers);
    if (!readers.first || !has_its_inputs(pass, node, end, readers.first)) continue;
    Node *copy = copy_before(pass->graph, node, node->inputs.items, readers.first);
    lead_over(pass->graph, node, copy, end, readers.first);
    changed = true;
  }
  if (changed) graph_renumber(pass->graph);
  return changed;
}
