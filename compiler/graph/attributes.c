/* The tables of attributes.def. */
#include "graph/attributes.h"

const char *const attribute_names[N_ATTRIBUTES] = {
#define ATTRIBUTE(Enum, text, operations) [ATTRIBUTE_##Enum] = text,
#include "graph/attributes.def"
};

bool op_has_attribute(OpKind op, Attribute attribute) {
#define IS(Enum) (op == OP_##Enum)
  const bool has[N_ATTRIBUTES] = {
#define ATTRIBUTE(Enum, text, operations) [ATTRIBUTE_##Enum] = operations,
#include "graph/attributes.def"
  };
#undef IS
  return has[attribute];
}
