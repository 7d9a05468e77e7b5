/* Primitives: the table, read from primitives.def. */
#include "elaborate/primitives.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"

#define PRIMITIVE(name, parameters, function, doc) Value primitive_##function(Elaborator *e, const PrimitiveCall *call);
#include "elaborate/primitives.def"

typedef Value (*PrimitiveFunction)(Elaborator *e, const PrimitiveCall *call);

static const PrimitiveRow rows[] = {
#define PRIMITIVE(name, parameters, function, doc) {#name, parameters, doc},
#include "elaborate/primitives.def"
};

static const PrimitiveFunction functions[] = {
#define PRIMITIVE(name, parameters, function, doc) primitive_##function,
#include "elaborate/primitives.def"
};

const PrimitiveRow *primitive_rows(uint32_t *n) {
  *n = sizeof rows / sizeof *rows;
  return rows;
}

static OpKind op_named(const char *name) {
  int op = 0;
  while (op < N_OPS && strcmp(op_table[op].name, name) != 0) op++;
  return (OpKind)op;
}

/* A default as primitives.def writes it. */
static Value constant(Elaborator *e, const char *text, size_t length) {
  const char *word = map_intern(e->names, text, length);
  if (strcmp(word, "none") == 0) return NONE_VALUE;
  if (strcmp(word, "false") == 0) return value_bool(false);
  if (word[0] == '"') return value_string(arena_strndup(e->arena, word + 1, length - 2));
  double number = strtod(word, NULL);
  return strchr(word, '.') ? value_number(number) : value_integer((int64_t)number);
}

/* One parameter: "x", "x = default" or "xs...". */
static void read_parameter(Elaborator *e, Primitive *p, const char *text, size_t length) {
  size_t name = strcspn(text, " ,.");
  if (name < length && text[name] == '.') {
    p->is_variadic = true;
    return;
  }
  CHECK(p->n_parameters < MAX_PARAMETERS, "too many parameters of %s", p->name);
  p->parameters[p->n_parameters] = map_intern(e->names, text, name);
  size_t value = name + strlen(" = ");
  p->defaults[p->n_parameters++] = name < length ? constant(e, text + value, length - value) : MISSING;
}

static const Primitive *primitive_new(Elaborator *e, size_t row) {
  Primitive *p = ARENA_NEW(e->arena, Primitive);
  p->name = map_intern(e->names, rows[row].name, strlen(rows[row].name));
  p->function = functions[row];
  p->op = op_named(p->name);
  for (const char *text = rows[row].parameters; *text;) {
    size_t length = strcspn(text, ",");
    read_parameter(e, p, text, length);
    text += length + (text[length] ? strlen(", ") : 0);
  }
  return p;
}

void primitives_define(Elaborator *e, Scope *scope) {
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    const Primitive *p = primitive_new(e, i);
    scope_put(e->arena, scope, p->name, (Value){VALUE_PRIMITIVE, {.primitive = p}});
  }
}
