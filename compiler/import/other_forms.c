/* Models that other folders have in a form that is read. See other_forms.h. */
#include "import/other_forms.h"

#include <string.h>

typedef struct OtherForm {
  const char *type, *key, *value, *cure;
} OtherForm;

static const OtherForm other_forms[] = {
#define OTHER_FORM(type, key, value, cure) {type, key, value, cure},
#include "import/other_forms.def"
};

static bool says_nothing(const json_t *value) {
  return !value || json_is_null(value) || json_is_false(value) ||
         (json_is_number(value) && json_number_value(value) == 0);
}

static bool is_form(const OtherForm *form, const json_t *config) {
  const char *type = json_string_value(json_object_get(config, "model_type"));
  const json_t *value = json_object_get(config, form->key);
  if (!type || strcmp(type, form->type) != 0 || says_nothing(value)) return false;
  if (!*form->value) return true;
  json_t *wanted = json_loads(form->value, JSON_DECODE_ANY, NULL);
  bool is_equal = wanted && json_equal(wanted, json_is_array(value) ? json_array_get(value, 0) : value);
  json_decref(wanted);
  return is_equal;
}

bool other_forms_check(Diag *diag, const json_t *config, const char *path) {
  for (size_t i = 0; i < sizeof other_forms / sizeof *other_forms; i++) {
    if (!is_form(&other_forms[i], config)) continue;
    diag_error_at(diag, path, DIAG_CHECKPOINT, "\"%s\": %s", other_forms[i].key, other_forms[i].cure);
    return false;
  }
  return true;
}
