/* Values of JSON in words. See value_text.h. */
#include "import/value_text.h"

#include <math.h>

#include "import/json_file.h"

const char *value_kind(const json_t *value) {
  switch (json_typeof(value)) {
    case JSON_OBJECT:
      return json_infinity(value) ? "an infinite number" : "an object";
    case JSON_ARRAY:
      return "a list";
    case JSON_STRING:
      return "a string";
    case JSON_INTEGER:
      return "a whole number";
    case JSON_REAL:
      return "a number";
    case JSON_NULL:
      return "null";
    default:
      return "true or false";
  }
}

void value_print(StrBuf *out, const json_t *value) {
  size_t i;
  json_t *item;
  switch (json_typeof(value)) {
    case JSON_NULL:
      strbuf_add(out, "none");
      break;
    case JSON_TRUE:
      strbuf_add(out, "true");
      break;
    case JSON_FALSE:
      strbuf_add(out, "false");
      break;
    case JSON_INTEGER:
      strbuf_printf(out, "%lld", (long long)json_integer_value(value));
      break;
    case JSON_REAL: /* 10000.0, as people write it, not 1e+04 */
      if (fabs(json_real_value(value)) < 1e9 && json_real_value(value) == floor(json_real_value(value)))
        strbuf_printf(out, "%lld.0", (long long)json_real_value(value));
      else
        number_add(out, json_real_value(value));
      break;
    case JSON_STRING:
      strbuf_add_quoted(out, json_string_value(value));
      break;
    case JSON_OBJECT:
      strbuf_add(out, json_infinity(value) > 0 ? "inf" : json_infinity(value) < 0 ? "-inf" : "{...}");
      break;
    case JSON_ARRAY:
      strbuf_add_char(out, '[');
      json_array_foreach(value, i, item) {
        if (i) strbuf_add(out, ", ");
        value_print(out, item);
      }
      strbuf_add_char(out, ']');
  }
}
