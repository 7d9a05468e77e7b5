/* In: config.json. Out: what folders are that their type alone does not tell, by the rows of other_forms.def. Refused:
 * folders of a form that is not computed, with one message in place of one for each key that nothing reads. */
#include "import/other_forms.h"

#include <string.h>

typedef struct OtherForm {
  const char *type, *key, *value, *text; /* the cure, or the type of the family */
} OtherForm;

#define OTHER_FORM(type, key, value, cure) {type, key, value, cure},
#define OWN_TYPE(...)
#define OLD_CLASS(...)
static const OtherForm other_forms[] = {
#include "import/other_forms.def"
};

#define OTHER_FORM(...)
#define OWN_TYPE(type, key, value, family) {type, key, value, family},
#define OLD_CLASS(...)
static const OtherForm own_types[] = {
#include "import/other_forms.def"
};

const char *class_of_today(const char *class) {
  static const char *const names[][2] = {
#define OTHER_FORM(...)
#define OWN_TYPE(...)
#define OLD_CLASS(before, today) {before, today},
#include "import/other_forms.def"
  };
  for (size_t i = 0; class && i < sizeof names / sizeof *names; i++)
    if (strcmp(names[i][0], class) == 0) return names[i][1];
  return class;
}

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

bool check_other_forms(Diag *diag, const json_t *config, const char *path) {
  for (size_t i = 0; i < sizeof other_forms / sizeof *other_forms; i++) {
    if (!is_form(&other_forms[i], config)) continue;
    diag_error_at(diag, path, DIAG_CHECKPOINT, "\"%s\": %s", other_forms[i].key, other_forms[i].text);
    return false;
  }
  return true;
}

void take_own_type(json_t *config) {
  for (size_t i = 0; i < sizeof own_types / sizeof *own_types; i++)
    if (is_form(&own_types[i], config)) json_object_set_new(config, "model_type", json_string(own_types[i].text));
}
