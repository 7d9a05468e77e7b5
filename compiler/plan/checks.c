/* In: the graph's inputs, outputs and checks. Out: the program's, with conditions in postfix order. */
#include "plan/planner.h"

static tfm_test test_of(OpKind op) {
  switch (op) {
    case OP_NE: return TFM_NE;
    case OP_LT: return TFM_LT;
    case OP_GT: return TFM_GT;
    case OP_LE: return TFM_LE;
    case OP_GE: return TFM_GE;
    default: return TFM_EQ;
  }
}

static void add_condition(Planner *p, const Cond *cond) {
  tfm_condition condition = {0};
  switch (cond->kind) {
    case COND_COMPARE:
      condition = (tfm_condition){(uint8_t)test_of(cond->op), plan_size(p, cond->left), plan_size(p, cond->right)};
      break;
    case COND_NOT:
      add_condition(p, cond->a);
      condition.test = TFM_NOT;
      break;
    default:
      add_condition(p, cond->a);
      add_condition(p, cond->b);
      condition.test = cond->kind == COND_AND ? TFM_AND : TFM_OR;
  }
  vec_push(p->arena, &p->conditions, condition);
}

static void add_part(Planner *p, const CheckPart *part) {
  StrBuf text = strbuf_new(p->arena);
  strbuf_add(&text, part->text ? part->text : "");
  if (part->size && part->named) {
    size_print(&text, p->math.table, part->size);
    strbuf_add(&text, " = ");
  }
  tfm_size value = part->size ? plan_size(p, part->size) : TFM_NONE;
  vec_push(p->arena, &p->parts, (tfm_message_part){text.text, value});
}

void plan_checks(Planner *p) {
  for (size_t i = 0; i < p->graph->checks.n; i++) {
    const Check *check = &p->graph->checks.items[i];
    Node place = {.origin = check->origin};
    tfm_check result = {.first_condition = (uint32_t)p->conditions.n, .first_part = (uint32_t)p->parts.n,
                        .place = plan_place(p, &place)};
    add_condition(p, check->condition);
    for (size_t j = 0; j < check->message.n; j++) add_part(p, &check->message.items[j]);
    result.n_conditions = (uint32_t)p->conditions.n - result.first_condition;
    result.n_parts = (uint32_t)p->parts.n - result.first_part;
    vec_push(p->arena, &p->checks, result);
  }
}

tfm_tensor_info plan_tensor_info(Planner *p, const char *name, const Node *node) {
  StrBuf shape = strbuf_new(p->arena);
  node_print_shape(&shape, p->math.table, node);
  tfm_tensor_info info = {.name = name, .dtype = (uint8_t)node->dtype, .rank = node->rank, .shape = shape.text};
  for (uint32_t i = 0; i < node->rank; i++) info.dims[i] = plan_size(p, node->dims[i]);
  return info;
}
